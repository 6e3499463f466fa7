//! Reads choices out of the input: an empty input chooses the first of everything.

/// The rest of the input.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(input: &'a [u8]) -> Input<'a> {
        Input { rest: input }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// At most 255 bytes, as many as the next byte says.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = rest;
        bytes
    }

    /// One of some, or `None` for something else.
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let at = usize::from(self.byte()) % (choices.len() + 1);
        choices.get(at).copied()
    }

    /// A number: small ones, and the borders of the type.
    pub(super) fn seqno(&mut self) -> u64 {
        match self.byte() {
            0xff => u64::MAX,
            0xfe => u64::MAX - 1,
            0xfd => 1 << 63,
            small => u64::from(small),
        }
    }
}
