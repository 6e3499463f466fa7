//! How checkpoints leave the queue.
//!
//! Owns: expel, emptying, and dropping cursors that hold up the rest. A checkpoint leaves as one reference,
//! so the lock is held for a few pointer moves, whatever the number of items; they are freed, and
//! what they held is summed up, when the caller has released the lock.

use oribi_types::{Cas, Seqno};

use super::CheckpointManager;
use super::cursor::{Cursor, Mark};
use super::expelled::{Expelled, Settlement};
use super::open::OpenCheckpoint;
use crate::planted::{self, Bug};

impl CheckpointManager {
    /// Takes out the checkpoints that every cursor has passed. Without a cursor nobody needs any.
    pub fn expel(&mut self) -> Expelled {
        let lowest = self.cursors.lowest(|_| true).unwrap_or(self.high_seqno);
        if self.cursors.is_empty() {
            self.close_open();
        }
        let mut gone = self.closed.partition_point(|closed| closed.end <= lowest);
        if planted::has(Bug::ExpelsOneTooMany) {
            gone = (gone + 1).min(self.closed.len());
        }
        // The smaller part is moved.
        if gone <= self.closed.len() / 2 {
            return Expelled(self.closed.drain(..gone).collect());
        }
        let rest = self.closed.split_off(gone);
        Expelled(std::mem::replace(&mut self.closed, rest))
    }

    /// Takes note that what was expelled has been freed.
    pub fn settle(&mut self, freed: Settlement) {
        let held = &mut self.closed_held;
        held.slot_bytes -= freed.0.slot_bytes;
        held.orphan_bytes -= freed.0.orphan_bytes;
    }

    /// Empties the queue; seqno and CAS go on from where they are, and every cursor is at the end.
    pub fn clear(&mut self) -> Expelled {
        self.close_open();
        let end = Mark { seqno: self.high_seqno, items: self.closed_sums.items };
        for cursor in self.cursors.iter_mut() {
            (cursor.position, cursor.read_to) = (end, end);
        }
        self.expel()
    }

    /// Empties the queue and goes on from another seqno and CAS, be they lower: what was queued belongs to
    /// a history that this one does not continue.
    pub fn restart(&mut self, high_seqno: Seqno, max_cas: Cas) -> Expelled {
        let expelled = self.clear();
        let enqueued = self.enqueued();
        (self.high_seqno, self.max_cas) = (high_seqno.0, max_cas.0);
        // May wrap: only the distance to the high seqno is ever used.
        self.seqno_at_start = high_seqno.0.wrapping_sub(enqueued);
        self.open = OpenCheckpoint::new(high_seqno.0 + 1);
        let end = Mark { seqno: self.high_seqno, items: self.closed_sums.items };
        for cursor in self.cursors.iter_mut() {
            (cursor.position, cursor.read_to) = (end, end);
        }
        expelled
    }

    /// Drops the droppable cursors without which something could leave: those behind all that must
    /// stay, or not at the end of the queue if there are none of these. Their number.
    pub fn drop_slow_cursors(&mut self) -> usize {
        let kept = self.cursors.lowest(|cursor| !cursor.droppable).unwrap_or(self.open.start - 1);
        let is_slow = |cursor: &Cursor| cursor.droppable && cursor.position.seqno < kept;
        self.cursors.remove_if(is_slow)
    }
}
