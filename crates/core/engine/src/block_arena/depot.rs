//! A depot: the slabs of one class, and which of their blocks are free.
//!
//! Owns: the queue of slabs with a free block. Slabs join it at the end and are used up from the
//! front, so one that waits collects further free blocks concurrently, or loses its last live one
//! and goes back to the pool. Blocks move in batches and are not touched. Called by magazines, and
//! for single blocks by threads that are ending.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

use oribi_storage::prefetch::load_line_to_write;
use parking_lot::Mutex;

use super::chunk::{ArenaChunk, Slab, UnitRun, chunk_of};
use super::class::Class;
use super::pool::{ChunkPool, RunDemand, UnitGrant};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DepotStats {
    pub(super) slabs: usize,
    pub(super) free_blocks: usize,
}

/// Slabs by their neighbours.
struct List {
    first: *mut Slab,
    last: *mut Slab,
}

struct Queue {
    /// Slabs with a free block.
    usable: List,
    /// Slabs with a free block whose chunks are to become empty.
    draining: List,
    stats: DepotStats,
}

// SAFETY: (4) slabs belong to no thread; the lock around the queue guards what the pointers lead
// to.
unsafe impl Send for Queue {}

/// See the top of the file. On its own cache lines, because threads meet here.
#[repr(align(128))]
pub(super) struct Depot {
    queue: Mutex<Queue>,
}

impl Depot {
    pub(super) const fn new() -> Depot {
        let stats = DepotStats { slabs: 0, free_blocks: 0 };
        Depot { queue: Mutex::new(Queue { usable: List::new(), draining: List::new(), stats }) }
    }

    /// Fills the end of `blocks` with free blocks and returns how many; at least one.
    pub(super) fn take(&self, class: Class, pool: &ChunkPool, blocks: &mut [NonNull<u8>]) -> usize {
        let taken = self.queue.lock().take(class, blocks);
        if taken > 0 {
            debug_assert!(taken <= blocks.len(), "a depot returns no more blocks than requested");
            return taken;
        }
        let (order, want) = (class.slab_order(), RunDemand::Slab(class));
        let run = match pool.take_unmarked(order, want) {
            Some(UnitGrant { run, .. }) => run,
            None => {
                if let Some((taken, chunk)) = self.queue.lock().take_draining(class, blocks) {
                    // SAFETY: (10) the caller has got a block of the chunk.
                    unsafe { pool.unmark(chunk) }
                    return taken;
                }
                pool.take(order, want).run
            }
        };
        // SAFETY: (2) the pool has just made this thread the owner of the run.
        let mut slab = unsafe { Slab::prepare(run, class) };
        // SAFETY: (4) the depot does not know the slab yet.
        let taken = unsafe { slab.as_mut() }.take(run, class, blocks);
        assert!(taken > 0, "a fresh slab has a free block");
        let mut queue = self.queue.lock();
        queue.stats.slabs += 1;
        queue.join(slab, class);
        taken
    }

