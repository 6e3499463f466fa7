//! A round of compaction: chunks that are to become empty, from their choice to their release.
//!
//! Owns: the marks and counts of a round. The caller moves the blocks, because only it has the
//! references to them. It visits every block twice: first it counts those that could move, and the
//! round drops each chunk with any other block. Then it moves the blocks of the chunks that are
//! left. So a chunk with an immovable block leaves the round, and no move is wasted.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::arena::ARENA;
use super::choice::{Goal, choose, live_bytes};
use super::chunk::{ArenaChunk, chunk_of};
use super::class::Class;
use super::magazine;
use super::units::{CHUNK_BYTES, SYSTEM_BLOCKS, UNIT_BYTES};

/// Words of the filter: one bit for each chunk of an address range of 8 GiB, so that a process of
/// that size has no wrong hits.
const FILTER_WORDS: usize = 64;

/// One round at a time: marks are the arena's.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

static ROUNDS: AtomicU64 = AtomicU64::new(0);
static CHUNKS_CHOSEN: AtomicU64 = AtomicU64::new(0);
static CHUNKS_GIVEN_UP: AtomicU64 = AtomicU64::new(0);
static MOVED_BYTES: AtomicU64 = AtomicU64::new(0);
static GAINED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Counters of compaction since the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactionStats {
    /// Rounds that have ended.
    pub rounds: u64,
    /// Chunks that were chosen.
    pub chunks_chosen: u64,
    /// Chunks of these that were given up because of a block that could not move.
    pub chunks_given_up: u64,
    /// Bytes of blocks that were moved.
    pub moved_bytes: u64,
    /// Bytes that became free in chosen chunks, in slabs at least.
    pub gained_bytes: u64,
}

pub fn compaction_stats() -> CompactionStats {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    CompactionStats {
        rounds: count(&ROUNDS),
        chunks_chosen: count(&CHUNKS_CHOSEN),
        chunks_given_up: count(&CHUNKS_GIVEN_UP),
        moved_bytes: count(&MOVED_BYTES),
        gained_bytes: count(&GAINED_BYTES),
    }
}

/// See the top of the file. Ends when dropped.
#[derive(Debug)]
pub struct Round {
    filter: [u64; FILTER_WORDS],
    /// Bytes that could move, by chunk.
    movable: HashMap<usize, usize>,
}

impl Round {
    /// Chooses chunks and marks them; `None` when none qualifies, or when another round is under
    /// way.
    pub fn begin(goal: Goal) -> Option<Round> {
        if SYSTEM_BLOCKS || IS_RUNNING.swap(true, Ordering::AcqRel) {
            return None;
        }
        ARENA.pool.choose(&choose(&ARENA.pool.survey(), goal));
        let mut round = Round { filter: [0; FILTER_WORDS], movable: HashMap::new() };
        round.see_marks();
        CHUNKS_CHOSEN.fetch_add(round.movable.len() as u64, Ordering::Relaxed);
        if round.movable.is_empty() {
            return None;
        }
        assert!(round.movable.values().all(|bytes| *bytes == 0), "a round begins with no count");
        ARENA.follow_marks();
        ARENA.begin_round();
        magazine::give_back();
        Some(round)
    }

    /// False when a block at `address` certainly stays where it is. Reads only the address.
    #[inline]
    pub fn may_hold(&self, address: usize) -> bool {
        let chunk = address / CHUNK_BYTES;
        self.filter[chunk / 64 % FILTER_WORDS] & 1 << (chunk % 64) != 0
    }

    /// True when the block should be replaced by another, so that its chunk becomes empty.
    ///
    /// # Safety
    /// `block` came from [`super::allocate`] with the same `bytes` and was not freed.
    pub unsafe fn is_to_move(&self, block: NonNull<u8>, bytes: usize) -> bool {
        if SYSTEM_BLOCKS || Class::of(bytes).is_none() {
            return false;
        }
        // SAFETY: (10) a block of a class keeps its chunk mapped.
        unsafe { ArenaChunk::mark(chunk_of(block)) }.load(Ordering::Relaxed)
    }

    /// Counts a block that should and could move.
    pub fn count_movable(&mut self, address: usize, occupied_bytes: usize) {
        if let Some(bytes) = self.movable.get_mut(&(address / CHUNK_BYTES)) {
            *bytes += occupied_bytes;
        }
    }

    /// Drops chunks that have blocks other than the counted ones. False when no chunk is left.
    pub fn keep_movable(&mut self) -> bool {
        debug_assert!(IS_RUNNING.load(Ordering::Relaxed), "marks change while their round runs");
        for surveyed in ARENA.pool.survey_chosen() {
            let movable = self.movable.get(&number(surveyed.chunk)).copied().unwrap_or(0);
            if live_bytes(&surveyed) > movable {
                CHUNKS_GIVEN_UP.fetch_add(1, Ordering::Relaxed);
                // SAFETY: (10) this is the round that has chosen the chunk.
                unsafe { ARENA.pool.unmark(surveyed.chunk) }
            }
        }
        ARENA.follow_marks();
        self.see_marks();
        !self.movable.is_empty()
    }

    /// Blocks of `bytes` together were moved: gives back the memory that became free, also what
    /// this thread keeps, or the next copies would go there.
    pub fn moved(&self, bytes: usize) {
        debug_assert!(IS_RUNNING.load(Ordering::Relaxed), "blocks move while their round runs");
        MOVED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        magazine::give_back();
        ARENA.pool.release_emptied();
    }

    /// Ends the round; how many bytes have become free in the chosen chunks.
    pub fn end(self) -> usize {
        let before = GAINED_BYTES.load(Ordering::Relaxed);
        drop(self);
        (GAINED_BYTES.load(Ordering::Relaxed) - before) as usize
    }

    /// Notes the marked chunks; earlier counts are forgotten.
    fn see_marks(&mut self) {
        self.filter = [0; FILTER_WORDS];
        self.movable.clear();
        for surveyed in ARENA.pool.survey_chosen() {
            let chunk = number(surveyed.chunk);
            self.filter[chunk / 64 % FILTER_WORDS] |= 1 << (chunk % 64);
            debug_assert!(self.may_hold(chunk * CHUNK_BYTES), "the filter passes a chosen chunk");
            self.movable.insert(chunk, 0);
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        magazine::give_back();
        ARENA.pool.release_emptied();
        for surveyed in ARENA.pool.survey_chosen() {
            // SAFETY: (10) this is the round that has chosen the chunk.
            unsafe { ARENA.pool.unmark(surveyed.chunk) }
        }
        ARENA.follow_marks();
        let gained = ARENA.pool.end_round() * UNIT_BYTES;
        GAINED_BYTES.fetch_add(gained as u64, Ordering::Relaxed);
        ROUNDS.fetch_add(1, Ordering::Relaxed);
        let was_running = IS_RUNNING.swap(false, Ordering::Release);
        debug_assert!(was_running, "one round of compaction at a time");
    }
}

/// Which chunk of the address space.
fn number(chunk: NonNull<ArenaChunk>) -> usize {
    debug_assert!(chunk.addr().get().is_multiple_of(CHUNK_BYTES), "a chunk is aligned to its size");
    chunk.addr().get() / CHUNK_BYTES
}
