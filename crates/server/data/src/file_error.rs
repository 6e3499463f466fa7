//! Why a file of the data directory cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// See the module text.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The content is not in the format of this version.
    #[error("{path} cannot be used: {detail}; nothing was changed")]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}: {error}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl FileError {
    pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> FileError {
        FileError::Corrupt { path: path.to_owned(), detail: detail.into() }
    }

    pub(crate) fn io(action: &'static str, path: &Path, error: io::Error) -> FileError {
        FileError::Io { action, path: path.to_owned(), error }
    }
}
