//! The copies of this node that follow others, and the interface by which they begin and end to.
//!
//! Owns: the list of them. Invariants: a vbucket of a bucket follows one node at a time; after
//! [`ReplicationLinks::stop`] no stream changes the copy, so its role may change.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_types::Vbid;
use parking_lot::Mutex;

use super::followed_copy::{FollowedCopy, ReplicaSource, ReplicaStatus};
use crate::buckets::BucketHandle;

/// Uuid of the bucket, and the vbucket.
type CopyKey = (String, Vbid);

/// See the module text.
#[derive(Default)]
pub struct ReplicationLinks {
    copies: Mutex<BTreeMap<CopyKey, Arc<FollowedCopy>>>,
}

impl ReplicationLinks {
    /// Makes a replica follow the active copy that `source` has in its epoch, until
    /// [`ReplicationLinks::stop`]. May be repeated; another source or epoch replaces the former
    /// one. The vbucket is a replica by then, and nothing else follows for it at the same time. Does not
    /// wait for the connection, only for a change of the copy under way.
    pub fn follow(&self, bucket: &Arc<BucketHandle>, vbid: Vbid, source: ReplicaSource) {
        let key = (bucket.bucket().config().uuid.clone(), vbid);
        let before = self.copies.lock().get(&key).cloned();
        if let Some(before) = before {
            if before.source == source && !before.is_stopped() {
                return;
            }
            // Both would change the copy otherwise.
            before.stop();
        }
        let copy = Arc::new(FollowedCopy::new(bucket, vbid, source));
        if let Some(overtaken) = self.copies.lock().insert(key, copy) {
            overtaken.stop();
        }
    }

    /// Ends what [`ReplicationLinks::follow`] began. When this returns, no stream changes the copy.
    /// Waits for the change under way, which may wait for the store. May be repeated.
    pub fn stop(&self, bucket_uuid: &str, vbid: Vbid) {
        let stopped = self.copies.lock().remove(&(bucket_uuid.to_owned(), vbid));
        if let Some(copy) = stopped {
            copy.stop();
        }
    }

    /// As [`ReplicationLinks::stop`], for all vbuckets of a bucket.
    pub fn stop_bucket(&self, bucket_uuid: &str) {
        let mut stopped = Vec::new();
        self.copies.lock().retain(|(uuid, _), copy| {
            let stays = uuid != bucket_uuid;
            if !stays {
                stopped.push(Arc::clone(copy));
            }
            stays
        });
        stopped.iter().for_each(|copy| copy.stop());
    }

    /// The copies of a bucket that follow, by vbucket.
    pub fn status(&self, bucket_uuid: &str) -> Vec<ReplicaStatus> {
        let copies: Vec<Arc<FollowedCopy>> = {
            let copies = self.copies.lock();
            let of_bucket = copies.iter().filter(|((uuid, _), _)| uuid == bucket_uuid);
            of_bucket.map(|(_, copy)| Arc::clone(copy)).collect()
        };
        copies.iter().map(|copy| copy.status()).collect()
    }
}

#[cfg(test)]
mod tests;
