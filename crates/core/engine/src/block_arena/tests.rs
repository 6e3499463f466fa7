//! Tests of the arena: arithmetic by tables, blocks against a model, threads, and what is given
//! back.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::mpsc;

use proptest::prelude::*;

mod rounds;

use super::arena::{ARENA, Arena};
use super::chunk::{BITMAP_WORDS, HEADER_BYTES, UnitRun, find_run, largest_run};
use super::class::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Class};
use super::magazine::Magazines;
use super::pool::{ChunkPool, RunDemand};
use super::units::{CHUNK_BYTES, CHUNK_ORDER, UNIT_BYTES, UNITS};
use super::zeroed::take_zeroed;
use super::{ArenaStats, ZeroedMemory, allocate, free, occupied_bytes};

/// Unused chunks that a pool of one kind of pages keeps.
const KEPT: usize = 2;

fn class(bytes: usize) -> Class {
    Class::of(bytes).expect("the length has a class")
}

#[test]
fn every_length_has_the_tightest_class() {
    let sizes: Vec<usize> = Class::all().map(Class::block_bytes).collect();
    assert!(sizes.is_sorted() && sizes[0] == BLOCK_BYTES_MIN);
    assert_eq!(sizes.last(), Some(&BLOCK_BYTES_MAX));
    for bytes in 0..=BLOCK_BYTES_MAX {
        let class = class(bytes);
        assert!(class.block_bytes() >= bytes && class.block_bytes().is_multiple_of(8));
        if class.index() > 0 {
            assert!(sizes[class.index() - 1] < bytes, "{bytes} fits a smaller class");
        }
        assert!(bytes <= BLOCK_BYTES_MIN || (class.block_bytes() - bytes) * 8 < bytes.max(64));
    }
    assert_eq!(Class::of(BLOCK_BYTES_MAX + 1), None);
    assert_eq!(
        [48, 257, 576, 1025, 1152, 1153].map(occupied_bytes),
        [48, 272, 576, 1152, 1152, 1280]
    );
    assert_eq!(occupied_bytes(100_000), 106_496);
    assert_eq!(occupied_bytes(200_000), 200_704, "whole pages");
    assert_eq!(occupied_bytes(200_700), 204_800, "a block begins behind the beginning of its page");
}

#[test]
fn blocks_of_every_class_are_numbered_exactly() {
    for class in Class::all() {
        let (slab, block) = (class.slab_bytes(), class.block_bytes());
        assert!(slab / block <= BITMAP_WORDS * 64, "{block}");
        let part = if block > 32 << 10 { 11 } else { 16 };
        assert!(slab % block * part <= slab, "{block}");
        assert!((slab - HEADER_BYTES) / block >= 3, "{block}");
        for number in 0..slab / block {
            assert_eq!(class.block_number(number * block), number);
        }
    }
}

proptest! {
    #[test]
    fn runs_are_found_where_a_slow_search_finds_them(free: u32, sparse: u32, order in 0..=CHUNK_ORDER) {
        for free in [free, free & sparse, free | sparse, free | 0xffff, 0, u32::MAX] {
            let size = 1 << order;
            let is_free = |unit: usize| (unit..unit + size).all(|unit| free & (1 << unit) != 0);
            let expected = (0..UNITS).step_by(size).find(|unit| is_free(*unit));
            prop_assert_eq!(find_run(free, order), expected);
            let largest = (0..=CHUNK_ORDER).filter(|order| find_run(free, *order).is_some()).max();
            prop_assert_eq!(largest_run(free), largest);
        }
    }
}

/// A live block of a model, with the byte that all of it must hold.
struct LiveBlock {
    block: NonNull<u8>,
    bytes: usize,
    mark: u8,
}

// SAFETY: blocks belong to no thread.
unsafe impl Send for LiveBlock {}

impl LiveBlock {
    fn fill(block: NonNull<u8>, bytes: usize, mark: u8) -> LiveBlock {
        // SAFETY: the block has `bytes` bytes and is this test's.
        unsafe { block.write_bytes(mark, bytes) }
        LiveBlock { block, bytes, mark }
    }

    fn check(&self) {
        // SAFETY: as in `fill`, which initialised it.
        let content = unsafe { std::slice::from_raw_parts(self.block.as_ptr(), self.bytes) };
        assert!(content.iter().all(|byte| *byte == self.mark), "somebody wrote into a live block");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        thread: usize,
        bytes: usize,
        count: usize,
    },
    /// Frees `count` blocks from the `nth` one of a shuffled order on.
    Free {
        thread: usize,
        nth: usize,
        count: usize,
    },
    EndThread {
        thread: usize,
    },
    Table {
        bytes: usize,
    },
    DropTable {
        nth: usize,
    },
    /// Begins a round of compaction, ends what has become empty in it, or ends it.
    Round,
}

