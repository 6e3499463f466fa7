//! Reference count of an item's block, and who frees it.
//!
//! Owns: the atomic and its memory orderings. Taking a reference needs no ordering, because its
//! taker holds one; giving one up is a release, and the last one is an acquire, so that every
//! holder's reads are over before the block is freed. The atomics come from the parent module: the
//! standard library's in an item, a model checker's in `models/count.rs`, which compiles this same
//! file again and tries every interleaving and ordering.
//!
//! The top three bits of the word are the frequency of use. It begins at zero: a document that is
//! written and never used again leaves memory before any that was used. Only the pager lowers it,
//! under the lock of the item's table. A reader tries once to raise it, and writes nothing when it
//! is saturated, as that of a hot document is. The bit below says that the pager has tried to make
//! the value dense and that it did not become smaller.

use super::atomic::{AtomicU32, Ordering};

/// One step of the frequency.
const USE: u32 = 1 << 29;
const INCOMPRESSIBLE: u32 = USE >> 1;
const COUNT: u32 = INCOMPRESSIBLE - 1;
const FREQUENCY_MAX: u32 = 7;
const _: () = assert!(FREQUENCY_MAX == u32::MAX / USE);

/// The count of one block.
pub(super) struct ReferenceCount(AtomicU32);

impl ReferenceCount {
    /// The count of a block that has one reference and was not used yet.
    pub(super) fn one() -> ReferenceCount {
        ReferenceCount(AtomicU32::new(1))
    }

    /// Counts another reference. The caller holds one.
    #[inline]
    pub(super) fn acquire(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        // A count that reaches the frequency would free a block in use; half the range is out of
        // any real reach.
        assert!(before & COUNT < COUNT / 2, "item reference count overflow");
    }

    /// Counts another reference to a block that no other thread can see yet.
    #[inline]
    pub(super) fn acquire_unshared(&self) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(before & COUNT, 1, "a new block has one reference");
        self.0.store(before + 1, Ordering::Relaxed);
    }

    /// Counts another reference, and the use that it is for.
    #[inline]
    pub(super) fn acquire_for_use(&self) {
        self.acquire();
        self.note_use();
    }

    /// Counts a use without a reference. Another change at the same time may win: one use in many
    /// does not matter.
    #[inline]
    pub(super) fn note_use(&self) {
        let seen = self.0.load(Ordering::Relaxed);
        if seen < FREQUENCY_MAX * USE {
            let raised = seen + USE;
            let _ =
                self.0.compare_exchange_weak(seen, raised, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Gives a reference up. True: it was the last one, and the caller frees the block.
    #[inline]
    #[must_use]
    pub(super) fn release(&self) -> bool {
        // There is no other reference, so none can be copied: there is nothing to write.
        if self.0.load(Ordering::Acquire) & COUNT == 1 {
            return true;
        }
        let before = self.0.fetch_sub(1, Ordering::Release) & COUNT;
        debug_assert!(before > 0, "a reference is given up once");
        if before != 1 {
            return false;
        }
        // Only the last holder must see every other holder's reads finished. A load instead of a
        // fence, because ThreadSanitizer does not follow fences.
        self.0.load(Ordering::Acquire);
        true
    }

    /// Gives two references up, as [`ReferenceCount::release`] gives up one.
    #[inline]
    #[must_use]
    pub(super) fn release_two(&self) -> bool {
        if self.0.load(Ordering::Acquire) & COUNT == 2 {
            return true;
        }
        let before = self.0.fetch_sub(2, Ordering::Release) & COUNT;
        debug_assert!(before > 1, "a reference is given up once");
        if before != 2 {
            return false;
        }
        self.0.load(Ordering::Acquire);
        true
    }

    /// References at this moment.
    pub(super) fn references(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & COUNT
    }

    /// How often the block was used, from 0 to 7.
    pub(super) fn frequency(&self) -> u32 {
        self.0.load(Ordering::Relaxed) / USE
    }

    /// Lowers the frequency by one.
    pub(super) fn age(&self) {
        if self.frequency() > 0 {
            self.0.fetch_sub(USE, Ordering::Relaxed);
        }
    }

    /// Notes that the value does not become smaller.
    pub(super) fn note_incompressible(&self) {
        let before = self.0.fetch_or(INCOMPRESSIBLE, Ordering::Relaxed);
        assert!(before & COUNT > 0, "the caller has a reference");
    }

    pub(super) fn is_incompressible(&self) -> bool {
        self.0.load(Ordering::Relaxed) & INCOMPRESSIBLE != 0
    }

    /// Takes the frequency of the version before, for a block that no other thread can see yet. To
    /// be written again is a use: at least one is left.
    pub(super) fn inherit(&self, before: &ReferenceCount) {
        debug_assert_eq!(self.references(), 1, "a new block has one reference");
        self.0.store((before.frequency().max(1) * USE) | 1, Ordering::Relaxed);
    }

    /// Takes the frequency of the block that this one is a copy of; no other thread can see it yet.
    pub(super) fn copy_frequency(&self, of: &ReferenceCount) {
        debug_assert_eq!(self.references(), 1, "a new block has one reference");
        self.0.store((of.frequency() * USE) | 1, Ordering::Relaxed);
    }
}
