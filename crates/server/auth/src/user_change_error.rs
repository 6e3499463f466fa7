//! Why a change of users fails.

use super::user_file::UserFileError;

/// Why a user was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UserChangeError {
    /// There is no user of this name.
    #[error("there is no such user")]
    Unknown,
    /// Part of the change is not possible.
    #[error("{field}: {message}")]
    Refused {
        /// Name of the part, as in the form; `_` for the change as a whole.
        field: &'static str,
        message: String,
    },
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] UserFileError),
    /// The nodes of the cluster cannot agree on the change now.
    #[error("the nodes of a cluster share their users, and {0}")]
    Cluster(String),
}
