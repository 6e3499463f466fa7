//! The collections manifest in force, and the dropped collections that are still to be purged.
//!
//! Owns: the swap of one manifest for the next, one change at a time, and the list of dropped
//! collections whose documents are still in memory or store. An id is given out once, so a
//! collection on the list never comes back. The bucket changes the manifest, warmup adds dropped
//! collections that it meets, and the flusher purges.

use std::sync::Arc;

use arc_swap::ArcSwap;
use oribi_types::CollectionId;
use parking_lot::Mutex;

use super::BucketManifest;
use crate::flusher_signal::FlusherSignal;

/// See the module text.
pub(crate) struct CollectionsInForce {
    manifest: ArcSwap<BucketManifest>,
    change: Mutex<()>,
    to_purge: Mutex<Vec<CollectionId>>,
}

impl CollectionsInForce {
    pub(crate) fn new(manifest: BucketManifest) -> CollectionsInForce {
        CollectionsInForce {
            manifest: ArcSwap::from_pointee(manifest),
            change: Mutex::new(()),
            to_purge: Mutex::default(),
        }
    }

    /// The manifest in force, as operations load it.
    #[inline]
    pub(crate) fn in_force(&self) -> &ArcSwap<BucketManifest> {
        &self.manifest
    }

    /// The manifest in force.
    pub(crate) fn manifest(&self) -> Arc<BucketManifest> {
        self.manifest.load_full()
    }

    /// Puts the manifest in force that `next` makes from the current one; `None` keeps the current
    /// one. Returns the one in force after that. `announce` gets both before.
    pub(crate) fn change<E>(
        &self,
        signal: &FlusherSignal,
        next: impl FnOnce(&BucketManifest) -> Result<Option<BucketManifest>, E>,
        announce: impl FnOnce(&BucketManifest, &BucketManifest),
    ) -> Result<Arc<BucketManifest>, E> {
        let _one_at_a_time = self.change.lock();
        let before = self.manifest();
        let Some(after) = next(&before)? else { return Ok(before) };
        // A copy follows the events of an active, of which several lead to one uid.
        assert!(after.uid() >= before.uid(), "the uid of the manifest in force only grows");
        announce(&before, &after);
        let after = Arc::new(after);
        self.manifest.store(Arc::clone(&after));
        let all = before.scopes().iter().flat_map(|scope| &scope.collections);
        let dropped = all.map(|collection| collection.id).filter(|id| !after.contains(*id));
        self.to_purge.lock().extend(dropped);
        signal.notify();
        Ok(after)
    }

    /// Does something by the manifest in force while it cannot change.
    pub(crate) fn between_changes<R>(&self, act: impl FnOnce(&BucketManifest) -> R) -> R {
        let _no_change = self.change.lock();
        act(&self.manifest())
    }

    /// Collections whose documents are to be purged.
    pub(crate) fn to_purge(&self) -> Vec<CollectionId> {
        self.to_purge.lock().clone()
    }

    /// Queues those of `unknown` for purging that were dropped. A drop is for ever, so a later
    /// manifest cannot differ.
    pub(crate) fn purge_if_dropped(&self, unknown: &[CollectionId], signal: &FlusherSignal) {
        let manifest = self.manifest();
        let mut to_purge = self.to_purge.lock();
        let known = to_purge.len();
        for collection in unknown.iter().filter(|collection| manifest.has_dropped(**collection)) {
            if !to_purge.contains(collection) {
                to_purge.push(*collection);
            }
        }
        let has_new = to_purge.len() > known;
        debug_assert!(to_purge.len() <= known + unknown.len(), "a collection is queued once");
        drop(to_purge);
        if has_new {
            signal.notify();
        }
    }

    /// Neither memory nor store has documents of these any more.
    pub(crate) fn purged(&self, collections: &[CollectionId]) {
        let manifest = self.manifest();
        debug_assert!(
            collections.iter().all(|id| !manifest.contains(*id)),
            "only a dropped collection is purged"
        );
        self.to_purge.lock().retain(|collection| !collections.contains(collection));
    }
}
