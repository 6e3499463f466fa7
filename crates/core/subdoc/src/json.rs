//! JSON validation by RFC 8259, fast enough for every store.
//!
//! One pass without recursion and without allocation, 64 bytes at a time, and nearly without
//! branches, which cost most on records. Masks classify the bytes of a block
//! ([`crate::byte_masks`]) and mark the inside of strings. The grammar is checked on those masks
//! for all tokens of a block at once: the order of tokens ([`order`]) and the form of numbers
//! ([`numbers`]). Only brackets ([`brackets`]), literals and escapes are handled one by one.
//! Carries ([`carry`]) pass the open state of a block to the next, so the position of a block's end
//! does not matter.
//!
//! String content beyond ASCII is checked as UTF-8 once, at the end, and only if there was any. A
//! duplicate key, a lone surrogate written as an escape and a number of any size are JSON by the
//! RFC and are accepted. Nesting beyond [`crate::limits::JSON_DEPTH_MAX`] is not.

mod brackets;
mod carry;
mod numbers;
mod order;

use brackets::Brackets;
use carry::PreviousMask;
use numbers::Numbers;
use order::{Order, TokenMasks};

use crate::byte_masks::{Block, BlockVisitor, TextBytes, TokenBytes, WalkStep, walk_blocks};
use crate::number::is_whole;
use crate::scan::{escaped_bytes, parity, skip_space};

/// True when the whole of `text` is one JSON value, with optional whitespace around it.
pub fn is_json(text: &[u8]) -> bool {
    nesting(text).is_some()
}

/// How many containers enclose the deepest value of a JSON text, 0 for a scalar; `None` when it is
/// not JSON.
pub fn nesting(text: &[u8]) -> Option<usize> {
    let text = &text[skip_space(text, 0)..];
    // Opaque data seldom begins like JSON, and this rejects it before any setup.
    let values = match text.first()? {
        // Counters.
        b'-' | b'0'..=b'9' if is_whole(text) => return Some(0),
        b'{' | b'[' => Values::Container,
        b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Values::Scalar,
        _ => return None,
    };
    Check::new(text, values).run()
}

/// Like [`nesting`], for one or more values with commas between them, as inside an array.
pub fn list_nesting(text: &[u8]) -> Option<usize> {
    Check::new(text, Values::List).run()
}

/// The expected form of a text. It says where commas may be outside containers: after no container,
/// nowhere, anywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Container,
    Scalar,
    List,
}

/// The state so far.
struct Check<'a> {
    text: &'a [u8],
    /// All ones if the text must be one value, 0 if it may be a list.
    one: u64,
    /// Not 0 if there were bytes beyond ASCII.
    high: u64,
    /// All ones if the previous block ended inside a string, else 0.
    in_string: u64,
    /// 1 if the previous block ended in a backslash that escapes the first byte of this one.
    escaped: u64,
    /// All ones if the one value of the text is complete and was a container, or there is none;
    /// else 0.
    ended: u64,
    /// The unescaped quotes of this block.
    quotes: u64,
    /// From each opening quote of this block to the byte before the closing one.
    inside: u64,
    scalars: PreviousMask,
    brackets: Brackets,
    numbers: Numbers,
    order: Order,
}

