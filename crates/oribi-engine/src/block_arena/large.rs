//! Blocks above the largest class: the system's allocator, and a few freed ones that are kept.
//!
//! Owns: the layout they are allocated with, an estimate of what they take, and the kept blocks. Such blocks are
//! copied in and sent out in order, so page walks do not matter to them, and a word of overhead is nothing at
//! their size. But the system maps the large ones anew each time, and then every page is faulted in and cleared:
//! as much work as receiving the value. A document that is overwritten finds the block of the version before.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`; one more:
//! 9. A kept block came from the system's allocator with the layout of its rounded length, and nobody uses it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use parking_lot::Mutex;

use super::SYSTEM_BLOCKS;

/// What the system's allocator puts before a block, and to what it rounds the sum (glibc on 64-bit systems).
const OVERHEAD: usize = 8;
const ROUNDING: usize = 16;
/// From here on glibc may map a block on its own, which rounds to whole pages.
const MAPPED_FROM: usize = 128 * 1024;
const PAGE: usize = 4096;

fn layout(bytes: usize) -> Layout {
    // A layout of no bytes is not allowed; only the sanitizer build sees small lengths here.
    Layout::from_size_align(bytes.max(1), 8).expect("blocks are far below isize::MAX bytes")
}

pub(super) fn allocate(bytes: usize) -> NonNull<u8> {
    let bytes = rounded(bytes);
    if bytes >= KEPT_BYTES_MIN
        && let Some(kept) = KEPT.lock().take(bytes)
    {
        return kept.block;
    }
    let layout = layout(bytes);
    // SAFETY: the size is not zero.
    let block = unsafe { alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// (7) The block came from [`allocate`] with the same length.
pub(super) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    let freed = Kept { block, bytes: rounded(bytes) };
    if SYSTEM_BLOCKS || !(KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&freed.bytes) {
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

pub(super) fn occupied_bytes(bytes: usize) -> usize {
    let bytes = rounded(bytes);
    if bytes < MAPPED_FROM {
        (bytes + OVERHEAD).next_multiple_of(ROUNDING)
    } else {
        (bytes + 2 * OVERHEAD).next_multiple_of(PAGE)
    }
}

/// Blocks from this size on are kept: smaller ones the system's allocator keeps itself.
const KEPT_BYTES_MIN: usize = 128 * 1024;
/// Most bytes that are kept: two of the largest documents.
const KEPT_BYTES_MAX: usize = 48 << 20;
const KEPT_BLOCKS_MAX: usize = 16;
/// Lengths that differ by less than this part share a length, so that one's block fits the other.
const STEPS_PER_DOUBLING: usize = 32;

/// The length that a block is allocated with.
fn rounded(bytes: usize) -> usize {
    if bytes < KEPT_BYTES_MIN || SYSTEM_BLOCKS {
        return bytes;
    }
    bytes.next_multiple_of(bytes.next_power_of_two() / 2 / STEPS_PER_DOUBLING)
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
        // SAFETY: (9) nobody uses it, and the layout is the one that it was allocated with.
        unsafe { dealloc(self.block.as_ptr(), layout(self.bytes)) }
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
