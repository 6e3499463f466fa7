//! Detection of JSON, which decides a document's datatype bit.
//!
//! A value is JSON when it is valid UTF-8 and one JSON text by RFC 8259, see
//! [`oribi_subdoc::json`]. Most other values are distinguished by their first byte, so that opaque
//! data costs nothing.

use oribi_types::Datatype;

/// The datatype of a plain value.
pub fn detect(value: &[u8]) -> Datatype {
    if oribi_subdoc::json::is_json(value) { Datatype::JSON } else { Datatype::RAW }
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
