//! The head of a chunk: which units are free, and an entry for each slab.
//!
//! Owns: the layout and the bit arithmetic. A chunk is one huge page, cut into units of 64 KiB; a
//! slab or a piece of table memory takes one to sixteen of them, aligned to its size. The header
//! takes the beginning of unit 0, so a slab there has fewer blocks and table memory is never put
//! there. Locks are the depot's and the pool's.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};

use super::class::{BLOCK_BYTES_MIN, Class};
use super::pages::{PageKind, PageMapping};
use super::units::{CHUNK_BYTES, CHUNK_ORDER, UNIT_BYTES, UNITS};

const ALL_UNITS: u32 = u32::MAX;
const _: () = assert!(UNITS == ALL_UNITS.count_ones() as usize);

/// Words of a slab's bitmap: one bit for each block of the smallest class in one unit; classes
/// with larger slabs have fewer blocks, which a test checks.
pub(super) const BITMAP_WORDS: usize = (UNIT_BYTES / BLOCK_BYTES_MIN).div_ceil(64);

/// A slab, as its depot sees it. Its address says where its blocks are.
#[repr(C, align(64))]
pub(super) struct Slab {
    /// Neighbours in the depot's list of slabs with a free block.
    pub(super) next: *mut Slab,
    pub(super) previous: *mut Slab,
    /// Blocks that are free. A survey of the arena reads it without the depot's lock.
    free: AtomicU16,
    total: u16,
    /// The class, as [`Class::number`], from the moment its depot knows the slab; 0 before and
    /// after.
    class: AtomicU8,
    /// In the depot's list of slabs that give no blocks out, because their chunk is to become
    /// empty.
    pub(super) is_draining: bool,
    /// One bit for each block, set while it is free. For blocks from 200 bytes on, all that is used
    /// of a slab's entry is one cache line.
    free_blocks: [u64; BITMAP_WORDS],
}

const _: () = assert!(size_of::<Slab>() == 256);

/// The pool's part of a chunk's header.
#[repr(C)]
pub(super) struct ChunkState {
    /// Neighbours in the pool's list.
    pub(super) next: *mut ArenaChunk,
    pub(super) previous: *mut ArenaChunk,
    /// One bit for each unit that is not handed out.
    pub(super) free_units: u32,
    /// Units that were ever handed out since the chunk was mapped; the others are still zero.
    pub(super) dirty_units: u32,
    /// Units that are table memory, which does not move.
    pub(super) table_units: u32,
    /// Place in the pool's list of all chunks.
    pub(super) at: usize,
    /// A round of compaction has chosen the chunk, so it stays mapped until the round releases it.
    pub(super) is_chosen: bool,
    /// The class of the slab that begins at a unit, for units that are slabs.
    pub(super) classes: [Option<Class>; UNITS],
    /// Which of the pool's lists it belongs to.
    pub(super) page_kind: PageKind,
    pub(super) mapping: PageMapping,
}

/// The header of a chunk. Never borrowed as a whole: its parts belong to different locks.
#[repr(C, align(64))]
pub(super) struct ArenaChunk {
    state: ChunkState,
    /// The chunk is to become empty: it gives nothing out any more, and its documents are moved.
    is_marked: AtomicBool,
    slabs: [Slab; UNITS],
}

/// Bytes at the beginning of unit 0 that no block can have.
pub(super) const HEADER_BYTES: usize = size_of::<ArenaChunk>();
const _: () = assert!(HEADER_BYTES < UNIT_BYTES / 4);

/// `1 << order` units of one chunk, aligned to that number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitRun {
    pub(super) chunk: NonNull<ArenaChunk>,
    pub(super) unit: usize,
    pub(super) order: u32,
}

impl UnitRun {
    /// The run of the given order that `address` lies in.
    pub(super) fn around(address: NonNull<u8>, order: u32) -> UnitRun {
        debug_assert!(order <= CHUNK_ORDER, "a run of units fits its chunk");
        let unit = address.addr().get() % CHUNK_BYTES / UNIT_BYTES;
        UnitRun { chunk: chunk_of(address), unit: unit & !((1 << order) - 1), order }
    }

    /// The run whose first unit has this entry.
    pub(super) fn of_slab(slab: NonNull<Slab>, order: u32) -> UnitRun {
        let chunk = chunk_of(slab.cast());
        let offset = slab.addr().get() - chunk.addr().get() - offset_of!(ArenaChunk, slabs);
        debug_assert!(offset.is_multiple_of(size_of::<Slab>()), "a slab's entry is whole");
        debug_assert!(offset / size_of::<Slab>() < UNITS, "a slab's entry is one of its chunk");
        UnitRun { chunk, unit: offset / size_of::<Slab>(), order }
    }

    /// One bit for each unit.
    pub(super) fn mask(self) -> u32 {
        debug_assert!(
            self.unit + (1 << self.order) <= UNITS,
            "a run of units ends inside its chunk"
        );
        (((1_u64 << (1 << self.order)) - 1) << self.unit) as u32
    }

