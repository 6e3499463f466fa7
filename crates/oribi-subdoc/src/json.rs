//! Is it JSON: a check of text by RFC 8259, fast enough to be done on every store.
//!
//! One pass without recursion and without allocation, 64 bytes at a time. Masks of a block say what is inside a
//! string and where tokens begin: the marks of structure, opening quotes, and the first bytes of numbers and
//! literals. Each token moves a small state machine by one look into a table; only brackets, numbers and
//! literals need more. So there are few branches, which on records are what costs most.
//!
//! Strings are checked by masks alone, but for their escapes; what they hold beyond ASCII is checked as UTF-8
//! once, at the end, and only when there was any. A duplicate key, a lone surrogate written as an escape and a
//! number of any size are JSON by the RFC and are accepted. Nesting beyond [`JSON_DEPTH_MAX`] is not.

mod grammar;

use grammar::{Class, State};

use crate::byte_masks::{BLOCK_BYTES, TokenBytes, token_bytes};
use crate::limits::JSON_DEPTH_MAX;
use crate::scan::{escaped_bytes, parity, skip_space};

/// True when the whole of `text` is one JSON value, with whitespace around it or not.
pub fn is_json(text: &[u8]) -> bool {
    nesting(text).is_some()
}

/// How many containers stand around the deepest value of a JSON text, 0 for a scalar; `None` when it is
/// not JSON.
pub fn nesting(text: &[u8]) -> Option<usize> {
    let start = skip_space(text, 0);
    // Opaque data seldom begins like JSON, and is then told apart before anything is set up.
    if !matches!(text.get(start)?, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') {
        return None;
    }
    Check::new(&text[start..], State::Only, State::Done).run()
}

/// As [`nesting`], for one or more values with commas between them, as they would stand in an array.
pub fn list_nesting(text: &[u8]) -> Option<usize> {
    Check::new(text, State::Listed, State::AfterListed).run()
}

/// Which containers are open, and what was seen.
struct Check<'a> {
    text: &'a [u8],
    /// Bit n: the container at depth n is an object.
    objects: [u64; JSON_DEPTH_MAX / 64],
    depth: usize,
    deepest: usize,
    state: State,
    /// The state behind a value that stands in no container.
    last: State,
    not_ascii: bool,
    /// All ones when the block before ended inside a string, else 0.
    in_string: u64,
    /// 1 when it ended in a backslash that escapes the first byte of this one.
    escaped: u64,
    /// 1 when it ended in a number or a literal.
    in_scalar: u64,
}

