//! Sixteen bytes at a time.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x,
    _mm_set1_epi8, _mm_sub_epi8,
};

use super::block::{Block, StringBytes, Structure, TextBytes, TokenBytes};

#[inline]
#[target_feature(enable = "sse2")]
fn load(bytes: &[u8; 16]) -> __m128i {
    let both = u128::from_le_bytes(*bytes);
    _mm_set_epi64x((both >> 64) as i64, both as i64)
}

#[inline]
#[target_feature(enable = "sse2")]
fn splat(byte: u8) -> __m128i {
    _mm_set1_epi8(byte.cast_signed())
}

#[inline]
#[target_feature(enable = "sse2")]
fn mask(bytes: __m128i) -> u32 {
    _mm_movemask_epi8(bytes).cast_unsigned()
}

#[inline]
#[target_feature(enable = "sse2")]
fn equal(bytes: __m128i, byte: u8) -> __m128i {
    _mm_cmpeq_epi8(bytes, splat(byte))
}

#[inline]
pub(crate) fn string_bytes(chunk: &[u8; 16]) -> StringBytes {
    // SAFETY: invariant 1.
    unsafe { string_bytes_of(chunk) }
}

#[inline]
pub(crate) fn structure(block: &Block) -> Structure {
    // SAFETY: invariant 1.
    unsafe { structure_of(block) }
}

#[inline]
pub(super) fn text_bytes(block: &Block) -> TextBytes {
    // SAFETY: invariant 1.
    unsafe { text_bytes_of(block) }
}

#[inline]
pub(super) fn token_bytes(block: &Block) -> TokenBytes {
    // SAFETY: invariant 1.
    unsafe { token_bytes_of(block) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn at_most(bytes: __m128i, byte: u8) -> __m128i {
    _mm_cmpeq_epi8(_mm_min_epu8(bytes, splat(byte)), bytes)
}

#[inline]
#[target_feature(enable = "sse2")]
fn text_bytes_of(block: &Block) -> TextBytes {
    let mut found = TextBytes::default();
    let (chunks, _) = block.as_chunks::<16>();
    for (at, chunk) in chunks.iter().enumerate() {
        let bytes = load(chunk);
        let put = |all: &mut u64, found| *all |= u64::from(mask(found)) << (at * 16);
        put(&mut found.quotes, equal(bytes, b'"'));
        put(&mut found.backslashes, equal(bytes, b'\\'));
        put(&mut found.controls, at_most(bytes, 0x1f));
        put(&mut found.high, bytes);
    }
    found
}

#[inline]
#[target_feature(enable = "sse2")]
fn token_bytes_of(block: &Block) -> TokenBytes {
    let mut found = TokenBytes::default();
    let (chunks, _) = block.as_chunks::<16>();
    for (at, chunk) in chunks.iter().enumerate() {
        let bytes = load(chunk);
        // Brackets and braces differ only in this bit, as do upper and lower case.
        let folded = _mm_or_si128(bytes, splat(0x20));
        let breaks = _mm_or_si128(equal(bytes, b'\n'), equal(bytes, b'\r'));
        let blanks = _mm_or_si128(equal(bytes, b' '), equal(bytes, b'\t'));
        let put = |all: &mut u64, found| *all |= u64::from(mask(found)) << (at * 16);
        put(&mut found.opens, equal(folded, b'{'));
        put(&mut found.closes, equal(folded, b'}'));
        put(&mut found.colons, equal(bytes, b':'));
        put(&mut found.commas, equal(bytes, b','));
        put(&mut found.spaces, _mm_or_si128(breaks, blanks));
        put(&mut found.digits, at_most(_mm_sub_epi8(bytes, splat(b'0')), 9));
        put(&mut found.zeroes, equal(bytes, b'0'));
        put(&mut found.points, equal(bytes, b'.'));
        put(&mut found.exponents, equal(folded, b'e'));
        put(&mut found.pluses, equal(bytes, b'+'));
        put(&mut found.minuses, equal(bytes, b'-'));
    }
    found
}

#[inline]
#[target_feature(enable = "sse2")]
fn string_bytes_of(chunk: &[u8; 16]) -> StringBytes {
    let bytes = load(chunk);
    let control = at_most(bytes, 0x1f);
    let marks = _mm_or_si128(equal(bytes, b'"'), equal(bytes, b'\\'));
    StringBytes { stops: mask(_mm_or_si128(control, marks)), high: mask(bytes) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn structure_of(block: &Block) -> Structure {
    let mut found = Structure { quotes: 0, backslashes: 0, opens: 0, closes: 0 };
    let (chunks, _) = block.as_chunks::<16>();
    for (at, chunk) in chunks.iter().enumerate() {
        let bytes = load(chunk);
        // Brackets and braces differ only in this bit.
        let folded = _mm_or_si128(bytes, splat(0x20));
        let shift = at * 16;
        found.quotes |= u64::from(mask(equal(bytes, b'"'))) << shift;
        found.backslashes |= u64::from(mask(equal(bytes, b'\\'))) << shift;
        found.opens |= u64::from(mask(equal(folded, b'{'))) << shift;
        found.closes |= u64::from(mask(equal(folded, b'}'))) << shift;
    }
    found
}
