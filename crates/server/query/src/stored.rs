//! Values as stores keep them: attributes before the body, and compressed bodies.
//!
//! Sources of documents take them apart here. Invariant: an unreadable part is shown unchanged,
//! because users look at a document most when something is wrong with it.

use bytes::Bytes;
use oribi_subdoc::xattr;
use oribi_types::Datatype;

use crate::datastore::QueryDocument;

/// Most bytes that a compressed body may become: more than the largest document has.
const INFLATED_BYTES_MAX: usize = 32 << 20;

/// Uncompressed length from the Snappy header, unless that is absurd.
pub fn inflated_bytes(body: &[u8]) -> Option<usize> {
    snap::raw::decompress_len(body).ok().filter(|bytes| *bytes <= INFLATED_BYTES_MAX)
}

/// The uncompressed value, unless the Snappy data is damaged or absurdly long.
pub fn inflated(body: &[u8]) -> Option<Vec<u8>> {
    inflated_bytes(body)?;
    snap::raw::Decoder::new().decompress_vec(body).ok()
}

/// The body of a stored value, without the attributes before it.
pub fn body_of(datatype: Datatype, value: &[u8]) -> &[u8] {
    match datatype.contains(Datatype::XATTR) {
        false => value,
        true => xattr::body_of(value).unwrap_or_default(),
    }
}

/// True when statements see a plain body as JSON.
pub fn is_json(datatype: Datatype, body: &[u8]) -> bool {
    // Most bodies are ASCII, which is seen at many times the speed.
    let is_text = || body.is_ascii() || std::str::from_utf8(body).is_ok();
    datatype.contains(Datatype::JSON) && !body.is_empty() && is_text()
}

impl QueryDocument {
    /// A document without metadata, of a body that may be compressed.
    pub fn of_body(key: &[u8], datatype: Datatype, body: &[u8]) -> QueryDocument {
        let plain = datatype.contains(Datatype::SNAPPY).then(|| inflated(body)).flatten();
        let is_damaged = datatype.contains(Datatype::SNAPPY) && plain.is_none();
        let value = plain.map_or_else(|| Bytes::copy_from_slice(body), Bytes::from);
        QueryDocument {
            key: Bytes::copy_from_slice(key),
            is_json: !is_damaged && is_json(datatype, &value),
            value,
            cas: 0,
            flags: 0,
            expiration: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Attributes and compressed bodies, whole and damaged.

    use super::*;

    #[test]
    fn attributes_are_before_the_body() {
        let block = b"\0\0\0\x09\0\0\0\x05_a\x001\0{}";
        assert_eq!(body_of(Datatype(Datatype::XATTR.0 | Datatype::JSON.0), block), b"{}");
        assert_eq!(body_of(Datatype::JSON, b"{}"), b"{}");
        assert_eq!(body_of(Datatype::XATTR, b"\0\0\0\x09short"), b"");
    }

    #[test]
    fn damaged_bodies_are_shown_unchanged() {
        let packed = |body: &[u8]| snap::raw::Encoder::new().compress_vec(body).unwrap();
        let of = |datatype: Datatype, body: &[u8]| {
            let document =
                QueryDocument::of_body(b"k", Datatype(datatype.0 | Datatype::SNAPPY.0), body);
            (document.is_json, document.value.to_vec())
        };
        let json = br#"{"a":1}"#;
        assert_eq!(of(Datatype::JSON, &packed(json)), (true, json.to_vec()));
        assert_eq!(of(Datatype::RAW, &packed(json)), (false, json.to_vec()));
        assert_eq!(of(Datatype::JSON, &packed(b"\xff")), (false, vec![0xff]));
        assert_eq!(of(Datatype::JSON, json), (false, json.to_vec()));
        // A length of 2 GiB in front of nothing.
        let absurd = [0x80, 0x80, 0x80, 0x80, 0x08];
        assert_eq!(of(Datatype::JSON, &absurd), (false, absurd.to_vec()));
    }
}
