//! The checkpoint manager: a vbucket's in-memory mutation queue.
//!
//! Owns: seqno and CAS assignment, the queue of items not yet read by every cursor, and the
//! cursors. "Checkpoint" is this queue, never a disk act.
//!
//! Shape. Every enqueue takes exactly one slot and one seqno, so the slot of a seqno follows from
//! it by arithmetic and no key index is needed: the hash table knows a key's previous version, its
//! seqno says where its slot is, and taking the item out of that slot is the whole deduplication.
//! Slots belong to checkpoints. The last checkpoint is open: it takes mutations, and in it they are
//! deduplicated. The others are closed: they never change, so a read hands out references to them
//! and a removal takes references out of the list, both in a time that does not depend on how much
//! is in them. A read closes the open checkpoint first. Whole checkpoints are the unit of a read: a
//! cut at a checkpoint's end leaves no key whose older version was removed in favour of one after
//! the cut. A flusher coalesces the checkpoints of one read ([`run`]). Streams have a second way to
//! read ([`streaming`]), which leaves the open checkpoint open while they keep up.
//!
//! A replica is given its seqnos ([`replicated`]), which have gaps.
//!
//! Invariants:
//! 1. `high_seqno` and `max_cas` only grow, except at a restart. Each enqueue raises `high_seqno`,
//!    and `max_cas` unless it is given a CAS.
//! 2. There is always exactly one open checkpoint, the last; ranges are contiguous.
//! 3. Within one checkpoint a key has at most one live slot, its newest.
//! 4. A checkpoint leaves only when every cursor has passed its end.
//! 5. Only a stream's cursor stands inside the open checkpoint or at its end. It has read
//!    everything up to there, and no cursor counts items, so deduplication concerns no cursor.
//! 6. `own_bytes` is the memory of all slots, and of the blocks that only the queue holds, until
//!    the caller has freed and settled what left.
//! 7. `has_idle_stream` is true whenever a stream waits to be woken.
//! 8. A pending version displaces nothing. A checkpoint that has one begins with one, and streams
//!    stop in front of it.
//!
//! The caller holds the vbucket's queue lock. Items to be freed are handed back to the caller, who
//! drops them after the lock is released. The queue depends on neither the hash table nor the
//! store.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;

use oribi_types::{Cas, RevSeqno, Seqno, Timestamp};

use crate::item::{ItemRef, NewItem};
use crate::limits::{CHECKPOINT_BYTES_MAX, CHECKPOINT_ITEMS_MAX, CHECKPOINT_SLOTS_MAX};

mod batch;
mod closed;
mod cursor;
mod expelled;
mod invariants;
mod open;
mod pending;
mod positions;
mod reading;
mod removal;
mod replicated;
mod replicated_version;
mod run;
mod slots;
mod stats;
mod stream_batch;
mod streaming;
mod sums;
#[cfg(test)]
mod tests;
mod wake;

pub(crate) use batch::ITEMS_AHEAD;
pub use batch::{CursorBatch, ReadLimits};
use closed::ClosedCheckpoint;
use cursor::Cursors;
pub use cursor::{CursorId, CursorRegistration, DetachedStreams};
pub use expelled::{ExpelledCheckpoints, Settlement};
use open::OpenCheckpoint;
pub use replicated_version::{IncompleteSnapshot, ReplicatedVersion};
pub use run::CheckpointRun;
pub use stats::{CheckpointManagerStats, CheckpointStats, CursorStats};
pub use stream_batch::{BatchGuard, StreamBatch};
use sums::{QueueMemory, Sums};
pub(crate) use wake::StreamOwner;
pub use wake::{StreamSink, StreamWaker};

/// Size at which the open checkpoint closes by itself; a read closes it earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointLimits {
    pub items_max: usize,
    /// Bytes of their blocks.
    pub bytes_max: usize,
    /// Seqnos in it, those of deduplicated mutations included.
    pub slots_max: u64,
}

impl Default for CheckpointLimits {
    fn default() -> CheckpointLimits {
        CheckpointLimits {
            items_max: CHECKPOINT_ITEMS_MAX,
            bytes_max: CHECKPOINT_BYTES_MAX,
            slots_max: CHECKPOINT_SLOTS_MAX,
        }
    }
}

