//! Bytes of a server as text that is safe to show: for terminals, and for JSON.
//!
//! Names and values come from any server, so they may be no UTF-8, or contain what a terminal takes
//! for commands. Printable ASCII is copied as it is, which is the whole cost for nearly every
//! figure; everything else goes character by character. Nothing here allocates except by growing
//! `out`.

use serde::de::IgnoredAny;
use serde_json::Value;

/// Digits of the longest number that is a JSON number here; the largest `u64` has as many.
const NUMBER_DIGITS_MAX: usize = 20;

/// Appends `bytes` for a terminal or a line of text. Unprintable bytes are written as `\x1b` or
/// `\u{9b}`.
pub fn push_clean(out: &mut Vec<u8>, bytes: &[u8]) {
    if is_printable_ascii(bytes) {
        return out.extend_from_slice(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                _ if is_harmless(character) => push_char(out, character),
                '\0'..='\x7f' => push_hex_escape(out, character as u8),
                _ => out.extend(character.escape_unicode().map(|ascii| ascii as u8)),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex_escape(out, *byte));
    }
}

/// `bytes` as [`push_clean`] writes them.
pub fn clean(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    push_clean(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends `bytes` as a JSON string. Bytes that are no UTF-8 become replacement characters.
pub fn push_json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    if is_plain_json(bytes) {
        out.extend_from_slice(bytes);
    } else {
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|character| push_json_char(out, character));
            if !chunk.invalid().is_empty() {
                push_json_char(out, char::REPLACEMENT_CHARACTER);
            }
        }
    }
    out.push(b'"');
}

/// Appends a figure's value as the JSON it most likely is: a number, a boolean, its own document,
/// else a string.
pub fn push_json_value(out: &mut Vec<u8>, value: &[u8]) {
    match value.first() {
        Some(b'-' | b'0'..=b'9') if is_json_number(value) => out.extend_from_slice(value),
        Some(b't' | b'f') if value == b"true" || value == b"false" => out.extend_from_slice(value),
        Some(b'{' | b'[') if push_json_document(out, value) => {}
        _ => push_json_string(out, value),
    }
}

/// True for a JSON number without exponent that is not too long to be one: uuids in hexadecimal can
/// look like numbers with an exponent, and ones in decimal exceed every integer type.
pub fn is_json_number(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (whole, rest) = unsigned.split_at(digits);
    let whole_is_number = match whole {
        [] => false,
        [b'0'] => true,
        [b'0', ..] => false,
        _ if digits < NUMBER_DIGITS_MAX => true,
        _ => std::str::from_utf8(whole).is_ok_and(|text| text.parse::<u64>().is_ok()),
    };
    whole_is_number
        && match rest {
            [] => true,
            [b'.', fraction @ ..] => {
                !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit)
            }
            _ => false,
        }
}

/// Appends a JSON document on one line; false, and nothing appended, when it is none.
fn push_json_document(out: &mut Vec<u8>, value: &[u8]) -> bool {
    if is_printable_ascii(value) && serde_json::from_slice::<IgnoredAny>(value).is_ok() {
        out.extend_from_slice(value);
        return true;
    }
    // Line ends and control characters have to go, and those may stand in strings and between them.
    let Ok(document) = serde_json::from_slice::<Value>(value) else { return false };
    for character in document.to_string().chars() {
        match is_harmless(character) {
            true => push_char(out, character),
            false => push_unicode_escape(out, character),
        }
    }
    true
}

fn push_json_char(out: &mut Vec<u8>, character: char) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        _ if is_harmless(character) => push_char(out, character),
        _ => push_unicode_escape(out, character),
    }
}

/// Appends a character as JSON's `\u` escapes of its UTF-16 code units.
fn push_unicode_escape(out: &mut Vec<u8>, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.extend_from_slice(b"\\u");
        for byte in unit.to_be_bytes() {
            push_hex(out, byte);
        }
    }
}

fn push_char(out: &mut Vec<u8>, character: char) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

fn push_hex_escape(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\x");
    push_hex(out, byte);
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn is_printable_ascii(bytes: &[u8]) -> bool {
    all_bytes(bytes, is_ascii_text)
}

/// Printable ASCII that JSON strings need not escape.
fn is_plain_json(bytes: &[u8]) -> bool {
    all_bytes(bytes, |word| is_ascii_text(word) && !has_byte(word, b'"') && !has_byte(word, b'\\'))
}

/// Looks at eight bytes at a time; the last eight may overlap those before.
fn all_bytes(bytes: &[u8], is_fine: impl Fn(u64) -> bool) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().all(|byte| is_fine(EVERY_BYTE * u64::from(*byte)));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().chain([last]).all(|word| is_fine(u64::from_ne_bytes(*word)))
}

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x80 * EVERY_BYTE;

