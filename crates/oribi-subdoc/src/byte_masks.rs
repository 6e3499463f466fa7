//! Which bytes of a block are which, as bits: the one place with vector instructions.
//!
//! Bit n of a mask is about byte n. On x86-64 the masks come from SSE2, which every such processor
//! has; elsewhere from word arithmetic. Both give the same masks, which a test holds.
//!
//! Invariant 1 of the `unsafe` here: a function with SSE2 instructions is compiled only for targets that
//! have SSE2 by definition, so that calling it is always allowed. Nothing here touches memory by pointer.

/// Bytes of a block whose structure is looked at.
pub(crate) const BLOCK_BYTES: usize = 64;

/// The bytes of a block that give a document its structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Structure {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    /// `{` and `[`.
    pub(crate) opens: u64,
    /// `}` and `]`.
    pub(crate) closes: u64,
}

/// The bytes of a block that matter to who checks whether it is JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenBytes {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    /// Braces, brackets, colons and commas.
    pub(crate) marks: u64,
    /// Space, line feed, carriage return and tab.
    pub(crate) spaces: u64,
    /// Everything below the space.
    pub(crate) controls: u64,
    /// Bytes beyond ASCII.
    pub(crate) high: u64,
}

/// The bytes of 16 that a string's reader has to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StringBytes {
    /// Quotes, backslashes and control characters.
    pub(crate) stops: u32,
    /// Bytes beyond ASCII.
    pub(crate) high: u32,
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) use sse2::{string_bytes, structure, token_bytes};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
pub(crate) use words::{string_bytes, structure, token_bytes};

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[allow(
    unsafe_code,
    reason = "calls of functions with vector instructions; invariant in byte_masks.rs"
)]
mod sse2 {
    //! Sixteen bytes at a time.

    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi8,
    };

    use super::{BLOCK_BYTES, StringBytes, Structure, TokenBytes};

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
    pub(crate) fn structure(block: &[u8; BLOCK_BYTES]) -> Structure {
        // SAFETY: invariant 1.
        unsafe { structure_of(block) }
    }

    #[inline]
    pub(crate) fn token_bytes(block: &[u8; BLOCK_BYTES]) -> TokenBytes {
        // SAFETY: invariant 1.
        unsafe { token_bytes_of(block) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn token_bytes_of(block: &[u8; BLOCK_BYTES]) -> TokenBytes {
        let mut found =
            TokenBytes { quotes: 0, backslashes: 0, marks: 0, spaces: 0, controls: 0, high: 0 };
        let (chunks, _) = block.as_chunks::<16>();
        for (at, chunk) in chunks.iter().enumerate() {
            let bytes = load(chunk);
            let folded = _mm_or_si128(bytes, splat(0x20));
            let brackets = _mm_or_si128(equal(folded, b'{'), equal(folded, b'}'));
            let separators = _mm_or_si128(equal(bytes, b':'), equal(bytes, b','));
            let breaks = _mm_or_si128(equal(bytes, b'\n'), equal(bytes, b'\r'));
            let blanks = _mm_or_si128(equal(bytes, b' '), equal(bytes, b'\t'));
            let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, splat(0x1f)), bytes);
            let shift = at * 16;
            found.quotes |= u64::from(mask(equal(bytes, b'"'))) << shift;
            found.backslashes |= u64::from(mask(equal(bytes, b'\\'))) << shift;
            found.marks |= u64::from(mask(_mm_or_si128(brackets, separators))) << shift;
            found.spaces |= u64::from(mask(_mm_or_si128(breaks, blanks))) << shift;
            found.controls |= u64::from(mask(control)) << shift;
            found.high |= u64::from(mask(bytes)) << shift;
        }
        found
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn string_bytes_of(chunk: &[u8; 16]) -> StringBytes {
        let bytes = load(chunk);
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, splat(0x1f)), bytes);
        let marks = _mm_or_si128(equal(bytes, b'"'), equal(bytes, b'\\'));
        StringBytes { stops: mask(_mm_or_si128(control, marks)), high: mask(bytes) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn structure_of(block: &[u8; BLOCK_BYTES]) -> Structure {
        let mut found = Structure { quotes: 0, backslashes: 0, opens: 0, closes: 0 };
        let (chunks, _) = block.as_chunks::<16>();
        for (at, chunk) in chunks.iter().enumerate() {
            let bytes = load(chunk);
            // The brackets differ from the braces in this bit only.
            let folded = _mm_or_si128(bytes, splat(0x20));
            let shift = at * 16;
            found.quotes |= u64::from(mask(equal(bytes, b'"'))) << shift;
            found.backslashes |= u64::from(mask(equal(bytes, b'\\'))) << shift;
            found.opens |= u64::from(mask(equal(folded, b'{'))) << shift;
            found.closes |= u64::from(mask(equal(folded, b'}'))) << shift;
        }
        found
    }
}

