//! Values of SQLite as JSON.
//!
//! It owns one form for all callers: a column that is declared as JSON stays a document, bytes that
//! are no text become `{"base64": ".."}`, and JSON has no infinity. Invariant: what is appended is
//! always one valid JSON value without line ends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::ValueRef;
use serde_json::value::RawValue;

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
                out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
                out.extend_from_slice(br#""}"#);
            }
        },
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
        let json = |value, is_document| {
            let mut out = Vec::new();
            push_json(&mut out, value, is_document);
            String::from_utf8(out).expect("JSON is UTF-8")
        };
        assert_eq!(json(ValueRef::Text(b"{\n\"a\":[1]}"), true), "{ \"a\":[1]}");
        assert_eq!(json(ValueRef::Text(b"{\n"), true), r#""{\n""#);
        assert_eq!(json(ValueRef::Text(b"{}"), false), r#""{}""#);
        assert_eq!(json(ValueRef::Blob(&[0xff]), false), r#"{"base64":"/w=="}"#);
        assert_eq!(json(ValueRef::Real(f64::INFINITY), false), "null");
        assert_eq!(json(ValueRef::Real(0.5), false), "0.5");
        assert_eq!(json(ValueRef::Integer(-3), false), "-3");
    }
}