fn step() -> impl Strategy<Value = Step> {
    let lengths = prop_oneof![
        6 => prop_oneof![Just(48_usize), Just(100), Just(576), Just(4096)],
        2 => 1..=1024_usize,
        2 => 1025..=BLOCK_BYTES_MAX,
    ];
    prop_oneof![
        6 => (0..3_usize, lengths, 1..200_usize)
            .prop_map(|(thread, bytes, count)| Step::Allocate { thread, bytes, count }),
        6 => (0..3_usize, any::<usize>(), 1..300_usize)
            .prop_map(|(thread, nth, count)| Step::Free { thread, nth, count }),
        1 => (0..3_usize).prop_map(|thread| Step::EndThread { thread }),
        1 => (UNIT_BYTES..=CHUNK_BYTES / 2).prop_map(|bytes| Step::Table { bytes }),
        1 => any::<usize>().prop_map(|nth| Step::DropTable { nth }),
        3 => Just(Step::Round),
    ]
}

/// The arena and what ought to be in it.
struct World<'a> {
    arena: &'a Arena,
    threads: Vec<Magazines<'a>>,
    live: Vec<LiveBlock>,
    /// Start and end of everything live.
    ranges: BTreeMap<usize, usize>,
    tables: Vec<(UnitRun, usize)>,
    marks: u8,
    rounds: usize,
}

impl World<'_> {
    fn add_range(&mut self, start: usize, bytes: usize) {
        let before = self.ranges.range(..start + bytes).next_back();
        assert!(before.is_none_or(|(_, end)| *end <= start), "two live blocks overlap");
        self.ranges.insert(start, start + bytes);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Allocate { thread, bytes, count } => {
                for _ in 0..count {
                    let block = self.threads[thread].take(class(bytes));
                    assert!(block.addr().get().is_multiple_of(8));
                    self.add_range(block.addr().get(), bytes);
                    self.marks = self.marks.wrapping_add(1);
                    self.live.push(LiveBlock::fill(block, bytes, self.marks));
                }
            }
            Step::Free { thread, nth, count } => {
                for number in 0..count.min(self.live.len()) {
                    let at = (nth.wrapping_add(number * 7919)) % self.live.len();
                    let live = self.live.swap_remove(at);
                    self.free(thread, &live);
                }
            }
            Step::EndThread { thread } => self.threads[thread] = Magazines::new(self.arena),
            Step::Table { bytes } => {
                let run = take_zeroed(&self.arena.pool, bytes);
                self.add_range(run.start().addr().get(), bytes);
                // SAFETY: the run has at least `bytes` bytes, initialised because they are zero.
                let table = unsafe { std::slice::from_raw_parts_mut(run.start().as_ptr(), bytes) };
                assert!(table.iter().all(|byte| *byte == 0), "table memory is zero");
                table.fill(0xa5);
                self.tables.push((run, bytes));
            }
            Step::Round => {
                match self.rounds % 3 {
                    0 => drop(rounds::begin_round(self.arena)),
                    1 => self.arena.pool.release_emptied(),
                    _ => drop(rounds::end_round(self.arena)),
                }
                self.rounds += 1;
            }
            Step::DropTable { nth } => {
                if !self.tables.is_empty() {
                    let (run, bytes) = self.tables.swap_remove(nth % self.tables.len());
                    self.drop_table(run, bytes);
                }
            }
        }
    }

    fn free(&mut self, thread: usize, live: &LiveBlock) {
        live.check();
        assert!(self.ranges.remove(&live.block.addr().get()).is_some());
        // SAFETY: the block was taken with this class and has left the model.
        unsafe { self.threads[thread].put(live.block, class(live.bytes)) }
    }

    fn drop_table(&mut self, run: UnitRun, bytes: usize) {
        // SAFETY: the table is live, so its bytes are initialised.
        let table = unsafe { std::slice::from_raw_parts(run.start().as_ptr(), bytes) };
        assert!(table.iter().all(|byte| *byte == 0xa5), "somebody wrote into a live table");
        self.ranges.remove(&run.start().addr().get());
        // SAFETY: the run was taken from this pool and has left the model.
        unsafe { self.arena.pool.give(run) }
    }

    fn free_all(mut self) {
        rounds::end_round(self.arena);
        for live in std::mem::take(&mut self.live) {
            self.free(0, &live);
        }
        for (run, bytes) in std::mem::take(&mut self.tables) {
            self.drop_table(run, bytes);
        }
    }
}