impl<'a> Check<'a> {
    fn new(text: &'a [u8], first: State, last: State) -> Check<'a> {
        Check {
            text,
            objects: [0; JSON_DEPTH_MAX / 64],
            depth: 0,
            deepest: 0,
            state: first,
            last,
            not_ascii: false,
            in_string: 0,
            escaped: 0,
            in_scalar: 0,
        }
    }

    fn run(mut self) -> Option<usize> {
        let (blocks, rest) = self.text.as_chunks::<BLOCK_BYTES>();
        for (number, block) in blocks.iter().enumerate() {
            self.block(number * BLOCK_BYTES, block)?;
        }
        if !rest.is_empty() {
            let mut block = [b' '; BLOCK_BYTES];
            block[..rest.len()].copy_from_slice(rest);
            self.block(blocks.len() * BLOCK_BYTES, &block)?;
        }
        let whole = self.state == self.last && self.in_string == 0;
        let utf8 = !self.not_ascii || std::str::from_utf8(self.text).is_ok();
        (whole && utf8).then_some(self.deepest)
    }

    /// Checks the block that begins at `base`.
    #[inline]
    fn block(&mut self, base: usize, block: &[u8; BLOCK_BYTES]) -> Option<()> {
        let found = token_bytes(block);
        let behind_backslash = escaped_bytes(&mut self.escaped, found.backslashes);
        let quotes = found.quotes & !behind_backslash;
        // From each opening quote on, up to the byte before the closing one.
        let inside = parity(quotes) ^ self.in_string;
        self.in_string = 0u64.wrapping_sub(inside >> 63);
        self.not_ascii |= found.high != 0;
        if found.controls & inside != 0 {
            return None;
        }
        if found.backslashes & inside != 0 {
            self.escapes(base, found.backslashes & inside & !behind_backslash)?;
        }
        let scalars = self.scalar_starts(&found, quotes, inside);
        self.tokens(base, block, (found.marks & !inside) | (quotes & inside) | scalars)
    }

    /// The first bytes of numbers and literals, or of what is nothing at all.
    #[inline]
    fn scalar_starts(&mut self, found: &TokenBytes, quotes: u64, inside: u64) -> u64 {
        let scalars = !(found.marks | found.spaces | quotes | inside);
        let starts = scalars & !((scalars << 1) | self.in_scalar);
        self.in_scalar = scalars >> 63;
        starts
    }

    /// Checks what stands behind the backslashes at these bits.
    #[cold]
    fn escapes(&self, base: usize, mut backslashes: u64) -> Option<()> {
        while backslashes != 0 {
            escape(self.text, base + backslashes.trailing_zeros() as usize + 1)?;
            backslashes &= backslashes - 1;
        }
        Some(())
    }

    /// Takes the tokens that begin at these bits one after the other.
    #[inline]
    fn tokens(&mut self, base: usize, block: &[u8; BLOCK_BYTES], mut starts: u64) -> Option<()> {
        while starts != 0 {
            let at = starts.trailing_zeros() as usize;
            starts &= starts - 1;
            let class = Class::of(block[at % BLOCK_BYTES]);
            let next = self.state.after(class);
            if class.is_plain() {
                self.state = next;
                continue;
            }
            match class {
                Class::Scalar => scalar(self.text, base + at)?,
                Class::OpenObject | Class::OpenArray if next != State::Bad => {
                    self.enter(class == Class::OpenObject)?;
                }
                Class::CloseObject | Class::CloseArray if next == State::Closed => {
                    self.state = self.leave();
                    continue;
                }
                _ => return None,
            }
            self.state = next;
        }
        (self.state != State::Bad).then_some(())
    }

    fn enter(&mut self, object: bool) -> Option<()> {
        if self.depth == JSON_DEPTH_MAX {
            return None;
        }
        let (word, bit) = (self.depth / 64, 1 << (self.depth % 64));
        match object {
            true => self.objects[word] |= bit,
            false => self.objects[word] &= !bit,
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        Some(())
    }

    /// Closes a container, which there is; the state behind it.
    fn leave(&mut self) -> State {
        self.depth -= 1;
        let Some(around) = self.depth.checked_sub(1) else { return self.last };
        match self.objects[around / 64] >> (around % 64) & 1 {
            1 => State::AfterMember,
            _ => State::AfterItem,
        }
    }
}

/// Checks the number or literal at `at`, up to where something else may begin.
#[inline]
fn scalar(text: &[u8], at: usize) -> Option<()> {
    let end = match text.get(at)? {
        b'-' | b'0'..=b'9' => number(text, at)?,
        b't' => literal(text, at, b"true")?,
        b'f' => literal(text, at, b"false")?,
        b'n' => literal(text, at, b"null")?,
        _ => return None,
    };
    let is_whole = text.get(end).is_none_or(|byte| Class::of(*byte) != Class::Scalar);
    is_whole.then_some(())
}

/// Checks what follows a backslash; where the character behind it is.
fn escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => {
            let digits = text.get(at + 1..at + 5)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 5)
        }
        _ => None,
    }
}

#[inline]
fn literal(text: &[u8], at: usize, name: &[u8]) -> Option<usize> {
    text[at..].starts_with(name).then_some(at + name.len())
}

/// Checks a number; where the byte behind it is.
#[inline]
fn number(text: &[u8], mut at: usize) -> Option<usize> {
    if text[at] == b'-' {
        at += 1;
    }
    at = match text.get(at)? {
        b'0' => at + 1,
        _ => digits(text, at)?,
    };
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = digits(text, at + 1 + usize::from(signed))?;
    }
    Some(at)
}

/// Skips one digit or more.
#[inline]
fn digits(text: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin;
    while let Some(chunk) = text.get(at..)?.first_chunk::<8>() {
        // A digit's upper half is 3, also when 6 is added. Carries go upwards only, beyond the first other byte.
        const UPPER: u64 = 0xf0f0_f0f0_f0f0_f0f0;
        const THREES: u64 = 0x3030_3030_3030_3030;
        let word = u64::from_le_bytes(*chunk);
        let raised = word.wrapping_add(0x0606_0606_0606_0606);
        let others = ((word & UPPER) ^ THREES) | ((raised & UPPER) ^ THREES);
        at += (others.trailing_zeros() / 8) as usize;
        if others != 0 {
            return (at > begin).then_some(at);
        }
    }
    let rest = text.get(at..)?;
    at += rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    (at > begin).then_some(at)
}

#[cfg(test)]
mod tests;
