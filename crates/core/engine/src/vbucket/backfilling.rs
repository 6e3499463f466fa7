//! A backfill's view of a vbucket: how far the store is, or everything in memory.
//!
//! Owns: the two moments that a backfill can show. A store shows one moment; which one is known
//! while no commit of the vbucket is under way and none is in doubt. A bucket in memory has the
//! hash table, which is visited in slices while writes continue. A cursor collects these writes,
//! and together they are the exact state at the last of them. Called by backfills.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oribi_types::{CollectionId, Seqno};

use super::VBucket;
use super::context::Context;
use super::streaming::StreamRead;
use crate::checkpoint::{StreamSink, StreamWaker};
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;

/// Groups under one hold of the table's lock: some hundred items, some microseconds.
const GROUPS_PER_SLICE: usize = 64;

/// Contents of the store, exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreContents {
    pub(crate) seqno: Seqno,
    /// The last one of the default collection.
    pub(crate) default_seqno: Seqno,
    incarnation: u64,
}

/// All that a vbucket in memory has after a seqno, in ascending seqno.
pub(crate) struct MemorySnapshot {
    pub(crate) items: Vec<ItemRef>,
    pub(crate) end: Seqno,
    /// The last seqno of the default collection among them.
    pub(crate) default_end: Seqno,
}

/// The owner of a cursor that polls by itself.
struct NoOwner;

impl StreamSink for NoOwner {
    fn ready(&self, _token: u64) {}
}

impl VBucket {
    /// The store's state; `None` while a commit is under way or the last one is in doubt.
    pub(crate) fn settled_store(&self) -> Option<StoreContents> {
        let table = self.table.lock();
        let queue = self.queue.lock();
        let seqno = queue.settled(self.persistence_cursor?)?;
        assert!(seqno <= queue.high_seqno(), "the store has no seqno above the high seqno");
        let default = table.collections().get(CollectionId::DEFAULT);
        let default_seqno = default.map_or(Seqno(0), |found| found.persisted_high_seqno);
        let is_certain = self.doubtful_seqno.load(Ordering::Relaxed) <= seqno.0;
        let incarnation = self.incarnation();
        is_certain.then_some(StoreContents { seqno, default_seqno, incarnation })
    }

    /// The state of a vbucket that has no store. `None` when memory is so short that the cursor was
    /// dropped, or when the vbucket serves no longer.
    pub(crate) fn memory_snapshot(
        &self,
        context: &Context<'_>,
        start: Seqno,
    ) -> Option<MemorySnapshot> {
        let waker = StreamWaker::new(Arc::new(NoOwner), 0);
        let begun = self.register_stream("backfill", Seqno(u64::MAX), waker)?;
        let mut items = self.items_between(start, begun.high_seqno);
        let newer = self.read_to_end(context, begun.cursor);
        self.drop_stream(context, begun.cursor);
        let (newer, end) = newer?;
        let mut known = HashSet::new();
        let mut newest: Vec<&ItemRef> = Vec::new();
        for item in newer.iter().rev().filter(|item| item.seqno() > start) {
            if known.insert(item.key()) {
                newest.push(item);
            }
        }
        items.retain(|item| !known.contains(&item.key()));
        items.sort_unstable_by_key(|item| item.seqno());
        items.extend(newest.into_iter().rev().cloned());
        debug_assert!(items.is_sorted_by_key(|item| item.seqno()), "versions are in order");
        let of_default = |item: &&ItemRef| item.key().collection == CollectionId::DEFAULT;
        let default_end = items.iter().rev().find(of_default).map_or(Seqno(0), |item| item.seqno());
        debug_assert!(
            default_end <= end.max(begun.high_seqno),
            "a snapshot ends at or after its last version"
        );
        Some(MemorySnapshot { items, end: end.max(begun.high_seqno), default_end })
    }

    /// Versions in the table and events after `start` and up to `end`.
    fn items_between(&self, start: Seqno, end: Seqno) -> Vec<ItemRef> {
        let mut found = Vec::new();
        let mut cursor = ScanCursor::default();
        let mut is_complete = false;
        while !is_complete {
            let table = self.table.lock();
            is_complete = table.index.scan(&mut cursor, GROUPS_PER_SLICE, |item| {
                if start < item.seqno() && item.seqno() <= end {
                    found.push(item.clone());
                }
            });
        }
        // No table has these.
        let mut events = self.events_in_memory();
        events.retain(|event| start < event.seqno() && event.seqno() <= end);
        found.append(&mut events);
        found.sort_unstable_by_key(|item| item.seqno());
        found.dedup_by_key(|item| item.seqno());
        found
    }

    /// Contents of the queue now, and the seqno up to which they are complete.
    fn read_to_end(
        &self,
        context: &Context<'_>,
        cursor: super::streaming::StreamCursor,
    ) -> Option<(Vec<ItemRef>, Seqno)> {
        let high = self.high_seqno();
        let (mut items, mut end) = (Vec::new(), Seqno(0));
        loop {
            match self.read_stream(context, cursor) {
                StreamRead::Batch(batch) => {
                    items.extend(batch.hold()?.items_after(batch.from()).cloned());
                    end = batch.end();
                    debug_assert!(batch.from() < end, "a batch has a seqno");
                    if end >= high {
                        return Some((items, end));
                    }
                }
                StreamRead::Idle => return Some((items, end)),
                StreamRead::Dropped | StreamRead::Ended => return None,
            }
        }
    }
}
