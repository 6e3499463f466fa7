//! A global allocator for tests that bound memory or allocations: it counts the bytes of the
//! process and the allocations of each thread.
//!
//! Bytes are of all threads, so a test program that bounds them has one test, or its tests take
//! turns. Allocations are of the thread that asks, so the test runner's own do not disturb them.
//!
//! Invariants, cited below:
//! 1. Every call goes to the system's allocator with the arguments it came with, so the system
//!    allocator's guarantees are this one's.
//! 2. Counting touches atomics and a thread-local `Cell`, which neither allocate nor panic: the
//!    cell is initialised by a constant and skipped while its thread ends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the bytes that are allocated, and the most there were.
pub struct CountingAllocator {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl CountingAllocator {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> CountingAllocator {
        CountingAllocator { now: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// The bytes at this moment.
    pub fn allocated(&self) -> usize {
        self.now.load(Relaxed)
    }

    /// The most bytes since the process began, or since [`CountingAllocator::reset_most`].
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// Forgets the most bytes there were, and answers the bytes at this moment.
    pub fn reset_most(&self) -> usize {
        let now = self.allocated();
        self.most.store(now, Relaxed);
        now
    }

    /// Runs something, and answers by how many bytes the process grew at most until then.
    pub fn growth<R>(&self, run: impl FnOnce() -> R) -> (R, usize) {
        let before = self.reset_most();
        let result = run();
        (result, self.most().saturating_sub(before))
    }

    /// The allocations of this thread, those that only grow a block among them.
    pub fn allocations_of_this_thread(&self) -> u64 {
        ALLOCATIONS.get()
    }

    fn grow(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Relaxed) + bytes;
        self.most.fetch_max(now, Relaxed);
    }
}

fn count() {
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: invariants 1 and 2.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        self.grow(layout.size());
        // SAFETY: invariant 1.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.now.fetch_sub(layout.size(), Relaxed);
        // SAFETY: invariant 1.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        match bytes.checked_sub(layout.size()) {
            Some(more) => self.grow(more),
            None => {
                self.now.fetch_sub(layout.size() - bytes, Relaxed);
            }
        }
        // SAFETY: invariant 1.
        unsafe { System.realloc(block, layout, bytes) }
    }
}
