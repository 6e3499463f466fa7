//! Which token may follow which: JSON's grammar but for its brackets and what numbers and literals look like.
//!
//! A token is followed by the first byte behind it that is not whitespace. So the masks of what may follow are made
//! out of the masks of tokens by a step and a run over whitespace, and compared with the tokens that are there.
//! What a comma means depends on the container it stands in, which the brackets tell.

use super::carry::{Behind, Runs};

/// The tokens of a block, outside of strings.
pub(super) struct Tokens {
    pub(super) opens: u64,
    pub(super) closes: u64,
    pub(super) colons: u64,
    pub(super) commas: u64,
    /// Opening quotes.
    pub(super) strings: u64,
    /// Closing quotes.
    pub(super) string_ends: u64,
    /// From each opening quote to the byte before the closing one.
    pub(super) inside: u64,
    /// The first bytes of numbers and literals.
    pub(super) scalar_starts: u64,
    /// The bytes behind numbers and literals.
    pub(super) behind_scalars: u64,
    /// Whitespace, outside of strings as everything.
    pub(super) spaces: u64,
}

/// What was seen before a block.
#[derive(Default)]
pub(super) struct Order {
    ends: Behind,
    behind_ends: Runs,
    opens: Behind,
    behind_opens: Runs,
    before_keys: Behind,
    keys: Runs,
    key_strings: Runs,
    key_ends: Behind,
    behind_keys: Runs,
    /// The whitespace of the block before.
    spaces: u64,
}

impl Order {
    /// Takes the tokens of the next block; `objects` are the places inside objects, which matters at commas and
    /// opening brackets. Not 0 when something stands where it may not. At the beginning of a text, a value is
    /// expected.
    #[inline(always)]
    pub(super) fn take(&mut self, tokens: &Tokens, objects: u64) -> u64 {
        let before = std::mem::replace(&mut self.spaces, tokens.spaces);
        match tokens.spaces | (before >> 63) {
            0 => self.take_by(tokens, objects, |_, cursors| cursors),
            _ => self.take_by(tokens, objects, |runs, cursors| runs.ends(cursors, tokens.spaces)),
        }
    }

    /// [`Self::take`] with what moves cursors over whitespace. In text without any, they need not be moved, and no
    /// run waits for its end.
    #[inline(always)]
    fn take_by(
        &mut self,
        tokens: &Tokens,
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
        // An object may be empty; that nothing is closed behind a comma was looked at above.
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
