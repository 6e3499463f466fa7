//! The buckets of a node, as the cluster sees them.
//!
//! Owns: the interface that the server's registry of buckets implements. The cluster moves vbuckets
//! of shared buckets by the engine's bucket; only the registry knows names, files and stores.

use std::error::Error;
use std::sync::Arc;

use oribi_config::BucketStorage;
use oribi_engine::Bucket;
use oribi_storage::StoreError;

use crate::copies::VbucketCopies;

/// Why the registry could not open, describe or close a bucket. The text names the bucket.
pub type BucketFailure = Box<dyn Error + Send + Sync>;

/// An open bucket that several nodes have: on a store that they share, or in copies.
pub trait SharedBucket: Send + Sync {
    fn bucket(&self) -> &Arc<Bucket>;

    /// Where documents are kept.
    fn storage(&self) -> &BucketStorage;

    /// The copies of its vbuckets on this node, where nodes copy them to each other.
    fn copies(&self) -> Option<&dyn VbucketCopies> {
        None
    }

    /// True once the bucket is being closed for good.
    fn is_deleted(&self) -> bool;

    fn name(&self) -> &str {
        &self.bucket().config().name
    }

    /// The bucket's uuid: the id of its store, where the store has one.
    fn uuid(&self) -> &str {
        &self.bucket().config().uuid
    }
}

/// The registry of a node's buckets.
pub trait ClusterBuckets: Send + Sync {
    /// Open buckets that take part.
    fn shared(&self) -> Vec<Arc<dyn SharedBucket>>;

    /// True when a bucket of this name is open, shared or not.
    fn is_open(&self, name: &str) -> bool;

    /// The settings of a bucket, for the other nodes.
    ///
    /// # Errors
    /// An unknown name, or an I/O error.
    fn settings_text(&self, name: &str) -> Result<Vec<u8>, BucketFailure>;

    /// Opens a bucket that another node has created, with the settings it has there. Blocks.
    ///
    /// # Errors
    /// Settings that this version cannot read, a taken name, or an error of the store.
    fn open(&self, name: &str, settings: &[u8]) -> Result<(), BucketFailure>;

    /// Puts settings on which the cluster has agreed in force; true when some are new. Does not
    /// block.
    ///
    /// # Errors
    /// Settings that this version, or the bucket here, cannot have; nothing changes then.
    fn apply_settings(&self, name: &str, settings: &[u8]) -> Result<bool, BucketFailure>;

    /// Stores such settings for the next start. Blocks.
    ///
    /// # Errors
    /// An I/O error.
    fn store_settings(&self, name: &str, settings: &[u8]) -> Result<(), BucketFailure>;

    /// Closes the shared bucket of this uuid and removes its settings; its documents remain. `Ok`
    /// when it is closed already. Blocks until its threads have ended.
    ///
    /// # Errors
    /// An I/O error.
    fn close(&self, uuid: &str) -> Result<(), BucketFailure>;

    /// Removes the data of a deleted bucket by the id that its store assigned. Blocks.
    ///
    /// # Errors
    /// An error of the store.
    fn remove_data(&self, storage: &BucketStorage, id: &str) -> Result<(), StoreError>;
}
