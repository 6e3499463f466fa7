//! Thirty-two bytes at a time, on CPUs with AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_set_epi64x, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_sub_epi8,
};

use super::block::{Block, TextBytes, TokenBytes};
use super::walk::{self, BlockVisitor};

/// Visits all blocks of the text, like [`super::walk_blocks`]; `None` when the CPU lacks a feature.
#[inline]
pub(super) fn walk(text: &[u8], visitor: &mut impl BlockVisitor) -> Option<bool> {
    // The standard library caches the answers.
    let can = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    // SAFETY: invariant 2, by the line above.
    can.then(|| unsafe { walk_with(text, visitor) })
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn walk_with(text: &[u8], visitor: &mut impl BlockVisitor) -> bool {
    walk::walk(text, visitor, |block| text_bytes(block), |block| token_bytes(block))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |at: usize| u64::from_le_bytes(words[at]).cast_signed();
    _mm256_set_epi64x(word(3), word(2), word(1), word(0))
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(byte: u8) -> __m256i {
    _mm256_set1_epi8(byte.cast_signed())
}

#[inline]
#[target_feature(enable = "avx2")]
fn equal(bytes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(bytes, splat(byte))
}

#[inline]
#[target_feature(enable = "avx2")]
fn at_most(bytes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, splat(byte)), bytes)
}

/// The mask of a block from those of its halves.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(low: __m256i, high: __m256i) -> u64 {
    let low = u64::from(_mm256_movemask_epi8(low).cast_unsigned());
    low | (u64::from(_mm256_movemask_epi8(high).cast_unsigned()) << 32)
}

/// Each kind of whitespace is in the table at the index of its lower half, so a match is the byte
/// itself. No other byte matches: those beyond ASCII find 0, and all other entries are 0xff.
#[inline]
#[target_feature(enable = "avx2")]
fn spaces(bytes: __m256i) -> __m256i {
    const TABLE: [u8; 32] = {
        let mut table = [0xff; 32];
        let kinds = *b" \t\n\r";
        let mut at = 0;
        while at < kinds.len() {
            table[(kinds[at] & 15) as usize] = kinds[at];
            table[(kinds[at] & 15) as usize + 16] = kinds[at];
            at += 1;
        }
        table
    };
    _mm256_cmpeq_epi8(_mm256_shuffle_epi8(load(&TABLE), bytes), bytes)
}

#[inline]
#[target_feature(enable = "avx2")]
fn halves(block: &Block) -> (__m256i, __m256i) {
    let (halves, _) = block.as_chunks::<32>();
    (load(&halves[0]), load(&halves[1]))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn text_bytes(block: &Block) -> TextBytes {
    let (low, high) = halves(block);
    TextBytes {
        quotes: mask(equal(low, b'"'), equal(high, b'"')),
        backslashes: mask(equal(low, b'\\'), equal(high, b'\\')),
        controls: mask(at_most(low, 0x1f), at_most(high, 0x1f)),
        high: mask(low, high),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn token_bytes(block: &Block) -> TokenBytes {
    let (low, high) = halves(block);
    // Brackets and braces differ only in this bit, as do upper and lower case.
    let case = splat(0x20);
    let (low_folded, high_folded) = (_mm256_or_si256(low, case), _mm256_or_si256(high, case));
    let zero = splat(b'0');
    let (low_digit, high_digit) = (_mm256_sub_epi8(low, zero), _mm256_sub_epi8(high, zero));
    TokenBytes {
        opens: mask(equal(low_folded, b'{'), equal(high_folded, b'{')),
        closes: mask(equal(low_folded, b'}'), equal(high_folded, b'}')),
        colons: mask(equal(low, b':'), equal(high, b':')),
        commas: mask(equal(low, b','), equal(high, b',')),
        spaces: mask(spaces(low), spaces(high)),
        digits: mask(at_most(low_digit, 9), at_most(high_digit, 9)),
        zeroes: mask(equal(low, b'0'), equal(high, b'0')),
        points: mask(equal(low, b'.'), equal(high, b'.')),
        exponents: mask(equal(low_folded, b'e'), equal(high_folded, b'e')),
        pluses: mask(equal(low, b'+'), equal(high, b'+')),
        minuses: mask(equal(low, b'-'), equal(high, b'-')),
    }
}
