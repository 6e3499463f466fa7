//! A text: a shared run of bytes that is UTF-8 unless a document says otherwise.
//!
//! Texts compare by bytes. A text of a document shares the document's memory.

use std::borrow::Cow;

use bytes::Bytes;

#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// A text of these bytes.
    pub fn from_bytes(bytes: Bytes) -> Text {
        Text(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Whether no other text shares its memory.
    pub fn is_unique(&self) -> bool {
        self.0.is_unique()
    }

    /// The characters; a byte that is not UTF-8 reads as U+FFFD.
    pub fn to_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// The part of the text in a range of bytes.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Text {
        Text(self.0.slice(range))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Bytes::from(text))
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_str())
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_str())
    }
}
