//! Blocks above the largest class.
//!
//! Owns: the order in which they are looked for. A freed block waits for the next value of its
//! length (`kept_blocks.rs`); a new one comes from the system (`large_block.rs`).
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::ptr::NonNull;

use super::large_block::{LargeBlock, is_at_mappings_max, rounded};
use super::{growth, kept_blocks};

pub(super) fn allocate(bytes: usize) -> NonNull<u8> {
    let bytes = rounded(bytes);
    if let Some(kept) = kept_blocks::take(bytes) {
        return kept.into_raw();
    }
    kept_blocks::release_oldest_while(is_at_mappings_max);
    let block = LargeBlock::new(bytes).into_raw();
    growth::grown();
    block
}

/// # Safety
/// (7) The block came from [`allocate`] with the same length.
pub(super) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    // SAFETY: (7, 9) the block was allocated with this length, and the caller gives it up.
    kept_blocks::keep(unsafe { LargeBlock::from_raw(block, rounded(bytes)) });
}

pub(super) fn occupied_bytes(bytes: usize) -> usize {
    rounded(bytes)
}
