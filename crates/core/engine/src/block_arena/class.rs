//! Size classes: blocks of one class share slabs.
//!
//! Owns: the mapping between lengths and classes, and what follows from a class by arithmetic: the
//! size of its slabs, how many blocks one holds, and a block's number from its offset. Steps are of
//! 8 bytes to 256, of 16 to 1 KiB, then eight for each doubling, so at most an eighth of a block is
//! padding and mostly far less. Nothing here touches memory.

use super::units::UNIT_BYTES;

/// Smallest block: an item's header, rounded up. Fewer bytes would only make the slabs' bitmaps
/// longer.
pub(super) const BLOCK_BYTES_MIN: usize = 48;
const FINE_STEP: usize = 8;
const FINE_END: usize = 256;
const MIDDLE_STEP: usize = 16;
const MIDDLE_END: usize = 1024;
/// Largest block of a class; longer ones are their own mappings.
pub(super) const BLOCK_BYTES_MAX: usize = 128 * 1024;
const STEPS_PER_DOUBLING: usize = 8;

const FINE_CLASSES: usize = (FINE_END - BLOCK_BYTES_MIN) / FINE_STEP + 1;
const MIDDLE_CLASSES: usize = (MIDDLE_END - FINE_END) / MIDDLE_STEP;
const COARSE_FROM: usize = FINE_CLASSES + MIDDLE_CLASSES;
const DOUBLINGS: usize = (BLOCK_BYTES_MAX / MIDDLE_END).ilog2() as usize;
pub(super) const CLASSES: usize = COARSE_FROM + DOUBLINGS * STEPS_PER_DOUBLING;
const _: () = assert!(block_bytes_of(0) == BLOCK_BYTES_MIN);
const _: () = assert!(block_bytes_of(CLASSES - 1) == BLOCK_BYTES_MAX);
const _: () = assert!(CLASSES <= u8::MAX as usize);

/// Most bytes that a thread keeps ready in one class, unless two blocks are more.
const MAGAZINE_BYTES: usize = 16 * 1024;
/// Most blocks that a thread keeps ready in one class. Larger magazines take the depot's lock less
/// often, but at this size the lock is a small part of an operation already.
pub(super) const MAGAZINE_BLOCKS_MAX: usize = 64;
const MAGAZINE_BLOCKS_MIN: usize = 2;
/// Largest block that a thread keeps ready. To copy a larger one costs far more than its depot's
/// lock.
const MAGAZINE_BLOCK_BYTES_MAX: usize = 32 * 1024;

const BLOCK_BYTES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut index = 0;
    while index < CLASSES {
        sizes[index] = block_bytes_of(index) as u32;
        index += 1;
    }
    sizes
};

/// 2^32 divided by the block size, rounded up.
const RECIPROCALS: [u32; CLASSES] = {
    let mut reciprocals = [0; CLASSES];
    let mut index = 0;
    while index < CLASSES {
        reciprocals[index] = (1_u64 << 32).div_ceil(block_bytes_of(index) as u64) as u32;
        index += 1;
    }
    reciprocals
};

const fn block_bytes_of(index: usize) -> usize {
    if index < FINE_CLASSES {
        return BLOCK_BYTES_MIN + index * FINE_STEP;
    }
    if index < COARSE_FROM {
        return FINE_END + (index - FINE_CLASSES + 1) * MIDDLE_STEP;
    }
    let coarse = index - COARSE_FROM;
    let base = MIDDLE_END << (coarse / STEPS_PER_DOUBLING);
    base + (coarse % STEPS_PER_DOUBLING + 1) * (base / STEPS_PER_DOUBLING)
}

/// The class of every length up to [`MIDDLE_END`], by the length in steps of [`FINE_STEP`], rounded
/// up.
const SMALL_CLASSES: [u8; MIDDLE_END / FINE_STEP + 1] = {
    let mut classes = [0; MIDDLE_END / FINE_STEP + 1];
    let (mut step, mut class) = (0, 0);
    while step < classes.len() {
        if step * FINE_STEP > block_bytes_of(class) {
            class += 1;
        }
        classes[step] = class as u8;
        step += 1;
    }
    classes
};

/// One size of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class(u8);

impl Class {
    /// The smallest class whose blocks hold `bytes`; `None` above the largest.
    #[inline]
    pub(super) fn of(bytes: usize) -> Option<Class> {
        if let Some(small) = SMALL_CLASSES.get(bytes.div_ceil(FINE_STEP)) {
            debug_assert!(
                BLOCK_BYTES[usize::from(*small)] as usize >= bytes,
                "a block holds its bytes"
            );
            return Some(Class(*small));
        }
        let index = if bytes <= BLOCK_BYTES_MAX {
            let last = bytes - 1;
            let doubling = (last / MIDDLE_END).ilog2() as usize;
            let base = MIDDLE_END << doubling;
            let step = (last - base) / (base / STEPS_PER_DOUBLING);
            COARSE_FROM + doubling * STEPS_PER_DOUBLING + step
        } else {
            return None;
        };
        debug_assert!(BLOCK_BYTES[index] as usize >= bytes, "a block holds its bytes");
        Some(Class(index as u8))
    }

    /// Every class, smallest first.
    pub(super) fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES as u8).map(Class)
    }

    /// Number of the class, below [`CLASSES`].
    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// A number for a slab's entry, where 0 says that there is no class.
    #[inline]
    pub(super) fn number(self) -> u8 {
        debug_assert!(self.index() < CLASSES, "a class is one of the table");
        self.0 + 1
    }

    /// Bytes of a block.
    #[inline]
    pub(super) fn block_bytes(self) -> usize {
        BLOCK_BYTES[self.index()] as usize
    }

    /// Logarithm of the units of a slab. Larger blocks have larger slabs, so that the waste after
    /// the last block stays below a sixteenth, or an eleventh of the largest.
    pub(super) fn slab_order(self) -> u32 {
        match self.block_bytes() {
            0..=1024 => 0,
            1025..=4096 => 2,
            4097..=32_768 => 3,
            _ => 4,
        }
    }

    /// Bytes of a slab; slabs are aligned to their size.
    pub(super) fn slab_bytes(self) -> usize {
        UNIT_BYTES << self.slab_order()
    }

    /// Number of the block at `offset` bytes after the slab's first block. The quotient comes from
    /// a multiplication: the reciprocal is rounded up by less than one, so at a multiple of the
    /// block size the error is below `offset / 2^32`, and offsets are below 2^20.
    #[inline]
    pub(super) fn block_number(self, offset: usize) -> usize {
        debug_assert!(offset < 1 << 20, "the quotient is exact for offsets in a slab");
        ((offset as u64 * u64::from(RECIPROCALS[self.index()])) >> 32) as usize
    }

    /// True when threads keep no blocks of the class ready.
    pub(super) fn has_no_magazine(self) -> bool {
        self.block_bytes() > MAGAZINE_BLOCK_BYTES_MAX
    }

    /// Blocks that a thread keeps ready at most.
    pub(super) fn magazine_blocks(self) -> usize {
        (MAGAZINE_BYTES / self.block_bytes()).clamp(MAGAZINE_BLOCKS_MIN, MAGAZINE_BLOCKS_MAX)
    }
}
