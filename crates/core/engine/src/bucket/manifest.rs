//! How the collections manifest of a bucket changes.
//!
//! Owns: the order of writing a manifest, announcing it to the vbuckets' histories
//! ([`super::events`]) and putting it in force. A change made on this node is durable first. A
//! manifest that the cluster agreed on is in force at once and written later. Called by the
//! collection commands and the cluster.

use std::sync::Arc;

use oribi_storage::{KvStore, StoreError};

use super::Bucket;
use crate::collections::{BucketManifest, ManifestChange};
use crate::error::{BucketOpenError, ManifestUpdateError};
use crate::failure::StoreOperation;

/// Name of the manifest among the store's local documents.
const MANIFEST: &str = "manifest";

/// The manifest that a store has, or the first one.
pub(super) fn stored_manifest(store: &dyn KvStore) -> Result<BucketManifest, BucketOpenError> {
    match store.get_local(MANIFEST)? {
        None => Ok(BucketManifest::initial()),
        Some(bytes) => BucketManifest::from_stored_bytes(&bytes).map_err(BucketOpenError::Manifest),
    }
}

impl Bucket {
    /// The current collections manifest.
    pub fn manifest(&self) -> Arc<BucketManifest> {
        self.core.collections().manifest()
    }

    /// Changes the manifest; the change is durable and in force when this returns. Documents of
    /// dropped collections are unreachable from then on; the flusher purges them.
    pub fn update_manifest(
        &self,
        change: &ManifestChange,
    ) -> Result<Arc<BucketManifest>, ManifestUpdateError> {
        let next = |before: &BucketManifest| {
            let after = before.apply(change).map_err(ManifestUpdateError::Change)?;
            self.write_manifest(&after)?;
            Ok(Some(after))
        };
        self.core.collections().change(self.core.signals().first(), next, |before, after| {
            self.add_events_of(before, after);
        })
    }

    /// Puts a manifest in force that the cluster agreed on, unless the current one is as new.
    /// Returns the one in force after that. Does not wait for the store.
    ///
    /// # Errors
    /// The manifest cannot be read.
    pub fn install_manifest(
        &self,
        stored_json: &str,
    ) -> Result<Arc<BucketManifest>, ManifestUpdateError> {
        let after =
            BucketManifest::from_stored_json(stored_json).map_err(ManifestUpdateError::Change)?;
        let next = |before: &BucketManifest| Ok((after.uid() > before.uid()).then_some(after));
        self.core.collections().change(self.core.signals().first(), next, |before, after| {
            self.add_events_of(before, after);
        })
    }

    /// Writes the manifest in force to the store. Blocks for the store, but no change of the
    /// manifest waits for it.
    ///
    /// # Errors
    /// The store's.
    pub fn store_manifest(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.manifest_copy.lock();
        // Read under the lock, so that an older copy never replaces a newer one.
        let in_force = self.manifest();
        self.write_manifest(&in_force)
    }

    pub(super) fn write_manifest(&self, manifest: &BucketManifest) -> Result<(), StoreError> {
        let json = manifest.to_stored_json();
        let written = self.core.store().put_local(MANIFEST, json.as_bytes());
        match &written {
            Ok(()) => _ = self.core.store_succeeded(StoreOperation::Manifest),
            Err(error) => {
                self.core.store_failed(StoreOperation::Manifest, error);
                // The flusher's probe finds out when the store works again.
                self.core.signals().first().notify();
            }
        }
        written
    }
}
