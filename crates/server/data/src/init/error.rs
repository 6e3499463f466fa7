//! Why an initial state could not be made.
//!
//! Owns: the error and its texts, which name the file, the user, the bucket or the document.
//! Callers: all parts of [`super`].

use std::path::{Path, PathBuf};

use oribi_auth::UserFileError;
use oribi_engine::ManifestUpdateError;
use oribi_system::data_file::DataFileError;

use crate::buckets::BucketError;

/// Why the initial state could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// The users cannot be read.
    #[error(transparent)]
    Users(#[from] UserFileError),
    /// The file of `--init` says what cannot be.
    #[error("{path}: {detail}")]
    Invalid {
        path: PathBuf,
        /// Reason why it is invalid.
        detail: String,
    },
    /// The settings of the administrator are incomplete.
    #[error("{0}")]
    Administrator(String),
    /// A user cannot be made.
    #[error("user {name:?}: {detail}")]
    User {
        /// Name of the user.
        name: String,
        detail: String,
    },
    /// A bucket cannot be made or changed.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A setting of an existing bucket that cannot change.
    #[error(
        "{path}: bucket {bucket:?} exists with {setting} {present}, which cannot become {wanted}: \
         delete the bucket, or change the file"
    )]
    Fixed {
        path: PathBuf,
        /// Name of the bucket.
        bucket: String,
        /// Name of the setting.
        setting: &'static str,
        /// The value of the bucket.
        present: String,
        /// The value in the file.
        wanted: String,
    },
    /// A scope or collection cannot be made.
    #[error("bucket {bucket:?}: collection {collection:?}: {error}")]
    Collection {
        /// Name of the bucket.
        bucket: String,
        /// `SCOPE.COLLECTION`, or the name of a scope.
        collection: String,
        error: ManifestUpdateError,
    },
    /// A document cannot be written.
    #[error("bucket {bucket:?}: document {key:?}: {detail}")]
    Document {
        /// Name of the bucket.
        bucket: String,
        key: String,
        detail: String,
    },
}

/// An invalid entry of a file.
pub(super) fn invalid(path: &Path, detail: String) -> InitError {
    InitError::Invalid { path: path.to_owned(), detail }
}
