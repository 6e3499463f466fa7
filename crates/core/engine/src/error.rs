//! Why something that was asked of a whole bucket was not done.
//!
//! Owns: one enum for each such request. What refuses an operation on a document is an outcome
//! (`outcome.rs`).

use oribi_storage::StoreError;

use crate::collections::ManifestError;

/// Why a bucket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BucketOpenError {
    /// The configuration is not possible.
    #[error("bucket configuration: {0}")]
    Config(String),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored manifest could not be read.
    #[error("stored collections manifest: {0}")]
    Manifest(ManifestError),
}

/// Why a manifest was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestUpdateError {
    /// The change is not possible.
    #[error("{0}")]
    Change(ManifestError),
    /// The new manifest could not be made durable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a bucket was not emptied.
#[derive(Debug, thiserror::Error)]
pub enum FlushAllError {
    /// The bucket's settings do not allow it.
    #[error("flush is disabled for this bucket")]
    Disabled,
    /// Some of it belongs to other nodes.
    #[error("a part of the bucket belongs to other nodes")]
    NotAllHere,
    /// Documents are still being loaded.
    #[error("the bucket is warming up")]
    WarmingUp,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FlushAllError {
    /// True when nothing was removed.
    pub fn was_refused(&self) -> bool {
        !matches!(self, FlushAllError::Store(_))
    }
}