    /// First byte of the first unit.
    pub(super) fn start(self) -> NonNull<u8> {
        // SAFETY: (1) the unit lies inside the chunk.
        unsafe { self.chunk.cast::<u8>().add(self.unit * UNIT_BYTES) }
    }

    /// Entry of the slab that these units are, or may become.
    pub(super) fn slab(self) -> NonNull<Slab> {
        debug_assert!(self.unit < UNITS, "a unit is one of its chunk");
        // SAFETY: (1) the entry is inside the header, and a raw borrow reads nothing.
        unsafe { NonNull::new_unchecked(&raw mut (*self.chunk.as_ptr()).slabs[self.unit]) }
    }

    /// Blocks of a slab in these units.
    pub(super) fn blocks(self, class: Class) -> usize {
        debug_assert_eq!(self.order, class.slab_order(), "a slab has the units of its class");
        let skipped = if self.unit == 0 { HEADER_BYTES } else { 0 };
        (class.slab_bytes() - skipped) / class.block_bytes()
    }

    /// Where the first block of a slab in these units is.
    fn first_block(self) -> NonNull<u8> {
        let skipped = if self.unit == 0 { HEADER_BYTES } else { 0 };
        // SAFETY: (1) the header ends inside unit 0.
        unsafe { self.start().add(skipped) }
    }
}

/// (1) The header of the chunk that `address` lies in.
pub(super) fn chunk_of(address: NonNull<u8>) -> NonNull<ArenaChunk> {
    let base = address.as_ptr().map_addr(|address| address & !(CHUNK_BYTES - 1));
    NonNull::new(base.cast()).expect("a chunk is never mapped at address zero")
}

impl ArenaChunk {
    /// Writes the header at the beginning of a fresh mapping, all units free.
    pub(super) fn write_header(mapping: PageMapping, page_kind: PageKind) -> NonNull<ArenaChunk> {
        let chunk = mapping.base().cast::<ArenaChunk>();
        assert!(mapping.bytes() == CHUNK_BYTES, "a chunk is one mapping of its size");
        assert!(chunk.addr().get().is_multiple_of(CHUNK_BYTES), "a chunk is aligned to its size");
        let (next, previous) = (std::ptr::null_mut(), std::ptr::null_mut());
        let state = ChunkState {
            next,
            previous,
            free_units: ALL_UNITS,
            dirty_units: 0,
            table_units: 0,
            at: 0,
            is_chosen: false,
            classes: [None; UNITS],
            page_kind,
            mapping,
        };
        // SAFETY: (1, 2) the mapping is not shared yet. The entries of slabs are written when used.
        unsafe {
            (&raw mut (*chunk.as_ptr()).state).write(state);
            (&raw mut (*chunk.as_ptr()).is_marked).write(AtomicBool::new(false));
        }
        chunk
    }

    /// Whether the chunk is to become empty.
    ///
    /// # Safety
    /// (10) The caller has a block or a unit of the chunk, or the pool's lock, so that it stays
    /// mapped.
    pub(super) unsafe fn mark<'a>(chunk: NonNull<ArenaChunk>) -> &'a AtomicBool {
        // SAFETY: (10) the flag was written with the header, and is only ever used as an atomic.
        unsafe { &(*chunk.as_ptr()).is_marked }
    }

    /// Where the pool's part is.
    pub(super) fn state(chunk: NonNull<ArenaChunk>) -> *mut ChunkState {
        // SAFETY: (1) a raw borrow inside the header reads nothing.
        unsafe { &raw mut (*chunk.as_ptr()).state }
    }
}

impl ChunkState {
    /// True when no unit is handed out.
    pub(super) fn is_unused(&self) -> bool {
        debug_assert!(self.table_units & self.free_units == 0, "table memory is not free");
        self.free_units == ALL_UNITS
    }

    /// The slabs of the chunk.
    pub(super) fn slabs(
        &self,
        chunk: NonNull<ArenaChunk>,
    ) -> impl Iterator<Item = (UnitRun, Class)> {
        let used = !(self.free_units | self.table_units);
        self.classes.iter().enumerate().filter_map(move |(unit, class)| {
            let class = class.filter(|_| used & 1 << unit != 0)?;
            Some((UnitRun { chunk, unit, order: class.slab_order() }, class))
        })
    }
}

