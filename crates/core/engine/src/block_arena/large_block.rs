//! A block above the largest class: its own mapping.
//!
//! Owns: allocation, accounting and release of such blocks. They are copied in and sent out in
//! order, so page walks do not matter to them. The system's allocator would keep what it cannot use
//! for others, without a bound; a mapping goes back whole.
//!
//! A process may have some ten thousand mappings. Beyond [`MAPPINGS_MAX`], and where nothing can be
//! mapped, blocks come from the system's allocator. The address distinguishes them: the allocator's
//! are multiples of 16, and mapped ones begin 8 bytes after their page.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`; one more:
//! 9. A [`LargeBlock`] is the only owner of its bytes, which came from the system for its rounded
//!    length.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::units::SYSTEM_BLOCKS;
use super::{pages, taken};

/// Mapped blocks at a time, out of the 65,530 mappings that Linux allows a process by default.
pub(super) const MAPPINGS_MAX: usize = 16 * 1024;
/// Where a block begins in its mapping.
const OFFSET: usize = 8;
const ALIGNMENT: usize = 16;
// The address of a block shows whether it is mapped.
const _: () = assert!(!OFFSET.is_multiple_of(ALIGNMENT) && PAGE.is_multiple_of(ALIGNMENT));
/// Mappings up to this size are made resident at once: a value of 1 MiB with its key. Of a longer
/// value nothing may ever come.
const FILLED_AT_ONCE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Lengths that differ by less than this part share a length, so that one's block fits the other.
const STEPS_PER_DOUBLING: usize = 32;
const PAGE: usize = 4096;

static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// The length that is taken for a block: whole pages.
pub(super) fn rounded(bytes: usize) -> usize {
    if SYSTEM_BLOCKS {
        return bytes;
    }
    let bytes = bytes + OFFSET;
    let step = bytes.next_power_of_two() / 2 / STEPS_PER_DOUBLING;
    bytes.next_multiple_of(step.max(PAGE))
}

/// True when the next block would not get a mapping.
pub(super) fn is_at_mappings_max() -> bool {
    !SYSTEM_BLOCKS && MAPPINGS.load(Ordering::Relaxed) >= MAPPINGS_MAX
}

/// A block that nothing uses, and its rounded length. It is counted as taken until it is given
/// back.
#[derive(Debug)]
pub(super) struct LargeBlock {
    block: NonNull<u8>,
    bytes: usize,
}

// SAFETY: (9) it is the only owner of plain memory.
unsafe impl Send for LargeBlock {}

impl LargeBlock {
    /// A block from the system; `bytes` is a rounded length.
    pub(super) fn new(bytes: usize) -> LargeBlock {
        let block = mapped(bytes).unwrap_or_else(|| {
            let layout = layout(bytes);
            // SAFETY: the size is not zero.
            let block = unsafe { alloc(layout) };
            NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
        });
        debug_assert!(
            SYSTEM_BLOCKS || bytes.is_multiple_of(PAGE),
            "a rounded length is whole pages"
        );
        taken::count_taken(bytes);
        LargeBlock { block, bytes }
    }

    /// A block that was in use.
    ///
    /// # Safety
    /// (9) `block` came from [`LargeBlock::into_raw`] of a block with this rounded length, and is
    /// no longer used.
    pub(super) unsafe fn from_raw(block: NonNull<u8>, bytes: usize) -> LargeBlock {
        debug_assert!(
            SYSTEM_BLOCKS || bytes.is_multiple_of(PAGE),
            "a rounded length is whole pages"
        );
        LargeBlock { block, bytes }
    }

    /// The block's first byte, for the one that uses it.
    pub(super) fn into_raw(self) -> NonNull<u8> {
        self.block
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when it is its own mapping, so that its end can go back by itself.
    pub(super) fn is_mapped(&self) -> bool {
        !self.block.addr().get().is_multiple_of(ALIGNMENT)
    }

    /// The same block with another rounded length, which is not longer; the rest goes back to the
    /// system.
    pub(super) fn shortened(self, bytes: usize) -> LargeBlock {
        assert!(self.is_mapped(), "only the end of a mapping can go back");
        assert!(0 < bytes && bytes <= self.bytes, "a shortened block is not longer");
        let LargeBlock { block, bytes: bytes_before } = self;
        taken::count_given_back(bytes_before - bytes);
        // SAFETY: (9) the end is not used, and it is inside the mapping. Rounded lengths are whole
        // pages.
        unsafe { pages::unmap_block(block.sub(OFFSET).add(bytes), bytes_before - bytes) }
        LargeBlock { block, bytes }
    }

    /// Returns it to the system.
    pub(super) fn give_back(self) {
        taken::count_given_back(self.bytes);
        if !self.is_mapped() {
            // SAFETY: (9) it is not used, and the layout is the one that it was allocated with.
            return unsafe { dealloc(self.block.as_ptr(), layout(self.bytes)) };
        }
        // SAFETY: (9) it is not used, and it was mapped with this length.
        unsafe { pages::unmap_block(self.block.sub(OFFSET), self.bytes) }
        let before = MAPPINGS.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a mapping that goes back was counted");
    }
}

fn layout(bytes: usize) -> Layout {
    debug_assert!(bytes <= isize::MAX as usize, "a block is far below the address space");
    // A layout of no bytes is not allowed; only the sanitizer build sees small lengths here.
    Layout::from_size_align(bytes.max(1), ALIGNMENT).expect("blocks are far below isize::MAX bytes")
}

/// A block in its own mapping.
fn mapped(bytes: usize) -> Option<NonNull<u8>> {
    if SYSTEM_BLOCKS || MAPPINGS.fetch_add(1, Ordering::Relaxed) >= MAPPINGS_MAX {
        MAPPINGS.fetch_sub(usize::from(!SYSTEM_BLOCKS), Ordering::Relaxed);
        return None;
    }
    let base = pages::map_block(bytes, bytes <= FILLED_AT_ONCE_BYTES_MAX);
    if base.is_none() {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
    // SAFETY: the mapping is longer than the offset.
    base.map(|base| unsafe { base.add(OFFSET) })
}
