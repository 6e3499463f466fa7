//! The block arena: memory of items and of hash tables, on huge pages and without a word of
//! overhead.
//!
//! Owns: size classes, slabs, chunks, the threads' magazines, and [`ZeroedMemory`] for tables. A
//! server of many small documents reads memory at random, and then the pages decide: with 4 KiB
//! pages half the time of a miss is the page walk. The system's allocator grows its heaps in steps
//! too small for huge pages and puts 8 to 16 bytes before each block. Here blocks of one size lie
//! side by side in slabs, slabs in chunks of one huge page, and the caller of `free` gives the
//! block's length, so none is stored.
//!
//! ```text
//! allocate ◀─ magazine of the thread and class ◀─ depot of the class ◀─ pool of chunks ◀─ the system
//! free     ─▶  (an array of block addresses)    ─▶  (slabs, one bit a block) ─▶ (units of 64 KiB)
//! ```
//!
//! A magazine is filled from its depot, and emptied into it, in batches; so a thread that only
//! frees what others allocated, as the flusher does, keeps no more than one magazine of each class.
//! A depot keeps bitmaps of the free blocks of its slabs and never touches the blocks themselves.
//! Slabs without a live block go back to the pool at once and serve any class, chunks without a
//! slab go back to the system.
//!
//! When the sizes of documents change, sparsely used chunks are left. A [`Round`] of compaction
//! marks the sparsest whose blocks fit in free space elsewhere. A marked chunk gives nothing out
//! while others have space, the owners of its blocks move them, and it goes back to the system when
//! it is empty. Memory from the system is counted against bounds that the caller sets
//! ([`set_bounds`]); the arena calls back when memory grows beyond them.
//!
//! Blocks above the largest class are their own mappings. Freed ones are kept for their next use
//! while nothing else needs the memory (`kept_blocks.rs`).
//!
//! The first chunks are of ordinary pages, so that an idle server stays small. With `--cfg
//! oribi_system_blocks` every block comes from the system's allocator, for the sanitizers.
//!
//! Locks: a depot's, the pool's; neither is held while the other is taken, nor across a system
//! call. Called by items and the hash table. It does not know what is in a block and counts no
//! quota.
//!
//! Unsafe invariants, cited in this module's files by number:
//! 1. A chunk is mapped at a multiple of `CHUNK_BYTES` and begins with its `ArenaChunk` header, so
//!    clearing the low bits of any address in it gives the header, and the pointer's provenance is
//!    the whole chunk.
//! 2. A unit of a chunk has one owner at a time: the pool, a slab, or a piece of table memory. The
//!    owner changes under the pool's lock, and only the owner reads or writes the unit's bytes and
//!    its `Slab` entry.
//! 3. A chunk's own fields and the pool's lists are read and written under the pool's lock only.
//! 4. The entry of a slab in use is read and written under its class's depot lock only, or by the
//!    thread that has just taken its units and not yet shown it to the depot.
//! 5. A block's bit in its slab is set exactly while the block is in the depot; otherwise the block
//!    is in one magazine or with one caller. Blocks of a slab do not overlap and lie inside its
//!    units, after the header.
//! 6. Magazines are reached by their own thread only, and no code of theirs calls back into them.
//! 7. A block is freed with the length it was allocated with; callers of [`free`] promise it.
//! 10. A chunk's mark is its own atomic next to the parts that have locks. It is read by an owner
//!     of something in the chunk or under the pool's lock, and written under that lock.
//! 11. Class and number of free blocks in a slab's entry are atomics. They are written like the
//!     rest of the entry, but also read where the chunk is known to be mapped: under the pool's
//!     lock, or by the round that has chosen it. A chunk that a round has chosen stays mapped until
//!     the round releases it.

use std::ptr::NonNull;

mod arena;
mod bound;
mod choice;
mod chunk;
mod class;
mod depot;
mod growth;
mod kept_blocks;
mod large;
mod large_block;
mod magazine;
mod pages;
mod pool;
mod round;
mod taken;
mod units;
mod zeroed;

#[cfg(test)]
mod tests;

pub use arena::ArenaStats;
pub use bound::{Pressure, pressure};
pub use choice::Goal;
pub use growth::{reserve_outside, set_bounds, take_outside, watch_growth};
pub use kept_blocks::{end_period, kept_bytes, release_kept, release_unwanted};
pub use round::{CompactionStats, Round, compaction_stats};
pub use taken::{OutsideReservation, excess_bytes, return_outside, taken_bytes};
pub use zeroed::ZeroedMemory;

use arena::ARENA;
use class::Class;
use units::SYSTEM_BLOCKS;

/// An uninitialised block of at least `bytes` bytes, aligned to 8.
#[inline]
pub fn allocate(bytes: usize) -> NonNull<u8> {
    match Class::of(bytes) {
        Some(class) if !SYSTEM_BLOCKS => magazine::allocate(class),
        _ => large::allocate(bytes),
    }
}

/// Frees a block; any thread may.
///
/// # Safety
/// `block` came from [`allocate`] with the same `bytes`, and is no longer used.
#[inline]
pub unsafe fn free(block: NonNull<u8>, bytes: usize) {
    match Class::of(bytes) {
        // SAFETY: (7) the caller promises that the block is of this class.
        Some(class) if !SYSTEM_BLOCKS => unsafe { magazine::free(block, class) },
        // SAFETY: (7) the same length went to the large path when the block was allocated.
        _ => unsafe { large::free(block, bytes) },
    }
}

/// The allocated size of a block of `bytes` bytes, for exact accounting: the size of its class, or
/// the rounded length of a large block.
#[inline]
pub fn occupied_bytes(bytes: usize) -> usize {
    Class::of(bytes).map_or_else(|| large::occupied_bytes(bytes), Class::block_bytes)
}

/// Blocks of a class that this thread has allocated since it began: for tests that count.
pub fn allocations_of_this_thread() -> u64 {
    magazine::allocations()
}

/// State of the process's arena now. Takes every depot's lock for a moment.
pub fn stats() -> ArenaStats {
    ArenaStats { table_bytes: zeroed::bytes_now(), ..ARENA.stats() }
}

/// Gives the free blocks that this thread keeps ready back to their slabs. A thread that will wait
/// for long calls it.
pub fn give_back_kept_blocks() {
    magazine::give_back();
}

/// Does so if a round of compaction has begun since this thread did it last.
pub fn join_round() {
    magazine::join_round();
}
