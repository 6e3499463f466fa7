//! A change of the engine as a line of JSON; the shape is `oribi_protocol::change_line`'s.

use std::borrow::Cow;

use oribi_engine::compression::{inflate, inflated_bytes};
use oribi_engine::dcp::ChangedDocument;
use oribi_engine::{ManifestEvent, ManifestEventKind};
use oribi_protocol::change_line::{
    DocumentChange, DocumentLine, LineValue, LineXattr, SystemChange, SystemLine,
};
use oribi_protocol::change_token::Position;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_subdoc::json::is_json;
use oribi_subdoc::xattr;
use oribi_types::Datatype;

use super::names::Names;
use crate::dcp::frames::{DamagedDocument, parts};

/// A line without its value: a key, a scope's and a collection's name of 251 bytes each, which
/// escapes may make six times as long, and the numbers.
const HEAD_BYTES_MAX: usize = 6 * 1024;

/// The optional fields of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub values: bool,
    pub xattrs: bool,
}

/// Bytes that a document's line needs while it is made, at most: the line, and a compressed body
/// inflated.
pub(super) fn bytes_needed(
    document: &ChangedDocument<'_>,
    extent: Extent,
) -> Result<usize, DamagedDocument> {
    let (attributes, body) = parts(document)?;
    // A name may be six times as long as text.
    let attributes = if extent.xattrs { attributes.len() * 6 } else { 0 };
    if !extent.values || document.record.deleted {
        return Ok(HEAD_BYTES_MAX + attributes);
    }
    let (plain, inflated) = match document.record.datatype.contains(Datatype::SNAPPY) {
        false => (body.len(), 0),
        true => {
            let plain = inflated_bytes(body, VALUE_BYTES_MAX).map_err(|_| DamagedDocument)?;
            (plain, plain)
        }
    };
    debug_assert!(plain <= VALUE_BYTES_MAX.max(body.len()), "a value is within its limit");
    let in_base64 = plain.div_ceil(3) * 4;
    Ok(HEAD_BYTES_MAX + attributes + in_base64 + inflated)
}

/// Appends the line of a document that changed.
pub(super) fn write_document(
    out: &mut Vec<u8>,
    document: &ChangedDocument<'_>,
    position: &Position,
    extent: Extent,
    names: &Names,
) -> Result<(), DamagedDocument> {
    let record = &document.record;
    let value: Cow<'_, [u8]>;
    let shown = match extent.values && !record.deleted {
        false => None,
        true => {
            value = plain_body(document)?;
            Some(match record.datatype.contains(Datatype::JSON) && is_json(&value) {
                true => LineValue::Json(&value),
                false => LineValue::Bytes(&value),
            })
        }
    };
    let xattrs = if extent.xattrs { xattrs_of(document)? } else { Vec::new() };
    line_of(document, position, names, shown, &xattrs).write(out);
    Ok(())
}

/// The line of a document.
pub(super) fn line_of<'a>(
    document: &ChangedDocument<'a>,
    position: &'a Position,
    names: &'a Names,
    value: Option<LineValue<'a>>,
    xattrs: &'a [LineXattr<'a>],
) -> DocumentLine<'a> {
    let record = &document.record;
    let deleted_at = Some(record.expiry).filter(|time| *time != 0);
    let change = match (record.deleted, record.expired) {
        (true, true) => DocumentChange::Expiration(deleted_at),
        (true, false) => DocumentChange::Deletion(deleted_at),
        (false, _) => {
            let is_json = record.datatype.contains(Datatype::JSON);
            let (flags, expiry) = (record.flags, record.expiry);
            DocumentChange::Mutation { flags, expiry, is_json, value }
        }
    };
    DocumentLine {
        change,
        position,
        path: names.collection(record.key.collection),
        key: record.key.key,
        cas: record.cas.0,
        rev: record.rev_seqno.0,
        xattrs,
    }
}

/// Names and values of the attributes. A deletion has only those of the system, as on the data
/// port.
pub(super) fn xattrs_of<'d>(
    document: &ChangedDocument<'d>,
) -> Result<Vec<LineXattr<'d>>, DamagedDocument> {
    let (block, _) = parts(document)?;
    if block.is_empty() {
        return Ok(Vec::new());
    }
    let (xattrs, _) = xattr::split(block).map_err(|_| DamagedDocument)?;
    let is_gone = document.record.deleted;
    let shown = xattrs.iter().filter(|(key, _)| !is_gone || xattr::is_system(key));
    // A store that others write to may have anything in there.
    let json = |value| if is_json(value) { value } else { b"null" };
    Ok(shown.map(|(name, value)| LineXattr { name, json: json(value) }).collect())
}

/// The value without attributes, inflated.
fn plain_body<'d>(document: &ChangedDocument<'d>) -> Result<Cow<'d, [u8]>, DamagedDocument> {
    let (_, body) = parts(document)?;
    match document.record.datatype.contains(Datatype::SNAPPY) {
        false => Ok(Cow::Borrowed(body)),
        true => inflate(body, VALUE_BYTES_MAX).map(Cow::Owned).map_err(|_| DamagedDocument),
    }
}

/// Appends the line of a collection or scope that changed.
pub(super) fn write_event(
    out: &mut Vec<u8>,
    event: &ManifestEvent<'_>,
    position: &Position,
    names: &Names,
) {
    let change = match event.kind {
        // As on the wire, where a later description is another creation.
        ManifestEventKind::CollectionBegin | ManifestEventKind::CollectionChanged => {
            SystemChange::CollectionCreated
        }
        ManifestEventKind::CollectionEnd => SystemChange::CollectionDropped,
        ManifestEventKind::ScopeBegin => SystemChange::ScopeCreated,
        ManifestEventKind::ScopeEnd => SystemChange::ScopeDropped,
    };
    let collection_name = event.collection.and_then(|id| names.collection(id));
    let line = SystemLine {
        change,
        position,
        manifest_uid: event.manifest_uid,
        scope: event.scope,
        scope_name: names.scope(event.scope),
        collection: event.collection,
        collection_name: collection_name.map(|(_, name)| name),
        max_ttl_s: event.max_ttl_s.filter(|seconds| *seconds > 0),
    };
    line.write(out);
}
