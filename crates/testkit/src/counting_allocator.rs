//! A global allocator for tests that bound memory: it counts the bytes of the process.
//!
//! All threads count, so a test program with it has one test, or its tests take turns. A block that
//! grows counts twice while it is copied.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

    /// Runs something, and answers by how many bytes the process grew at most until then.
    pub fn growth<R>(&self, run: impl FnOnce() -> R) -> (R, usize) {
        let before = self.allocated();
        self.most.store(before, Relaxed);
        let result = run();
        (result, self.most.load(Relaxed).saturating_sub(before))
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = self.now.fetch_add(layout.size(), Relaxed) + layout.size();
        self.most.fetch_max(now, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.now.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}
