//! Rounds of compaction: what is chosen, and that they never make the process larger.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::Goal;
use super::super::arena::Arena;
use super::super::choice::choose;
use super::super::chunk::{ArenaChunk, chunk_of};
use super::super::class::Class;
use super::super::magazine::Magazines;
use super::super::pool::ChunkSurvey;
use super::{LiveBlock, assert_empty, class};

fn is_marked(block: NonNull<u8>) -> bool {
    // SAFETY: (10) the tests ask about live blocks.
    unsafe { ArenaChunk::mark(chunk_of(block)) }.load(std::sync::atomic::Ordering::Relaxed)
}

const GOAL: Goal = Goal { gain_bytes: 64 << 20, moved_per_gained: 1 };

/// Chunks of 8 KiB blocks, of which the first third keeps one block in eight.
fn sparse_arena() -> (Arena, Class, Vec<NonNull<u8>>) {
    let arena = Arena::new();
    let class = class(8192);
    let mut blocks: Vec<NonNull<u8>> = (0..12_000).map(|_| arena.take_one(class)).collect();
    assert!(choose(&arena.pool.survey(), GOAL).is_empty(), "there is next to nothing free");
    // By their blocks: addresses of chunks need not ascend.
    let first = &blocks[..blocks.len() / 3];
    let first_chunks: HashSet<_> = first.iter().map(|block| chunk_of(*block)).collect();
    let mut number = 0;
    blocks.retain(|block| {
        number += 1;
        let stays = !first_chunks.contains(&chunk_of(*block)) || number % 8 == 0;
        if !stays {
            // SAFETY: the test gives up its own block.
            unsafe { arena.give(class, &[*block]) };
        }
        stays
    });
    (arena, class, blocks)
}

pub(super) fn begin_round(arena: &Arena) -> usize {
    let chosen = choose(&arena.pool.survey(), GOAL);
    arena.pool.choose(&chosen);
    arena.follow_marks();
    chosen.len()
}

/// Ends a round, and says how many units it has gained.
pub(super) fn end_round(arena: &Arena) -> usize {
    arena.pool.release_emptied();
    for surveyed in arena.pool.survey_chosen() {
        // SAFETY: (10) this is the round that has chosen the chunk.
        unsafe { arena.pool.unmark(surveyed.chunk) }
    }
    arena.follow_marks();
    arena.pool.end_round()
}

#[test]
fn marked_chunks_are_not_used_and_unmapped_when_empty() {
    let (arena, class, blocks) = sparse_arena();
    let chunks = arena.stats().chunks;
    let chosen = begin_round(&arena);
    assert!(chosen > 5);
    let (moving, staying): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|it| is_marked(*it));
    assert!(!moving.is_empty());
    let copies: Vec<NonNull<u8>> = moving.iter().map(|_| arena.take_one(class)).collect();
    assert!(copies.iter().all(|block| !is_marked(*block)), "nothing comes out of a marked chunk");
    assert_eq!(arena.stats().chunks, chunks, "what is chosen fits in what is free elsewhere");
    // SAFETY: the test gives up its own blocks.
    unsafe { arena.give(class, &moving) };
    arena.pool.release_emptied();
    assert_eq!(arena.stats().chunks, chunks - chosen, "every chosen chunk has become empty");
    assert!(end_round(&arena) > 0);
    assert_eq!(end_round(&arena), 0, "the round is over");
    // SAFETY: the test gives up its own blocks.
    unsafe {
        arena.give(class, &copies);
        arena.give(class, &staying);
    }
    assert_empty(&arena.stats());
}

// Invariant: Compaction uses a chosen chunk again before it maps memory.
/// Compaction must not make the process larger: while much was marked, writes used to map new
/// chunks.
#[test]
fn a_marked_chunk_is_used_before_a_new_one_is_mapped() {
    let (arena, class, mut blocks) = sparse_arena();
    let before = arena.stats();
    assert!(begin_round(&arena) > 5);
    let free_blocks = before.free_block_bytes / class.block_bytes();
    blocks.extend((0..free_blocks).map(|_| arena.take_one(class)));
    // Units that no slab had yet come before marked chunks; how many depends on where chunks lie.
    while blocks.iter().any(|block| is_marked(*block)) {
        blocks.push(arena.take_one(class));
        assert_eq!(arena.stats().chunks, before.chunks, "a marked chunk comes before a new one");
    }
    let other = arena.take_one(Class::of(100).expect("the length has a class"));
    blocks.push(arena.take_one(class));
    end_round(&arena);
    // SAFETY: the test gives up its own blocks.
    unsafe {
        arena.give(Class::of(100).expect("the length has a class"), &[other]);
        arena.give(class, &blocks);
    }
    assert_empty(&arena.stats());
}

