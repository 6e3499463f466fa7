//! Each set of instructions compared with the plain meaning of its masks.

use proptest::prelude::*;

use super::block::{StringBytes, Structure};
use super::{
    BLOCK_BYTES, Block, BlockVisitor, TextBytes, TokenBytes, WalkStep, string_bytes, structure,
    walk, walk_blocks, words,
};

fn bits(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
    bytes.iter().enumerate().map(|(at, byte)| u64::from(is(*byte)) << at).sum()
}

fn text_bytes(block: &Block) -> TextBytes {
    TextBytes {
        quotes: bits(block, |byte| byte == b'"'),
        backslashes: bits(block, |byte| byte == b'\\'),
        controls: bits(block, |byte| byte < 0x20),
        high: bits(block, |byte| byte >= 0x80),
    }
}

fn token_bytes(block: &Block) -> TokenBytes {
    TokenBytes {
        opens: bits(block, |byte| b"{[".contains(&byte)),
        closes: bits(block, |byte| b"}]".contains(&byte)),
        colons: bits(block, |byte| byte == b':'),
        commas: bits(block, |byte| byte == b','),
        spaces: bits(block, |byte| b" \n\r\t".contains(&byte)),
        digits: bits(block, |byte| byte.is_ascii_digit()),
        zeroes: bits(block, |byte| byte == b'0'),
        points: bits(block, |byte| byte == b'.'),
        exponents: bits(block, |byte| b"eE".contains(&byte)),
        pluses: bits(block, |byte| byte == b'+'),
        minuses: bits(block, |byte| byte == b'-'),
    }
}

/// Writes down what it is shown.
#[derive(Default, PartialEq, Debug)]
struct Record {
    texts: Vec<(usize, TextBytes)>,
    tokens: Vec<(usize, TokenBytes)>,
}

impl BlockVisitor for Record {
    fn text(&mut self, base: usize, found: TextBytes) -> WalkStep {
        self.texts.push((base, found));
        WalkStep::Tokens
    }

    fn tokens(&mut self, base: usize, _: &Block, found: &TokenBytes) -> bool {
        self.tokens.push((base, *found));
        true
    }
}

fn check(block: &Block) {
    let wanted = Structure {
        quotes: bits(block, |byte| byte == b'"'),
        backslashes: bits(block, |byte| byte == b'\\'),
        opens: bits(block, |byte| byte == b'{' || byte == b'['),
        closes: bits(block, |byte| byte == b'}' || byte == b']'),
    };
    assert_eq!(structure(block), wanted);
    assert_eq!(words::structure(block), wanted);
    check_walks(block);
    for chunk in block.as_chunks::<16>().0 {
        let wanted = StringBytes {
            stops: bits(chunk, |byte| byte < 0x20 || byte == b'"' || byte == b'\\') as u32,
            high: bits(chunk, |byte| byte >= 0x80) as u32,
        };
        assert_eq!(string_bytes(chunk), wanted);
        assert_eq!(words::string_bytes(chunk), wanted);
    }
}

/// By whatever instructions a text is walked, the same is shown.
fn check_walks(text: &[u8]) {
    let mut wanted = Record::default();
    let whole = text.len() / BLOCK_BYTES * BLOCK_BYTES;
    for base in (0..=whole).step_by(BLOCK_BYTES) {
        let mut block = [b' '; BLOCK_BYTES];
        let rest = &text[base..];
        let count = rest.len().min(BLOCK_BYTES);
        block[..count].copy_from_slice(&rest[..count]);
        wanted.texts.push((base, text_bytes(&block)));
        wanted.tokens.push((base, token_bytes(&block)));
    }
    let mut shown = Record::default();
    assert!(walk_blocks(text, &mut shown));
    assert_eq!(shown, wanted);
    let mut shown = Record::default();
    assert!(walk(text, &mut shown, super::text_bytes, super::token_bytes));
    assert_eq!(shown, wanted);
    let mut shown = Record::default();
    assert!(walk(text, &mut shown, words::text_bytes, words::token_bytes));
    assert_eq!(shown, wanted);
}

#[test]
fn texts_of_every_length() {
    let text: Vec<u8> = (0..200).collect();
    for length in 0..text.len() {
        check_walks(&text[..length]);
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
