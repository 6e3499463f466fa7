//! Invariants of a vbucket, as assertions; the numbers are those of the vbucket's text.
//!
//! Owns: the check, which takes both locks in their order. It visits every item and every slot, so
//! it is for the simulation and for slow points of debug builds.

use std::sync::atomic::Ordering;

use oribi_types::{CollectionId, Seqno};

use super::VBucket;
use super::collection_figures::{CollectionStats, ItemFigures};
use super::table::VbucketTable;
use crate::checkpoint::CheckpointManager;
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;

impl VBucket {
    /// Panics unless table, queue and their sums agree with each other.
    pub(crate) fn check_invariants(&self) {
        let table = self.table.lock();
        let queue = self.queue.lock();
        table.index.check_invariants();
        queue.check_invariants();
        table.check_sums();
        table.locks.check_invariants();
        let hash = |item: &ItemRef| self.table.seed().hash(item.key());
        let current =
            |item: &ItemRef| table.index.get(hash(item), item.key()).map(|current| current.seqno());
        table.pending.check_invariants(hash, current);
        let is_held = queue.readable_seqno() < queue.high_seqno();
        let has_held = table.pending.lowest_held().is_some();
        assert!(!has_held || is_held, "streams read pending versions");
        assert!(has_held || !is_held, "streams wait for nothing");
        self.check_versions(&table, &queue);
        assert!(self.persisted_seqno() <= queue.high_seqno(), "durable and never assigned");
        let purge_seqno = self.purge_seqno.load(Ordering::Relaxed);
        assert!(purge_seqno <= queue.high_seqno().0, "purged and never assigned");
    }

    /// Bytes that the bucket has counted, and the actual bytes.
    #[cfg(test)]
    pub(crate) fn memory_accounts(&self) -> (u64, u64) {
        let table = self.table.lock();
        let queue_bytes = self.queue.lock().own_bytes();
        (table.reported(), table.used(queue_bytes))
    }

    /// The dense versions in the table.
    #[cfg(test)]
    pub(crate) fn dense_items(&self) -> Vec<ItemRef> {
        let mut found = Vec::new();
        self.table.lock().index.scan(&mut ScanCursor::default(), usize::MAX, |item| {
            if item.is_dense() {
                found.push(item.clone());
            }
        });
        found
    }

    fn check_versions(&self, table: &VbucketTable, queue: &CheckpointManager) {
        let (high_seqno, max_cas) = (queue.high_seqno(), queue.max_cas());
        table.index.scan(&mut ScanCursor::default(), usize::MAX, |item| {
            assert!(item.seqno() <= high_seqno, "a version from the future");
            assert!(item.cas() <= max_cas, "a CAS above the highest one");
            assert_ne!(item.key().collection, CollectionId::SYSTEM, "events are not in tables");
        });
        for item in queue.open_items() {
            assert_ne!(item.key().collection, CollectionId::SYSTEM, "an event is never in there");
            let found = table.index.get(self.table.seed().hash(item.key()), item.key());
            if item.key().collection == CollectionId::PREPARES {
                assert!(table.pending.has_prepare(item.seqno()), "a completed prepare stayed");
                continue;
            }
            let is_there = found.is_some_and(|found| found.same_block(item))
                || table.pending.has_block(self.table.seed().hash(item.key()), item);
            assert!(is_there, "what is in the open checkpoint is not in the table (2, 3)");
        }
    }
}

impl VbucketTable {
    /// Panics unless every sum is that of the documents in the table and those evicted whole.
    fn check_sums(&self) {
        let (mut all, mut documents) =
            (CollectionStats::default(), [0u32; super::table::DATATYPES]);
        let (mut tombstones, mut evicted) = (0, 0);
        self.index.scan(&mut ScanCursor::default(), usize::MAX, |item| {
            let share = ItemFigures::of(item);
            all.exchange(&share, &ItemFigures::default());
            tombstones += share.tombstones;
            evicted += share.evicted;
            if let Some(datatype) = share.datatype {
                documents[usize::from(datatype.0)] += 1;
            }
        });
        assert_eq!(self.tombstones() as u64, tombstones, "tombstones");
        assert_eq!(self.item_bytes() as u64, all.item_bytes, "bytes of blocks");
        assert_eq!(self.items() as u64, all.items + self.stored_only(), "documents");
        assert_eq!(self.evicted_items() as u64, evicted + self.stored_only(), "evicted documents");
        let counted = self.datatypes();
        let is_counted = counted.iter().zip(documents).all(|(counted, found)| *counted >= found);
        assert!(is_counted, "{documents:?} by datatype, and {counted:?} are counted");
        let mut collections = Vec::new();
        self.collections().copy_to(&mut collections);
        let sum = |of: fn(&CollectionStats) -> u64| -> u64 {
            collections.iter().map(|(_, figures)| of(figures)).sum()
        };
        assert_eq!(sum(|one| one.item_bytes), all.item_bytes, "bytes of collections");
        assert_eq!(sum(|one| one.stored_only), self.stored_only(), "evicted of collections");
        assert_eq!(sum(|one| one.items), self.items() as u64, "documents of collections");
        for (id, one) in &collections {
            assert!(one.stored_only <= one.items, "{id:?}: {one:?}");
            let is_known = one.persisted_high_seqno <= one.high_seqno;
            assert!(is_known || one.high_seqno == Seqno(0), "{id:?}: {one:?}");
        }
    }
}