/// First unit of an aligned run of `1 << order` units that are all in `free`.
pub(super) fn find_run(free: u32, order: u32) -> Option<usize> {
    debug_assert!(order <= CHUNK_ORDER, "a run of units fits its chunk");
    let mut starts = free;
    for step in 0..order {
        starts &= starts >> (1 << step);
    }
    let aligned = ALL_UNITS / ((1_u64 << (1 << order)) - 1) as u32;
    let starts = starts & aligned;
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// Order of the largest run in `free`; `None` when nothing is free.
pub(super) fn largest_run(free: u32) -> Option<u32> {
    (0..=CHUNK_ORDER).rev().find(|order| find_run(free, *order).is_some())
}

impl Slab {
    /// Makes a slab of units that the pool has just handed out: all blocks are free.
    ///
    /// # Safety
    /// (2, 4) The caller owns the run, and its order is the class's.
    pub(super) unsafe fn prepare(run: UnitRun, class: Class) -> NonNull<Slab> {
        let total = run.blocks(class);
        assert!(
            0 < total && total <= BITMAP_WORDS * 64,
            "a slab's bitmap has a bit for each block"
        );
        let mut free_blocks = [0; BITMAP_WORDS];
        for (word, bits) in free_blocks.iter_mut().enumerate() {
            let blocks = total.saturating_sub(word * 64);
            *bits = if blocks >= 64 { u64::MAX } else { (1 << blocks) - 1 };
        }
        let slab = run.slab();
        let entry = slab.as_ptr();
        // SAFETY: (4, 11) no other thread writes the entry before the depot knows it, and others
        // read only its atomics.
        unsafe {
            (*entry).class.store(0, Ordering::Relaxed);
            (*entry).free.store(total as u16, Ordering::Relaxed);
            (&raw mut (*entry).next).write(std::ptr::null_mut());
            (&raw mut (*entry).previous).write(std::ptr::null_mut());
            (&raw mut (*entry).total).write(total as u16);
            (&raw mut (*entry).is_draining).write(false);
            (&raw mut (*entry).free_blocks).write(free_blocks);
        }
        slab
    }

    /// Publishes that the slab belongs to the depot of `class`. The caller holds its lock.
    pub(super) fn join(&mut self, class: Class) {
        assert_eq!(self.class.load(Ordering::Relaxed), 0, "a slab joins its depot once");
        self.class.store(class.number(), Ordering::Relaxed);
    }

    /// (11) Whether the slab is one of `class`. The caller holds the lock of that class's depot, so
    /// the answer stays true.
    pub(super) fn is_of(slab: NonNull<Slab>, class: Class) -> bool {
        // SAFETY: (11) the chunk is mapped, and the field is only ever used as an atomic.
        unsafe { (*slab.as_ptr()).class.load(Ordering::Relaxed) == class.number() }
    }

    /// (11) Free blocks at some moment, for estimates; the caller knows that the chunk is mapped.
    pub(super) fn free_now(slab: NonNull<Slab>) -> usize {
        // SAFETY: (11) as above.
        usize::from(unsafe { (*slab.as_ptr()).free.load(Ordering::Relaxed) })
    }

    /// Blocks that are free.
    pub(super) fn free(&self) -> usize {
        usize::from(self.free.load(Ordering::Relaxed))
    }

    fn set_free(&mut self, blocks: usize) {
        debug_assert!(blocks <= self.total(), "a slab has at most its blocks free");
        self.free.store(blocks as u16, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> usize {
        usize::from(self.total)
    }

    /// Forgets the class, before the units go back to the pool.
    pub(super) fn retire(&mut self) {
        assert_eq!(self.free(), self.total(), "a slab is retired with live blocks in it");
        self.class.store(0, Ordering::Relaxed);
    }

    /// Takes up to `blocks.len()` free blocks, lowest address into the last place, and returns how
    /// many: the last ones of `blocks` are filled. `run` is where this slab is.
    pub(super) fn take(&mut self, run: UnitRun, class: Class, blocks: &mut [NonNull<u8>]) -> usize {
        let (first, block_bytes) = (run.first_block(), class.block_bytes());
        let wanted = blocks.len().min(self.free());
        let mut missing = wanted;
        let mut places = blocks.iter_mut().rev();
        for (word, bits) in self.free_blocks.iter_mut().enumerate() {
            while *bits != 0 && missing > 0 {
                let number = word * 64 + bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                let place = places.next().expect("no more are taken than there are places");
                // SAFETY: (5) a set bit stands for a block inside the slab.
                *place = unsafe { first.add(number * block_bytes) };
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        self.set_free(self.free() - wanted);
        debug_assert_eq!(missing, 0, "the count of free blocks is that of the set bits");
        wanted
    }

    /// Takes a block back.
    ///
    /// # Panics
    /// When the block is not one of this slab's live blocks: it was freed twice, or with a wrong
    /// length.
    pub(super) fn put(&mut self, run: UnitRun, class: Class, block: NonNull<u8>) {
        assert_eq!(
            self.class.load(Ordering::Relaxed),
            class.number(),
            "a block is freed with the length it was allocated with"
        );
        let offset = block.addr().get() - run.first_block().addr().get();
        let number = class.block_number(offset);
        let bit = 1 << (number % 64);
        let bits = &mut self.free_blocks[number / 64];
        assert_eq!(number * class.block_bytes(), offset, "a freed address begins a block");
        assert!(number < usize::from(self.total), "a freed block is inside its slab");
        assert!(*bits & bit == 0, "a block is freed once");
        *bits |= bit;
        self.set_free(self.free() + 1);
    }
}
