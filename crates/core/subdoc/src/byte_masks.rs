//! Classifies the bytes of a block as bit masks: the only module with vector instructions.
//!
//! Bit n of a mask is about byte n. On x86-64 the masks come from SSE2, which every such CPU has;
//! elsewhere from word arithmetic. A walk over a whole text uses AVX2 where the CPU has it,
//! together with the bit instructions of the same generation. A test checks that all give the same
//! masks.
//!
//! Invariant 1 of the `unsafe` here: a function with SSE2 instructions is compiled only for targets
//! that have SSE2 by definition, so calling it is always sound. Invariant 2: a function with AVX2
//! instructions is called only after a check for every CPU feature that it is compiled with. No
//! code here accesses memory by pointer.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[allow(
    unsafe_code,
    reason = "calls of functions with vector instructions; invariant 2 in byte_masks.rs"
)]
mod avx2;
mod block;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[allow(
    unsafe_code,
    reason = "calls of functions with vector instructions; invariant 1 in byte_masks.rs"
)]
mod sse2;
#[cfg(test)]
mod tests;
mod walk;
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
mod words;

use walk::walk;

pub(crate) use block::{BLOCK_BYTES, Block, TextBytes, TokenBytes};
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) use sse2::{string_bytes, structure};
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use sse2::{text_bytes, token_bytes};
pub(crate) use walk::{BlockVisitor, WalkStep};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
pub(crate) use words::{string_bytes, structure};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
use words::{text_bytes, token_bytes};

/// Visits all blocks of the text; the last one is padded with at least one space. False when the
/// visitor stopped.
pub(crate) fn walk_blocks(text: &[u8], visitor: &mut impl BlockVisitor) -> bool {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    if let Some(is_whole) = avx2::walk(text, visitor) {
        return is_whole;
    }
    walk(text, visitor, text_bytes, token_bytes)
}
