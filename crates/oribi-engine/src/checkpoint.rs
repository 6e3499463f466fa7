//! The checkpoint manager: a vbucket's in-memory mutation queue.
//!
//! Owns: seqno and CAS assignment, the queue of items not yet read by every cursor, and the cursors.
//! "Checkpoint" is this queue, never a disk act.
//!
//! Shape. Every enqueue takes exactly one slot and one seqno, so the slot of seqno `s` is the one at
//! index `s - base` and no key index is needed: the hash table knows a key's previous version, its
//! seqno says where its slot is, and taking the item out of that slot is the whole deduplication.
//! Slots live in fixed-size chunks. Checkpoints are ranges of seqnos over the same chunks; only the
//! last one is open, and only slots of the open one are deduplicated, so whole checkpoints are the
//! unit in which a cursor reads: a cut at a checkpoint's end leaves no key whose older version was
//! taken out in favour of one behind the cut.
//!
//! Invariants:
//! 1. `high_seqno` and `max_cas` only grow; each enqueue raises both.
//! 2. There is always exactly one open checkpoint, the last; ranges are contiguous.
//! 3. Within one checkpoint a key has at most one live slot, its newest.
//! 4. A slot is dropped only when every cursor has passed it.
//! 5. A cursor's `remaining` equals the number of live slots behind its read position.
//!
//! The caller holds the vbucket's queue lock. Items to be freed are handed back to the caller, who
//! drops them after the lock is released. It knows neither the hash table nor the store.

use std::collections::VecDeque;

use oribi_types::{Cas, RevSeqno, Seqno, Timestamp};

use crate::item::{ItemRef, NewItem};
use crate::limits::{CHECKPOINT_BYTES_MAX, CHECKPOINT_ITEMS_MAX, CHUNK_SLOTS};

mod cursor;
mod stats;
#[cfg(test)]
mod tests;

use cursor::Cursor;
pub use cursor::CursorId;
pub use stats::{CheckpointManagerStats, CheckpointStats, CursorStats};

/// Consecutive slots, with sums over the live ones so that expelling never visits items.
struct Chunk {
    slots: Vec<Option<ItemRef>>,
    live_items: usize,
    live_bytes: usize,
}

/// A checkpoint that takes no more mutations: nothing in it is deduplicated either, so its sums
/// stay as they are.
struct Closed {
    start: u64,
    end: u64,
    items: usize,
    bytes: usize,
}

/// Slots that no cursor needs any more, to be dropped without a lock.
#[derive(Default)]
pub struct Expelled(VecDeque<Chunk>);

impl Expelled {
    /// Items that were still live in those slots.
    pub fn items(&self) -> impl Iterator<Item = &ItemRef> {
        self.0.iter().flat_map(|chunk| &chunk.slots).flatten()
    }
}

/// What an enqueue did.
pub struct Enqueued {
    /// The item, now with CAS and seqno, for the hash table.
    pub item: ItemRef,
    /// The version it replaced in the queue, to be dropped after the locks are released.
    pub displaced: Option<ItemRef>,
}

/// What one read by a cursor returned.
#[derive(Default)]
pub struct CursorBatch {
    /// Live items in ascending seqno.
    pub items: Vec<ItemRef>,
    /// The batch is complete up to here, also where slots were empty.
    pub end: Seqno,
    /// Highest CAS handed out up to `end`, or later.
    pub max_cas: Cas,
    /// True when more was queued behind `end` at the time of the read.
    pub more: bool,
}

/// Queue of one vbucket.
pub struct CheckpointManager {
    chunks: VecDeque<Chunk>,
    /// Seqno of the first slot of the first chunk.
    base: u64,
    /// Last seqno before the queue was made.
    seqno_at_start: u64,
    high_seqno: u64,
    max_cas: u64,
    /// Closed checkpoints that are not expelled yet, oldest first.
    closed: VecDeque<Closed>,
    /// Number of the open checkpoint; the first one is 1.
    open_id: u64,
    open_start: u64,
    /// Items of the open checkpoint, expelled ones included; likewise their bytes.
    open_items: usize,
    open_bytes: usize,
    live_items: usize,
    live_bytes: usize,
    cursors: Vec<Cursor>,
}

impl CheckpointManager {
    /// A queue that continues after `high_seqno` and above `max_cas`.
    pub fn new(high_seqno: Seqno, max_cas: Cas) -> CheckpointManager {
        CheckpointManager {
            chunks: VecDeque::new(),
            base: high_seqno.0 + 1,
            seqno_at_start: high_seqno.0,
            high_seqno: high_seqno.0,
            max_cas: max_cas.0,
            closed: VecDeque::new(),
            open_id: 1,
            open_start: high_seqno.0 + 1,
            open_items: 0,
            open_bytes: 0,
            live_items: 0,
            live_bytes: 0,
            cursors: Vec::new(),
        }
    }