/// Nothing is live and no thread keeps anything: what remains is kept on purpose.
fn assert_empty(stats: &ArenaStats) {
    assert_eq!((stats.slabs, stats.slab_bytes, stats.free_block_bytes), (0, 0, 0));
    assert_eq!(stats.free_unit_bytes, stats.chunk_bytes);
    assert!(stats.chunks <= 2 * KEPT, "{stats:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn blocks_keep_apart_and_keep_their_content(steps in prop::collection::vec(step(), 1..60)) {
        let arena = Arena::new();
        let threads = (0..3).map(|_| Magazines::new(&arena)).collect();
        let mut world = World {
            arena: &arena,
            threads,
            live: Vec::new(),
            ranges: BTreeMap::new(),
            tables: Vec::new(),
            marks: 0,
            rounds: 0,
        };
        for step in steps {
            world.run(step);
        }
        world.free_all();
        assert_empty(&arena.stats());
    }
}

#[test]
fn every_class_works_for_many_blocks() {
    let arena = Arena::new();
    let magazines = Magazines::new(&arena);
    for class in Class::all() {
        let count = 3 * class.slab_bytes() / class.block_bytes();
        let blocks: Vec<LiveBlock> = (0..count)
            .map(|number| LiveBlock::fill(magazines.take(class), class.block_bytes(), number as u8))
            .collect();
        for live in &blocks {
            live.check();
            // SAFETY: the block is live and of this class.
            unsafe { magazines.put(live.block, class) }
        }
    }
    drop(magazines);
    assert_empty(&arena.stats());
}

#[test]
fn blocks_are_freed_by_other_threads() {
    const BLOCKS: usize = 20_000;
    let arena = &Arena::new();
    std::thread::scope(|scope| {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (sender, receiver) = mpsc::sync_channel::<Vec<LiveBlock>>(4);
            senders.push(sender);
            receivers.push(receiver);
        }
        for (number, sender) in senders.into_iter().enumerate() {
            scope.spawn(move || {
                let magazines = Magazines::new(arena);
                for batch in 0..BLOCKS / 100 {
                    let blocks = (0..100).map(|nth| {
                        let bytes = 48 + (batch * 37 + nth * number * 61) % 700;
                        LiveBlock::fill(magazines.take(class(bytes)), bytes, (nth + number) as u8)
                    });
                    let sent = sender.send(blocks.collect());
                    assert!(sent.is_ok(), "the other thread reads to the end");
                }
            });
        }
        for receiver in receivers {
            scope.spawn(move || {
                let magazines = Magazines::new(arena);
                for live in receiver.into_iter().flatten() {
                    live.check();
                    // SAFETY: the sender gave the block up.
                    unsafe { magazines.put(live.block, class(live.bytes)) }
                }
            });
        }
    });
    assert_empty(&arena.stats());
}

/// The process's arena by its public functions. No other test uses blocks of this length, so the
/// depot's figures are this test's own.
#[test]
#[cfg(not(oribi_system_blocks))]
fn a_thread_that_ends_gives_back_what_it_kept() {
    const BYTES: usize = 29_000;
    let ended = std::thread::spawn(|| {
        let block = allocate(BYTES);
        // SAFETY: the block is this thread's.
        unsafe { free(block, BYTES) }
        ARENA.depot_stats(class(BYTES)).slabs
    });
    assert_eq!(ended.join().expect("the thread ends well"), 1, "its magazine keeps the slab");
    assert_eq!(ARENA.depot_stats(class(BYTES)).slabs, 0);
}

#[test]
fn a_freeing_thread_keeps_no_more_than_a_magazine() {
    let arena = Arena::new();
    let (allocating, freeing) = (Magazines::new(&arena), Magazines::new(&arena));
    let class = class(576);
    let blocks: Vec<_> = (0..10_000).map(|_| allocating.take(class)).collect();
    drop(allocating);
    let before = arena.depot_stats(class).free_blocks * 576;
    let slabs_before = arena.depot_stats(class).slabs;
    for block in blocks {
        // SAFETY: the block is live and of this class.
        unsafe { freeing.put(block, class) }
    }
    let after = arena.depot_stats(class);
    let kept = slabs_before - after.slabs;
    assert!(before < slabs_before * class.slab_bytes() && kept > slabs_before - 3, "{after:?}");
    drop(freeing);
    assert_empty(&arena.stats());
}

#[test]
fn an_empty_slab_serves_any_class() {
    let arena = Arena::new();
    for class in Class::all() {
        let mut blocks = vec![NonNull::dangling(); class.slab_bytes() / class.block_bytes()];
        let taken = arena.take(class, &mut blocks);
        let from = blocks.len() - taken;
        assert_eq!((arena.stats().slabs, arena.stats().chunks), (1, 1));
        // SAFETY: these blocks are live and of this class.
        unsafe { arena.give(class, &blocks[from..]) }
        assert_empty(&arena.stats());
    }
}

