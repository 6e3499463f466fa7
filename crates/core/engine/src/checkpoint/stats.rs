//! Figures of one vbucket's checkpoint queue.
//!
//! Owns: their types and how they are taken from the queue: from sums that are kept anyway, so the
//! queue lock is held for a time that depends on the number of checkpoints and cursors and never on
//! the number of items. Called by the vbucket.

use std::sync::Arc;

use oribi_types::Seqno;

use super::CheckpointManager;
use super::cursor::Cursor;

/// Figures of one vbucket's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointManagerStats {
    /// Id of the checkpoint that takes new mutations.
    pub open_checkpoint_id: u64,
    /// Items in memory over all checkpoints.
    pub items: usize,
    /// Of these, in the open checkpoint.
    pub open_items: usize,
    /// Bytes of the slots around the items.
    pub queue_bytes: usize,
    /// Bytes of the items' blocks, most of them shared with the hash table.
    pub item_bytes: usize,
    /// Bytes that are the queue's alone: slots, and blocks that the hash table has released.
    pub own_bytes: usize,
    /// Readers of the queue, in order of registration.
    pub cursors: Vec<CursorStats>,
    /// Oldest first; the last one is open.
    pub checkpoints: Vec<CheckpointStats>,
}

/// Figures of one reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CursorStats {
    pub name: Arc<str>,
    /// Checkpoint that it reads from next.
    pub checkpoint_id: u64,
    /// Last seqno that it has finished.
    pub seqno: Seqno,
    /// Batches that it has read.
    pub visits: u64,
    /// Items that it has not read yet.
    pub remaining: usize,
    /// Seqnos from the start of its checkpoint to where it stands.
    pub distance: u64,
}

/// Figures of one checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointStats {
    /// Id; the next checkpoint has the next one.
    pub id: u64,
    /// True for the one that takes new mutations.
    pub is_open: bool,
    pub items: usize,
    /// First seqno; one above `snapshot_end` while the checkpoint is new.
    pub snapshot_start: Seqno,
    pub snapshot_end: Seqno,
    /// Readers that read from it next.
    pub cursors: usize,
    /// Bytes of the items' blocks.
    pub item_bytes: usize,
    /// Bytes of the slots around the items.
    pub queue_bytes: usize,
}

impl CheckpointManager {
    /// Figures at this moment.
    pub fn stats(&self) -> CheckpointManagerStats {
        let queued = self.queued();
        CheckpointManagerStats {
            open_checkpoint_id: self.open_id,
            items: queued.items as usize,
            open_items: self.open.items,
            queue_bytes: self.closed_held.slot_bytes + self.open.slots.bytes(),
            item_bytes: queued.bytes as usize,
            own_bytes: self.own_bytes(),
            cursors: self.cursors.iter().map(|cursor| self.cursor_stats(cursor)).collect(),
            checkpoints: self.checkpoint_stats(),
        }
    }

    /// Id of the oldest checkpoint that is still here.
    fn first_id(&self) -> u64 {
        debug_assert!(self.open_id > self.closed.len() as u64, "ids of checkpoints begin at 1");
        self.open_id - self.closed.len() as u64
    }

    /// Id and first seqno of the checkpoint that holds `seqno` or will.
    fn checkpoint_of(&self, seqno: u64) -> (u64, u64) {
        let index = self.closed.partition_point(|closed| closed.end < seqno);
        match self.closed.get(index) {
            Some(closed) => (self.first_id() + index as u64, closed.start),
            None => (self.open_id, self.open.start),
        }
    }

    fn cursor_stats(&self, cursor: &Cursor) -> CursorStats {
        let next = cursor.position() + 1;
        let (checkpoint_id, start) = self.checkpoint_of(next);
        CursorStats {
            name: Arc::clone(&cursor.name),
            checkpoint_id,
            seqno: Seqno(cursor.position()),
            visits: cursor.visits,
            remaining: self.remaining_of(cursor),
            distance: next.saturating_sub(start),
        }
    }

    fn checkpoint_stats(&self) -> Vec<CheckpointStats> {
        let mut all = Vec::with_capacity(self.checkpoint_count());
        for (id, closed) in (self.first_id()..).zip(&self.closed) {
            all.push(CheckpointStats {
                id,
                is_open: false,
                items: closed.items,
                snapshot_start: Seqno(closed.start),
                snapshot_end: Seqno(closed.end),
                cursors: self.cursors_in(id),
                item_bytes: closed.item_bytes,
                queue_bytes: closed.slot_bytes(),
            });
        }
        all.push(CheckpointStats {
            id: self.open_id,
            is_open: true,
            items: self.open.items,
            snapshot_start: Seqno(self.open.start),
            snapshot_end: Seqno(self.high_seqno),
            cursors: self.cursors_in(self.open_id),
            item_bytes: self.open.item_bytes,
            queue_bytes: self.open.slots.bytes(),
        });
        assert_eq!(all.len(), self.checkpoint_count(), "every checkpoint has figures");
        all
    }

    /// Number of cursors that read from this checkpoint next.
    fn cursors_in(&self, id: u64) -> usize {
        let reads_here = |cursor: &&Cursor| self.checkpoint_of(cursor.position() + 1).0 == id;
        self.cursors.iter().filter(reads_here).count()
    }
}
