//! Why an archive cannot be used, with the file that is to blame.

use std::io;

/// Cause of a failure, and its file.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot {action} {name}: {reason}")]
    Store {
        /// "read", "write", "list" or "remove".
        action: &'static str,
        name: String,
        reason: io::Error,
    },
    /// A file is not what was written.
    #[error("{name} is damaged: {reason}")]
    Damaged {
        name: String,
        /// Reason why it is invalid.
        reason: String,
    },
    /// A file is not there.
    #[error("{name} is missing")]
    Missing { name: String },
    /// A file is there that this writer was to write.
    #[error("{0} is there already: another program writes to the archive")]
    Contended(String),
    /// The place has no archive.
    #[error("there is no archive: {0} is missing")]
    NoArchive(&'static str),
    /// The place has other files.
    #[error("the place has other files than an archive's, such as {0}; nothing was changed")]
    Foreign(String),
    /// The archive's version is newer, or it is not the key's.
    #[error("{0}")]
    Unusable(String),
    /// There is no such backup.
    #[error("there is no backup {0}")]
    Unknown(String),
}

impl ArchiveError {
    /// An error for a file that is not what was written.
    pub(crate) fn damaged(name: &str, reason: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged { name: name.to_owned(), reason: reason.into() }
    }
}
