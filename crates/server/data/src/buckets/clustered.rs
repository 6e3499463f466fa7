//! The registry, as the cluster sees it.
//!
//! Owns: the implementation of the cluster's interface over [`Buckets`]. Callers: the cluster's
//! agent and the node's lease.

use std::sync::Arc;

use oribi_cluster::buckets::{BucketFailure, ClusterBuckets, SharedBucket};
use oribi_cluster::copies::VbucketCopies;
use oribi_config::BucketStorage;
use oribi_engine::Bucket;
use oribi_storage::StoreError;

use super::storage::remove_shared;
use super::{BucketError, BucketHandle, BucketOptions, Buckets};

/// See the module text.
pub struct ClusteredBuckets {
    buckets: Arc<Buckets>,
    /// Options of buckets that other nodes have created.
    options: BucketOptions,
}

impl ClusteredBuckets {
    pub fn new(buckets: Arc<Buckets>, options: BucketOptions) -> ClusteredBuckets {
        // The cluster opens buckets in the background and tries again.
        ClusteredBuckets { buckets, options: BucketOptions { waits_for_store: false, ..options } }
    }

    fn handles(&self) -> impl Iterator<Item = Arc<BucketHandle>> {
        self.buckets.list().into_iter().filter(|handle| handle.is_shared())
    }
}

impl SharedBucket for BucketHandle {
    fn bucket(&self) -> &Arc<Bucket> {
        BucketHandle::bucket(self)
    }

    fn storage(&self) -> &BucketStorage {
        BucketHandle::storage(self)
    }

    fn copies(&self) -> Option<&dyn VbucketCopies> {
        BucketHandle::copies(self).map(|copies| copies as &dyn VbucketCopies)
    }

    fn is_deleted(&self) -> bool {
        BucketHandle::is_deleted(self)
    }
}

impl ClusterBuckets for ClusteredBuckets {
    fn shared(&self) -> Vec<Arc<dyn SharedBucket>> {
        self.handles().map(|handle| handle as Arc<dyn SharedBucket>).collect()
    }

    fn is_open(&self, name: &str) -> bool {
        self.buckets.get(name).is_some()
    }

    fn settings_text(&self, name: &str) -> Result<Vec<u8>, BucketFailure> {
        Ok(self.buckets.settings_text(name)?)
    }

    fn open(&self, name: &str, settings: &[u8]) -> Result<(), BucketFailure> {
        self.buckets.adopt(name, settings, &self.options)?;
        Ok(())
    }

    fn apply_settings(&self, name: &str, settings: &[u8]) -> Result<bool, BucketFailure> {
        Ok(self.buckets.apply_settings(name, settings)?)
    }

    fn store_settings(&self, name: &str, settings: &[u8]) -> Result<(), BucketFailure> {
        Ok(self.buckets.store_settings(name, settings)?)
    }

    fn close(&self, uuid: &str) -> Result<(), BucketFailure> {
        match self.handles().find(|handle| handle.bucket().config().uuid == uuid) {
            Some(handle) => match self.buckets.forget(&handle) {
                // Another thread was faster, and has closed the bucket by now.
                Err(BucketError::Unknown(_)) => Ok(()),
                closed => Ok(closed?),
            },
            None => {
                // Another thread may be closing it.
                self.buckets.wait_for_changes();
                Ok(())
            }
        }
    }

    fn remove_data(&self, storage: &BucketStorage, id: &str) -> Result<(), StoreError> {
        remove_shared(storage, id)
    }
}