#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
mod words {
    //! Eight bytes at a time.

    use super::{BLOCK_BYTES, StringBytes, Structure, TokenBytes};

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

    /// Gathers the top bits of the bytes: each lands in the top byte at its own place.
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

    pub(crate) fn token_bytes(block: &[u8; BLOCK_BYTES]) -> TokenBytes {
        let mut found =
            TokenBytes { quotes: 0, backslashes: 0, marks: 0, spaces: 0, controls: 0, high: 0 };
        let (words, _) = block.as_chunks::<8>();
        for (at, bytes) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*bytes);
            let folded = word | (ONES * 0x20);
            let brackets = equal(folded, b'{') | equal(folded, b'}');
            let marks = brackets | equal(word, b':') | equal(word, b',');
            let breaks = equal(word, b'\n') | equal(word, b'\r');
            let spaces = breaks | equal(word, b' ') | equal(word, b'\t');
            found.quotes |= mask(equal(word, b'"')) << (at * 8);
            found.backslashes |= mask(equal(word, b'\\')) << (at * 8);
            found.marks |= mask(marks) << (at * 8);
            found.spaces |= mask(spaces) << (at * 8);
            found.controls |= mask(zeroes(word & (ONES * 0xe0))) << (at * 8);
            found.high |= mask(word & TOP_BITS) << (at * 8);
        }
        found
    }

    pub(crate) fn structure(block: &[u8; BLOCK_BYTES]) -> Structure {
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        BLOCK_BYTES, StringBytes, Structure, TokenBytes, string_bytes, structure, token_bytes,
        words,
    };

    fn bits(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
        bytes.iter().enumerate().map(|(at, byte)| u64::from(is(*byte)) << at).sum()
    }

    fn check(block: &[u8; BLOCK_BYTES]) {
        let wanted = Structure {
            quotes: bits(block, |byte| byte == b'"'),
            backslashes: bits(block, |byte| byte == b'\\'),
            opens: bits(block, |byte| byte == b'{' || byte == b'['),
            closes: bits(block, |byte| byte == b'}' || byte == b']'),
        };
        assert_eq!(structure(block), wanted);
        assert_eq!(words::structure(block), wanted);
        let wanted = TokenBytes {
            quotes: wanted.quotes,
            backslashes: wanted.backslashes,
            marks: bits(block, |byte| b"{}[]:,".contains(&byte)),
            spaces: bits(block, |byte| b" \n\r\t".contains(&byte)),
            controls: bits(block, |byte| byte < 0x20),
            high: bits(block, |byte| byte >= 0x80),
        };
        assert_eq!(token_bytes(block), wanted);
        assert_eq!(words::token_bytes(block), wanted);
        for chunk in block.as_chunks::<16>().0 {
            let wanted = StringBytes {
                stops: bits(chunk, |byte| byte < 0x20 || byte == b'"' || byte == b'\\') as u32,
                high: bits(chunk, |byte| byte >= 0x80) as u32,
            };
            assert_eq!(string_bytes(chunk), wanted);
            assert_eq!(words::string_bytes(chunk), wanted);
        }
    }

    #[test]
    fn every_byte_in_every_place() {
        for byte in 0..=u8::MAX {
            for at in 0..BLOCK_BYTES {
                let mut block = [b'a'; BLOCK_BYTES];
                block[at] = byte;
                check(&block);
            }
        }
    }

    proptest! {
        #[test]
        fn random_blocks(block in prop::array::uniform32(any::<[u8; 2]>())) {
            check(block.as_flattened().try_into().unwrap());
        }
    }
}
