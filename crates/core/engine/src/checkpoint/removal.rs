//! How checkpoints leave the queue.
//!
//! Owns: expel, emptying, and dropping cursors that hold up the rest. A checkpoint leaves as one
//! reference, so the lock is held for a few pointer moves, whatever the number of items; the caller
//! frees them, and sums up what they held, after the lock.

use oribi_types::{Cas, Seqno};

use super::CheckpointManager;
use super::cursor::{Cursor, DetachedStreams};
use super::expelled::{ExpelledCheckpoints, Settlement};
use super::open::OpenCheckpoint;

impl CheckpointManager {
    /// Removes the checkpoints that every cursor has passed; without a cursor, all of them.
    pub fn expel(&mut self) -> ExpelledCheckpoints {
        let lowest = self.cursors.lowest().unwrap_or(self.high_seqno);
        if self.cursors.is_empty() {
            self.close_open();
        }
        let gone = self.closed.partition_point(|closed| closed.end <= lowest);
        assert!(gone == 0 || self.closed[gone - 1].end <= lowest, "a cursor keeps its checkpoints");
        // The smaller part is moved.
        if gone <= self.closed.len() / 2 {
            return ExpelledCheckpoints(self.closed.drain(..gone).collect());
        }
        let rest = self.closed.split_off(gone);
        ExpelledCheckpoints(std::mem::replace(&mut self.closed, rest))
    }

    /// Notes that expelled checkpoints were freed.
    pub fn settle(&mut self, freed: Settlement) {
        let held = &mut self.closed_held;
        assert!(held.slot_bytes >= freed.0.slot_bytes, "slots are settled once");
        assert!(held.orphan_bytes >= freed.0.orphan_bytes, "orphans are settled once");
        held.slot_bytes -= freed.0.slot_bytes;
        held.orphan_bytes -= freed.0.orphan_bytes;
    }

    /// Empties the queue; seqno and CAS continue from where they are, and every cursor is at the
    /// end. The vbucket no longer has changes that a stream would miss, so the caller ends streams
    /// first ([`Self::end_streams`]).
    pub fn clear(&mut self) -> ExpelledCheckpoints {
        self.close_open();
        self.cursors_to_end();
        let expelled = self.expel();
        assert!(self.is_empty(), "an emptied queue has no checkpoint");
        expelled
    }

    fn cursors_to_end(&mut self) {
        let has_stream = self.cursors.iter().any(Cursor::is_stream);
        debug_assert!(!has_stream, "streams end before the queue is emptied");
        self.cursors.all_to(self.high_seqno);
    }

    /// Empties the queue and continues from another seqno and CAS, even if they are lower: the
    /// queued changes belong to a history that this one does not continue.
    pub fn restart(&mut self, high_seqno: Seqno, max_cas: Cas) -> ExpelledCheckpoints {
        let expelled = self.clear();
        let enqueued = self.enqueued();
        (self.high_seqno, self.max_cas) = (high_seqno.0, max_cas.0);
        // May wrap: only the distance to the high seqno is ever used.
        self.seqno_at_start = high_seqno.0.wrapping_sub(enqueued);
        self.open = OpenCheckpoint::new(high_seqno.0 + 1);
        assert!(self.closed.is_empty(), "a queue restarts after it was emptied");
        self.incomplete = None;
        assert_eq!(self.enqueued(), enqueued, "a restart counts no mutation");
        self.cursors_to_end();
        expelled
    }

    /// Drops the streams' cursors that block a removal: those that lag behind all other cursors,
    /// or are before the open checkpoint if there are no others. The caller wakes their owners.
    pub fn drop_slow_cursors(&mut self) -> DetachedStreams {
        assert!(self.open.start > 0, "seqnos begin at 1");
        let kept = self.cursors.lowest_of_others().unwrap_or(self.open.start - 1);
        self.cursors.take_streams_below(kept)
    }

    /// Drops every stream's cursor. The caller wakes their owners.
    pub fn end_streams(&mut self) -> DetachedStreams {
        self.cursors.take_streams()
    }

    /// True when [`Self::expel`] would remove something.
    pub fn can_expel(&self) -> bool {
        let lowest = self.cursors.lowest().unwrap_or(self.high_seqno);
        self.closed.front().is_some_and(|first| first.end <= lowest)
    }
}