impl<'a> Check<'a> {
    fn new(text: &'a [u8], values: Values) -> Check<'a> {
        Check {
            text,
            one: if values == Values::List { 0 } else { u64::MAX },
            high: 0,
            in_string: 0,
            escaped: 0,
            ended: if values == Values::Scalar { u64::MAX } else { 0 },
            quotes: 0,
            inside: 0,
            scalars: PreviousMask::default(),
            brackets: Brackets::new(),
            numbers: Numbers::default(),
            order: Order::default(),
        }
    }

    fn run(mut self) -> Option<usize> {
        let text = self.text;
        let is_whole = walk_blocks(text, &mut self)
            && self.in_string == 0
            && self.order.is_behind_value()
            && (self.high == 0 || std::str::from_utf8(text).is_ok());
        is_whole.then(|| self.brackets.nesting())?
    }

    /// Checks the bytes after the backslashes at these bits.
    #[cold]
    fn are_escapes(&self, base: usize, mut backslashes: u64) -> bool {
        while backslashes != 0 {
            if !is_escape(self.text, base + backslashes.trailing_zeros() as usize + 1) {
                return false;
            }
            backslashes &= backslashes - 1;
        }
        true
    }

    /// Checks the literals that begin at these bits.
    #[inline(always)]
    fn are_literals(&self, base: usize, mut starts: u64) -> bool {
        let mut all = true;
        while starts != 0 {
            all &= is_literal(self.text, base + starts.trailing_zeros() as usize);
            starts &= starts - 1;
        }
        all
    }
}

impl BlockVisitor for Check<'_> {
    #[inline(always)]
    fn text(&mut self, base: usize, found: TextBytes) -> WalkStep {
        let behind_backslash = escaped_bytes(&mut self.escaped, found.backslashes);
        let quotes = found.quotes & !behind_backslash;
        let was_in_string = self.in_string;
        let inside = parity(quotes) ^ was_in_string;
        self.in_string = 0u64.wrapping_sub(inside >> 63);
        self.high |= found.high;
        if found.controls & inside != 0 {
            return WalkStep::Stop;
        }
        let backslashes = found.backslashes & inside;
        if backslashes != 0 && !self.are_escapes(base, backslashes & !behind_backslash) {
            return WalkStep::Stop;
        }
        // A block that is string content from end to end changes no carried state.
        if quotes | !was_in_string == 0 {
            return WalkStep::Next;
        }
        (self.quotes, self.inside) = (quotes, inside);
        WalkStep::Tokens
    }

    #[inline(always)]
    fn tokens(&mut self, base: usize, block: &Block, found: &TokenBytes) -> bool {
        let (quotes, inside) = (self.quotes, self.inside);
        let outside = !inside;
        let (opens, closes) = (found.opens & outside, found.closes & outside);
        let (colons, commas) = (found.colons & outside, found.commas & outside);
        // Numbers and literals, or invalid bytes.
        let others = opens | closes | colons | commas | found.spaces | quotes | inside;
        let scalars = !others;
        let behind_scalars = self.scalars.of(scalars);
        let starts = scalars & !behind_scalars;

        let nesting = self.brackets.take(block, opens, closes);
        let ended = self.ended | nesting.ended;
        self.ended = 0u64.wrapping_sub(ended >> 63);
        let tokens = TokenMasks {
            opens,
            closes,
            colons,
            commas,
            strings: quotes & inside,
            string_ends: quotes & outside,
            inside,
            scalar_starts: starts,
            behind_scalars: behind_scalars & others,
            spaces: found.spaces & outside,
        };
        let mut wrong = nesting.wrong | self.order.take(&tokens, nesting.objects);
        wrong |= commas & ended & self.one;
        let numbers = self.numbers.take(found, scalars, starts);
        wrong |= numbers.wrong;
        wrong == 0 && self.are_literals(base, numbers.literals)
    }
}

/// True when `text` has a literal at `at`, up to a valid end.
#[inline]
fn is_literal(text: &[u8], at: usize) -> bool {
    let mut bytes = [b' '; 8];
    let rest = &text[at..];
    match rest.first_chunk::<8>() {
        Some(chunk) => bytes = *chunk,
        None => bytes[..rest.len()].copy_from_slice(rest),
    }
    let word = u64::from_le_bytes(bytes);
    let begins = |name: u64, count: u32| (word ^ name) << (64 - 8 * count) == 0;
    let is_false = begins(FALSE, 5);
    let behind = bytes[4 + usize::from(is_false)];
    let is_behind = matches!(
        behind,
        b' ' | b'\n' | b'\r' | b'\t' | b',' | b':' | b'{' | b'}' | b'[' | b']' | b'"'
    );
    (is_false | begins(TRUE, 4) | begins(NULL, 4)) & is_behind
}

const TRUE: u64 = u64::from_le_bytes(*b"true    ");
const FALSE: u64 = u64::from_le_bytes(*b"false   ");
const NULL: u64 = u64::from_le_bytes(*b"null    ");

/// True when the bytes at `at` may follow a backslash.
fn is_escape(text: &[u8], at: usize) -> bool {
    match text.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
        Some(b'u') => {
            text.get(at + 1..at + 5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
