//! Detection of JSON, which decides a document's datatype bit.
//!
//! A value is JSON when it is valid UTF-8 and one JSON text by RFC 8259. Most other values are told
//! apart by their first byte, so that opaque data costs nothing.

use oribi_types::Datatype;

/// The datatype of a plain value.
pub fn detect(value: &[u8]) -> Datatype {
    if may_be_json(value) && is_json(value) { Datatype::JSON } else { Datatype::RAW }
}

fn may_be_json(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    matches!(first, Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'))
}

fn is_json(value: &[u8]) -> bool {
    // The parser skips strings without looking at their encoding, hence the check before it.
    let Ok(text) = std::str::from_utf8(value) else { return false };
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Datatype, detect};

    #[test]
    fn json_texts_are_json_and_others_are_not() {
        for json in ["{}", " {\"a\":[1,2.5e3,null]}\n", "12", "-0.5", "\"x\"", "true", "[]"] {
            assert_eq!(detect(json.as_bytes()), Datatype::JSON, "{json}");
        }
        for raw in ["", " ", "{", "{}x", "01", "tru", "hello", "{'a':1}", "\u{feff}{}"] {
            assert_eq!(detect(raw.as_bytes()), Datatype::RAW, "{raw}");
        }
        assert_eq!(detect(b"\"\xff\""), Datatype::RAW);
        assert_eq!(detect(&vec![b'['; 100_000]), Datatype::RAW);
    }
}
