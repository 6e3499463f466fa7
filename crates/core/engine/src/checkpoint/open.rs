//! The open checkpoint: the last one, which takes new mutations and in which they are deduplicated.
//!
//! Owns: its slots and exact sums over their items. A read closes it first, except that a stream
//! which keeps up copies the few references that it does not have yet. Called by the manager.

use std::mem::offset_of;

use oribi_types::Seqno;

use super::slots::Slots;
use crate::item::ItemRef;

/// The fields that an enqueue changes come first.
#[repr(C)]
pub(super) struct OpenCheckpoint {
    /// Seqno of the first slot.
    pub(super) start: u64,
    /// Items in it, and bytes of their blocks.
    pub(super) items: usize,
    pub(super) item_bytes: usize,
    /// Tombstones that were ever put in.
    pub(super) tombstones: usize,
    pub(super) slots: Slots,
}

impl OpenCheckpoint {
    /// Bytes of it that an enqueue changes, besides its slot.
    pub(super) const ENQUEUED_BYTES: usize = offset_of!(OpenCheckpoint, slots);

    pub(super) fn new(start: u64) -> OpenCheckpoint {
        OpenCheckpoint { start, items: 0, item_bytes: 0, tombstones: 0, slots: Slots::default() }
    }

    /// Queues a version under the next seqno.
    #[inline]
    pub(super) fn push(&mut self, item: ItemRef) {
        debug_assert!(item.seqno().0 >= self.start, "seqnos of a checkpoint ascend");
        self.items += 1;
        self.item_bytes += item.block_bytes();
        self.tombstones += usize::from(item.is_deleted());
        self.slots.push(item.seqno().0 - self.start, item);
    }

    /// Queues a version whose seqno may leave a gap. A checkpoint is filled by this or by
    /// [`OpenCheckpoint::push`], never by both.
    pub(super) fn push_sparse(&mut self, item: ItemRef) {
        debug_assert!(item.seqno().0 >= self.start, "seqnos of a checkpoint ascend");
        self.items += 1;
        self.item_bytes += item.block_bytes();
        self.tombstones += usize::from(item.is_deleted());
        self.slots.push_sparse(item.seqno().0 - self.start, item);
    }

    /// Takes out the version of this seqno, if it is here.
    pub(super) fn take_sparse(&mut self, seqno: Seqno) -> Option<ItemRef> {
        let item = self.slots.take_sparse(seqno.0 - self.start)?;
        assert_eq!(item.seqno(), seqno, "a slot holds the item of its seqno");
        debug_assert!(self.items > 0, "an open checkpoint counts its items");
        debug_assert!(self.item_bytes >= item.block_bytes(), "an open checkpoint counts its bytes");
        self.items -= 1;
        self.item_bytes -= item.block_bytes();
        Some(item)
    }

    /// Number of its items after `seqno`.
    pub(super) fn count_after(&self, seqno: u64) -> usize {
        self.slots.live_from((seqno + 1).saturating_sub(self.start))
    }

    /// Its items after `seqno`, in order.
    pub(super) fn items_after(&self, seqno: u64) -> impl Iterator<Item = &ItemRef> {
        self.slots.items_from((seqno + 1).saturating_sub(self.start))
    }

    /// Takes out the version of this seqno, which is in the open checkpoint.
    #[inline]
    pub(super) fn take(&mut self, seqno: Seqno) -> Option<ItemRef> {
        let item = self.slots.take(seqno.0 - self.start)?;
        assert_eq!(item.seqno(), seqno, "a slot holds the item of its seqno");
        debug_assert!(self.items > 0, "an open checkpoint counts its items");
        debug_assert!(self.item_bytes >= item.block_bytes(), "an open checkpoint counts its bytes");
        self.items -= 1;
        self.item_bytes -= item.block_bytes();
        Some(item)
    }
}
