//! A depot: the slabs of one class, and which of their blocks are free.
//!
//! Owns: the queue of slabs with a free block. Slabs join it at the end and are used up from the front, so one that
//! waits collects further free blocks meanwhile, or loses its last live one and goes back to the pool. Blocks move in
//! batches and are not touched. Called by magazines, and for single blocks by threads that are ending.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;

use super::chunk::{Run, Slab};
use super::class::Class;
use super::pool::{Pool, Want};

/// Counts for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DepotStats {
    pub(super) slabs: usize,
    pub(super) free_blocks: usize,
}

struct Queue {
    first: *mut Slab,
    last: *mut Slab,
    stats: DepotStats,
}

// SAFETY: (4) slabs belong to no thread; the lock around the queue guards what the pointers lead to.
unsafe impl Send for Queue {}

/// See the top of the file. On cache lines of its own, because threads meet here.
#[repr(align(128))]
pub(super) struct Depot {
    queue: Mutex<Queue>,
}

impl Depot {
    pub(super) const fn new() -> Depot {
        let stats = DepotStats { slabs: 0, free_blocks: 0 };
        Depot { queue: Mutex::new(Queue { first: null_mut(), last: null_mut(), stats }) }
    }

    /// Fills the end of `blocks` with free blocks and returns how many; at least one.
    pub(super) fn take(&self, class: Class, pool: &Pool, blocks: &mut [NonNull<u8>]) -> usize {
        let taken = self.queue.lock().take(class, blocks);
        if taken > 0 {
            return taken;
        }
        let run = pool.take(class.slab_order(), Want::Slab).run;
        // SAFETY: (2) the pool has just made this thread the owner of the run.
        let mut slab = unsafe { Slab::prepare(run, class) };
        // SAFETY: (4) the depot does not know the slab yet.
        let taken = unsafe { slab.as_mut() }.take(run, blocks);
        let mut queue = self.queue.lock();
        queue.stats.slabs += 1;
        queue.join(slab);
        taken
    }

    /// Takes blocks back.
    ///
    /// # Safety
    /// (5, 7) They are blocks of this class that were taken from this depot, and the caller gives them up.
    pub(super) unsafe fn give(&self, class: Class, pool: &Pool, blocks: &[NonNull<u8>]) {
        let mut empty = {
            let mut queue = self.queue.lock();
            let mut empty = null_mut();
            for block in blocks {
                // SAFETY: the caller's promise.
                if let Some(mut slab) = unsafe { queue.give(class, *block) } {
                    // SAFETY: (4) under the lock, and no longer in the queue.
                    unsafe { slab.as_mut() }.next = std::mem::replace(&mut empty, slab.as_ptr());
                }
            }
            empty
        };
        while let Some(slab) = NonNull::new(empty) {
            // SAFETY: (2, 4) the slab has no live block and left the queue, so this thread alone knows it.
            unsafe {
                empty = slab.as_ref().next;
                pool.give(Run::of_slab(slab, class.slab_order()));
            }
        }
    }

    pub(super) fn stats(&self) -> DepotStats {
        self.queue.lock().stats
    }
}

impl Queue {
    fn take(&mut self, class: Class, blocks: &mut [NonNull<u8>]) -> usize {
        let mut missing = blocks.len();
        while missing > 0
            && let Some(mut first) = NonNull::new(self.first)
        {
            // SAFETY: (4) under the lock.
            let slab = unsafe { first.as_mut() };
            let run = Run::of_slab(first, class.slab_order());
            missing -= slab.take(run, &mut blocks[..missing]);
            if slab.free() == 0 {
                self.leave(first);
            }
        }
        let taken = blocks.len() - missing;
        self.stats.free_blocks -= taken;
        taken
    }

    /// Returns the slab if this was its last live block; it has left the queue then.
    ///
    /// # Safety
    /// As for [`Depot::give`].
    unsafe fn give(&mut self, class: Class, block: NonNull<u8>) -> Option<NonNull<Slab>> {
        let run = Run::around(block, class.slab_order());
        let mut at = run.slab();
        // SAFETY: (4, 5) under the lock; the block's slab is of this class.
        let slab = unsafe { at.as_mut() };
        slab.put(run, class, block);
        let free = slab.free();
        self.stats.free_blocks += 1;
        if free == slab.total() {
            slab.retire();
            if free > 1 {
                self.leave(at);
            }
            self.stats.free_blocks -= free;
            self.stats.slabs -= 1;
            return Some(at);
        }
        if free == 1 {
            self.enqueue(at);
        }
        None
    }

    /// Makes a new slab known.
    fn join(&mut self, mut slab: NonNull<Slab>) {
        // SAFETY: (4) under the lock.
        let free = unsafe { slab.as_mut() }.free();
        self.stats.free_blocks += free;
        if free > 0 {
            self.enqueue(slab);
        }
    }

    fn enqueue(&mut self, slab: NonNull<Slab>) {
        let last = std::mem::replace(&mut self.last, slab.as_ptr());
        // SAFETY: (4) under the lock; a slab that joins is not yet in the queue.
        unsafe {
            (*slab.as_ptr()).previous = last;
            (*slab.as_ptr()).next = null_mut();
        }
        match NonNull::new(last) {
            // SAFETY: (4) as above.
            Some(last) => unsafe { (*last.as_ptr()).next = slab.as_ptr() },
            None => self.first = slab.as_ptr(),
        }
    }

    fn leave(&mut self, slab: NonNull<Slab>) {
        // SAFETY: (4) under the lock.
        let (next, previous) = unsafe { ((*slab.as_ptr()).next, (*slab.as_ptr()).previous) };
        match NonNull::new(previous) {
            // SAFETY: (4) as above.
            Some(previous) => unsafe { (*previous.as_ptr()).next = next },
            None => self.first = next,
        }
        match NonNull::new(next) {
            // SAFETY: (4) as above.
            Some(next) => unsafe { (*next.as_ptr()).previous = previous },
            None => self.last = previous,
        }
    }
}
