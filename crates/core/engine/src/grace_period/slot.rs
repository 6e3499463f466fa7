//! The read sections of one thread, as others see them.
//!
//! Owns: the count of sections and its memory orderings. The count is odd while a section is open.
//! Only its thread writes it. The atomics come from the parent module: the standard library's in
//! the server, a model checker's in `models/grace.rs`, which compiles this same file again and
//! tries every interleaving and ordering.
//!
//! Why a reader and a writer cannot miss each other: the reader stores an odd count, then a fence,
//! then reads a pointer. The writer stores another pointer, then a fence, then reads the count. The
//! fences have one order. Either the reader's comes first, and the writer sees the odd count and
//! waits; or the writer's does, and the reader sees the other pointer.

use super::atomic::{AtomicU64, Ordering, fence};

/// The sections of one thread. Its cache lines are its own: neighbours are loaded in pairs.
#[repr(align(128))]
pub(super) struct ReaderSlot(AtomicU64);

impl ReaderSlot {
    pub(super) fn new() -> ReaderSlot {
        ReaderSlot(AtomicU64::new(0))
    }

    /// Opens a section. Only the slot's thread calls this.
    #[inline]
    pub(super) fn enter(&self) {
        let sections = self.0.load(Ordering::Relaxed);
        debug_assert!(sections.is_multiple_of(2), "a section is open");
        // A release: a thread that sees this section must also see the end of the previous one.
        self.0.store(sections + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Ends the section: everything that was read in it was read before.
    #[inline]
    pub(super) fn leave(&self) {
        let sections = self.0.load(Ordering::Relaxed);
        debug_assert!(!sections.is_multiple_of(2), "no section is open");
        self.0.store(sections + 1, Ordering::Release);
    }

    /// The section that is open.
    #[inline]
    pub(super) fn section(&self) -> Option<u64> {
        let sections = self.0.load(Ordering::Acquire);
        (!sections.is_multiple_of(2)).then_some(sections)
    }

    /// True once a section that was open has ended.
    #[inline]
    pub(super) fn has_left(&self, section: u64) -> bool {
        debug_assert!(!section.is_multiple_of(2), "an open section has an odd number");
        self.0.load(Ordering::Acquire) != section
    }
}

/// Between the removal of what readers could find and the look at their slots.
#[inline]
pub(super) fn order_removal_before_look() {
    fence(Ordering::SeqCst);
}
