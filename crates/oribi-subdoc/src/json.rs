//! Is it JSON: a check of text by RFC 8259, at more than a gigabyte a second.
//!
//! One pass without recursion and without allocation. Strings are looked at 16 bytes at a time; what
//! they hold beyond ASCII is checked as UTF-8 once, at the end, and only when there was any. A
//! duplicate key, a lone surrogate written as an escape and a number of any size are JSON by the RFC
//! and are accepted. Nesting beyond [`JSON_DEPTH_MAX`] is not.

use crate::byte_masks::string_bytes;
use crate::limits::JSON_DEPTH_MAX;
use crate::scan::skip_space;

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
    let mut check = Check::new(text);
    let end = check.value(start)?;
    check.finish(end)
}

/// As [`nesting`], for one or more values with commas between them, as they would stand in an array.
pub fn list_nesting(text: &[u8]) -> Option<usize> {
    let mut check = Check::new(text);
    let mut deepest = 0;
    let mut end = check.value(skip_space(text, 0))?;
    while text.get(end) == Some(&b',') {
        deepest = deepest.max(check.deepest);
        end = check.value(skip_space(text, end + 1))?;
    }
    Some(deepest.max(check.finish(end)?))
}

/// Which containers are open, and what was seen.
struct Check<'a> {
    text: &'a [u8],
    /// Bit n: the container at depth n is an object.
    objects: [u64; JSON_DEPTH_MAX / 64],
    depth: usize,
    deepest: usize,
    not_ascii: bool,
}

impl<'a> Check<'a> {
    fn new(text: &'a [u8]) -> Check<'a> {
        let objects = [0; JSON_DEPTH_MAX / 64];
        Check { text, objects, depth: 0, deepest: 0, not_ascii: false }
    }

    fn finish(&self, end: usize) -> Option<usize> {
        let whole = end == self.text.len();
        let utf8 = !self.not_ascii || std::str::from_utf8(self.text).is_ok();
        (whole && utf8).then_some(self.deepest)
    }

    /// Checks the value that begins at `at`; where the first byte behind it and the space after it is.
    fn value(&mut self, mut at: usize) -> Option<usize> {
        loop {
            at = match *self.text.get(at)? {
                b'"' => self.string(at + 1)?,
                b'{' => {
                    let inside = skip_space(self.text, at + 1);
                    match self.text.get(inside)? {
                        b'}' => {
                            self.enter(true)?;
                            self.depth -= 1;
                            inside + 1
                        }
                        _ => {
                            self.enter(true)?;
                            at = self.key(inside)?;
                            continue;
                        }
                    }
                }
                b'[' => {
                    self.enter(false)?;
                    let inside = skip_space(self.text, at + 1);
                    if self.text.get(inside)? != &b']' {
                        at = inside;
                        continue;
                    }
                    self.depth -= 1;
                    inside + 1
                }
                b'-' | b'0'..=b'9' => number(self.text, at)?,
                b't' => literal(self.text, at, b"true")?,
                b'f' => literal(self.text, at, b"false")?,
                b'n' => literal(self.text, at, b"null")?,
                _ => return None,
            };
            match self.after_value(at)? {
                Next::Value(next) => at = next,
                Next::End(end) => return Some(end),
            }
        }
    }

    /// Closes what ends behind a value, up to where the next value begins.
    fn after_value(&mut self, mut at: usize) -> Option<Next> {
        loop {
            at = skip_space(self.text, at);
            if self.depth == 0 {
                return Some(Next::End(at));
            }
            let in_object = self.objects[(self.depth - 1) / 64] >> ((self.depth - 1) % 64) & 1 == 1;
            match (*self.text.get(at)?, in_object) {
                (b',', true) => return Some(Next::Value(self.key(skip_space(self.text, at + 1))?)),
                (b',', false) => return Some(Next::Value(skip_space(self.text, at + 1))),
                (b'}', true) | (b']', false) => {
                    self.depth -= 1;
                    at += 1;
                }
                _ => return None,
            }
        }
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

    /// Checks a key and the colon behind it; where its value begins.
    fn key(&mut self, at: usize) -> Option<usize> {
        if self.text.get(at)? != &b'"' {
            return None;
        }
        let colon = skip_space(self.text, self.string(at + 1)?);
        (self.text.get(colon)? == &b':').then(|| skip_space(self.text, colon + 1))
    }

    /// Checks a string whose first character is at `at`; where the byte behind its closing quote is.
    #[inline]
    fn string(&mut self, mut at: usize) -> Option<usize> {
        loop {
            let rest = self.text.get(at..)?;
            let stop = match rest.first_chunk::<16>() {
                Some(chunk) => {
                    let found = string_bytes(chunk);
                    // May be about bytes behind the string as well, which only costs a check.
                    self.not_ascii |= found.high != 0;
                    if found.stops == 0 {
                        at += 16;
                        continue;
                    }
                    at + found.stops.trailing_zeros() as usize
                }
                None => at + self.short_stop(rest)?,
            };
            match self.text.get(stop)? {
                b'"' => return Some(stop + 1),
                b'\\' => at = escape(self.text, stop + 1)?,
                _ => return None,
            }
        }
    }

    fn short_stop(&mut self, rest: &[u8]) -> Option<usize> {
        self.not_ascii |= !rest.is_ascii();
        rest.iter().position(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\'))
    }
}

/// What comes after a value.
enum Next {
    /// A further value, at this place.
    Value(usize),
    /// The end of the text's own value, and here is what comes behind it.
    End(usize),
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
fn digits(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let count = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    (count > 0).then_some(at + count)
}

#[cfg(test)]
mod tests;