    /// Takes blocks back.
    ///
    /// # Safety
    /// (5, 7) They are blocks of this class that were taken from this depot, and the caller gives
    /// them up.
    pub(super) unsafe fn give(&self, class: Class, pool: &ChunkPool, blocks: &[NonNull<u8>]) {
        // Each block is of another slab, most likely. Their entries load side by side.
        for block in blocks {
            load_line_to_write(UnitRun::around(*block, class.slab_order()).slab().as_ptr().cast());
        }
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
            // SAFETY: (2, 4) the slab has no live block and left the queue, so this thread alone
            // knows it.
            unsafe {
                empty = slab.as_ref().next;
                pool.give(UnitRun::of_slab(slab, class.slab_order()));
            }
        }
    }

    /// Puts a slab into the list that the mark of its chunk asks for, if it is (still) a slab of
    /// this class.
    ///
    /// # Safety
    /// (11) The round of compaction under way has chosen the slab's chunk.
    pub(super) unsafe fn follow_mark(&self, class: Class, mut slab: NonNull<Slab>) {
        let mut queue = self.queue.lock();
        if !Slab::is_of(slab, class) {
            return;
        }
        // SAFETY: (11) the chunk is mapped.
        let mark = unsafe { ArenaChunk::mark(chunk_of(slab.cast())) }.load(Ordering::Relaxed);
        // SAFETY: (4) under the lock, and of this class.
        let entry = unsafe { slab.as_mut() };
        let was_draining = std::mem::replace(&mut entry.is_draining, mark);
        if entry.free() > 0 && was_draining != mark {
            debug_assert!(entry.free() <= entry.total(), "a slab has at most its blocks free");
            queue.list(was_draining).leave(slab);
            queue.list(mark).enqueue(slab);
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
            && let Some(mut first) = NonNull::new(self.usable.first)
        {
            // SAFETY: (4) under the lock.
            let slab = unsafe { first.as_mut() };
            debug_assert!(slab.free() > 0 && !slab.is_draining, "a usable slab has a free block");
            let run = UnitRun::of_slab(first, class.slab_order());
            missing -= slab.take(run, class, &mut blocks[..missing]);
            if slab.free() == 0 {
                self.usable.leave(first);
            }
        }
        let taken = blocks.len() - missing;
        assert!(taken <= self.stats.free_blocks, "a depot counts its free blocks");
        self.stats.free_blocks -= taken;
        taken
    }

    /// Takes from a slab of a marked chunk, because no other is left. Returns the number of blocks
    /// and the chunk. The slab is used like any other from now on.
    fn take_draining(
        &mut self,
        class: Class,
        blocks: &mut [NonNull<u8>],
    ) -> Option<(usize, NonNull<ArenaChunk>)> {
        let mut first = NonNull::new(self.draining.first)?;
        self.draining.leave(first);
        // SAFETY: (4) under the lock.
        let slab = unsafe { first.as_mut() };
        slab.is_draining = false;
        let run = UnitRun::of_slab(first, class.slab_order());
        let taken = slab.take(run, class, blocks);
        assert!(taken > 0, "a draining slab has a free block");
        assert!(taken <= self.stats.free_blocks, "a depot counts its free blocks");
        if slab.free() > 0 {
            self.usable.enqueue(first);
        }
        self.stats.free_blocks -= taken;
        Some((taken, run.chunk))
    }

    /// Returns the slab if this was its last live block; it has left the queue then.
    ///
    /// # Safety
    /// As for [`Depot::give`].
    unsafe fn give(&mut self, class: Class, block: NonNull<u8>) -> Option<NonNull<Slab>> {
        let run = UnitRun::around(block, class.slab_order());
        let mut at = run.slab();
        // SAFETY: (4, 5) under the lock; the block's slab is of this class.
        let slab = unsafe { at.as_mut() };
        slab.put(run, class, block);
        let free = slab.free();
        self.stats.free_blocks += 1;
        if free == slab.total() {
            assert!(free <= self.stats.free_blocks, "a depot counts its free blocks");
            assert!(self.stats.slabs > 0, "a depot counts its slabs");
            slab.retire();
            if free > 1 {
                self.list(slab.is_draining).leave(at);
            }
            self.stats.free_blocks -= free;
            self.stats.slabs -= 1;
            return Some(at);
        }
        if free == 1 {
            // SAFETY: (10) the slab is in use, so its chunk is mapped.
            slab.is_draining = unsafe { ArenaChunk::mark(run.chunk) }.load(Ordering::Relaxed);
            self.list(slab.is_draining).enqueue(at);
        }
        None
    }

    fn list(&mut self, is_draining: bool) -> &mut List {
        if is_draining { &mut self.draining } else { &mut self.usable }
    }

    /// Makes a new slab known.
    fn join(&mut self, mut slab: NonNull<Slab>, class: Class) {
        // SAFETY: (4) under the lock.
        let slab_entry = unsafe { slab.as_mut() };
        debug_assert!(!slab_entry.is_draining, "a new slab is of no marked chunk");
        slab_entry.join(class);
        let free = slab_entry.free();
        self.stats.free_blocks += free;
        if free > 0 {
            self.usable.enqueue(slab);
        }
    }
}

impl List {
    const fn new() -> List {
        List { first: null_mut(), last: null_mut() }
    }

    fn enqueue(&mut self, slab: NonNull<Slab>) {
        let last = std::mem::replace(&mut self.last, slab.as_ptr());
        debug_assert_ne!(last, slab.as_ptr(), "a slab joins a list once");
        debug_assert_eq!(last.is_null(), self.first.is_null(), "a list has both ends or none");
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
        debug_assert!(
            !self.first.is_null() && !self.last.is_null(),
            "a slab leaves the list it is in"
        );
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