/// Result of an enqueue.
pub struct EnqueueResult {
    /// The item, now with CAS and seqno, for the hash table.
    pub item: ItemRef,
    /// The version it replaced in the queue, to be dropped after the locks are released.
    pub displaced: Option<ItemRef>,
}

/// Queue of one vbucket. What every enqueue changes comes first: with a lock before it, it is one
/// cache line.
#[repr(C)]
pub struct CheckpointManager {
    high_seqno: u64,
    max_cas: u64,
    open: OpenCheckpoint,
    limits: CheckpointLimits,
    /// Last seqno before the queue was made.
    seqno_at_start: u64,
    closed: VecDeque<Arc<ClosedCheckpoint>>,
    /// Number of the open checkpoint; the first one is 1.
    open_id: u64,
    /// Sums over all checkpoints that were ever closed.
    closed_sums: Sums,
    /// Memory of the closed checkpoints, until what left is settled.
    closed_held: QueueMemory,
    cursors: Cursors,
    /// A stream has read to the end and waits to be woken.
    has_idle_stream: bool,
    /// Start of the first checkpoint with a pending version; streams stop in front of it.
    held_from: Option<u64>,
    /// The open checkpoint may have pending versions.
    open_has_pending: bool,
    /// Pending versions that are counted.
    pending: usize,
    /// Of a replica that has received a part of a snapshot.
    incomplete: Option<IncompleteSnapshot>,
    /// Bytes that were reported to the bucket, and bytes of the open checkpoint at which the queue
    /// reports again.
    reported_bytes: usize,
    report_from: usize,
}

impl CheckpointManager {
    /// Bytes of it that an enqueue changes, besides its slot.
    pub(crate) const ENQUEUED_BYTES: usize =
        offset_of!(CheckpointManager, open) + OpenCheckpoint::ENQUEUED_BYTES;

    /// A queue that continues after `high_seqno` and above `max_cas`.
    pub fn new(high_seqno: Seqno, max_cas: Cas) -> CheckpointManager {
        CheckpointManager::with_limits(high_seqno, max_cas, CheckpointLimits::default())
    }

    /// The same with other checkpoints than usual.
    pub fn with_limits(
        high_seqno: Seqno,
        max_cas: Cas,
        limits: CheckpointLimits,
    ) -> CheckpointManager {
        assert!(
            limits.items_max > 0 && limits.slots_max > 0,
            "a checkpoint holds at least one item"
        );
        CheckpointManager {
            high_seqno: high_seqno.0,
            max_cas: max_cas.0,
            open: OpenCheckpoint::new(high_seqno.0 + 1),
            limits,
            seqno_at_start: high_seqno.0,
            closed: VecDeque::new(),
            open_id: 1,
            closed_sums: Sums::default(),
            closed_held: QueueMemory::default(),
            cursors: Cursors::default(),
            has_idle_stream: false,
            held_from: None,
            open_has_pending: false,
            pending: 0,
            incomplete: None,
            reported_bytes: 0,
            report_from: 0,
        }
    }

    pub fn high_seqno(&self) -> Seqno {
        Seqno(self.high_seqno)
    }

    pub fn max_cas(&self) -> Cas {
        Cas(self.max_cas)
    }

    /// Mutations queued since the queue was made.
    pub fn enqueued(&self) -> u64 {
        self.high_seqno.wrapping_sub(self.seqno_at_start)
    }

    /// Number of checkpoints, the open one included.
    pub fn checkpoint_count(&self) -> usize {
        self.closed.len() + 1
    }

    /// Bytes of queued items and of the queue itself: the checkpoint quota limits these. Most of
    /// the items are the hash table's as well.
    pub fn queue_bytes(&self) -> usize {
        let queued = self.queued();
        queued.bytes as usize + self.closed_held.slot_bytes + self.open.slots.bytes()
    }

    /// By how much the queue has grown since the last call; `None` while the open checkpoint has
    /// grown by less than `least` bytes, the error that the quota allows.
    #[inline]
    pub(crate) fn growth(&mut self, least: u64) -> Option<i64> {
        (self.open.item_bytes >= self.report_from).then(|| self.change(least))
    }

