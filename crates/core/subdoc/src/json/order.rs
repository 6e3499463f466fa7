//! Checks the order of tokens: JSON's grammar except for brackets and the form of numbers and
//! literals.
//!
//! A token is followed by the next byte that is not whitespace. A step and a run over whitespace
//! therefore turn the masks of tokens into the masks of allowed followers, to compare with the
//! actual tokens. The meaning of a comma depends on its container, which the brackets module
//! tracks.

use super::carry::{PreviousMask, Runs};

/// The tokens of a block, outside strings.
pub(super) struct TokenMasks {
    pub(super) opens: u64,
    pub(super) closes: u64,
    pub(super) colons: u64,
    pub(super) commas: u64,
    pub(super) strings: u64,
    pub(super) string_ends: u64,
    /// From each opening quote to the byte before the closing one.
    pub(super) inside: u64,
    /// The first bytes of numbers and literals.
    pub(super) scalar_starts: u64,
    /// The bytes after numbers and literals.
    pub(super) behind_scalars: u64,
    /// Whitespace, also outside strings.
    pub(super) spaces: u64,
}

/// The state before a block.
#[derive(Default)]
pub(super) struct Order {
    ends: PreviousMask,
    behind_ends: Runs,
    opens: PreviousMask,
    behind_opens: Runs,
    before_keys: PreviousMask,
    keys: Runs,
    key_strings: Runs,
    key_ends: PreviousMask,
    behind_keys: Runs,
    /// The whitespace of the previous block.
    spaces: u64,
}

impl Order {
    /// Processes the tokens of the next block; `objects` are the positions inside objects, which
    /// matters at commas and opening brackets. The result is not 0 if a token is misplaced. At the
    /// beginning of a text, a value is expected.
    #[inline(always)]
    pub(super) fn take(&mut self, tokens: &TokenMasks, objects: u64) -> u64 {
        let before = std::mem::replace(&mut self.spaces, tokens.spaces);
        match tokens.spaces | (before >> 63) {
            0 => self.take_by(tokens, objects, |_, cursors| cursors),
            _ => self.take_by(tokens, objects, |runs, cursors| runs.ends(cursors, tokens.spaces)),
        }
    }

    /// [`Self::take`] with the step that moves cursors over whitespace. Text without whitespace
    /// needs no moves, and no run is pending.
    #[inline(always)]
    fn take_by(
        &mut self,
        tokens: &TokenMasks,
        objects: u64,
        skip: impl Fn(&mut Runs, u64) -> u64,
    ) -> u64 {
        let ends = self.ends.of(tokens.closes | tokens.string_ends);
        let after_value = skip(&mut self.behind_ends, tokens.behind_scalars | ends);
        let after_open = skip(&mut self.behind_opens, self.opens.of(tokens.opens));
        let values = tokens.strings | tokens.scalar_starts | tokens.opens;
        let mut wrong = values & after_value;
        wrong |= (tokens.commas | tokens.colons) & !after_value;
        wrong |= tokens.closes & !(after_value | after_open);

        let before_keys = (tokens.opens | tokens.commas) & objects;
        let keys = skip(&mut self.keys, self.before_keys.of(before_keys));
        // An object may be empty; the check above already refused a closing bracket after a comma.
        wrong |= keys & !(tokens.strings | tokens.closes);
        let key_ends = self.key_strings.ends(keys & tokens.strings, tokens.inside);
        let after_key = skip(&mut self.behind_keys, self.key_ends.of(key_ends));
        wrong | (after_key ^ tokens.colons)
    }

    /// True when the last token ended a value. The last block must end in whitespace.
    pub(super) fn is_behind_value(&self) -> bool {
        self.behind_ends.last() == 1
    }
}
