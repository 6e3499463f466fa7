//! Documents of a bucket's rows.
//!
//! JSON has a column; other bodies, and JSON that the store could not inflate, have another one.
//! Attributes too large for a cell precede the body.

use anyhow::{Context, Result};
use oribi_kudu::Row;
use oribi_query::QueryDocument;
use oribi_types::Datatype;

use super::layout::ScanLayout;

/// The bytes of all rows of a document one after the other, and which column they are in.
pub enum JoinedBody {
    Json(Vec<u8>),
    Body(Vec<u8>),
}

/// The document of a row that has all of it.
///
/// # Errors
/// When the row cannot be read.
pub fn of_row(row: Row<'_>, layout: &ScanLayout) -> Result<QueryDocument> {
    let (json, body) = match layout.needs_body {
        true => (layout.get(row, "json")?, layout.get(row, "body")?),
        false => (None::<&[u8]>, None::<&[u8]>),
    };
    match (json, body) {
        (Some(json), _) => document(row, layout, Datatype::JSON, json),
        // Unread fields are JSON's null to the statement, which does not use them.
        (None, None) if !layout.needs_body => document(row, layout, Datatype::JSON, b"null"),
        (None, body) => document(row, layout, datatype_of(row, layout)?, body.unwrap_or_default()),
    }
}

/// A document that was put together from rows of which this is the first.
///
/// # Errors
/// When the row cannot be read.
pub fn of_rows(row: Row<'_>, joined: JoinedBody, layout: &ScanLayout) -> Result<QueryDocument> {
    let datatype = datatype_of(row, layout)?;
    let (kind, bytes) = match &joined {
        JoinedBody::Json(bytes) => (Datatype::JSON, &bytes[..]),
        JoinedBody::Body(bytes) => (datatype, &bytes[..]),
    };
    let has_block =
        datatype.contains(Datatype::XATTR) && layout.get::<Option<&[u8]>>(row, "xattrs")?.is_none();
    let body = match has_block.then(|| oribi_subdoc::xattr::split(bytes)) {
        Some(Ok((_, body))) => body,
        _ => bytes,
    };
    document(row, layout, kind, body)
}

fn document(
    row: Row<'_>,
    layout: &ScanLayout,
    datatype: Datatype,
    body: &[u8],
) -> Result<QueryDocument> {
    let number = |name: &str| -> Result<u32> {
        // Clients write 32 bits. Longer numbers are shown as the greatest one.
        Ok(u32::try_from(layout.get::<i64>(row, name)?).unwrap_or(u32::MAX))
    };
    Ok(QueryDocument {
        cas: layout.get::<i64>(row, "cas")?.cast_unsigned(),
        flags: number("flags")?,
        expiration: number("expiry")?,
        ..QueryDocument::of_body(layout.get(row, "key")?, datatype, body)
    })
}

/// Datatype of a row's body. Datatypes have a byte; the column is wider.
pub fn datatype_of(row: Row<'_>, layout: &ScanLayout) -> Result<Datatype> {
    let datatype = layout.get::<i16>(row, "datatype")?;
    u8::try_from(datatype).map(Datatype).with_context(|| format!("the datatype {datatype}"))
}