    /// Last seqno assigned.
    pub fn high_seqno(&self) -> Seqno {
        Seqno(self.high_seqno)
    }

    /// Highest CAS assigned.
    pub fn max_cas(&self) -> Cas {
        Cas(self.max_cas)
    }

    /// The first seqno whose slot may still be in the queue.
    pub fn lowest_needed(&self) -> Seqno {
        Seqno(self.base)
    }

    /// Bytes of live items and of the slots around them.
    pub fn queue_bytes(&self) -> usize {
        self.live_bytes + self.chunks.len() * CHUNK_SLOTS * size_of::<Option<ItemRef>>()
    }

    /// Mutations queued since the queue was made.
    pub fn enqueued(&self) -> u64 {
        self.high_seqno - self.seqno_at_start
    }

    /// Wall clock of the oldest item that `cursor` has not read: the upper 48 bits of its CAS.
    /// Skips whole chunks without live items, so it looks at one chunk's slots at most.
    pub fn oldest_unread(&self, cursor: CursorId) -> Option<Timestamp> {
        let cursor = &self.cursors[cursor.0];
        if cursor.remaining == 0 {
            return None;
        }
        let from = (cursor.read_to + 1).saturating_sub(self.base) as usize;
        let chunks = self.chunks.iter().enumerate().skip(from / CHUNK_SLOTS);
        let mut unread =
            chunks.filter(|(_, chunk)| chunk.live_items > 0).flat_map(|(at, chunk)| {
                let first = from.saturating_sub(at * CHUNK_SLOTS);
                chunk.slots.iter().skip(first).flatten()
            });
        unread.next().map(|item| Timestamp { unix_ns: item.cas().0 & !0xffff })
    }

    /// Number of checkpoints, the open one included.
    pub fn checkpoint_count(&self) -> usize {
        self.closed.len() + 1
    }

    /// Registers a cursor that will read everything queued from now on and all that is still here.
    pub fn register_cursor(&mut self, name: &'static str) -> CursorId {
        let position = self.base - 1;
        self.cursors.push(Cursor::new(name, position, self.live_items));
        CursorId(self.cursors.len() - 1)
    }

    /// Assigns seqno and CAS to `new` and queues it, if there is a cursor to read it. `previous` is the seqno of the version of the
    /// same key that the hash table holds (a tombstone counts), if there is one.
    pub fn enqueue(
        &mut self,
        mut new: NewItem,
        previous: Option<Seqno>,
        rev: RevSeqno,
        now: Timestamp,
    ) -> Enqueued {
        let is_read = !self.cursors.is_empty();
        if is_read {
            self.close_full_checkpoint();
        }
        self.high_seqno += 1;
        // Hybrid logical clock: wall clock in the upper 48 bits, a counter below, never backwards.
        self.max_cas = (now.unix_ns & !0xffff).max(self.max_cas + 1);
        new.set_version(Cas(self.max_cas), Seqno(self.high_seqno), rev);
        let item = new.publish();
        if !is_read {
            self.base = self.high_seqno + 1;
            self.open_start = self.base;
            return Enqueued { item, displaced: None };
        }
        let bytes = item.block_bytes();
        let displaced = previous.and_then(|previous| self.displace(previous));
        self.push(item.clone(), bytes);
        self.open_items += 1;
        self.open_bytes += bytes;
        self.live_items += 1;
        self.live_bytes += bytes;
        for cursor in &mut self.cursors {
            cursor.remaining += 1;
        }
        Enqueued { item, displaced }
    }

    /// Items that `cursor` has not read yet.
    pub fn remaining(&self, cursor: CursorId) -> usize {
        self.cursors[cursor.0].remaining
    }

    /// Reads everything behind the cursor in whole checkpoints, at least one, and further ones while
    /// fewer than `items_max` items were taken. The cursor's position moves by [`Self::advance`] only.
    pub fn read(&mut self, cursor: CursorId, items_max: usize) -> CursorBatch {
        let from = self.cursors[cursor.0].position + 1;
        let mut batch =
            CursorBatch { end: Seqno(from - 1), max_cas: Cas(self.max_cas), ..Default::default() };
        let ends = self.closed.iter().map(|closed| closed.end).chain([self.high_seqno]);
        for end in ends.filter(|end| *end >= from) {
            if !batch.items.is_empty() && batch.items.len() >= items_max {
                break;
            }
            let start = batch.end.0 + 1;
            batch.items.extend((start..=end).filter_map(|seqno| self.slot(seqno).cloned()));
            batch.end = Seqno(end);
        }
        batch.more = batch.end.0 < self.high_seqno;
        let reader = &mut self.cursors[cursor.0];
        reader.remaining -= batch.items.len();
        reader.read_to = batch.end.0;
        reader.visits += 1;
        batch
    }

