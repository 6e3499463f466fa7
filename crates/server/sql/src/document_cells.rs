//! The parts of a document that SQL shows differently from how they are stored.
//!
//! It owns two conversions. Attributes are a binary block in the store and one JSON object in SQL.
//! Compressed bodies are inflated. Invariant: an unreadable part is shown unchanged, because users
//! look at a table most when something is wrong with it.

use oribi_subdoc::xattr;
use oribi_types::Datatype;

/// Most bytes that a compressed body may become: more than the largest document has.
const INFLATED_BYTES_MAX: usize = 32 << 20;

/// A body, and in which column SQL sees it.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// `json`.
    Json(Vec<u8>),
    /// `body`.
    Body(Vec<u8>),
}

impl Content {
    /// What a stored body is shown as.
    pub fn of(datatype: Datatype, cell: Vec<u8>) -> Content {
        match datatype.contains(Datatype::SNAPPY) {
            true => Content::inflated(datatype, &cell).unwrap_or(Content::Body(cell)),
            false => Content::plain(datatype, cell),
        }
    }

    /// What a compressed body is shown as; `None` when it cannot be inflated.
    pub fn inflated(datatype: Datatype, body: &[u8]) -> Option<Content> {
        Some(Content::plain(datatype, inflated(body)?))
    }

    fn plain(datatype: Datatype, body: Vec<u8>) -> Content {
        match is_json(datatype, &body) {
            true => Content::Json(body),
            false => Content::Body(body),
        }
    }
}

/// True when SQL shows an inflated body as JSON.
pub fn is_json(datatype: Datatype, body: &[u8]) -> bool {
    // Most bodies are ASCII, which is seen at many times the speed.
    let is_text = || body.is_ascii() || std::str::from_utf8(body).is_ok();
    datatype.contains(Datatype::JSON) && !body.is_empty() && is_text()
}

/// Length of what was compressed with Snappy, as it says itself, unless that is absurd.
pub fn inflated_bytes(body: &[u8]) -> Option<usize> {
    snap::raw::decompress_len(body).ok().filter(|bytes| *bytes <= INFLATED_BYTES_MAX)
}

/// What was compressed with Snappy, unless it is damaged or absurdly long.
pub fn inflated(body: &[u8]) -> Option<Vec<u8>> {
    inflated_bytes(body)?;
    snap::raw::Decoder::new().decompress_vec(body).ok()
}

/// The block of attributes, which may be empty, and the body.
pub fn parts_of(datatype: Datatype, value: &[u8]) -> (&[u8], &[u8]) {
    let body = match datatype.contains(Datatype::XATTR) {
        false => value,
        true => xattr::body_of(value).unwrap_or_default(),
    };
    value.split_at(value.len() - body.len())
}

/// Which attributes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// All.
    All,
    /// Those whose name does not begin with `_`.
    OfUsers,
}

/// The attributes as one JSON object. None when the block is malformed.
pub fn json_of_xattrs(block: &[u8], shown: Attributes) -> Option<Vec<u8>> {
    let (xattrs, _) = xattr::split(block).ok()?;
    let mut text = b"{".to_vec();
    for (key, value) in xattrs.iter() {
        if shown == Attributes::OfUsers && xattr::is_system(key) {
            continue;
        }
        if text.len() > 1 {
            text.push(b',');
        }
        serde_json::to_writer(&mut text, std::str::from_utf8(key).ok()?).ok()?;
        text.push(b':');
        text.extend_from_slice(value);
    }
    text.push(b'}');
    Some(text)
}

#[cfg(test)]
mod tests {
    //! Attributes and compressed bodies, whole and damaged.

    use super::*;

    /// A block of attributes as items have it.
    fn block(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut inner = Vec::new();
        for (key, value) in pairs {
            inner.extend((key.len() as u32 + value.len() as u32 + 2).to_be_bytes());
            inner.extend([key.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        [&(inner.len() as u32).to_be_bytes()[..], &inner].concat()
    }

    #[test]
    fn attributes_are_one_object() {
        let json = |pairs, shown| {
            String::from_utf8(json_of_xattrs(&block(pairs), shown).unwrap()).unwrap()
        };
        let pairs = [("_sync", r#"{"rev":1}"#), ("a\"b", "2")];
        assert_eq!(json(&pairs, Attributes::All), r#"{"_sync":{"rev":1},"a\"b":2}"#);
        assert_eq!(json(&pairs, Attributes::OfUsers), r#"{"a\"b":2}"#);
        assert_eq!(json(&[], Attributes::All), "{}");
        assert_eq!(json_of_xattrs(b"\0\0\0\x09short", Attributes::All), None);
    }

    #[test]
    fn compressed_bodies_are_inflated_and_damaged_ones_shown_as_they_are() {
        let packed = |body: &[u8]| snap::raw::Encoder::new().compress_vec(body).unwrap();
        let of = |datatype: Datatype, cell: &[u8]| {
            Content::of(Datatype(datatype.0 | Datatype::SNAPPY.0), cell.to_vec())
        };
        let json = br#"{"a":1}"#;
        assert_eq!(of(Datatype::JSON, &packed(json)), Content::Json(json.to_vec()));
        assert_eq!(of(Datatype::RAW, &packed(json)), Content::Body(json.to_vec()));
        assert_eq!(of(Datatype::JSON, &packed(b"\xff")), Content::Body(vec![0xff]));
        assert_eq!(of(Datatype::JSON, b"\xff\xff"), Content::Body(vec![0xff, 0xff]));
        // A length of 2 GiB in front of nothing.
        let absurd = [0x80, 0x80, 0x80, 0x80, 0x08];
        assert_eq!(of(Datatype::JSON, &absurd), Content::Body(absurd.to_vec()));
        assert_eq!(Content::of(Datatype::RAW, packed(json)), Content::Body(packed(json)));
    }
}
