//! Small files of the data directory: replaced atomically, and the reasons why one is unusable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Suffix of a temporary file; a crash may leave it behind, and the next write replaces it.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// Why a file of the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFileError {
    /// The content is not in the format of this version.
    #[error("{path} cannot be used: {detail}; nothing was changed")]
    Corrupt {
        path: PathBuf,
        /// Reason why it is invalid.
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

impl DataFileError {
    /// The file at `path` is not in the format of this version.
    pub fn corrupt(path: &Path, detail: impl Into<String>) -> DataFileError {
        DataFileError::Corrupt { path: path.to_owned(), detail: detail.into() }
    }

    /// The operating system refused `action` on `path`.
    pub fn io(action: &'static str, path: &Path, error: io::Error) -> DataFileError {
        DataFileError::Io { action, path: path.to_owned(), error }
    }
}

/// Replaces a file's content so that a crash leaves either the old or the new content. The new
/// content is on disk when this returns. `mode` is the permission of the file.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY_SUFFIX);
    let temporary = PathBuf::from(temporary);
    // A leftover file could have other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_writes_replace_content_and_set_the_mode() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("f");
        write_atomically(&path, b"one", 0o644).unwrap();
        write_atomically(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
