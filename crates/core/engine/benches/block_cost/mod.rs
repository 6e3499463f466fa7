//! Time of one allocation and its free, in the patterns that a server has.
//!
//! Both allocators take turns within each round, and the best and the median round are printed: on
//! a shared machine the best is what the code costs. Patterns:
//!
//! - `pair`: a block is freed right after it was allocated; the fastest that is possible.
//! - `batch`: 512 blocks, then all freed in that order, as a pipelined batch and its flush do it.
//! - `replace`: of many live blocks one at random is freed and a new one takes its place; its
//!   header is written, as an item's is. `fill` writes the whole block instead, `read` reads one at
//!   random at its end.
//! - `hand_over`: one thread allocates, another frees.

use std::alloc::{Layout, alloc, dealloc};
use std::io::Write;
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::Instant;

use oribi_engine::block_arena;

use crate::arguments::{each, number};

/// One way to get and to free blocks.
trait Allocator: Copy + Send + 'static {
    const NAME: &'static str;
    fn allocate(self, bytes: usize) -> NonNull<u8>;
    /// # Safety
    /// The block came from `allocate` with the same length and is not used any more.
    unsafe fn free(self, block: NonNull<u8>, bytes: usize);
}

#[derive(Clone, Copy)]
struct Arena;

impl Allocator for Arena {
    const NAME: &'static str = "arena";

    #[inline]
    fn allocate(self, bytes: usize) -> NonNull<u8> {
        block_arena::allocate(bytes)
    }

    #[inline]
    unsafe fn free(self, block: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { block_arena::free(block, bytes) }
    }
}

#[derive(Clone, Copy)]
struct System;

impl System {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).expect("a small layout")
    }
}

impl Allocator for System {
    const NAME: &'static str = "system";

    #[inline]
    fn allocate(self, bytes: usize) -> NonNull<u8> {
        // SAFETY: no length of this bench is zero.
        NonNull::new(unsafe { alloc(System::layout(bytes)) }).expect("memory for a bench")
    }

    #[inline]
    unsafe fn free(self, block: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(block.as_ptr(), System::layout(bytes)) }
    }
}

