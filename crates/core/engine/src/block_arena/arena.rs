//! The arena: one pool and a depot for each class, and their figures.
//!
//! Owns: nothing beyond them. The process has one; tests make their own, to see it from empty to
//! empty.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::class::{CLASSES, Class};
use super::depot::{Depot, DepotStats};
use super::pool::ChunkPool;
use super::units::{CHUNK_BYTES, UNIT_BYTES};

/// The arena of the process.
pub(super) static ARENA: Arena = Arena::new();

/// State of the arena at one moment. Sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArenaStats {
    /// Chunks of 2 MiB that are mapped for blocks and for tables below 2 MiB.
    pub chunks: usize,
    /// Chunks for which the system agreed to huge pages.
    pub huge_chunks: usize,
    /// Address space of all chunks.
    pub chunk_bytes: usize,
    /// Slabs with at least one block that is live or in a thread's magazine.
    pub slabs: usize,
    /// Bytes of all slabs.
    pub slab_bytes: usize,
    /// Bytes of free blocks in slabs. Blocks in magazines, a few for each thread, are not counted.
    pub free_block_bytes: usize,
    /// Bytes of chunks that belong to no slab and no table.
    pub free_unit_bytes: usize,
    /// Bytes of tables, wherever they come from.
    pub table_bytes: usize,
}

/// See the top of the file.
pub(super) struct Arena {
    pub(super) pool: ChunkPool,
    /// Rounds of compaction that have begun. At a new one, threads return their cached blocks.
    rounds: AtomicU32,
    depots: [Depot; CLASSES],
}

impl Arena {
    pub(super) const fn new() -> Arena {
        Arena {
            pool: ChunkPool::new(),
            rounds: AtomicU32::new(0),
            depots: [const { Depot::new() }; CLASSES],
        }
    }

    /// Fills the end of `blocks` and returns how many; at least one.
    pub(super) fn take(&self, class: Class, blocks: &mut [NonNull<u8>]) -> usize {
        let taken = self.depots[class.index()].take(class, &self.pool, blocks);
        debug_assert!(0 < taken && taken <= blocks.len(), "a depot gives at least one block");
        taken
    }

    /// A single block, past all magazines.
    pub(super) fn take_one(&self, class: Class) -> NonNull<u8> {
        let mut blocks = [NonNull::dangling()];
        let taken = self.take(class, &mut blocks);
        assert_eq!(taken, 1, "a depot gives at least one block");
        blocks[0]
    }

    /// Takes blocks back.
    ///
    /// # Safety
    /// They are blocks of this class from this arena, and the caller gives them up.
    pub(super) unsafe fn give(&self, class: Class, blocks: &[NonNull<u8>]) {
        // SAFETY: the caller's promise.
        unsafe { self.depots[class.index()].give(class, &self.pool, blocks) }
    }

    /// Each thread returns its cached blocks when it next uses a depot.
    pub(super) fn begin_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the depots follow the marks of the chosen chunks. Called by the round that has chosen
    /// them.
    pub(super) fn follow_marks(&self) {
        for (run, class) in self.pool.chosen_slabs() {
            // SAFETY: (11) the caller's round keeps the chunk mapped.
            unsafe { self.depots[class.index()].follow_mark(class, run.slab()) }
        }
    }

    /// Rounds of compaction that have begun.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.load(Ordering::Relaxed)
    }

    pub(super) fn depot_stats(&self, class: Class) -> DepotStats {
        self.depots[class.index()].stats()
    }

    /// All figures except those of hash tables, which the arena does not track.
    pub(super) fn stats(&self) -> ArenaStats {
        let pool = self.pool.stats();
        let mut stats = ArenaStats {
            chunks: pool.chunks,
            huge_chunks: pool.huge_chunks,
            chunk_bytes: pool.chunks * CHUNK_BYTES,
            free_unit_bytes: pool.free_units * UNIT_BYTES,
            ..ArenaStats::default()
        };
        for class in Class::all() {
            let depot = self.depot_stats(class);
            stats.slabs += depot.slabs;
            stats.slab_bytes += depot.slabs * class.slab_bytes();
            stats.free_block_bytes += depot.free_blocks * class.block_bytes();
            debug_assert!(
                depot.free_blocks * class.block_bytes() <= depot.slabs * class.slab_bytes(),
                "a free block is in a slab"
            );
        }
        stats
    }
}
