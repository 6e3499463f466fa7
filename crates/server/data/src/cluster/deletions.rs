//! Removal of the remains of deleted buckets from their stores.
//!
//! Owns: that removal, even if the node that deleted the bucket died, could not reach the store, or
//! never learned that etcd had accepted the deletion. `c/deleted/UUID` names the remains until they
//! are gone. Invariant: remains of two buckets never have the same id. So removing them twice, or
//! after the bucket's name was reused, does no harm. The leading node removes them, in the
//! background.

use std::sync::Arc;
use std::time::Duration;

use super::agent::{Agent, View, understood};
use super::etcd::{Change, Condition, Etcd, EtcdError, KeyValue};
use super::records::Remains;

/// Pause after an attempt that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

impl Agent {
    /// Starts to remove the remains of deleted buckets.
    pub(super) fn remove_remains(&mut self, view: &View) {
        for entry in view.deleted.values().filter(|entry| !entry.value.is_empty()) {
            // This key cannot collide with a bucket name.
            if self.changing.contains_key(&entry.key) {
                continue;
            }
            let Some(remains) = understood::<Remains>(entry) else { continue };
            let removal = remove(Arc::clone(&self.etcd), self.limit(), remains, entry.clone());
            self.changing.insert(entry.key.clone(), tokio::spawn(removal));
        }
    }
}

async fn remove(etcd: Arc<Etcd>, limit: Duration, remains: Remains, entry: KeyValue) {
    let Remains { bucket, storage, id } = remains;
    let removed =
        tokio::task::spawn_blocking(move || crate::buckets::remove_shared(&storage, &id)).await;
    match removed {
        Ok(Ok(())) => {
            if let Err(error) = note_gone(&etcd, limit, entry).await {
                tracing::debug!(bucket, %error, "that nothing is left is not noted yet");
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(bucket, %error, "documents of a deleted bucket could not be removed yet");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Err(_) => tracing::error!(bucket, "a thread that removed a bucket's documents panicked"),
    }
}

async fn note_gone(etcd: &Etcd, limit: Duration, entry: KeyValue) -> Result<(), EtcdError> {
    let unchanged = [Condition::Unchanged(entry.key.clone(), entry.mod_revision)];
    etcd.transact(&unchanged, &[Change::Put(entry.key, Vec::new(), 0)], limit).await.map(drop)
}
