//! Eight bytes at a time.

use super::block::{Block, StringBytes, Structure, TextBytes, TokenBytes};

const ONES: u64 = u64::MAX / 255;
const LOW_BITS: u64 = ONES * 0x7f;
const TOP_BITS: u64 = ONES * 0x80;

/// The top bit of each byte that is 0, exactly: no carry leaves its byte.
fn zeroes(word: u64) -> u64 {
    !(((word & LOW_BITS) + LOW_BITS) | word) & TOP_BITS
}

fn equal(word: u64, byte: u8) -> u64 {
    zeroes(word ^ (ONES * u64::from(byte)))
}

/// Gathers the top bits of the bytes: each lands at its own place in the top byte.
fn mask(tops: u64) -> u64 {
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

pub(crate) fn string_bytes(chunk: &[u8; 16]) -> StringBytes {
    let mut found = StringBytes { stops: 0, high: 0 };
    let (words, _) = chunk.as_chunks::<8>();
    for (at, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let control = zeroes(word & (ONES * 0xe0));
        let stops = control | equal(word, b'"') | equal(word, b'\\');
        found.stops |= (mask(stops) << (at * 8)) as u32;
        found.high |= (mask(word & TOP_BITS) << (at * 8)) as u32;
    }
    found
}

pub(super) fn text_bytes(block: &Block) -> TextBytes {
    let mut found = TextBytes::default();
    let (words, _) = block.as_chunks::<8>();
    for (at, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let put = |all: &mut u64, found| *all |= mask(found) << (at * 8);
        put(&mut found.quotes, equal(word, b'"'));
        put(&mut found.backslashes, equal(word, b'\\'));
        put(&mut found.controls, zeroes(word & (ONES * 0xe0)));
        put(&mut found.high, word & TOP_BITS);
    }
    found
}

pub(super) fn token_bytes(block: &Block) -> TokenBytes {
    let mut found = TokenBytes::default();
    let (words, _) = block.as_chunks::<8>();
    for (at, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let folded = word | (ONES * 0x20);
        let breaks = equal(word, b'\n') | equal(word, b'\r');
        let blanks = equal(word, b' ') | equal(word, b'\t');
        // A digit's upper half is 3, and its lower half at most 9.
        let tens = zeroes((word ^ (ONES * 0x30)) & (ONES * 0xf0));
        let ones = !((word & (ONES * 0x0f)) + ONES * 0x76) & TOP_BITS;
        let put = |all: &mut u64, found| *all |= mask(found) << (at * 8);
        put(&mut found.opens, equal(folded, b'{'));
        put(&mut found.closes, equal(folded, b'}'));
        put(&mut found.colons, equal(word, b':'));
        put(&mut found.commas, equal(word, b','));
        put(&mut found.spaces, breaks | blanks);
        put(&mut found.digits, tens & ones);
        put(&mut found.zeroes, equal(word, b'0'));
        put(&mut found.points, equal(word, b'.'));
        put(&mut found.exponents, equal(folded, b'e'));
        put(&mut found.pluses, equal(word, b'+'));
        put(&mut found.minuses, equal(word, b'-'));
    }
    found
}

pub(crate) fn structure(block: &Block) -> Structure {
    let mut found = Structure { quotes: 0, backslashes: 0, opens: 0, closes: 0 };
    let (words, _) = block.as_chunks::<8>();
    for (at, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let folded = word | (ONES * 0x20);
        found.quotes |= mask(equal(word, b'"')) << (at * 8);
        found.backslashes |= mask(equal(word, b'\\')) << (at * 8);
        found.opens |= mask(equal(folded, b'{')) << (at * 8);
        found.closes |= mask(equal(folded, b'}')) << (at * 8);
    }
    found
}
