//! Values of SQLite as JSON.
//!
//! It owns one form for all callers: a column that is declared as JSON stays a document, bytes that
//! are no text become `{"base64": ".."}`, and JSON has no infinity. Invariant: what is appended is
//! always one valid JSON value without line ends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::ValueRef;
use serde_json::value::RawValue;

/// A control character as JSON has it.
const ESCAPE_BYTES: usize = r"\u0000".len();

/// Length from which on it is worth counting what has to be escaped.
const COUNTED_BYTES_MIN: usize = 4096;

/// Longest number, with an exponent.
const NUMBER_BYTES_MAX: usize = 330;

/// Appends a value.
pub fn push_json(out: &mut Vec<u8>, value: ValueRef<'_>, is_document: bool) {
    match value {
        ValueRef::Null => out.extend_from_slice(b"null"),
        ValueRef::Integer(number) => {
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        ValueRef::Real(number) if number.is_finite() => {
            out.extend_from_slice(format!("{number:?}").as_bytes());
        }
        // JSON has no infinity.
        ValueRef::Real(_) => out.extend_from_slice(b"null"),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if is_document && serde_json::from_str::<&RawValue>(text).is_ok() => {
                // A document may have been stored with line ends between its tokens.
                out.extend(text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }));
            }
            Ok(text) => push_json_string(out, text),
            Err(_) => {
                out.extend_from_slice(br#"{"base64":""#);
                let begin = out.len();
                out.resize(begin + bytes.len().div_ceil(3) * 4, 0);
                let encoded = STANDARD.encode_slice(bytes, &mut out[begin..]);
                debug_assert_eq!(encoded.ok(), Some(out.len() - begin));
                out.extend_from_slice(br#""}"#);
            }
        },
    }
}

/// Bytes that [`push_json`] appends for a value, at most. Of a long document they are counted, so
/// that twice as many are not reserved.
pub fn json_bytes_max(value: ValueRef<'_>, is_document: bool) -> usize {
    match value {
        ValueRef::Text(bytes)
            if is_document
                && bytes.len() > COUNTED_BYTES_MIN
                && serde_json::from_slice::<&RawValue>(bytes).is_ok() =>
        {
            bytes.len()
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => NUMBER_BYTES_MAX,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let escaped = match bytes.len() <= COUNTED_BYTES_MIN {
                true => bytes.len() * ESCAPE_BYTES,
                false => bytes.iter().map(|byte| escaped_bytes(*byte)).sum(),
            };
            // The other form is base64, in an object.
            escaped.max(bytes.len() / 3 * 4 + 4) + 2 + r#"{"base64":}"#.len()
        }
    }
}

/// Bytes of a byte of text in a string of JSON.
fn escaped_bytes(byte: u8) -> usize {
    match byte {
        0..b' ' => ESCAPE_BYTES,
        b'"' | b'\\' => 2,
        _ => 1,
    }
}

/// Appends a text.
pub fn push_json_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a vector takes every byte of a text");
}

#[cfg(test)]
mod tests {
    //! The forms of values.

    use super::*;

    #[test]
    fn documents_stay_documents_and_everything_is_one_line() {
        let json = |value: ValueRef<'_>, is_document| {
            let mut out = Vec::new();
            push_json(&mut out, value, is_document);
            assert!(out.len() <= json_bytes_max(value, is_document));
            String::from_utf8(out).expect("JSON is UTF-8")
        };
        assert_eq!(json(ValueRef::Text(b"{\n\"a\":[1]}"), true), "{ \"a\":[1]}");
        assert_eq!(json(ValueRef::Text(b"{\n"), true), r#""{\n""#);
        assert_eq!(json(ValueRef::Text(b"{}"), false), r#""{}""#);
        assert_eq!(json(ValueRef::Blob(&[0xff]), false), r#"{"base64":"/w=="}"#);
        assert_eq!(json(ValueRef::Real(f64::INFINITY), false), "null");
        assert_eq!(json(ValueRef::Real(0.5), false), "0.5");
        assert_eq!(json(ValueRef::Integer(-3), false), "-3");
        json(ValueRef::Real(-f64::MAX), false);
        json(ValueRef::Real(f64::MIN_POSITIVE), false);
        let long = format!("[{:?}]", "\"\n".repeat(COUNTED_BYTES_MIN));
        assert_eq!(json_bytes_max(ValueRef::Text(long.as_bytes()), true), long.len());
        assert_eq!(json(ValueRef::Text(long.as_bytes()), true), long);
        for byte in [0, b'"', b'\\', b'a', 0xff] {
            json(ValueRef::Text(&vec![byte; 2 * COUNTED_BYTES_MIN]), false);
            json(ValueRef::Text(&[byte; 1]), true);
        }
    }
}
