//! Invariants of a checkpoint queue, as assertions; the numbers are those of the
//! manager's text.
//!
//! Owns: the check. It visits every slot, so it is for the simulation and for slow points of debug
//! builds.

use std::collections::HashSet;

use super::CheckpointManager;
use super::cursor::{Cursor, CursorId};
use super::sums::Sums;
use crate::item::ItemRef;

impl CheckpointManager {
    /// Panics unless ranges, sums and cursors agree with the queued items.
    pub(crate) fn check_invariants(&self) {
        assert!(self.open.start <= self.high_seqno + 1, "the open checkpoint begins ahead");
        let mut sums = self.sums_gone();
        let mut next = self.first_start();
        let (mut slot_bytes, mut orphan_bytes) = (0, 0);
        for closed in &self.closed {
            assert!(closed.start <= closed.end, "a closed checkpoint without a seqno");
            assert_eq!(closed.start, next, "ranges are contiguous (2)");
            assert_eq!(closed.sums_before, sums, "sums over all before");
            let found = self.check_items(closed.items_after(0), closed.start..=closed.end);
            let counted = Sums { items: closed.items as u64, bytes: closed.item_bytes as u64 };
            assert_eq!(found, counted, "items of a closed checkpoint");
            sums = closed.sums_through();
            next = closed.end + 1;
            slot_bytes += closed.held().slot_bytes;
            orphan_bytes += closed.held().orphan_bytes;
            assert!(closed.held().orphan_bytes <= closed.item_bytes, "orphans that are no items");
        }
        assert_eq!(self.open.start, next, "ranges are contiguous (2)");
        assert_eq!(self.closed_sums, sums, "sums over all closed checkpoints");
        let range = self.open.start..=self.high_seqno;
        let found = self.check_items(self.open.slots.items_from(0), range);
        let counted = Sums { items: self.open.items as u64, bytes: self.open.item_bytes as u64 };
        assert_eq!(found, counted, "items of the open checkpoint");
        // What has left and is not freed yet is still counted (6).
        assert!(self.closed_held.slot_bytes >= slot_bytes, "slots that nobody counts (6)");
        assert!(self.closed_held.orphan_bytes >= orphan_bytes, "orphans that nobody counts (6)");
        if let Some(start) = self.held_from {
            let is_start = self.closed.iter().any(|closed| closed.start == start);
            assert!(is_start || start == self.open.start, "streams stop inside a checkpoint (8)");
        }
        self.cursors.iter().for_each(|cursor| self.check_cursor(cursor));
        self.cursors.check_positions();
    }

    /// Sums over the items of one checkpoint, which has the seqnos of `range`.
    fn check_items<'q>(
        &self,
        items: impl Iterator<Item = &'q ItemRef>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Sums {
        let mut keys = HashSet::new();
        let (mut sums, mut last) = (Sums::default(), 0);
        for item in items {
            let seqno = item.seqno().0;
            assert!(
                range.contains(&seqno) && seqno > last,
                "seqno {seqno} is not where it belongs"
            );
            assert!(item.cas().0 <= self.max_cas, "a CAS above the highest one (1)");
            let key = item.key();
            assert!(keys.insert((key.collection, key.key)), "a key is live twice (3)");
            sums.items += 1;
            sums.bytes += item.block_bytes() as u64;
            last = seqno;
        }
        sums
    }

    /// The same of one cursor, if it is still there. Takes the same time for any queue.
    pub(super) fn check_cursor_of(&self, id: CursorId) {
        if let Some(cursor) = self.cursors.get(id) {
            self.check_cursor(cursor);
        }
    }

    fn check_cursor(&self, cursor: &Cursor) {
        let (Cursor { name, read_to, .. }, position) = (cursor, cursor.position());
        assert!(position <= *read_to, "{name} has processed more than read");
        assert!(*read_to <= self.high_seqno, "{name} has read what was never queued");
        let is_in_front = *read_to < self.open.start;
        assert!(cursor.is_stream() || is_in_front, "{name} is in the open checkpoint (5)");
        assert!(position + 1 >= self.first_start(), "{name} was left behind (4)");
        let is_idle = cursor.stream.as_ref().is_some_and(|stream| stream.is_idle);
        assert!(!is_idle || self.has_idle_stream, "{name} is never woken (7)");
    }
}
