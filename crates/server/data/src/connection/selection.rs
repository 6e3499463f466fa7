//! The bucket that a connection has selected, and what belongs to that choice.
//!
//! Invariants:
//! - bucket and operation counters are selected together;
//! - a new selection forgets which versions of the cluster configuration the client has.

use std::sync::Arc;

use oribi_auth::Identity;
use oribi_types::CollectionId;

use crate::buckets::{BucketHandle, MemcachedPlace};
use crate::cluster_config::ConfigDocumentVersion;
use crate::diagnostics::counters::bucket::SelectedOperations;
use crate::diagnostics::counters::collections::CollectionCounters;

/// Never the id of a collection: ids ascend, and none gets this far.
const NO_COLLECTION: CollectionId = CollectionId(u32::MAX);

struct SelectedBucket {
    handle: Arc<BucketHandle>,
    /// This worker's counters for the bucket.
    operations: SelectedOperations,
}

/// See the module text.
pub(crate) struct BucketSelection {
    selected: Option<SelectedBucket>,
    /// Collection of keys that name none.
    collection: CollectionId,
    /// Version of the cluster configuration last sent on request.
    config_sent: ConfigDocumentVersion,
    /// Version last pushed to the client.
    config_pushed: ConfigDocumentVersion,
}

impl BucketSelection {
    /// Selects a bucket for a connection of `worker`, or none.
    pub fn new(bucket: Option<Arc<BucketHandle>>, worker: usize) -> BucketSelection {
        let selected = bucket.map(|handle| {
            let operations = SelectedOperations::new(handle.operations().worker(worker));
            SelectedBucket { handle, operations }
        });
        BucketSelection {
            selected,
            collection: CollectionId::DEFAULT,
            config_sent: ConfigDocumentVersion::default(),
            config_pushed: ConfigDocumentVersion::default(),
        }
    }

    #[inline]
    pub fn bucket(&self) -> Option<&Arc<BucketHandle>> {
        self.selected.as_ref().map(|selected| &selected.handle)
    }

    #[inline]
    pub fn operations(&self) -> Option<&SelectedOperations> {
        self.selected.as_ref().map(|selected| &selected.operations)
    }

    /// Counters of a collection of the selected bucket.
    #[inline]
    pub fn collection_counters(&mut self, id: CollectionId) -> Option<&CollectionCounters> {
        let SelectedBucket { handle, operations } = self.selected.as_mut()?;
        Some(operations.collection(id, || handle.bucket().manifest()))
    }

    /// Collection of keys that name none.
    #[inline]
    pub fn collection(&self) -> CollectionId {
        self.collection
    }

    /// Looks up the collection of a memcached client by name. A missing collection is replaced by
    /// no other.
    pub fn find_collection(&mut self, place: &MemcachedPlace, user: Option<&Identity>) {
        let path = user.and_then(|user| place.collection_of(user));
        self.collection = match (path, self.bucket()) {
            (Some(path), Some(bucket)) => {
                let manifest = bucket.bucket().manifest();
                manifest.collection_id(&path.scope, &path.collection).unwrap_or(NO_COLLECTION)
            }
            _ => CollectionId::DEFAULT,
        };
    }

    /// Version of the cluster configuration last sent on request.
    pub fn config_sent(&self) -> ConfigDocumentVersion {
        self.config_sent
    }

    pub fn note_config_sent(&mut self, version: ConfigDocumentVersion) {
        self.config_sent = version;
    }

    /// Version of the cluster configuration last pushed.
    pub fn config_pushed(&self) -> ConfigDocumentVersion {
        self.config_pushed
    }

    pub fn note_config_pushed(&mut self, version: ConfigDocumentVersion) {
        assert!(version > self.config_pushed, "each version is pushed once, in order");
        self.config_pushed = version;
    }
}
