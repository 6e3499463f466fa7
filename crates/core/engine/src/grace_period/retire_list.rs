//! Retired memory that waits for the end of its grace period.
//!
//! Owns: the memory, in the order in which it was retired. A look at all of it orders the removals
//! before it and notes the sections that are open; memory retired by then is free when each of them
//! has ended. With no section open it is free at once, which is the usual case. Memory retired
//! since waits for the next check.

use super::registry::slots;
use super::retired::RetiredBlock;
use super::slot::{ReaderSlot, order_removal_before_look};

/// A list that has grown beyond this many entries is given back when it is empty.
const KEPT_ENTRIES_MAX: usize = 4096;
/// Room for the sections of as many threads is made by the first look, so that on most machines no
/// later one allocates.
const SECTIONS_EXPECTED: usize = 16;

/// See the top of the file.
pub(super) struct RetireList {
    retired: Vec<RetiredBlock>,
    /// Entries that were there at the last look. They come first.
    waiting: usize,
    /// Sections that were open at the last look and have not been seen to end.
    open: Vec<(&'static ReaderSlot, u64)>,
    /// Bytes of the entries since the last look.
    fresh_bytes: usize,
}

impl RetireList {
    pub(super) const fn new() -> RetireList {
        RetireList { retired: Vec::new(), waiting: 0, open: Vec::new(), fresh_bytes: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.retired.is_empty()
    }

    /// True when more was retired since the last look than this.
    #[inline]
    pub(super) fn has_more_than(&self, entries: usize, bytes: usize) -> bool {
        debug_assert!(self.waiting <= self.retired.len(), "what waits was retired");
        self.retired.len() - self.waiting > entries || self.fresh_bytes > bytes
    }

    #[inline]
    pub(super) fn add(&mut self, retired: RetiredBlock) {
        debug_assert!(retired.bytes > 0, "retired memory has bytes");
        self.fresh_bytes += retired.bytes;
        self.retired.push(retired);
    }

    /// Takes everything over from another, to be looked at anew.
    pub(super) fn take_over(&mut self, other: &mut RetireList) {
        (other.waiting, other.fresh_bytes) = (0, 0);
        other.retired.drain(..).for_each(|retired| self.add(retired));
        debug_assert!(other.is_empty(), "retired memory has one owner");
    }

    /// Releases what no section can still read.
    pub(super) fn settle(&mut self) {
        self.release_waiting();
        if self.waiting == 0 && !self.retired.is_empty() {
            self.look();
            self.release_waiting();
        }
        if self.retired.is_empty() && self.retired.capacity() > KEPT_ENTRIES_MAX {
            self.retired = Vec::new();
        }
    }

    fn look(&mut self) {
        assert!(
            self.open.is_empty() && self.waiting == 0,
            "a look begins when the last one is over"
        );
        order_removal_before_look();
        if self.open.capacity() == 0 {
            self.open.reserve(SECTIONS_EXPECTED);
        }
        let sections = slots().filter_map(|slot| slot.section().map(|section| (slot, section)));
        self.open.extend(sections);
        (self.waiting, self.fresh_bytes) = (self.retired.len(), 0);
    }

    fn release_waiting(&mut self) {
        assert!(self.waiting <= self.retired.len(), "what waits was retired");
        self.open.retain(|(slot, section)| !slot.has_left(*section));
        if !self.open.is_empty() {
            return;
        }
        for retired in self.retired.drain(..std::mem::take(&mut self.waiting)) {
            // SAFETY: (2) every section that was open at the look has ended, and those that began
            // later cannot find it.
            unsafe { retired.release() }
        }
    }
}
