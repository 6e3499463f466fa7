//! How many references an item's block has, and who frees it.
//!
//! Owns: the atomic and its memory orderings. Taking a reference needs no ordering, because whoever takes one holds one;
//! giving one up is a release, and the last one is an acquire, so that every holder's reads are over before the block
//! is freed. The atomics come from the parent module: the standard library's in an item, a model checker's in
//! `models/count.rs`, which compiles this same file again and tries every interleaving and ordering.

use super::atomic::{AtomicU32, Ordering};

/// The count of one block.
pub(super) struct ReferenceCount(AtomicU32);

impl ReferenceCount {
    /// The count of a block that has one reference.
    pub(super) fn one() -> ReferenceCount {
        ReferenceCount(AtomicU32::new(1))
    }

    /// Counts another reference. The caller holds one.
    #[inline]
    pub(super) fn acquire(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        // A count that wraps would free a block in use; half the range is out of any real reach.
        assert!(before < u32::MAX / 2, "item reference count overflow");
    }

    /// Gives a reference up. True: it was the last one, and the caller frees the block.
    #[inline]
    #[must_use]
    pub(super) fn release(&self) -> bool {
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Only the last holder must see every other holder's reads finished. A load instead of a
        // fence, because ThreadSanitizer does not follow fences.
        self.0.load(Ordering::Acquire);
        true
    }
}
