//! Cursors of the queue: how they come, read, go on or back, and go.
//!
//! Owns: what of the manager has to do with cursors. Each operation takes a time that depends on the
//! number of cursors and of checkpoints in one batch, never on the number of items, but for the
//! registration inside a checkpoint, which looks at the slots of one chunk.

use std::sync::Arc;

use oribi_types::{Cas, Seqno, Timestamp};

use super::closed::queued_at;
use super::cursor::{Cursor, CursorId, Mark, Registered};
use super::{CheckpointManager, CursorBatch, ReadLimits};

impl CheckpointManager {
    /// Registers a cursor that will read everything behind `from`, or from the oldest slot that is still
    /// here. A `droppable` one may be taken away when memory is short. One of the same name is dropped.
    pub fn register_cursor(&mut self, name: &str, from: Seqno, droppable: bool) -> Registered {
        self.cursors.remove_if(|cursor| *cursor.name == *name);
        let from = from.0.min(self.high_seqno);
        if from + 1 > self.open.start {
            // What is behind a cursor is not deduplicated any more.
            self.close_open();
        }
        let needs_backfill = from + 1 < self.first_start();
        let position = from.max(self.first_start() - 1);
        let items = match self.closed.partition_point(|closed| closed.end < position) {
            _ if position < self.first_start() => self.sums_gone().items,
            at => self.closed[at].items_up_to(position),
        };
        let id = self.cursors.add(name, droppable, Mark { seqno: position, items });
        Registered { id, needs_backfill }
    }

    /// Drops a cursor, which need not be there any more. What only it needed leaves by [`Self::expel`].
    pub fn drop_cursor(&mut self, cursor: CursorId) {
        self.cursors.remove_if(|known| known.number == cursor.number);
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
        let all = self.closed_sums.items + self.open.items as u64;
        (all - cursor.read_to.items) as usize
    }

    /// Items that `cursor` has not processed: those not read yet, and those read since the last [`Self::advance`]; none
    /// when it was dropped.
    pub fn unprocessed(&self, cursor: CursorId) -> usize {
        let all = self.closed_sums.items + self.open.items as u64;
        self.cursors.get(cursor).map_or(0, |cursor| (all - cursor.position.items) as usize)
    }

    /// Reads what is behind the cursor in whole checkpoints, at least one and no more than the limits
    /// say; the open one is closed first. The position moves by [`Self::advance`] only. `None` when the
    /// cursor was dropped.
    pub fn read(&mut self, cursor: CursorId, limits: ReadLimits) -> Option<CursorBatch> {
        let from = self.cursors.get(cursor)?.read_to;
        if from.seqno < self.high_seqno {
            self.close_open();
        }
        let first = self.closed.partition_point(|closed| closed.end <= from.seqno);
        let mut batch = CursorBatch {
            from: Seqno(from.seqno),
            end: Seqno(from.seqno),
            max_cas: Cas(self.max_cas),
            ..Default::default()
        };
        let mut read_to = from;
        for closed in self.closed.range(first..).take(limits.checkpoints_max.max(1)) {
            let is_full = batch.item_count >= limits.items_max
                || batch.item_bytes + closed.item_bytes > limits.bytes_max;
            if is_full && !batch.is_empty() {
                break;
            }
            read_to = closed.end_mark();
            batch.item_count = (read_to.items - from.items) as usize;
            batch.item_bytes += closed.item_bytes;
            batch.checkpoints.push(Arc::clone(closed));
        }
        batch.end = Seqno(read_to.seqno);
        batch.more = read_to.seqno < self.high_seqno;
        let reader = self.cursors.get_mut(cursor)?;
        reader.read_to = read_to;
        reader.visits += 1;
        Some(batch)
    }

    /// Accepts everything that was read: it counts as processed.
    pub fn advance(&mut self, cursor: CursorId) {
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            cursor.position = cursor.read_to;
        }
    }

    /// Takes back what was read since the last [`Self::advance`]: the same will be read again.
    pub fn rewind(&mut self, cursor: CursorId) {
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            cursor.read_to = cursor.position;
        }
    }

    /// Wall clock of the oldest item that `cursor` has not processed. Looks at one chunk's slots at most.
    pub fn oldest_unprocessed(&self, cursor: CursorId) -> Option<Timestamp> {
        let position = self.cursors.get(cursor)?.position.seqno;
        let at = self.closed.partition_point(|closed| closed.end <= position);
        let closed = self.closed.get(at).and_then(|closed| closed.items_after(position).next());
        closed.or_else(|| self.open.slots.items_from(0).next()).map(queued_at)
    }
}