/// True when all eight bytes are printable ASCII. A byte below a blank borrows its high bit; what
/// the borrow does to the bytes above it does not matter, because one is enough to decide.
const fn is_ascii_text(word: u64) -> bool {
    let below_blank = word.wrapping_sub(EVERY_BYTE * b' ' as u64) & !word;
    (word | below_blank) & HIGH_BITS == 0 && !has_byte(word, 0x7f)
}

/// True when one of the eight bytes is `byte`: only a byte of zero borrows without having the high
/// bit.
const fn has_byte(word: u64, byte: u8) -> bool {
    let difference = word ^ (EVERY_BYTE * byte as u64);
    difference.wrapping_sub(EVERY_BYTE) & !difference & HIGH_BITS != 0
}

/// True for characters that neither control a terminal nor change the order or place of others.
fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    //! What goes through, what is escaped, and that the JSON written is JSON.

    use super::*;

    fn json_value(value: &[u8]) -> String {
        let mut out = Vec::new();
        push_json_value(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn terminal_commands_do_not_pass() {
        for (bytes, shown) in [
            (&b"vb_0:high_seqno"[..], "vb_0:high_seqno"),
            (b"C:\\temp \"x\" ~", "C:\\temp \"x\" ~"),
            (b"a\x1b[2Jb", "a\\x1b[2Jb"),
            (b"line\nend\t\x7f", "line\\x0aend\\x09\\x7f"),
            ("Müller \u{1f980}".as_bytes(), "Müller \u{1f980}"),
            ("c1 \u{9b}31m".as_bytes(), "c1 \\u{9b}31m"),
            ("rtl \u{202e}x".as_bytes(), "rtl \\u{202e}x"),
            (b"\xff\xc3(", "\\xff\\xc3("),
            (b"", ""),
        ] {
            assert_eq!(clean(bytes), shown);
        }
    }

    #[test]
    fn values_are_what_they_look_like() {
        for (value, json) in [
            (&b"17"[..], "17"),
            (b"-1", "-1"),
            (b"0", "0"),
            (b"0.25", "0.25"),
            (b"18446744073709551615", "18446744073709551615"),
            (b"18446744073709551616", "\"18446744073709551616\""),
            (b"12345678901234567890123456789012", "\"12345678901234567890123456789012\""),
            (b"12e34", "\"12e34\""),
            (b"007", "\"007\""),
            (b"1.", "\"1.\""),
            (b"-", "\"-\""),
            (b"1.6.0", "\"1.6.0\""),
            (b"true", "true"),
            (b"truely", "\"truely\""),
            (b"", "\"\""),
            (b"active", "\"active\""),
            (b"{\"a\":[1,2]}", "{\"a\":[1,2]}"),
            (b"{\"a\":\n [1]}", "{\"a\":[1]}"),
            (b"{not json", "\"{not json\""),
            (b"[\"\xff\"]", "\"[\\\"\u{fffd}\\\"]\""),
        ] {
            assert_eq!(json_value(value), json);
        }
    }

    /// Every byte at every place of texts of several lengths, compared with the plain definition.
    #[test]
    fn words_are_checked_like_bytes() {
        for length in [1, 7, 8, 9, 16, 23] {
            for place in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b' '; length];
                    bytes[place] = byte;
                    let is_printable = (b' '..=b'~').contains(&byte);
                    assert_eq!(is_printable_ascii(&bytes), is_printable, "{bytes:?}");
                    let is_plain = is_printable && byte != b'"' && byte != b'\\';
                    assert_eq!(is_plain_json(&bytes), is_plain, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn every_byte_gives_valid_json_without_controls() {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        for bytes in [&every[..], "\u{9b}\u{2028}\u{1f980}\"\\".as_bytes(), b"{\"\x7f\":1}"] {
            let json = json_value(bytes);
            assert!(json.chars().all(is_harmless), "{json}");
            let parsed: Value = serde_json::from_str(&json).unwrap();
            if let Value::String(text) = parsed {
                assert_eq!(text, String::from_utf8_lossy(bytes));
            }
        }
        let nested = json_value("{\"\u{9b}\":\"\\u009b\"}".as_bytes());
        assert_eq!(nested, "{\"\\u009b\":\"\\u009b\"}");
    }
}
