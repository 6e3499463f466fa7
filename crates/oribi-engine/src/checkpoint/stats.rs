//! Figures of one vbucket's checkpoint queue.
//!
//! Owns: their types and how they are taken from the queue: from sums that are kept anyway, plus a
//! look at the slots of the first chunk, so the queue lock is held for a time that depends on the
//! number of checkpoints and never on the number of items. Called by the vbucket.

use oribi_types::Seqno;

use super::{CHUNK_SLOTS, CheckpointManager, Cursor};
use crate::item::ItemRef;

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
    /// Readers of the queue, in order of registration.
    pub cursors: Vec<CursorStats>,
    /// Oldest first; the last one is open.
    pub checkpoints: Vec<CheckpointStats>,
}

/// Figures of one reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorStats {
    /// Name.
    pub name: &'static str,
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
    /// Items in memory.
    pub items: usize,
    /// First seqno; one above `snapshot_end` while the checkpoint is new.
    pub snapshot_start: Seqno,
    /// Last seqno.
    pub snapshot_end: Seqno,
    /// Last seqno of the checkpoint whose slot has left memory, 0 for none.
    pub highest_expelled: Seqno,
    /// Readers that read from it next.
    pub cursors: usize,
    /// Bytes of the items' blocks.
    pub item_bytes: usize,
    /// Bytes of the slots around the items.
    pub queue_bytes: usize,
}

/// Number and bytes of some items.
#[derive(Clone, Copy, Default)]
struct Sums {
    items: usize,
    bytes: usize,
}

impl CheckpointManager {
    /// Figures at this moment.
    pub fn stats(&self) -> CheckpointManagerStats {
        let checkpoints = self.checkpoint_stats();
        let open = checkpoints.last().expect("there is always an open checkpoint");
        CheckpointManagerStats {
            open_checkpoint_id: self.open_id,
            items: self.live_items,
            open_items: open.items,
            queue_bytes: self.chunks.len() * CHUNK_SLOTS * size_of::<Option<ItemRef>>(),
            item_bytes: self.live_bytes,
            cursors: self.cursors.iter().map(|cursor| self.cursor_stats(cursor)).collect(),
            checkpoints,
        }
    }

    /// Id of the oldest checkpoint that is still here.
    fn first_id(&self) -> u64 {
        self.open_id - self.closed.len() as u64
    }

    /// Id and first seqno of the checkpoint that holds `seqno` or will.
    fn checkpoint_of(&self, seqno: u64) -> (u64, u64) {
        let index = self.closed.partition_point(|closed| closed.end < seqno);
        match self.closed.get(index) {
            Some(closed) => (self.first_id() + index as u64, closed.start),
            None => (self.open_id, self.open_start),
        }
    }

    fn cursor_stats(&self, cursor: &Cursor) -> CursorStats {
        let (checkpoint_id, start) = self.checkpoint_of(cursor.position + 1);
        CursorStats {
            name: cursor.name,
            checkpoint_id,
            seqno: Seqno(cursor.position),
            visits: cursor.visits,
            remaining: cursor.remaining,
            distance: (cursor.position + 1).saturating_sub(start),
        }
    }

    fn checkpoint_stats(&self) -> Vec<CheckpointStats> {
        let closed = self.closed.iter().map(|closed| {
            (closed.start, closed.end, Sums { items: closed.items, bytes: closed.bytes })
        });
        let open = Sums { items: self.open_items, bytes: self.open_bytes };
        let ranges = closed.chain([(self.open_start, self.high_seqno, open)]);
        let mut all: Vec<CheckpointStats> = (self.first_id()..)
            .zip(ranges)
            .map(|(id, (start, end, sums))| self.checkpoint(id, start, end, sums))
            .collect();
        self.correct_first(&mut all);
        all
    }

    fn checkpoint(&self, id: u64, start: u64, end: u64, sums: Sums) -> CheckpointStats {
        let kept_from = start.max(self.base);
        let slots = (end + 1).saturating_sub(kept_from) as usize;
        let reads_here = |cursor: &&Cursor| self.checkpoint_of(cursor.position + 1).0 == id;
        CheckpointStats {
            id,
            is_open: id == self.open_id,
            items: sums.items,
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
            highest_expelled: Seqno(if self.base > start { self.base - 1 } else { 0 }),
            cursors: self.cursors.iter().filter(reads_here).count(),
            item_bytes: sums.bytes,
            queue_bytes: slots * size_of::<Option<ItemRef>>(),
        }
    }

    /// The sums of a checkpoint count what it ever held. Only the oldest one may have lost slots,
    /// so it has what the others leave of the total; slots of checkpoints before it, which stay
    /// until their whole chunk can go, are looked at one by one.
    fn correct_first(&self, all: &mut [CheckpointStats]) {
        let Some((first, others)) = all.split_first_mut() else { return };
        let before = (self.base..first.snapshot_start.0).filter_map(|seqno| self.slot(seqno));
        let mut elsewhere = Sums::default();
        for item in before {
            elsewhere.items += 1;
            elsewhere.bytes += item.block_bytes();
        }
        for other in others {
            elsewhere.items += other.items;
            elsewhere.bytes += other.item_bytes;
        }
        first.items = self.live_items - elsewhere.items;
        first.item_bytes = self.live_bytes - elsewhere.bytes;
    }
}