#[test]
fn an_emptied_chunk_is_reused_before_a_new_mapping() {
    let (arena, class, blocks) = sparse_arena();
    assert!(begin_round(&arena) > 5);
    let chunks = arena.stats().chunks;
    let (moving, staying): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|it| is_marked(*it));
    // SAFETY: the test gives up its own blocks.
    unsafe { arena.give(class, &moving) };
    let other = Class::of(20_000).expect("the length has a class");
    let slabs: Vec<_> = (0..200).map(|_| arena.take_one(other)).collect();
    assert_eq!(arena.stats().chunks, chunks, "marked chunks have room");
    end_round(&arena);
    // SAFETY: the test gives up its own blocks.
    unsafe {
        arena.give(other, &slabs);
        arena.give(class, &staying);
    }
    assert_empty(&arena.stats());
}

#[test]
fn chosen_blocks_fit_elsewhere_and_within_the_target() {
    let (arena, class, blocks) = sparse_arena();
    let survey = arena.pool.survey();
    let all = choose(&survey, GOAL).len();
    let one = choose(&survey, Goal { gain_bytes: 1, ..GOAL });
    assert_eq!(one.len(), 1, "{all} could be");
    assert!(choose(&survey, Goal { gain_bytes: 0, ..GOAL }).is_empty());
    // Chunks that are half used, each by its own class, gain nothing by being moved.
    let lonely: Vec<_> = survey
        .iter()
        .filter(|chunk| one.contains(&chunk.chunk))
        .map(|chunk| ChunkSurvey { free_units: 0, ..chunk.clone() })
        .collect();
    assert_eq!(lonely.len(), 1);
    assert!(choose(&lonely, GOAL).is_empty(), "there is no room anywhere else");
    // SAFETY: the test gives up its own blocks.
    unsafe { arena.give(class, &blocks) }
    assert_empty(&arena.stats());
}

/// Threads take and give blocks of many lengths while rounds come and go; contents are checked by
/// who gives them back.
#[test]
fn rounds_beside_threads_that_allocate_lose_nothing() {
    const THREADS: usize = 2;
    const STEPS: usize = 20_000;
    let arena = &Arena::new();
    let running = &AtomicUsize::new(THREADS);
    let rounds = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let magazines = Magazines::new(arena);
                let mut live: Vec<LiveBlock> = Vec::new();
                let mut number = 77 + thread as u64;
                let mut random = move |end: usize| {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (number >> 33) as usize % end
                };
                for step in 0..STEPS {
                    // The load swells and shrinks, so that chunks become sparse.
                    let is_growing = step / 2000 % 2 == 0;
                    if live.is_empty() || random(10) < if is_growing { 8 } else { 2 } {
                        let bytes = if random(2) == 0 { 576 } else { 48 + random(60_000) };
                        let mark = random(256) as u8;
                        live.push(LiveBlock::fill(magazines.take(class(bytes)), bytes, mark));
                    } else {
                        let gone = live.swap_remove(random(live.len()));
                        gone.check();
                        // SAFETY: the block is live and of this class.
                        unsafe { magazines.put(gone.block, class(gone.bytes)) }
                    }
                }
                for gone in live {
                    gone.check();
                    // SAFETY: as above.
                    unsafe { magazines.put(gone.block, class(gone.bytes)) }
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut rounds = 0;
        while running.load(Ordering::Acquire) > 0 {
            rounds += usize::from(begin_round(arena) > 0);
            arena.pool.release_emptied();
            end_round(arena);
            std::thread::yield_now();
        }
        rounds
    });
    assert!(rounds > 0, "no round has chosen anything");
    assert_empty(&arena.stats());
}
