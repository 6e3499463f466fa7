//! A closed checkpoint: it takes no more mutations and nothing in it is deduplicated.
//!
//! Owns: its slots, for ever as they are, and its sums. Because it does not change, a holder of a
//! reference reads it without a lock, and it leaves the queue as one pointer, whatever its size.
//! Only an account changes, under the queue lock: bytes of blocks that the hash table has released,
//! which only the queue still holds.

use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_types::Timestamp;

use super::open::OpenCheckpoint;
use super::replicated_version::IncompleteSnapshot;
use super::slots::{SlotItems, Slots};
use super::sums::{QueueMemory, Sums};
use crate::item::ItemRef;

pub(super) struct ClosedCheckpoint {
    /// Seqnos of the first slot and of the last one.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) items: usize,
    /// Bytes of the items' blocks.
    pub(super) item_bytes: usize,
    /// Zero means that there is no tombstone in it; otherwise some may have been deduplicated.
    pub(super) tombstones: usize,
    /// Sums over all checkpoints before it, since the queue was made.
    pub(super) sums_before: Sums,
    /// The range of a snapshot of which a replica did not have all when the checkpoint closed: the
    /// last complete seqno, and the snapshot's end.
    pub(super) incomplete: Option<IncompleteSnapshot>,
    slots: Slots,
    orphan_bytes: AtomicUsize,
}

impl ClosedCheckpoint {
    pub(super) fn new(
        open: OpenCheckpoint,
        end: u64,
        sums_before: Sums,
        incomplete: Option<IncompleteSnapshot>,
    ) -> ClosedCheckpoint {
        assert!(open.start <= end, "a checkpoint without a seqno stays open");
        assert!(open.items as u64 <= end - open.start + 1, "an item has its own seqno");
        ClosedCheckpoint {
            start: open.start,
            end,
            items: open.items,
            item_bytes: open.item_bytes,
            tombstones: open.tombstones,
            sums_before,
            incomplete,
            slots: open.slots,
            orphan_bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes of the checkpoint without its items: its slots and itself with two counts.
    pub(super) fn slot_bytes(&self) -> usize {
        self.slots.bytes() + size_of::<ClosedCheckpoint>() + 2 * size_of::<usize>()
    }

    /// Memory that only the queue holds.
    pub(super) fn held(&self) -> QueueMemory {
        let orphan_bytes = self.orphan_bytes.load(Ordering::Relaxed);
        debug_assert!(orphan_bytes <= self.item_bytes, "an orphan is an item of the checkpoint");
        QueueMemory { slot_bytes: self.slot_bytes(), orphan_bytes }
    }

    /// Notes that the table has released the version of `seqno`. Returns its bytes, or 0 when it is
    /// not here.
    pub(super) fn orphan(&self, seqno: u64) -> usize {
        debug_assert!(self.start <= seqno && seqno <= self.end, "a seqno is in its checkpoint");
        let bytes = self.slots.get(seqno - self.start).map_or(0, |item| item.block_bytes());
        let before = self.orphan_bytes.fetch_add(bytes, Ordering::Relaxed);
        debug_assert!(before + bytes <= self.item_bytes, "the table releases a version once");
        bytes
    }

    /// Sums over all checkpoints up to and with this one.
    pub(super) fn sums_through(&self) -> Sums {
        Sums {
            items: self.sums_before.items + self.items as u64,
            bytes: self.sums_before.bytes + self.item_bytes as u64,
        }
    }

    /// Number of its items after `seqno`.
    pub(super) fn count_after(&self, seqno: u64) -> usize {
        debug_assert!(self.start <= self.end, "a closed checkpoint has a seqno");
        match seqno {
            _ if seqno < self.start => self.items,
            _ if seqno >= self.end => 0,
            _ => self.slots.live_from(seqno + 1 - self.start),
        }
    }

    /// Its items after `seqno`, in order.
    pub(super) fn items_after(&self, seqno: u64) -> SlotItems<'_> {
        self.slots.items_from((seqno + 1).saturating_sub(self.start))
    }

    /// The same from the last one on.
    pub(super) fn items_down_after(&self, seqno: u64) -> impl Iterator<Item = &ItemRef> {
        self.slots.items_down_to((seqno + 1).saturating_sub(self.start))
    }
}

/// The upper 48 bits of a CAS are the wall clock at the time of the mutation.
pub(super) fn queued_at(item: &ItemRef) -> Timestamp {
    Timestamp { unix_ns: item.cas().0 & !0xffff }
}
