//! The parts of a document that SQL shows differently from its row.
//!
//! It owns three conversions. Attributes are a binary block in the row and one JSON object in SQL.
//! Bodies that the store could not inflate on write (the datatype marks them as compressed) are
//! inflated here. Attributes too large for a cell precede the body, and documents may span several
//! rows. Invariant: an unreadable part is shown unchanged, because users look at a table most when
//! something is wrong with it.

use anyhow::{Context, Result};
use oribi_kudu::{Row, ScanBatch};
use oribi_types::Datatype;
use rusqlite::types::ValueRef;

use super::layout::{BODY, JSON, Layout, XATTRS};

/// Most bytes that a compressed body may become: more than the largest document has.
const INFLATED_BYTES_MAX: usize = 32 << 20;

/// A body, and in which column SQL sees it.
#[derive(Debug, PartialEq)]
enum Content {
    Json(Vec<u8>),
    Body(Vec<u8>),
}

impl Content {
    /// What a cell of the column `body` is shown as.
    fn of(datatype: Datatype, cell: Vec<u8>) -> Content {
        let is_compressed = datatype.contains(Datatype::SNAPPY);
        let body = match is_compressed.then(|| inflated(&cell)) {
            None => cell,
            Some(Some(inflated)) => inflated,
            Some(None) => return Content::Body(cell),
        };
        let is_json = datatype.contains(Datatype::JSON) && !body.is_empty();
        match is_json && std::str::from_utf8(&body).is_ok() {
            true => Content::Json(body),
            false => Content::Body(body),
        }
    }
}

/// What was compressed with Snappy, unless it is damaged or absurdly long.
fn inflated(body: &[u8]) -> Option<Vec<u8>> {
    snap::raw::decompress_len(body).ok().filter(|bytes| *bytes <= INFLATED_BYTES_MAX)?;
    snap::raw::Decoder::new().decompress_vec(body).ok()
}

/// The bytes of all rows of a document one after the other, and which column they are in.
pub enum Joined {
    /// Of the column `json`.
    Json(Vec<u8>),
    /// Of the column `body`.
    Body(Vec<u8>),
}

/// See the module text. Empty for a row that is shown as it is.
#[derive(Default)]
pub struct Document {
    /// The first row of a document that was read anew.
    first: Option<(ScanBatch, usize)>,
    content: Option<Content>,
    xattrs: Option<Vec<u8>>,
}

impl Document {
    /// The document of a row that has all of it.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub fn of_row(row: Row<'_>, layout: &Layout) -> Result<Document> {
        let mut document = Document::default();
        if let Some(block) = layout.find::<Option<&[u8]>>(row, "xattrs")?.flatten() {
            document.xattrs = json_of_xattrs(block);
        }
        if layout.needs_body {
            let datatype = datatype_of(row, layout)?;
            if datatype.contains(Datatype::SNAPPY)
                && let Some(body) = layout.get::<Option<&[u8]>>(row, "body")?
            {
                document.content = Some(Content::of(datatype, body.to_vec()));
            }
        }
        Ok(document)
    }

    /// A document that was put together from rows of which this is the first. All columns have been
    /// read.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub fn of_rows(first: (ScanBatch, usize), joined: Joined, layout: &Layout) -> Result<Document> {
        let row = first.0.row(first.1).context("a row of the batch")?;
        let datatype = datatype_of(row, layout)?;
        let block = layout.get::<Option<&[u8]>>(row, "xattrs")?;
        let mut xattrs = block.and_then(json_of_xattrs);
        let (is_json, mut bytes) = match joined {
            Joined::Json(bytes) => (true, bytes),
            Joined::Body(bytes) => (false, bytes),
        };
        if datatype.contains(Datatype::XATTR)
            && block.is_none()
            && let Ok((_, rest)) = oribi_subdoc::xattr::split(&bytes)
        {
            let block_bytes = bytes.len() - rest.len();
            xattrs = json_of_xattrs(&bytes);
            bytes.drain(..block_bytes);
        }
        let content = if is_json { Content::Json(bytes) } else { Content::of(datatype, bytes) };
        Ok(Document { first: Some(first), content: Some(content), xattrs })
    }

    /// The row to look at instead of the scan's.
    pub fn first_row(&self) -> Option<Row<'_>> {
        self.first.as_ref().and_then(|(batch, at)| batch.row(*at))
    }

    /// The value of a column of SQL, if it is not the row's.
    pub fn value(&self, column: usize) -> Option<ValueRef<'_>> {
        match (column, &self.content) {
            (XATTRS, _) => self.xattrs.as_deref().map(ValueRef::Text),
            (JSON, Some(Content::Json(json))) => Some(ValueRef::Text(json)),
            (BODY, Some(Content::Body(body))) => Some(ValueRef::Blob(body)),
            (JSON | BODY, Some(_)) => Some(ValueRef::Null),
            _ => None,
        }
    }
}

/// What the body of a row is. Datatypes have a byte; the column is wider.
pub fn datatype_of(row: Row<'_>, layout: &Layout) -> Result<Datatype> {
    let datatype = layout.get::<i16>(row, "datatype")?;
    u8::try_from(datatype).map(Datatype).with_context(|| format!("the datatype {datatype}"))
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
        let text = json_of_xattrs(&block(&[("_sync", r#"{"rev":1}"#), ("a\"b", "2")])).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"_sync":{"rev":1},"a\"b":2}"#);
        assert_eq!(json_of_xattrs(&block(&[])).unwrap(), b"{}");
        assert_eq!(json_of_xattrs(b"\0\0\0\x09short"), None);
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