struct Options {
    live: usize,
    rounds: usize,
    bytes: Vec<usize>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { live: 200_000, rounds: 7, bytes: vec![80, 576, 4096] };
        each(arguments, |name, value| {
            match name {
                "--live" => options.live = number(value)?.max(1),
                "--rounds" => options.rounds = number(value)?.max(1),
                "--bytes" => {
                    options.bytes = value.split(',').map(number).collect::<Result<_, _>>()?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if options.bytes.contains(&0) {
            return Err("a block has at least one byte".to_owned());
        }
        Ok(options)
    }
}

/// Runs every pattern for every length and writes one line for each allocator.
pub fn run(arguments: impl Iterator<Item = String>, out: &mut dyn Write) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    for bytes in &options.bytes {
        for pattern in ["pair", "batch", "replace", "fill", "read", "hand_over"] {
            let (mut arena, mut system) = (Vec::new(), Vec::new());
            for _ in 0..options.rounds {
                arena.push(measure(Arena, pattern, *bytes, options.live));
                system.push(measure(System, pattern, *bytes, options.live));
            }
            for (name, mut ns) in [(Arena::NAME, arena), (System::NAME, system)] {
                ns.sort_by(f64::total_cmp);
                let (best, median) = (ns[0], ns[ns.len() / 2]);
                writeln!(
                    out,
                    "{pattern:10} {bytes:6} B {name:7} best {best:7.1} ns median {median:7.1} ns"
                )
                .map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Nanoseconds for one allocation and one free (for `read`, for one read).
fn measure<A: Allocator>(allocator: A, pattern: &str, bytes: usize, live: usize) -> f64 {
    match pattern {
        "pair" => pair(allocator, bytes, live),
        "batch" => batch(allocator, bytes, live),
        "hand_over" => hand_over(allocator, bytes, live),
        _ => Crowd::new(allocator, bytes, live).measure(pattern),
    }
}

fn pair<A: Allocator>(allocator: A, bytes: usize, count: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        let block = std::hint::black_box(allocator.allocate(bytes));
        // SAFETY: the block is live.
        unsafe { allocator.free(block, bytes) }
    }
    ns_each(start, count)
}

fn batch<A: Allocator>(allocator: A, bytes: usize, count: usize) -> f64 {
    const BATCH: usize = 512;
    let batches = count.div_ceil(BATCH);
    let mut blocks = Vec::with_capacity(BATCH);
    let start = Instant::now();
    for _ in 0..batches {
        blocks.extend((0..BATCH).map(|_| allocator.allocate(bytes)));
        for block in blocks.drain(..) {
            // SAFETY: the block is live.
            unsafe { allocator.free(block, bytes) }
        }
    }
    ns_each(start, batches * BATCH)
}

fn hand_over<A: Allocator>(allocator: A, bytes: usize, count: usize) -> f64 {
    const BATCH: usize = 512;
    struct Blocks(Vec<NonNull<u8>>);
    // SAFETY: blocks belong to no thread.
    unsafe impl Send for Blocks {}
    let (sender, receiver) = mpsc::sync_channel::<Blocks>(8);
    let batches = count.div_ceil(BATCH);
    let start = Instant::now();
    let freeing = std::thread::spawn(move || {
        for Blocks(blocks) in receiver {
            for block in blocks {
                // SAFETY: the other thread has given the block up.
                unsafe { allocator.free(block, bytes) }
            }
        }
    });
    for _ in 0..batches {
        let blocks = (0..BATCH).map(|_| touched(allocator, bytes, 16)).collect();
        let sent = sender.send(Blocks(blocks));
        assert!(sent.is_ok(), "the other thread reads to the end");
    }
    drop(sender);
    freeing.join().expect("the other thread ends well");
    ns_each(start, batches * BATCH)
}

/// A new block whose first `written` bytes are written.
fn touched<A: Allocator>(allocator: A, bytes: usize, written: usize) -> NonNull<u8> {
    let block = allocator.allocate(bytes);
    // SAFETY: the block has at least that many bytes.
    unsafe { block.write_bytes(1, written.min(bytes)) }
    block
}

/// Many live blocks.
struct Crowd<A: Allocator> {
    allocator: A,
    bytes: usize,
    blocks: Vec<NonNull<u8>>,
    random: u64,
}

impl<A: Allocator> Crowd<A> {
    fn new(allocator: A, bytes: usize, live: usize) -> Crowd<A> {
        let blocks = (0..live).map(|_| touched(allocator, bytes, bytes)).collect();
        let mut crowd = Crowd { allocator, bytes, blocks, random: 0x9e37_79b9_7f4a_7c15 };
        // After some time of random replacement the blocks lie as a server's do.
        crowd.replace(live, 48);
        crowd
    }

    fn measure(mut self, pattern: &str) -> f64 {
        let count = self.blocks.len();
        let start = Instant::now();
        match pattern {
            "replace" => self.replace(count, 48),
            "fill" => self.replace(count, self.bytes),
            _ => self.read(count),
        }
        ns_each(start, count)
    }

    fn next(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % self.blocks.len() as u64) as usize
    }

    fn replace(&mut self, count: usize, written: usize) {
        for _ in 0..count {
            let at = self.next();
            let new = touched(self.allocator, self.bytes, written);
            let old = std::mem::replace(&mut self.blocks[at], new);
            // SAFETY: the block has just left the crowd.
            unsafe { self.allocator.free(old, self.bytes) }
        }
    }

    /// Each read depends on the one before it, as a look-up without prefetch does.
    fn read(&mut self, count: usize) {
        let mut sum = 0_u64;
        for _ in 0..count {
            let at = (self.next() + (sum & 1) as usize) % self.blocks.len();
            // SAFETY: the block is live and all of it has been written.
            sum =
                sum.wrapping_add(u64::from(unsafe { self.blocks[at].add(self.bytes - 1).read() }));
        }
        std::hint::black_box(sum);
    }
}

impl<A: Allocator> Drop for Crowd<A> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: the block is live.
            unsafe { self.allocator.free(block, self.bytes) }
        }
    }
}

fn ns_each(start: Instant, count: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}
