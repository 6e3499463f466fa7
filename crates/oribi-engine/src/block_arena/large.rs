//! Blocks above the largest class: each a mapping of its own, and a few freed ones that are kept.
//!
//! Owns: where such blocks come from, what they take, and the kept blocks. They are copied in and
//! sent out in order, so page walks do not matter to them. The system's allocator would keep what
//! it cannot use for others, without a bound; a mapping goes back when its block is freed. But
//! every page of a new one is faulted in and cleared: as much work as receiving the value. So a
//! document that is overwritten finds the block of the version before.
//!
//! A process may have some ten thousand mappings. Beyond [`MAPPINGS_MAX`], and where nothing can be
//! mapped, blocks come from the system's allocator. The address tells which: the allocator's are
//! multiples of 16, and mapped ones begin 8 bytes behind their page.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`; one more:
//! 9. A kept block came from the system for its rounded length, and is not used.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::units::SYSTEM_BLOCKS;
use super::{pages, taken};

/// Mapped blocks at a time, out of the 65,530 mappings that Linux allows a process by default.
const MAPPINGS_MAX: usize = 16 * 1024;
/// Where a block begins in its mapping.
const OFFSET: usize = 8;
const ALIGNMENT: usize = 16;
/// Mappings up to this size are made resident at once. Of a longer value nothing may ever come.
const FILLED_AT_ONCE_BYTES_MAX: usize = 1 << 20;

static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

fn layout(bytes: usize) -> Layout {
    // A layout of no bytes is not allowed; only the sanitizer build sees small lengths here.
    Layout::from_size_align(bytes.max(1), ALIGNMENT).expect("blocks are far below isize::MAX bytes")
}

pub(super) fn allocate(bytes: usize) -> NonNull<u8> {
    let bytes = rounded(bytes);
    if !SYSTEM_BLOCKS && let Some(kept) = KEPT.lock().take(bytes) {
        return kept.block;
    }
    let block = mapped(bytes).unwrap_or_else(|| {
        let layout = layout(bytes);
        // SAFETY: the size is not zero.
        let block = unsafe { alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
    });
    taken::count_taken(bytes);
    taken::grown();
    block
}

/// A block in a mapping of its own.
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

/// # Safety
/// (7) The block came from [`allocate`] with the same length.
pub(super) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    let freed = Kept { block, bytes: rounded(bytes) };
    let is_kept = !SYSTEM_BLOCKS && taken::excess_bytes() == 0;
    if !is_kept || freed.bytes > KEPT_BYTES_MAX {
        return freed.give_back();
    }
    loop {
        // Blocks go back to the system without the lock.
        let oldest = {
            let mut kept = KEPT.lock();
            if kept.has_room(freed.bytes) {
                return kept.put(freed);
            }
            kept.take_oldest()
        };
        if let Some(oldest) = oldest {
            oldest.give_back();
        }
    }
}

/// Gives all kept blocks back to the system.
pub(super) fn release_kept() {
    let kept = {
        let mut kept = KEPT.lock();
        kept.bytes = 0;
        std::mem::take(&mut kept.blocks)
    };
    kept.into_iter().for_each(Kept::give_back);
}

pub(super) fn occupied_bytes(bytes: usize) -> usize {
    rounded(bytes)
}

/// Most bytes that are kept: two of the largest documents.
const KEPT_BYTES_MAX: usize = 48 << 20;
const KEPT_BLOCKS_MAX: usize = 64;
/// Lengths that differ by less than this part share a length, so that one's block fits the other.
const STEPS_PER_DOUBLING: usize = 32;
const PAGE: usize = 4096;

/// The length that is taken for a block: whole pages.
fn rounded(bytes: usize) -> usize {
    if SYSTEM_BLOCKS {
        return bytes;
    }
    let bytes = bytes + OFFSET;
    let step = bytes.next_power_of_two() / 2 / STEPS_PER_DOUBLING;
    bytes.next_multiple_of(step.max(PAGE))
}

static KEPT: Mutex<KeptBlocks> = Mutex::new(KeptBlocks { blocks: Vec::new(), bytes: 0 });

/// A freed block and its rounded length.
struct Kept {
    block: NonNull<u8>,
    bytes: usize,
}

// SAFETY: (9) it is the only owner of plain memory.
unsafe impl Send for Kept {}

impl Kept {
    fn give_back(self) {
        taken::count_given_back(self.bytes);
        if self.block.addr().get().is_multiple_of(ALIGNMENT) {
            // SAFETY: (9) it is not used, and the layout is the one that it was allocated with.
            return unsafe { dealloc(self.block.as_ptr(), layout(self.bytes)) };
        }
        // SAFETY: (9) it is not used, and it was mapped with this length.
        unsafe { pages::unmap_block(self.block.sub(OFFSET), self.bytes) }
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Oldest first, never more than the limits say.
struct KeptBlocks {
    blocks: Vec<Kept>,
    bytes: usize,
}

impl KeptBlocks {
    /// A block of exactly this rounded length.
    fn take(&mut self, bytes: usize) -> Option<Kept> {
        let at = self.blocks.iter().rposition(|kept| kept.bytes == bytes)?;
        self.bytes -= bytes;
        Some(self.blocks.remove(at))
    }

    fn take_oldest(&mut self) -> Option<Kept> {
        let bytes = self.blocks.first()?.bytes;
        self.bytes -= bytes;
        Some(self.blocks.remove(0))
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.blocks.len() < KEPT_BLOCKS_MAX && self.bytes + bytes <= KEPT_BYTES_MAX
    }

    fn put(&mut self, freed: Kept) {
        self.bytes += freed.bytes;
        self.blocks.push(freed);
    }
}

/// Blocks and bytes that are kept, for tests.
#[cfg(test)]
pub(super) fn kept() -> (usize, usize) {
    let kept = KEPT.lock();
    (kept.blocks.len(), kept.bytes)
}
