//! Bytes in extended attributes. Attribute values are JSON, so bytes become a string of a known
//! prefix and base64.
//!
//! The form is Couchbase's, so a document's attributes mean the same there. A client that reads
//! such an attribute without asking for bytes gets the string.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_protocol::status::Status;

const PREFIX: &str = "cb-content-base64-encoded:";

/// The JSON text that stands for `bytes`.
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    format!("\"{PREFIX}{}\"", STANDARD.encode(bytes)).into_bytes()
}

/// The bytes that a JSON text stands for.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, Status> {
    let inside = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let encoded = inside.and_then(|inside| inside.strip_prefix(PREFIX.as_bytes()));
    let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    decoded.ok_or(Status::SubdocFieldNotBinaryValue)
}

#[cfg(test)]
mod tests {
    use oribi_protocol::status::Status;

    use super::{decode, encode};

    #[test]
    fn bytes_are_a_string_and_come_back() {
        assert_eq!(encode(b"\0\xff"), b"\"cb-content-base64-encoded:AP8=\"");
        for bytes in [&b""[..], b"a", b"\xff\xfe\xfd", &[7; 1000]] {
            assert_eq!(decode(&encode(bytes)).as_deref(), Ok(bytes));
        }
        for text in [
            "\"AP8=\"",
            "12",
            "\"",
            "\"cb-content-base64-encoded:!\"",
            "\"cb-content-base64-encoded:AP8",
        ] {
            assert_eq!(decode(text.as_bytes()), Err(Status::SubdocFieldNotBinaryValue), "{text}");
        }
    }
}
