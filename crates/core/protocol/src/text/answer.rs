//! How answers of the text protocol look.
//!
//! Everything is appended to the caller's buffer. The caller puts a large value between
//! [`write_value_head`] and [`LINE_END`] without a copy.

/// The end of every line and of every data block.
pub const LINE_END: &[u8] = b"\r\n";

/// Digits of the longest number.
const DIGITS_MAX: usize = 20;

/// Appends a number in decimal digits.
#[inline]
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    let (mut digits, mut begin, mut rest) = ([0; DIGITS_MAX], DIGITS_MAX, number);
    loop {
        begin -= 1;
        digits[begin] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return out.extend_from_slice(&digits[begin..]);
        }
    }
}

/// Appends a line.
#[inline]
pub fn write_line(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(LINE_END);
}

/// Appends the line before a document's value in the answer to `get` and its like.
#[inline]
pub fn write_value_head(
    out: &mut Vec<u8>,
    key: &[u8],
    flags: u32,
    value_bytes: usize,
    cas: Option<u64>,
) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    write_number(out, u64::from(flags));
    out.push(b' ');
    write_number(out, value_bytes as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        write_number(out, cas);
    }
    out.extend_from_slice(LINE_END);
}

/// Appends a flag with a number to the answer to a meta command.
#[inline]
pub fn write_flag(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    write_number(out, number);
}

/// Appends the key flag. `key` is as it was sent.
pub fn write_key_flag(out: &mut Vec<u8>, key: &[u8], is_base64: bool) {
    out.extend_from_slice(b" k");
    out.extend_from_slice(key);
    if is_base64 {
        out.extend_from_slice(b" b");
    }
}

#[cfg(test)]
mod tests {
    use super::{write_number, write_value_head};

    #[test]
    fn numbers_and_heads() {
        let mut out = Vec::new();
        for number in [0, 9, 10, 12345, u64::MAX] {
            out.clear();
            write_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
        out.clear();
        write_value_head(&mut out, b"k", 7, 10, Some(99));
        write_value_head(&mut out, b"k", 0, 0, None);
        assert_eq!(out, b"VALUE k 7 10 99\r\nVALUE k 0 0\r\n");
    }
}
