//! Values as JSON objects: `{"p":"HEADER","b":"BODY"}`.
//!
//! HEADER is 40 hexadecimal digits: checksum (8), bytes of the whole document (8), version (8),
//! number of the document (16). The checksum covers everything after its own digits, the closing
//! braces too.

use super::header::{ValueHeader, ValueIdentity, checksum};

const OPENING: &[u8] = b"{\"p\":\"";
const BETWEEN: &[u8] = b"\",\"b\":\"";
/// End of a document.
pub(super) const TAIL: &[u8] = b"\"}";

const CHECKSUM_AT: usize = OPENING.len();
const SUMMED_FROM: usize = CHECKSUM_AT + 8;
const BYTES_AT: usize = SUMMED_FROM;
const VERSION_AT: usize = BYTES_AT + 8;
const INDEX_AT: usize = VERSION_AT + 8;
const BETWEEN_AT: usize = INDEX_AT + 16;

/// Bytes before the body.
pub(super) const HEADER_BYTES: usize = BETWEEN_AT + BETWEEN.len();

/// Sixty-four characters that stand for themselves in a JSON string.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A byte as a character that needs no escape.
pub(super) fn printable(byte: u8) -> u8 {
    match byte {
        b' ' | b'a'..=b'z' => byte,
        _ => LETTERS[usize::from(byte % 64)],
    }
}

/// Writes what stands before `body` to the start of `head`.
pub(super) fn write_header(
    head: &mut [u8],
    identity: ValueIdentity,
    version: u32,
    bytes: usize,
    body: &[u8],
) {
    head[..CHECKSUM_AT].copy_from_slice(OPENING);
    write_hex(&mut head[BYTES_AT..VERSION_AT], bytes as u64);
    write_hex(&mut head[VERSION_AT..INDEX_AT], u64::from(version));
    write_hex(&mut head[INDEX_AT..BETWEEN_AT], identity.index);
    head[BETWEEN_AT..HEADER_BYTES].copy_from_slice(BETWEEN);
    let sum = checksum(identity.seed, &[&head[SUMMED_FROM..HEADER_BYTES], body, TAIL]);
    write_hex(&mut head[CHECKSUM_AT..SUMMED_FROM], u64::from(sum));
}

/// The header of a value that is long enough to have one.
pub(super) fn read_header(value: &[u8]) -> Option<ValueHeader> {
    let word = |at: usize| read_hex(value.get(at..at + 8)?).map(|word| word as u32);
    if !value.starts_with(OPENING) {
        return None;
    }
    Some(ValueHeader {
        checksum: word(CHECKSUM_AT)?,
        body_checksum: 0,
        bytes: word(BYTES_AT)?,
        version: word(VERSION_AT)?,
        index: read_hex(value.get(INDEX_AT..BETWEEN_AT)?)?,
    })
}

/// The checksum that a value, long enough for a header, should have.
pub(super) fn checksum_of(identity: ValueIdentity, value: &[u8]) -> u32 {
    checksum(identity.seed, &[&value[SUMMED_FROM..]])
}

fn write_hex(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

fn read_hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}
