//! Matches brackets, and classifies each position by its container.
//!
//! The kinds of the innermost containers are bits of one word, 1 for an object, the last opened in
//! bit 0. The highest set bit is a sentinel that marks their end. A bracket therefore costs a few
//! instructions and no branch, and the deepest position is where the word was highest. When the
//! word is full its older half is set aside; it comes back when the word is used up. At the bottom
//! the text itself counts as an array.

use crate::byte_masks::{BLOCK_BYTES, Block};
use crate::limits::JSON_DEPTH_MAX;

/// Container kinds that are set aside together.
const ASIDE_LEVELS: usize = 32;

/// A word with no kind in it.
const EMPTY: u64 = 1;

/// The word without an open container: only the text itself.
const OUTERMOST: u64 = EMPTY << 1;

/// The lowest word without room for another kind.
const FULL: u64 = 1 << 63;

/// The result for the brackets of a block.
pub(super) struct Nesting {
    /// The positions inside objects, exact at commas and opening brackets.
    pub(super) objects: u64,
    /// The positions after the end of an outermost container.
    pub(super) ended: u64,
    /// Not 0 if brackets do not match, or if there are far too many of them.
    pub(super) wrong: u64,
}

pub(super) struct Brackets {
    kinds: u64,
    /// All words since the last time a half was set aside or came back.
    seen: u64,
    /// The kinds of the outer containers, as words.
    aside: [u64; JSON_DEPTH_MAX / ASIDE_LEVELS],
    aside_count: usize,
    /// The deepest place before `seen`.
    deepest: usize,
}

struct Turn {
    kinds: u64,
    is_ended: bool,
    is_wrong: bool,
}

impl Brackets {
    pub(super) fn new() -> Brackets {
        Brackets {
            kinds: OUTERMOST,
            seen: OUTERMOST,
            aside: [0; JSON_DEPTH_MAX / ASIDE_LEVELS],
            aside_count: 0,
            deepest: 0,
        }
    }

    /// Processes the brackets of the next block.
    #[inline(always)]
    pub(super) fn take(&mut self, block: &Block, opens: u64, closes: u64) -> Nesting {
        // Registers are scarce: every extra load and store per bracket costs time.
        let (mut kinds, mut seen) = (self.kinds, self.seen);
        let mut objects = 0u64.wrapping_sub(kinds & 1);
        let (mut ended, mut wrong) = (0, 0);
        let mut all = opens | closes;
        while all != 0 {
            let at = all.trailing_zeros();
            all &= all - 1;
            let around = kinds;
            // Braces and array brackets differ only in this bit.
            let kind = u64::from(block[at as usize % BLOCK_BYTES] >> 5);
            let open = opens >> at;
            wrong |= (around ^ kind) & !open;
            let (opened, closed) = ((around << 1) | (kind & 1), around >> 1);
            kinds = std::hint::select_unpredictable(open & 1 == 1, opened, closed);
            seen |= kinds;
            // One comparison covers both cases: used up, or full.
            if kinds.wrapping_sub(OUTERMOST + 1) >= FULL - (OUTERMOST + 1) {
                let turn = self.turn(kinds, seen);
                (kinds, seen) = (turn.kinds, turn.kinds);
                ended |= u64::from(turn.is_ended) << at;
                wrong |= u64::from(turn.is_wrong);
            }
            // From here on the enclosing container is of another kind.
            objects ^= 0u64.wrapping_sub((around ^ kinds) & 1) << at;
        }
        (self.kinds, self.seen) = (kinds, seen);
        Nesting { objects, ended: 0u64.wrapping_sub(ended), wrong: wrong & 1 }
    }

    /// Handles a word that is used up or full.
    #[cold]
    #[inline(never)]
    fn turn(&mut self, kinds: u64, seen: u64) -> Turn {
        self.deepest = self.deepest_with(seen);
        let mut turn = Turn { kinds, is_ended: false, is_wrong: false };
        match (kinds, self.aside_count.checked_sub(1)) {
            (OUTERMOST, None) => turn.is_ended = true,
            (0 | EMPTY, None) => turn.is_wrong = true,
            (0 | EMPTY, Some(last)) => {
                self.aside_count = last;
                turn.kinds = self.aside[last];
            }
            (OUTERMOST, Some(_)) => {}
            _ => match self.aside.get_mut(self.aside_count) {
                Some(aside) => {
                    // Of the 63 kinds the last ones stay.
                    let stay = 63 - ASIDE_LEVELS;
                    *aside = kinds >> stay;
                    turn.kinds = (kinds & ((1 << stay) - 1)) | (1 << stay);
                    self.aside_count += 1;
                }
                None => turn.is_wrong = true,
            },
        }
        turn
    }

    fn deepest_with(&self, seen: u64) -> usize {
        let in_word = seen.checked_ilog2().unwrap_or(0) as usize;
        // The text itself does not count.
        self.deepest.max((self.aside_count * ASIDE_LEVELS + in_word).saturating_sub(1))
    }

    /// How many containers enclose the deepest value; `None` when one is still open, or when there
    /// are too many.
    pub(super) fn nesting(&self) -> Option<usize> {
        let deepest = self.deepest_with(self.seen);
        let is_closed = self.aside_count == 0 && self.kinds == OUTERMOST;
        (is_closed && deepest <= JSON_DEPTH_MAX).then_some(deepest)
    }
}
