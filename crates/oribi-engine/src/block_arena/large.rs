//! Blocks above the largest class: the system's allocator.
//!
//! Owns: the layout they are allocated with, and an estimate of what they take. Such blocks are copied in and sent
//! out in order, so page walks do not matter to them, and a word of overhead is nothing at their size.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

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
    let layout = layout(bytes);
    // SAFETY: the size is not zero.
    let block = unsafe { alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// (7) The block came from [`allocate`] with the same length.
pub(super) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise gives the same layout.
    unsafe { dealloc(block.as_ptr(), layout(bytes)) }
}

pub(super) fn occupied_bytes(bytes: usize) -> usize {
    if bytes < MAPPED_FROM {
        (bytes + OVERHEAD).next_multiple_of(ROUNDING)
    } else {
        (bytes + 2 * OVERHEAD).next_multiple_of(PAGE)
    }
}
