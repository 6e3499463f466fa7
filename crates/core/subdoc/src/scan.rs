//! Skips over JSON text that was validated before.
//!
//! It skips a container by its structure alone, 64 bytes at a time: quotes and backslashes mark
//! strings, and outside strings it counts the brackets. It never looks at numbers and literals. On
//! text that is not JSON the result is some position inside it, or an error.

use crate::byte_masks::{BLOCK_BYTES, string_bytes, structure};
use crate::error::SubdocError;
use crate::limits::DEPTH_MAX;

/// The first position from `at` on that is not whitespace.
#[inline]
pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    const SPACES: [u8; 8] = [b' '; 8];
    while let Some(byte) = text.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            _ => return at,
        }
        // Indentation.
        while text.get(at..at + 8) == Some(&SPACES) {
            at += 8;
        }
    }
    at
}

/// The position after the closing quote of the string that begins at `at`.
#[inline]
pub(crate) fn string_end(text: &[u8], at: usize) -> Result<usize, SubdocError> {
    let mut at = at + 1;
    loop {
        let rest = text.get(at..).ok_or(SubdocError::DocNotJson)?;
        let stop = match rest.first_chunk::<16>() {
            Some(chunk) => match string_bytes(chunk).stops {
                0 => {
                    at += 16;
                    continue;
                }
                stops => stops.trailing_zeros() as usize,
            },
            None => rest
                .iter()
                .position(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\'))
                .ok_or(SubdocError::DocNotJson)?,
        };
        match rest[stop] {
            b'"' => return Ok(at + stop + 1),
            b'\\' => at += stop + 2,
            _ => return Err(SubdocError::DocNotJson),
        }
    }
}

/// The position after the value that begins at `at`, inside `depth` containers.
#[inline]
pub(crate) fn value_end(text: &[u8], at: usize, depth: usize) -> Result<usize, SubdocError> {
    match text.get(at) {
        Some(b'"') => string_end(text, at),
        Some(b'{' | b'[') => container_end(text, at, depth),
        Some(b'-' | b'0'..=b'9' | b'a'..=b'z') => {
            let rest = &text[at..];
            let count = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'));
            Ok(at + count.unwrap_or(rest.len()))
        }
        _ => Err(SubdocError::DocNotJson),
    }
}

/// The position after the container that begins at `at`, inside `depth` others.
fn container_end(text: &[u8], at: usize, depth: usize) -> Result<usize, SubdocError> {
    let mut walk = Walk { depth, floor: depth, in_string: 0, escaped: 0 };
    let (blocks, rest) = text[at..].as_chunks::<BLOCK_BYTES>();
    for (number, block) in blocks.iter().enumerate() {
        if let Some(end) = walk.block(block)? {
            return Ok(at + number * BLOCK_BYTES + end);
        }
    }
    let mut last = [b' '; BLOCK_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    match walk.block(&last)? {
        Some(end) => Ok(at + blocks.len() * BLOCK_BYTES + end),
        None => Err(SubdocError::DocNotJson),
    }
}

/// The state of a skip: its depth, and whether it is inside a string or after a backslash.
struct Walk {
    depth: usize,
    /// The depth at which the container is closed.
    floor: usize,
    /// All ones inside a string, else 0.
    in_string: u64,
    /// 1 if the previous block ended in a backslash that escapes the first byte of this one.
    escaped: u64,
}

impl Walk {
    /// Processes the next block; returns where the container ends, if it does there.
    #[inline]
    fn block(&mut self, block: &[u8; BLOCK_BYTES]) -> Result<Option<usize>, SubdocError> {
        let found = structure(block);
        let quotes = found.quotes & !escaped_bytes(&mut self.escaped, found.backslashes);
        let inside = parity(quotes) ^ self.in_string;
        self.in_string = 0u64.wrapping_sub(inside >> 63);
        let (opens, closes) = (found.opens & !inside, found.closes & !inside);
        let (opened, closed) = (opens.count_ones() as usize, closes.count_ones() as usize);
        // This block has neither the end nor the limit, wherever the brackets are.
        if self.depth > self.floor + closed && self.depth + opened <= DEPTH_MAX {
            self.depth = self.depth + opened - closed;
            return Ok(None);
        }
        self.brackets(opens, closes)
    }

    /// Counts the brackets one by one.
    fn brackets(&mut self, opens: u64, closes: u64) -> Result<Option<usize>, SubdocError> {
        let mut all = opens | closes;
        while all != 0 {
            let at = all.trailing_zeros() as usize;
            if opens >> at & 1 == 1 {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(SubdocError::DocE2deep);
                }
            } else {
                self.depth -= 1;
                if self.depth == self.floor {
                    return Ok(Some(at + 1));
                }
            }
            all &= all - 1;
        }
        Ok(None)
    }
}

/// The bytes of a block after an odd number of backslashes. `carry` is 1 if the previous block
/// ended in such a backslash, and is set for the next.
#[inline]
pub(crate) fn escaped_bytes(carry: &mut u64, backslashes: u64) -> u64 {
    if backslashes == 0 {
        return std::mem::take(carry);
    }
    // An escaped backslash escapes nothing, so they are processed one after the other.
    let mut escaped = std::mem::take(carry);
    let mut left = backslashes & !escaped;
    while left != 0 {
        let at = left.trailing_zeros();
        left &= left - 1;
        match at {
            63 => *carry = 1,
            _ => {
                let next = 1 << (at + 1);
                escaped |= next;
                left &= !next;
            }
        }
    }
    escaped
}

/// Bit n: how many of the bits up to n are set, modulo 2.
#[inline]
pub(crate) fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(test)]
mod tests;
