//! Removal of many versions at once.
//!
//! Owns: the pass over a table that removes versions, some groups under one hold of the lock so
//! that other operations on the vbucket get in between, and its uses: collections that were
//! dropped, and old tombstones of a vbucket that lives in memory only, where no flush removes them.
//! Of these only tombstones with attributes are kept at all ([`super::writing`]). Called by the
//! bucket, warmup and the tombstone purge.

use oribi_types::{CollectionId, Seqno};

use super::VBucket;
use super::context::Context;
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;

/// Groups under one hold of the table's lock: some hundred items, some microseconds.
const GROUPS_PER_SLICE: usize = 64;

impl VBucket {
    /// Removes from memory every collection that `keep` refuses. Writes to such a collection are
    /// refused already.
    pub(crate) fn retain_collections(&self, keep: impl Fn(CollectionId) -> bool) {
        // First, so that no commit puts one into a group that was visited already.
        self.retain_pending(&keep);
        let is_dropped = |item: &ItemRef| !keep(item.key().collection);
        self.remove_all(is_dropped, |dropped| {
            let mut queue = self.queue.lock();
            dropped.iter().for_each(|item| queue.orphaned(item));
        });
        self.table.lock().retain_collections(&keep);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Removes the tombstones that are older than `purge_before`, in UNIX seconds; the highest
    /// seqno of them.
    pub(crate) fn purge_in_memory(
        &self,
        context: &Context<'_>,
        purge_before: u32,
    ) -> Option<Seqno> {
        debug_assert!(
            self.persistence_cursor.is_none(),
            "a flush removes the tombstones of a store"
        );
        let mut purged = None;
        // The expiry of a tombstone is the time of its deletion. One that the queue holds is kept.
        let lowest_queued = self.queue.lock().lowest_needed();
        let is_old = |item: &ItemRef| {
            item.is_deleted() && item.expiry() < purge_before && item.seqno() < lowest_queued
        };
        self.remove_all(is_old, |old| {
            let highest = old.iter().map(|item| item.seqno()).max();
            highest.into_iter().for_each(|seqno| self.raise_purge_seqno(seqno));
            purged = purged.max(highest);
        });
        let mut events = self.events.lock();
        let ended = events.purge(purge_before, lowest_queued);
        ended.into_iter().for_each(|seqno| self.raise_purge_seqno(seqno));
        drop(events);
        self.report_memory(context);
        purged.max(ended)
    }

    /// Removes every version that `is_to_go` picks. `removed` is called for each under the table's
    /// lock.
    pub(super) fn remove_all(
        &self,
        is_to_go: impl Fn(&ItemRef) -> bool,
        mut removed: impl FnMut(&[ItemRef]),
    ) {
        let mut cursor = ScanCursor::default();
        let mut is_complete = false;
        while !is_complete {
            let mut table = self.table.lock();
            let picked;
            (picked, is_complete) = table.pick(&mut cursor, GROUPS_PER_SLICE, &is_to_go);
            for item in &picked {
                table.remove_same(self.table.seed().hash(item.key()), item);
            }
            debug_assert!(picked.iter().all(&is_to_go), "only matching items are removed");
            removed(&picked);
            drop(table);
            drop(picked);
        }
    }
}