    /// Accepts the last read: everything up to its end counts as processed.
    pub fn advance(&mut self, cursor: CursorId) {
        let cursor = &mut self.cursors[cursor.0];
        cursor.position = cursor.read_to;
    }

    /// Takes the last read back: the same items, less those deduplicated since, will be read again.
    pub fn rewind(&mut self, cursor: CursorId) {
        let position = self.cursors[cursor.0].position;
        let remaining =
            (position + 1..=self.high_seqno).filter(|seqno| self.slot(*seqno).is_some()).count();
        let cursor = &mut self.cursors[cursor.0];
        cursor.read_to = position;
        cursor.remaining = remaining;
    }

    /// Takes out the chunks that every cursor has passed. The lock is held for a few pointer moves,
    /// whatever the number of items: chunks leave by splice and are dropped by the caller.
    pub fn expel(&mut self) -> Expelled {
        let lowest =
            self.cursors.iter().map(|cursor| cursor.position).min().unwrap_or(self.high_seqno);
        while self.closed.front().is_some_and(|closed| closed.end <= lowest) {
            self.closed.pop_front();
        }
        if lowest >= self.high_seqno {
            self.base = self.high_seqno + 1;
            self.live_items = 0;
            self.live_bytes = 0;
            return Expelled(std::mem::take(&mut self.chunks));
        }
        let whole = (lowest + 1).saturating_sub(self.base) as usize / CHUNK_SLOTS;
        let rest = self.chunks.split_off(whole);
        let gone = Expelled(std::mem::replace(&mut self.chunks, rest));
        self.base += (whole * CHUNK_SLOTS) as u64;
        self.live_items -= gone.0.iter().map(|chunk| chunk.live_items).sum::<usize>();
        self.live_bytes -= gone.0.iter().map(|chunk| chunk.live_bytes).sum::<usize>();
        gone
    }

    /// Empties the queue; seqno and CAS go on from where they are, and every cursor is at the end.
    pub fn clear(&mut self) -> Expelled {
        for cursor in &mut self.cursors {
            cursor.position = self.high_seqno;
            cursor.read_to = self.high_seqno;
            cursor.remaining = 0;
        }
        self.closed.clear();
        self.open_next_checkpoint();
        self.expel()
    }

    fn close_full_checkpoint(&mut self) {
        let items = self.high_seqno + 1 - self.open_start;
        if items > 0 && (items >= CHECKPOINT_ITEMS_MAX || self.open_bytes >= CHECKPOINT_BYTES_MAX) {
            self.closed.push_back(Closed {
                start: self.open_start,
                end: self.high_seqno,
                items: self.open_items,
                bytes: self.open_bytes,
            });
            self.open_next_checkpoint();
        }
    }

    fn open_next_checkpoint(&mut self) {
        self.open_id += 1;
        self.open_start = self.high_seqno + 1;
        self.open_items = 0;
        self.open_bytes = 0;
    }

    /// Takes the previous version out of the open checkpoint, if its slot is still there.
    fn displace(&mut self, previous: Seqno) -> Option<ItemRef> {
        if previous.0 < self.open_start.max(self.base) {
            return None;
        }
        let index = (previous.0 - self.base) as usize;
        let chunk = self.chunks.get_mut(index / CHUNK_SLOTS)?;
        let old = chunk.slots.get_mut(index % CHUNK_SLOTS)?.take()?;
        assert_eq!(old.seqno(), previous, "a slot holds the item of its seqno");
        let bytes = old.block_bytes();
        chunk.live_items -= 1;
        chunk.live_bytes -= bytes;
        self.open_items -= 1;
        self.open_bytes -= bytes;
        self.live_items -= 1;
        self.live_bytes -= bytes;
        for cursor in &mut self.cursors {
            if cursor.read_to < previous.0 {
                cursor.remaining -= 1;
            }
        }
        Some(old)
    }

    fn push(&mut self, item: ItemRef, bytes: usize) {
        if self.chunks.back().is_none_or(|chunk| chunk.slots.len() == CHUNK_SLOTS) {
            let slots = Vec::with_capacity(CHUNK_SLOTS);
            self.chunks.push_back(Chunk { slots, live_items: 0, live_bytes: 0 });
        }
        let chunk = self.chunks.back_mut().expect("a chunk with room was just made sure of");
        chunk.slots.push(Some(item));
        chunk.live_items += 1;
        chunk.live_bytes += bytes;
    }

    fn slot(&self, seqno: u64) -> Option<&ItemRef> {
        let index = seqno.checked_sub(self.base)? as usize;
        self.chunks.get(index / CHUNK_SLOTS)?.slots.get(index % CHUNK_SLOTS)?.as_ref()
    }
}
