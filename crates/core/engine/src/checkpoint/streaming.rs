//! Cursors of streams: registration, reading, and the streams to wake.
//!
//! Owns: the manager's operations on them. One read is one snapshot: no key twice, and together
//! with all reads before it the exact state at its end. A stream that keeps up copies what it does
//! not have from the open checkpoint, which stays open and continues deduplicating. If more waits,
//! the read closes the checkpoint, and the stream reads it where it is. A read accepts what was
//! read before, so the queue keeps, and counts, what the stream is sending.

use oribi_types::Seqno;

use super::cursor::{CursorId, CursorRegistration, StreamSide};
use super::wake::StreamWaker;
use super::{CheckpointManager, ITEMS_AHEAD, StreamBatch};
use crate::limits::{STREAM_READ_BYTES_MAX, STREAM_READ_ITEMS_MAX, STREAM_READ_SEQNOS_MAX};
use crate::prefetch::load_line;

impl CheckpointManager {
    /// Registers a stream's cursor, which will read everything after `from`, or from the oldest
    /// slot that is still here. Memory recovery may drop it and then notifies the waker.
    pub fn register_stream(
        &mut self,
        name: &str,
        from: Seqno,
        waker: StreamWaker,
    ) -> CursorRegistration {
        let registered = self.find_start(from);
        let stream = StreamSide { waker, is_idle: false };
        let id = self.cursors.add(name, registered.first.0 - 1, Some(stream));
        self.check_cursor_of(id);
        CursorRegistration { id, ..registered }
    }

    /// Accepts the previous snapshot and reads the next one. It is empty at the end of the queue;
    /// then the stream is woken when there is more. `None` when the cursor was dropped. Of the open
    /// checkpoint at most `copied_max` bytes are copied; if that has more, it closes.
    pub fn read_stream(&mut self, cursor: CursorId, copied_max: usize) -> Option<StreamBatch> {
        let from = self.cursors.get(cursor)?.read_to;
        let batch = self.snapshot_after(from, copied_max.min(STREAM_READ_BYTES_MAX));
        assert!(batch.end().0 <= self.high_seqno, "a snapshot ends at a seqno that was queued");
        assert!(batch.end().0 > from || batch.is_empty(), "a snapshot goes forward");
        self.cursors.process_to(cursor, from);
        let reader = self.cursors.get_mut(cursor)?;
        reader.read_to = batch.end().0;
        reader.visits += u64::from(!batch.is_empty());
        if let Some(stream) = &mut reader.stream {
            stream.is_idle = batch.is_empty();
            self.has_idle_stream |= stream.is_idle;
        }
        self.check_cursor_of(cursor);
        Some(batch)
    }

    /// Last seqno that a stream has read; `None` when its cursor was dropped.
    pub fn stream_position(&self, cursor: CursorId) -> Option<Seqno> {
        self.cursors.get(cursor).map(|cursor| Seqno(cursor.read_to))
    }

    /// True when a stream waits for the next enqueue. After it, and after the locks, the caller
    /// wakes those that [`Self::take_idle_streams`] returns.
    #[inline]
    pub(crate) fn has_idle_stream(&self) -> bool {
        self.has_idle_stream
    }

    /// The streams that wait although there is more to read; each is returned once until it has
    /// read to the end again.
    pub(crate) fn take_idle_streams(&mut self) -> Vec<StreamWaker> {
        let (mut found, visible) = (Vec::new(), self.readable_seqno().0);
        self.has_idle_stream = false;
        for cursor in self.cursors.streams_mut() {
            let has_more = cursor.read_to < visible;
            match &mut cursor.stream {
                Some(stream) if stream.is_idle && has_more => {
                    stream.is_idle = false;
                    found.push(stream.waker.clone());
                }
                Some(stream) => self.has_idle_stream |= stream.is_idle,
                None => {}
            }
        }
        found
    }

    /// Closes the open checkpoint if a stream passed much of it. Where no flusher reads, nothing
    /// else does, and what streams have passed would stay.
    pub(crate) fn close_if_long(&mut self) {
        let is_long = self.open.items >= STREAM_READ_ITEMS_MAX
            || self.open.item_bytes >= STREAM_READ_BYTES_MAX;
        if is_long {
            self.close_open();
        }
    }

    fn snapshot_after(&mut self, from: u64, copied_max: usize) -> StreamBatch {
        if from >= self.readable_seqno().0 {
            return StreamBatch::empty(Seqno(from));
        }
        if from + 1 >= self.open.start {
            if let Some(batch) = self.copy_after(from, copied_max) {
                return batch;
            }
            self.close_open();
        }
        let at = self.closed.partition_point(|closed| closed.end <= from);
        match self.closed.get(at) {
            Some(closed) => StreamBatch::of_closed(Seqno(from), closed),
            None => StreamBatch::empty(Seqno(from)),
        }
    }

    /// Items that a cursor in the open checkpoint has not read; `None` when there are many.
    fn copy_after(&self, from: u64, copied_max: usize) -> Option<StreamBatch> {
        debug_assert!(from + 1 >= self.open.start, "only the open checkpoint is copied");
        if self.high_seqno - from > STREAM_READ_SEQNOS_MAX {
            return None;
        }
        // An upper bound: it counts the slots that are empty.
        let slots = (self.high_seqno - from) as usize;
        let (mut items, mut bytes) = (Vec::with_capacity(slots.min(STREAM_READ_ITEMS_MAX)), 0);
        let mut ahead = self.open.items_after(from);
        ahead.by_ref().take(ITEMS_AHEAD).for_each(|item| load_line(item.address()));
        for item in self.open.items_after(from) {
            ahead.next().into_iter().for_each(|next| load_line(next.address()));
            bytes += item.block_bytes();
            if items.len() >= STREAM_READ_ITEMS_MAX || bytes > copied_max {
                return None;
            }
            items.push(item.clone());
        }
        debug_assert!(bytes <= copied_max, "a copy is within its limit");
        let (from, end) = (Seqno(from), Seqno(self.high_seqno));
        let begins = from.0 + 1 == self.open.start;
        Some(StreamBatch::of_copies(from, end, items, bytes, begins))
    }
}
