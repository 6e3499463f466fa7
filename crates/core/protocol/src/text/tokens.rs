//! Splits a command line into its tokens.
//!
//! Only spaces separate tokens, and a zero byte ends the line, as in memcached. Nothing is copied.

use memchr::memchr;

/// The tokens of one line, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    /// The tokens of a line without its end.
    pub(super) fn new(line: &'a [u8]) -> Tokens<'a> {
        Tokens(memchr(0, line).map_or(line, |end| &line[..end]))
    }

    /// The tokens that are left, as one piece.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `N` tokens, if exactly these, or these and one more, are left. Says whether the
    /// last token asks for no reply.
    pub(super) fn take_some<const N: usize>(&mut self) -> Option<([&'a [u8]; N], bool)> {
        let mut tokens = [&b""[..]; N];
        for token in &mut tokens {
            *token = self.next()?;
        }
        let last = self.next().or(tokens.last().copied());
        self.next().is_none().then_some((tokens, last == Some(b"noreply")))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = &self.0[begin..];
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (token, rest) = rest.split_at(end);
        self.0 = rest;
        Some(token)
    }
}
