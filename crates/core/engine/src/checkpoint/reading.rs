//! Cursors of the queue: registration, reading, advance and rewind, removal.
//!
//! Owns: the manager's operations on the persistence cursor, and what all cursors have in common.
//! Streams read by [`super::streaming`]. Each operation takes a time that depends on the number of
//! cursors and of checkpoints in one batch, never on the number of items. Counting what remains
//! for a cursor inside a checkpoint looks at one number a chunk, and at the slots of one chunk.

use std::sync::Arc;

use oribi_types::{Cas, Seqno, Timestamp};

use super::closed::queued_at;
use super::cursor::{Cursor, CursorId, CursorRegistration};
use super::{CheckpointManager, CursorBatch, ReadLimits};

impl CheckpointManager {
    /// Registers a cursor that will read everything after `from`, or from the oldest slot that is
    /// still here. It is never taken away. One of the same name is dropped.
    pub fn register_cursor(&mut self, name: &str, from: Seqno) -> CursorRegistration {
        self.cursors.drop_named(name);
        if from.0 + 1 > self.open.start {
            // Mutations after this cursor are no longer deduplicated.
            self.close_open();
        }
        let registered = self.find_start(from);
        let id = self.cursors.add(name, registered.first.0 - 1, None);
        assert!(registered.first.0 <= self.high_seqno + 1, "a cursor begins in the queue");
        self.check_cursor_of(id);
        CursorRegistration { id, ..registered }
    }

    /// Where a cursor begins that wants everything after `from`. The id is not one yet.
    pub(super) fn find_start(&self, from: Seqno) -> CursorRegistration {
        let (next, first) = (from.0.min(self.high_seqno) + 1, self.first_start());
        assert!(0 < first && first <= self.high_seqno + 1, "the queue ends at its high seqno");
        CursorRegistration {
            id: CursorId::NONE,
            first: Seqno(next.max(first)),
            needs_backfill: next < first,
        }
    }

    /// Drops a cursor if it is still there. Checkpoints that only it needed leave by
    /// [`Self::expel`].
    pub fn drop_cursor(&mut self, cursor: CursorId) {
        self.cursors.drop_one(cursor);
        debug_assert!(!self.has_cursor(cursor), "a cursor handle is unique");
    }

    /// True until the cursor is dropped, by its owner or because it was slow.
    pub fn has_cursor(&self, cursor: CursorId) -> bool {
        self.cursors.get(cursor).is_some()
    }

    /// Items that `cursor` has not read yet; none when it was dropped.
    pub fn remaining(&self, cursor: CursorId) -> usize {
        self.cursors.get(cursor).map_or(0, |cursor| self.remaining_of(cursor))
    }

    pub(super) fn remaining_of(&self, cursor: &Cursor) -> usize {
        self.count_after(cursor.read_to)
    }

    /// Items that `cursor` has not processed: those not read yet, and those read since the last
    /// [`Self::advance`]; none when it was dropped.
    pub fn unprocessed(&self, cursor: CursorId) -> usize {
        self.cursors.get(cursor).map_or(0, |cursor| self.count_after(cursor.position()))
    }

    /// Number of items after a seqno. At a checkpoint's end this is a subtraction.
    pub(super) fn count_after(&self, seqno: u64) -> usize {
        if seqno >= self.open.start {
            return self.open.count_after(seqno);
        }
        let at = self.closed.partition_point(|closed| closed.end <= seqno);
        let in_closed = self.closed.get(at).map_or(0, |closed| {
            debug_assert!(closed.start <= seqno + 1 || at == 0, "checkpoints are contiguous");
            let behind = self.closed_sums.items - closed.sums_through().items;
            closed.count_after(seqno) + behind as usize
        });
        in_closed + self.open.items
    }

    /// Reads the slots after the cursor in whole checkpoints, at least one and no more than the
    /// limits say; the open one is closed first. The position moves by [`Self::advance`] only.
    /// `None` when the cursor was dropped.
    pub fn read(&mut self, cursor: CursorId, limits: ReadLimits) -> Option<CursorBatch> {
        let from = self.cursors.get(cursor)?.read_to;
        assert!(from <= self.high_seqno, "a cursor does not pass the high seqno");
        if from < self.high_seqno {
            self.close_open();
        }
        let first = self.closed.partition_point(|closed| closed.end <= from);
        let is_here = self.closed.get(first).is_none_or(|closed| closed.start <= from + 1);
        assert!(is_here, "a checkpoint leaves after every cursor has read it");
        let mut batch = CursorBatch {
            from: Seqno(from),
            end: Seqno(from),
            max_cas: Cas(self.max_cas),
            ..Default::default()
        };
        for closed in self.closed.range(first..).take(limits.checkpoints_max.max(1)) {
            let is_full = batch.item_count >= limits.items_max
                || batch.item_bytes + closed.item_bytes > limits.bytes_max;
            if is_full && !batch.is_empty() {
                break;
            }
            batch.end = Seqno(closed.end);
            batch.item_count += closed.count_after(from);
            batch.item_bytes += closed.item_bytes;
            batch.checkpoints.push(Arc::clone(closed));
        }
        batch.more = batch.end.0 < self.high_seqno;
        assert!(batch.end.0 > from || !batch.more, "a read takes at least one checkpoint");
        assert!(batch.item_count as u64 <= batch.end.0 - from, "an item has its own seqno");
        let reader = self.cursors.get_mut(cursor)?;
        reader.read_to = batch.end.0;
        reader.visits += 1;
        self.check_cursor_of(cursor);
        Some(batch)
    }

    /// Where a cursor stands; `None` while it has read more than it has processed.
    pub(crate) fn settled(&self, cursor: CursorId) -> Option<Seqno> {
        let cursor = self.cursors.get(cursor)?;
        (cursor.position() == cursor.read_to).then_some(Seqno(cursor.read_to))
    }

    /// Accepts everything that was read: it counts as processed.
    pub fn advance(&mut self, cursor: CursorId) {
        if let Some(reader) = self.cursors.get(cursor) {
            let read_to = reader.read_to;
            self.cursors.process_to(cursor, read_to);
            debug_assert_eq!(
                self.settled(cursor),
                Some(Seqno(read_to)),
                "all that was read is done"
            );
            self.check_cursor_of(cursor);
        }
    }

    /// Rewinds to the last [`Self::advance`]: the next read returns the same slots again.
    pub fn rewind(&mut self, cursor: CursorId) {
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            cursor.read_to = cursor.position();
            assert!(cursor.read_to <= self.high_seqno, "a cursor does not pass the high seqno");
        }
        self.check_cursor_of(cursor);
    }

    /// Wall clock of the oldest item that `cursor` has not processed. Looks at one chunk's slots at
    /// most.
    pub fn oldest_unprocessed(&self, cursor: CursorId) -> Option<Timestamp> {
        let position = self.cursors.get(cursor)?.position();
        let at = self.closed.partition_point(|closed| closed.end <= position);
        let closed = self.closed.get(at).and_then(|closed| closed.items_after(position).next());
        closed.or_else(|| self.open.items_after(position).next()).map(queued_at)
    }
}
