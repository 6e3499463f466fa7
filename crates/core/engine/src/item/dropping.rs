//! Letting go of an item's block: one reference, or both at once that table and queue had.
//!
//! Owns: which thread retires the block. The numbers of unsafe invariants are those of `item.rs`.

use std::mem::ManuallyDrop;

use super::ItemRef;
use crate::block_arena;
use crate::grace_period::{RetiredBlock, retire};

impl Drop for ItemRef {
    fn drop(&mut self) {
        if self.header().refcount.release() {
            self.retire();
        }
    }
}

/// Drops the references that table and queue had to a version. If they have one block and nothing
/// else has it, that is only read: other cores may have its line.
#[inline]
pub(crate) fn drop_both(first: ItemRef, second: ItemRef) {
    if !first.same_block(&second) {
        return;
    }
    let (first, second) = (ManuallyDrop::new(first), ManuallyDrop::new(second));
    if first.header().refcount.release_two() {
        second.retire();
    }
}

impl ItemRef {
    /// Retires the block, whose last count was given up.
    #[inline]
    fn retire(&self) {
        self.release_dictionary();
        let (address, bytes) = (self.allocation(), self.allocated_bytes());
        debug_assert!(bytes >= super::HEADER_BYTES, "a block has a header");
        // SAFETY: (1, 4) this was the last count, no slot leads to the block any more, and the
        // length is the one of the allocation.
        unsafe { retire(RetiredBlock { address, bytes, release: block_arena::free }) }
    }
}
