//! Versions that become visible when the store has them, as the queue sees them.
//!
//! Owns: where they are queued, and how far streams may read. The flusher reads them like all
//! others. Until one is committed the hash table has its predecessor, so that one stays queued, and
//! a checkpoint has a key once only: a pending version closes an open checkpoint that has its
//! predecessor. A snapshot ends at the end of a checkpoint, so the first pending version of a
//! checkpoint begins it, and streams stop in front of that checkpoint.

use oribi_types::{Cas, RevSeqno, Seqno, Timestamp};

use super::CheckpointManager;
use crate::item::{ItemRef, NewItem};

impl CheckpointManager {
    /// Queues a version that does not enter the hash table yet. `previous` is the seqno of the
    /// version there, which stays.
    pub(crate) fn enqueue_pending(
        &mut self,
        new: NewItem,
        previous: Option<Seqno>,
        rev: RevSeqno,
        given: Option<Cas>,
        now: Timestamp,
    ) -> ItemRef {
        debug_assert!(!self.cursors.is_empty(), "the flusher reads what is pending");
        if !self.open_has_pending || previous.is_some_and(|seqno| seqno.0 >= self.open.start) {
            self.close_open();
        }
        let queued = self.enqueue_with_cas(new, None, rev, given, now);
        debug_assert!(queued.displaced.is_none(), "a pending version displaces nothing (8)");
        self.open_has_pending = true;
        self.held_from.get_or_insert(self.open.start);
        queued.item
    }

    /// Takes a prepare that is completed out of the open checkpoint; a closed one keeps it, and
    /// counts it from here on.
    pub(crate) fn complete_prepare(&mut self, seqno: Seqno) -> Option<ItemRef> {
        assert!(seqno.0 <= self.high_seqno, "a prepare was queued");
        if seqno.0 < self.open.start {
            self.orphan(seqno.0);
            return None;
        }
        // Whatever the role is now: a checkpoint has the form of the role that filled it.
        match self.open.slots.sparse_len() {
            0 => self.open.take(seqno),
            _ => self.open.take_sparse(seqno),
        }
    }

    /// The queue alone holds the block of a pending version.
    pub(crate) fn pending_added(&mut self, bytes: usize) {
        self.closed_held.orphan_bytes += bytes;
        self.pending += 1;
    }

    /// The version was committed or given up.
    pub(crate) fn pending_removed(&mut self, bytes: usize) {
        assert!(self.closed_held.orphan_bytes >= bytes, "a pending version was counted");
        assert!(self.pending > 0, "a pending version leaves once");
        self.closed_held.orphan_bytes -= bytes;
        self.pending -= 1;
    }

    /// The store has a prepare: its checkpoint, which is closed, counts its block from here on.
    pub(crate) fn prepare_stored(&mut self, seqno: Seqno) {
        assert!(seqno.0 < self.open.start, "the flusher reads closed checkpoints");
        self.orphan(seqno.0);
    }

    /// A committed version has taken the place of this one in the hash table.
    pub(crate) fn released(&mut self, seqno: Seqno) {
        debug_assert!(seqno.0 < self.open.start, "a version before a stored one is not open");
        self.orphan(seqno.0);
    }

    /// Lets streams read up to the checkpoint of `lowest`, the oldest pending version.
    pub(crate) fn hold_from(&mut self, lowest: Option<Seqno>) {
        self.held_from = lowest.map(|seqno| {
            let at = self.closed.partition_point(|closed| closed.end < seqno.0);
            self.closed.get(at).map_or(self.open.start, |closed| closed.start)
        });
    }

    /// Everything up to here is committed, so streams may read it.
    pub(crate) fn readable_seqno(&self) -> Seqno {
        Seqno(self.held_from.map_or(self.high_seqno, |start| start - 1))
    }
}
