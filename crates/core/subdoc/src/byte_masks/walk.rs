//! The walk over the blocks of a text, independent of the instruction set.

use super::block::{BLOCK_BYTES, Block, TextBytes, TokenBytes};

/// The next step of a walk after the first look at a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WalkStep {
    /// Visit the tokens of the block.
    Tokens,
    /// Continue with the next block.
    Next,
    Stop,
}

/// A visitor of the blocks of a text, in order.
pub(crate) trait BlockVisitor {
    /// The first look at the block that begins at `base`.
    fn text(&mut self, base: usize, found: TextBytes) -> WalkStep;
    /// The second look at the same block; false ends the walk.
    fn tokens(&mut self, base: usize, block: &Block, found: &TokenBytes) -> bool;
}

/// The walk itself, compiled for each instruction set.
#[inline(always)]
pub(super) fn walk(
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
            WalkStep::Next => {}
            WalkStep::Stop => return false,
            WalkStep::Tokens => {
                if !visitor.tokens(base, block, &token_bytes(block)) {
                    return false;
                }
            }
        }
    }
    true
}