#[test]
fn unused_chunks_go_back_and_the_first_are_plain() {
    let arena = Arena::new();
    let class = class(32 << 10);
    let blocks: Vec<_> =
        (0..60 * CHUNK_BYTES / (32 << 10)).map(|_| arena.take_one(class)).collect();
    let full = arena.stats();
    assert!(full.chunks >= 60 && full.chunks <= 62, "{full:?}");
    assert!(full.huge_chunks <= full.chunks - 16, "{full:?}");
    for block in blocks {
        // SAFETY: the block is live and of this class.
        unsafe { arena.give(class, &[block]) }
    }
    assert_empty(&arena.stats());
}

#[test]
#[should_panic(expected = "a block is freed once")]
fn freeing_twice_is_noticed() {
    let arena = Arena::new();
    let class = class(64);
    let (kept, block) = (arena.take_one(class), arena.take_one(class));
    assert_ne!(kept, block);
    // SAFETY: none. The second call breaks the promise; the depot notices before it does harm.
    unsafe {
        arena.give(class, &[block]);
        arena.give(class, &[block]);
    }
}

#[test]
#[should_panic(expected = "with the length it was allocated with")]
fn freeing_with_another_length_is_noticed() {
    let arena = Arena::new();
    let block = arena.take_one(class(64));
    // SAFETY: none. The depot notices before it does harm.
    unsafe { arena.give(class(72), &[block]) }
}

#[test]
fn table_units_are_zeroed_only_when_they_were_used() {
    let pool = ChunkPool::new();
    let fresh = pool.take(2, RunDemand::Table);
    assert_eq!(fresh.dirty_units & fresh.run.mask(), 0);
    // SAFETY: the run is this test's.
    unsafe {
        fresh.run.start().write_bytes(7, 4 * UNIT_BYTES);
        pool.give(fresh.run);
    }
    let again = pool.take(2, RunDemand::Table);
    assert_eq!(again.dirty_units & again.run.mask(), again.run.mask());
    assert_eq!(again.run, fresh.run);
    // SAFETY: as above.
    unsafe { pool.give(again.run) }
    let run = take_zeroed(&pool, 3 * UNIT_BYTES);
    assert_eq!((run, run.order), (fresh.run, 2));
    // SAFETY: as above; it is initialised, whether by the system or by the pool.
    let table = unsafe { std::slice::from_raw_parts(run.start().as_ptr(), 4 * UNIT_BYTES) };
    assert!(table.iter().all(|byte| *byte == 0));
}

#[test]
fn zeroed_memory_of_every_origin_is_zero_and_aligned() {
    assert_eq!(ZeroedMemory::new(0).occupied_bytes(), 0);
    for bytes in [64, 4096, 65_472, 65_536, 65_600, 1 << 20, (1 << 20) + 64, 1 << 21, 5 << 20] {
        for _ in 0..3 {
            let memory = ZeroedMemory::new(bytes);
            assert!(memory.as_ptr().addr().get().is_multiple_of(64));
            assert_eq!(memory.bytes(), bytes);
            assert!(memory.occupied_bytes() >= bytes);
            // SAFETY: the memory is this test's, and zero is a valid byte.
            let content =
                unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().as_ptr(), bytes) };
            assert!(content.iter().all(|byte| *byte == 0), "{bytes}");
            content.fill(9);
        }
    }
}

#[test]
fn blocks_of_every_length_by_the_public_functions() {
    let lengths = (0..2000).chain([4096, 32_768, 32_769, 100_000, 3 << 20]);
    let blocks: Vec<LiveBlock> =
        lengths.map(|bytes| LiveBlock::fill(allocate(bytes), bytes, bytes as u8)).collect();
    for live in blocks {
        live.check();
        assert!(occupied_bytes(live.bytes) >= live.bytes);
        // SAFETY: the block is live and of this length.
        unsafe { free(live.block, live.bytes) }
    }
}

#[test]
fn a_large_block_is_used_again() {
    const MIB: usize = 1 << 20;
    let mut blocks = Vec::new();
    for round in 0..40 {
        // Lengths that are close share blocks; contents must not.
        let bytes = 3 * MIB + round * 17;
        let block = allocate(bytes);
        // SAFETY: the block has that many bytes and no other owner has it.
        unsafe { block.write_bytes(round as u8, bytes) };
        blocks.push((block, bytes, round as u8));
        let (block, bytes, byte) = blocks.swap_remove(round * 7 % blocks.len());
        // SAFETY: it is live, was filled with one byte, and is freed once with its length.
        unsafe {
            let content = std::slice::from_raw_parts(block.as_ptr(), bytes);
            assert!(content.iter().all(|found| *found == byte));
            free(block, bytes);
        }
    }
    for (block, bytes, _) in blocks {
        // SAFETY: as above.
        unsafe { free(block, bytes) }
    }
}
