//! Which bytes of a block are which, as bits: the one place with vector instructions.
//!
//! Bit n of a mask is about byte n. On x86-64 the masks come from SSE2, which every such processor has; elsewhere
//! from word arithmetic. A walk over a whole text takes AVX2 where the processor has it, and with it the bit
//! instructions that came at the same time. All give the same masks, which a test holds.
//!
//! Invariant 1 of the `unsafe` here: a function with SSE2 instructions is compiled only for targets that
//! have SSE2 by definition, so that calling it is always allowed. Invariant 2: a function with AVX2 instructions is
//! called only after the processor was asked for every feature it is compiled with. Nothing here touches memory by
//! pointer.

/// Bytes of a block whose structure is looked at.
pub(crate) const BLOCK_BYTES: usize = 64;

/// A block of a text.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// The bytes of a block that give a document its structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Structure {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    /// `{` and `[`.
    pub(crate) opens: u64,
    /// `}` and `]`.
    pub(crate) closes: u64,
}

/// The bytes of a block that say where strings are and what is wrong in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TextBytes {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    /// Everything below the space.
    pub(crate) controls: u64,
    /// Bytes beyond ASCII.
    pub(crate) high: u64,
}

/// The bytes of a block that matter outside of strings to who checks whether it is JSON.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TokenBytes {
    /// `{` and `[`.
    pub(crate) opens: u64,
    /// `}` and `]`.
    pub(crate) closes: u64,
    pub(crate) colons: u64,
    pub(crate) commas: u64,
    /// Space, line feed, carriage return and tab.
    pub(crate) spaces: u64,
    pub(crate) digits: u64,
    pub(crate) zeroes: u64,
    pub(crate) points: u64,
    /// `e` and `E`.
    pub(crate) exponents: u64,
    pub(crate) pluses: u64,
    pub(crate) minuses: u64,
}

/// The bytes of 16 that a string's reader has to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StringBytes {
    /// Quotes, backslashes and control characters.
    pub(crate) stops: u32,
    /// Bytes beyond ASCII.
    pub(crate) high: u32,
}

/// What a walk does behind the first look at a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Shows the tokens of the block.
    Tokens,
    /// Goes on to the next block.
    Next,
    /// Ends.
    Stop,
}

/// Is shown the blocks of a text in their order.
pub(crate) trait BlockVisitor {
    /// The first look at the block that begins at `base`.
    fn text(&mut self, base: usize, found: TextBytes) -> Step;
    /// The second look at the same block; false ends the walk.
    fn tokens(&mut self, base: usize, block: &Block, found: &TokenBytes) -> bool;
}

/// Shows all blocks of the text, the last of which is filled up with one space or more. False when the visitor
/// ended it.
pub(crate) fn walk_blocks(text: &[u8], visitor: &mut impl BlockVisitor) -> bool {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    if let Some(is_whole) = avx2::walk(text, visitor) {
        return is_whole;
    }
    walk(text, visitor, text_bytes, token_bytes)
}

/// The walk itself, to be compiled for each set of instructions.
#[inline(always)]
fn walk(
    text: &[u8],
    visitor: &mut impl BlockVisitor,
    text_bytes: impl Fn(&Block) -> TextBytes,
    token_bytes: impl Fn(&Block) -> TokenBytes,
) -> bool {
    let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
    let mut last = [b' '; BLOCK_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    for number in 0..=blocks.len() {
        let block = blocks.get(number).unwrap_or(&last);
        let base = number * BLOCK_BYTES;
        match visitor.text(base, text_bytes(block)) {
            Step::Next => {}
            Step::Stop => return false,
            Step::Tokens => {
                if !visitor.tokens(base, block, &token_bytes(block)) {
                    return false;
                }
            }
        }
    }
    true
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) use sse2::{string_bytes, structure};
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use sse2::{text_bytes, token_bytes};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
pub(crate) use words::{string_bytes, structure};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
use words::{text_bytes, token_bytes};

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[allow(
    unsafe_code,
    reason = "calls of functions with vector instructions; invariant 2 in byte_masks.rs"
)]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[allow(
    unsafe_code,
    reason = "calls of functions with vector instructions; invariant 1 in byte_masks.rs"
)]
mod sse2;
#[cfg(test)]
mod tests;
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
mod words;