    /// By how much the queue has grown or shrunk since the last call of this or of
    /// [`CheckpointManager::growth`], which answers next after `least` more bytes.
    #[cold]
    pub(crate) fn change(&mut self, least: u64) -> i64 {
        let bytes = self.queue_bytes();
        let before = std::mem::replace(&mut self.reported_bytes, bytes);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        self.report_from = self.open.item_bytes.saturating_add(least);
        debug_assert!(bytes >= self.open.item_bytes, "the queue counts the open checkpoint");
        bytes as i64 - before as i64
    }

    /// Bytes of memory that only the queue holds: slots, and blocks that the hash table has
    /// released.
    pub fn own_bytes(&self) -> usize {
        let closed = self.closed_held;
        debug_assert!(
            closed.orphan_bytes == 0 || closed.slot_bytes > 0 || self.pending > 0,
            "an orphan is in a checkpoint"
        );
        closed.slot_bytes + closed.orphan_bytes + self.open.slots.bytes()
    }

    /// Bytes of the blocks in the open checkpoint.
    pub fn open_bytes(&self) -> usize {
        self.open.item_bytes
    }

    /// The first seqno whose slot may still be in the queue: everything below it was processed by
    /// all cursors and has left.
    pub fn lowest_needed(&self) -> Seqno {
        Seqno(self.first_start())
    }

    /// CAS and seqno that the next enqueue at this time will assign.
    pub fn next_version(&self, now: Timestamp) -> (Cas, Seqno) {
        // Hybrid logical clock: wall clock in the upper 48 bits, a counter below, never backwards.
        let cas = (now.unix_ns & !0xffff).max(self.max_cas + 1);
        (Cas(cas), Seqno(self.high_seqno + 1))
    }

    /// A CAS for something that is no version: higher than all before it, and lower than all after.
    pub fn take_cas(&mut self, now: Timestamp) -> Cas {
        let (cas, _) = self.next_version(now);
        assert!(cas.0 > self.max_cas, "CAS values ascend");
        self.max_cas = cas.0;
        cas
    }

    /// Assigns seqno and CAS to `new` and queues it, if there is a cursor to read it. `previous` is
    /// the version of the same key that the hash table held (a tombstone counts) and releases now.
    pub fn enqueue(
        &mut self,
        new: NewItem,
        previous: Option<&ItemRef>,
        rev: RevSeqno,
        now: Timestamp,
    ) -> EnqueueResult {
        self.enqueue_with_cas(new, previous, rev, None, now)
    }

    /// As [`CheckpointManager::enqueue`], with a CAS that was assigned elsewhere. It may be lower
    /// than others before it; if it is higher than the clock, the CAS values after it count on from
    /// there.
    #[inline]
    pub fn enqueue_with_cas(
        &mut self,
        mut new: NewItem,
        previous: Option<&ItemRef>,
        rev: RevSeqno,
        given: Option<Cas>,
        now: Timestamp,
    ) -> EnqueueResult {
        // Checkpoints of a dropped cursor keep the ranges contiguous until they are expelled.
        let is_queued = !self.cursors.is_empty() || !self.is_empty();
        if is_queued {
            self.close_if_full();
        }
        let (cas, seqno) = self.next_version(now);
        debug_assert!(
            previous.is_none_or(|previous| previous.seqno() < seqno),
            "versions in order"
        );
        let cas = given.unwrap_or(cas);
        (self.max_cas, self.high_seqno) = (cas.0.max(self.max_cas), seqno.0);
        new.set_version(cas, seqno, rev);
        debug_assert!(seqno.0 >= self.open.start, "a new version enters the open checkpoint");
        if !is_queued {
            self.open.start = self.high_seqno + 1;
            return EnqueueResult { item: new.publish(), displaced: None };
        }
        let (item, queued) = new.publish_twice();
        let displaced = previous.and_then(|previous| self.supersede(previous));
        self.open.push(queued);
        debug_assert_eq!(item.seqno().0, self.high_seqno, "the newest version has the high seqno");
        EnqueueResult { item, displaced }
    }

    /// Queues a version that no table has, in its own checkpoint: a key may be in a checkpoint once
    /// only, and the versions that there are before are not known.
    pub fn enqueue_alone(&mut self, new: NewItem, rev: RevSeqno, now: Timestamp) -> ItemRef {
        self.close_open();
        debug_assert!(self.open.items == 0, "the version is alone in its checkpoint");
        let item = self.enqueue(new, None, rev, now).item;
        if self.close_open() {
            self.orphan(item.seqno().0);
        }
        item
    }

