//! The parts of a document that SQL shows differently from its row.
//!
//! Attributes and compressed bodies are shown as everywhere ([`oribi_sql::document_cells`]). It
//! owns what is particular to Kudu: attributes too large for a cell precede the body, and documents
//! may span several rows. Invariant: an unreadable part is shown unchanged, because users look at a
//! table most when something is wrong with it.

use anyhow::{Context, Result};
use oribi_kudu::{Row, ScanBatch};
use oribi_sql::ValueRef;
use oribi_sql::columns::{BODY, JSON, XATTRS};
use oribi_sql::document_cells::{Attributes, Content, json_of_xattrs};
use oribi_types::Datatype;

use super::layout::SqlLayout;

/// The bytes of all rows of a document one after the other, and which column they are in.
pub enum Joined {
    /// Of the column `json`.
    Json(Vec<u8>),
    /// Of the column `body`.
    Body(Vec<u8>),
}

/// See the module text. Empty for a row that is shown as it is.
#[derive(Default)]
pub struct SqlDocument {
    /// The first row of a document that was read anew.
    first: Option<(ScanBatch, usize)>,
    content: Option<Content>,
    xattrs: Option<Vec<u8>>,
}

impl SqlDocument {
    /// The document of a row that has all of it.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub fn of_row(row: Row<'_>, layout: &SqlLayout) -> Result<SqlDocument> {
        let mut document = SqlDocument::default();
        if let Some(block) = layout.find::<Option<&[u8]>>(row, "xattrs")?.flatten() {
            document.xattrs = json_of_xattrs(block, Attributes::All);
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
    pub fn of_rows(
        first: (ScanBatch, usize),
        joined: Joined,
        layout: &SqlLayout,
    ) -> Result<SqlDocument> {
        let row = first.0.row(first.1).context("a row of the batch")?;
        let datatype = datatype_of(row, layout)?;
        let block = layout.get::<Option<&[u8]>>(row, "xattrs")?;
        let mut xattrs = block.and_then(|block| json_of_xattrs(block, Attributes::All));
        let (is_json, mut bytes) = match joined {
            Joined::Json(bytes) => (true, bytes),
            Joined::Body(bytes) => (false, bytes),
        };
        if datatype.contains(Datatype::XATTR)
            && block.is_none()
            && let Ok((_, rest)) = oribi_subdoc::xattr::split(&bytes)
        {
            let block_bytes = bytes.len() - rest.len();
            xattrs = json_of_xattrs(&bytes, Attributes::All);
            bytes.drain(..block_bytes);
        }
        let content = if is_json { Content::Json(bytes) } else { Content::of(datatype, bytes) };
        Ok(SqlDocument { first: Some(first), content: Some(content), xattrs })
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
pub fn datatype_of(row: Row<'_>, layout: &SqlLayout) -> Result<Datatype> {
    let datatype = layout.get::<i16>(row, "datatype")?;
    u8::try_from(datatype).map(Datatype).with_context(|| format!("the datatype {datatype}"))
}
