//! Errors of opening, creating, changing and removing buckets.
//!
//! Owns: the error and its texts, which name the bucket or the path. The admin HTTP maps each error
//! to a status.

use std::io;
use std::path::Path;

use oribi_engine::BucketOpenError;
use oribi_storage::StoreError;

use oribi_system::data_file::DataFileError;

/// Why a bucket could not be opened, created, changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The name is not a valid bucket name.
    #[error("{0:?} is not a bucket name")]
    BadName(String),
    /// A bucket of this name exists already.
    #[error("bucket {0:?} exists already")]
    Exists(String),
    /// No bucket has this name.
    #[error("there is no bucket {0:?}")]
    Unknown(String),
    /// An eviction policy that the bucket's storage does not support.
    #[error("bucket {name:?}: eviction {policy:?} does not go with its storage")]
    Eviction { name: String, policy: &'static str },
    /// A minimum durability that asks for the store of a bucket in memory.
    #[error("bucket {name:?}: it is in memory, so its minimum durability cannot be {level}")]
    Durability { name: String, level: &'static str },
    /// Only a bucket with copies has a number of them.
    #[error("bucket {0:?}: the nodes of the cluster have no copies of it")]
    Alone(String),
    /// A file or directory of the bucket failed, or its settings cannot be parsed.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// The operating system refused to start the bucket's threads.
    #[error("bucket {name:?}: cannot start its threads: {error}")]
    Threads {
        name: String,
        /// The error of the operating system.
        error: io::Error,
    },
    #[error("bucket {name:?}: {error}")]
    Store {
        name: String,
        /// The error of the store.
        error: StoreError,
    },
    /// The other nodes could not be notified.
    #[error("bucket {name:?}: {error}")]
    Cluster {
        name: String,
        /// The error of the cluster's agreement.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("bucket {name:?}: {error}")]
    Open {
        name: String,
        /// The error of the engine.
        error: BucketOpenError,
    },
}

/// The error of a file or directory.
pub(super) fn io_error(action: &'static str, path: &Path, error: io::Error) -> BucketError {
    DataFileError::io(action, path, error).into()
}