    /// Notes that the hash table releases a version without an overwrite. If the queue still holds
    /// it, its memory is then the queue's.
    pub fn orphaned(&mut self, item: &ItemRef) {
        let seqno = item.seqno().0;
        if seqno >= self.open.start {
            // The open checkpoint holds only versions of the table; a closed one counts the others.
            self.close_open();
        }
        self.orphan(seqno);
    }

    /// Closes the open checkpoint if there is anything in it; true when there was.
    pub fn close_open(&mut self) -> bool {
        if self.open.start > self.high_seqno {
            return false;
        }
        let next = OpenCheckpoint::new(self.high_seqno + 1);
        let open = std::mem::replace(&mut self.open, next);
        let closed =
            ClosedCheckpoint::new(open, self.high_seqno, self.closed_sums, self.incomplete);
        let is_next = self.closed.back().is_none_or(|last| last.end + 1 == closed.start);
        assert!(is_next, "checkpoints of a queue are contiguous");
        assert_eq!(closed.end + 1, self.open.start, "the open checkpoint follows the closed ones");
        self.closed_sums = closed.sums_through();
        self.closed_held.slot_bytes += closed.slot_bytes();
        self.closed.push_back(Arc::new(closed));
        debug_assert!(
            self.closed_sums.bytes >= self.sums_gone().bytes,
            "sums over checkpoints grow"
        );
        self.open_id += 1;
        self.open_has_pending = false;
        assert!(self.open.start > self.high_seqno, "a new open checkpoint has no seqno");
        // The growth since the last report is no longer in the open checkpoint.
        self.report_from = 0;
        true
    }

    fn close_if_full(&mut self) {
        debug_assert!(
            self.open.start <= self.high_seqno + 1,
            "the open checkpoint holds the newest"
        );
        let slots = self.high_seqno + 1 - self.open.start;
        let is_full = self.open.items >= self.limits.items_max
            || self.open.item_bytes >= self.limits.bytes_max
            || slots >= self.limits.slots_max;
        if is_full {
            self.close_open();
        }
    }

    /// A newer version takes the place of `previous` in the table. In the open checkpoint it leaves
    /// the queue as well; elsewhere it stays, and only the queue holds it.
    #[inline]
    fn supersede(&mut self, previous: &ItemRef) -> Option<ItemRef> {
        let seqno = previous.seqno();
        if seqno.0 < self.open.start {
            self.orphan(seqno.0);
            return None;
        }
        let displaced = self.open.take(seqno);
        debug_assert!(displaced.as_ref().is_none_or(|item| item.same_block(previous)), "one block");
        displaced
    }

    fn orphan(&mut self, seqno: u64) {
        debug_assert!(seqno <= self.high_seqno, "a version that is replaced was queued");
        if seqno < self.first_start() {
            return;
        }
        let at = self.closed.partition_point(|closed| closed.end < seqno);
        self.closed_held.orphan_bytes +=
            self.closed.get(at).map_or(0, |closed| closed.orphan(seqno));
    }

    /// First seqno of the oldest checkpoint.
    fn first_start(&self) -> u64 {
        debug_assert!(
            self.closed.front().is_none_or(|closed| closed.start < self.open.start),
            "closed checkpoints precede the open one"
        );
        self.closed.front().map_or(self.open.start, |closed| closed.start)
    }

    /// Items of the open checkpoint, in order.
    pub(crate) fn open_items(&self) -> impl Iterator<Item = &ItemRef> {
        self.open.slots.items_from(0)
    }

    /// True when the queue has no slot, empty or not.
    fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.start > self.high_seqno
    }

    /// Sums over all checkpoints that have left.
    fn sums_gone(&self) -> Sums {
        self.closed.front().map_or(self.closed_sums, |closed| closed.sums_before)
    }

    /// Sums over the queue.
    fn queued(&self) -> Sums {
        let gone = self.sums_gone();
        debug_assert!(gone.items <= self.closed_sums.items, "a checkpoint leaves once");
        debug_assert!(gone.bytes <= self.closed_sums.bytes, "a checkpoint leaves with its bytes");
        Sums {
            items: self.closed_sums.items - gone.items + self.open.items as u64,
            bytes: self.closed_sums.bytes - gone.bytes + self.open.item_bytes as u64,
        }
    }
}
