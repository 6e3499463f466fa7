//! What of a document is shown otherwise than its row has it.
//!
//! Owns: attributes, which are a binary block in the row and a JSON object in SQL, and documents that were put
//! together from several rows. Invariant: a block that cannot be read is shown as it is, because a table is looked
//! at most when something is wrong with it. The store inflates what it keeps, so nothing is compressed here.

use anyhow::Result;
use oribi_kudu::{Row, ScanBatch};
use rusqlite::types::ValueRef;

use super::bucket_table::{BODY, JSON, Layout, XATTRS};

/// See the module text. Empty for a row that is shown as it is.
#[derive(Default)]
pub struct Document {
    /// The first row of a document that was read anew.
    first: Option<(ScanBatch, usize)>,
    json: Option<Vec<u8>>,
    body: Option<Vec<u8>>,
    xattrs: Option<Vec<u8>>,
}

impl Document {
    /// A document that was put together from rows of which this is the first.
    pub fn assembled(
        first: (ScanBatch, usize),
        json: Option<Vec<u8>>,
        body: Option<Vec<u8>>,
    ) -> Document {
        Document { first: Some(first), json, body, xattrs: None }
    }

    /// The row to look at instead of the scan's.
    pub fn first_row(&self) -> Option<Row<'_>> {
        self.first.as_ref().and_then(|(batch, at)| batch.row(*at))
    }

    /// The value of a column of SQL, if it is not the row's.
    pub fn value(&self, column: usize) -> Option<ValueRef<'_>> {
        match column {
            XATTRS => self.xattrs.as_deref().map(ValueRef::Text),
            JSON => self.json.as_deref().map(ValueRef::Text),
            BODY => self.body.as_deref().map(ValueRef::Blob),
            _ => None,
        }
    }

    /// Makes the attributes of `row` readable, where the scan returns them.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub fn xattrs_of(row: Row<'_>, layout: &Layout) -> Result<Option<Vec<u8>>> {
        match layout.position("xattrs") {
            Some(at) => Ok(row.get::<Option<&[u8]>>(at)?.and_then(json_of_xattrs)),
            None => Ok(None),
        }
    }

    /// Takes what [`Document::xattrs_of`] made.
    pub fn set_xattrs(&mut self, xattrs: Option<Vec<u8>>) {
        self.xattrs = xattrs;
    }
}

/// The attributes as one JSON object. None when the block is malformed.
fn json_of_xattrs(block: &[u8]) -> Option<Vec<u8>> {
    let (xattrs, _) = oribi_subdoc::xattr::split(block).ok()?;
    let mut text = b"{".to_vec();
    for (at, (key, value)) in xattrs.iter().enumerate() {
        if at > 0 {
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
    //! Attributes, whole and damaged.

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
        let text = json_of_xattrs(&block(&[("_sync", r#"{"rev":1}"#), ("a\"b", "2")])).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"_sync":{"rev":1},"a\"b":2}"#);
        assert_eq!(json_of_xattrs(&block(&[])).unwrap(), b"{}");
        assert_eq!(json_of_xattrs(b"\0\0\0\x09short"), None);
    }
}
