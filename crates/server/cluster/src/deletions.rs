//! Removal of the remains of deleted buckets from their stores.
//!
//! Owns: that removal, even if the node that deleted the bucket died, could not reach the store, or
//! never learned that etcd had accepted the deletion. `c/deleted/UUID` names the remains until they
//! are gone. Invariant: remains of two buckets never have the same id. So removing them twice, or
//! after the bucket's name was reused, does no harm. The leading node removes them, in the
//! background.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementError, AgreementRecord, RecordChange, RecordComparison, Sessions};
use crate::buckets::ClusterBuckets;
use crate::records::BucketRemains;

/// Pause after an attempt that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

impl Agent {
    /// Starts to remove the remains of deleted buckets.
    pub(crate) fn remove_remains(&mut self, view: &ClusterView) {
        for (uuid, entry) in view.deleted.iter().filter(|(_, entry)| !entry.value.is_empty()) {
            // Some node may have the bucket open. Its keys end with its lease at the latest.
            if view.held.keys().any(|held| held.uuid == *uuid) {
                continue;
            }
            // This key cannot collide with a bucket name.
            if self.changing.contains_key(&entry.key) {
                continue;
            }
            let Some(remains) = understood::<BucketRemains>(entry) else { continue };
            let services = (Arc::clone(&self.agreement), Arc::clone(&self.buckets));
            let removal = remove(services, self.limit(), remains, entry.clone());
            let running = self.changing.insert(entry.key.clone(), tokio::spawn(removal));
            assert!(running.is_none(), "one task removes the remains of a bucket");
        }
    }
}

async fn remove(
    (agreement, buckets): (Arc<dyn Sessions>, Arc<dyn ClusterBuckets>),
    limit: Duration,
    remains: BucketRemains,
    entry: AgreementRecord,
) {
    let BucketRemains { bucket, storage, id } = remains;
    let removed = tokio::task::spawn_blocking(move || buckets.remove_data(&storage, &id)).await;
    match removed {
        Ok(Ok(())) => {
            if let Err(error) = note_gone(&*agreement, limit, entry).await {
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

async fn note_gone(
    agreement: &dyn Sessions,
    limit: Duration,
    entry: AgreementRecord,
) -> Result<(), AgreementError> {
    let unchanged = [RecordComparison::ModifiedAt(entry.key.clone(), entry.mod_revision)];
    let done = [RecordChange::put(entry.key, Vec::new())];
    agreement.transact(&unchanged, &done, limit).await.map(drop)
}
