//! A closed checkpoint: it takes no more mutations and nothing in it is deduplicated.
//!
//! Owns: its slots, for ever as they are, and its sums. Because it does not change it can be read without any
//! lock by whoever holds a reference, and it leaves the queue as one pointer, however much is in it.
//! The one thing that changes is an account: bytes of blocks that the hash table has let go of
//! meanwhile, so that only the queue still holds them. It is written under the queue lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_types::Timestamp;

use super::cursor::Mark;
use super::open::OpenCheckpoint;
use super::slots::Slots;
use super::{Held, Sums};
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
    slots: Slots,
    orphan_bytes: AtomicUsize,
}

impl ClosedCheckpoint {
    pub(super) fn new(open: OpenCheckpoint, end: u64, sums_before: Sums) -> ClosedCheckpoint {
        ClosedCheckpoint {
            start: open.start,
            end,
            items: open.items,
            item_bytes: open.item_bytes,
            tombstones: open.tombstones,
            sums_before,
            slots: open.slots,
            orphan_bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes of the checkpoint without its items: its slots and itself with two counts.
    pub(super) fn slot_bytes(&self) -> usize {
        self.slots.bytes() + size_of::<ClosedCheckpoint>() + 2 * size_of::<usize>()
    }

    /// Memory that only the queue holds.
    pub(super) fn held(&self) -> Held {
        let orphan_bytes = self.orphan_bytes.load(Ordering::Relaxed);
        Held { slot_bytes: self.slot_bytes(), orphan_bytes }
    }

    /// Takes note that the table has let go of the version of `seqno`; its bytes, or 0 when it is not here.
    pub(super) fn orphan(&self, seqno: u64) -> usize {
        let bytes = self.slots.get(seqno - self.start).map_or(0, ItemRef::block_bytes);
        self.orphan_bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Sums over all checkpoints up to and with this one.
    pub(super) fn sums_through(&self) -> Sums {
        Sums {
            items: self.sums_before.items + self.items as u64,
            bytes: self.sums_before.bytes + self.item_bytes as u64,
        }
    }

    /// Items up to `seqno`, which is in it, since the queue was made.
    pub(super) fn items_up_to(&self, seqno: u64) -> u64 {
        self.sums_before.items + self.slots.live_before(seqno + 1 - self.start) as u64
    }

    /// Where a cursor stands that has read all of it.
    pub(super) fn end_mark(&self) -> Mark {
        Mark { seqno: self.end, items: self.sums_through().items }
    }

    /// Its items behind `seqno`, in order.
    pub(super) fn items_after(&self, seqno: u64) -> impl Iterator<Item = &ItemRef> {
        self.slots.items_from((seqno + 1).saturating_sub(self.start))
    }
}

/// The upper 48 bits of a CAS are the wall clock at the time of the mutation.
pub(super) fn queued_at(item: &ItemRef) -> Timestamp {
    Timestamp { unix_ns: item.cas().0 & !0xffff }
}
