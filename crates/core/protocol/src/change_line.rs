//! A change as one line of JSON, for people and for programs without a library of this protocol.
//!
//! It owns the shape: names of fields and their order. `oribi watch` prints these lines, and the
//! admin HTTP sends them as events. Each line begins with the token of its vbucket after it:
//!
//! | `type` | further fields |
//! |---|---|
//! | `mutation` | `scope`, `collection`, `key`, `cas`, `rev`, `flags`, `expiry`, `datatype`, a value |
//! | `deletion`, `expiration` | `scope`, `collection`, `key`, `cas`, `rev`, `deleted_at` |
//! | `collection_created`, `collection_changed`, `collection_dropped` | `scope`, `collection`, `scope_id`, `collection_id`, `manifest`, `max_ttl` |
//! | `scope_created`, `scope_dropped` | `scope`, `scope_id`, `manifest` |
//! | `snapshot_end` | none |
//! | `rollback` | `from`, the seqno that the stream had reached |
//! | `end` | only `reason`: the stream is over; a line of streams over HTTP, of no vbucket |
//!
//! Unknown fields are left out. A key that is not UTF-8 is in `key_base64`. A JSON value is in
//! `value` as it is, any other in `value_base64`. Where extended attributes are wanted, documents
//! that have some have `xattrs`, an object with a field for each. Times are UNIX seconds, ids are
//! hexadecimal text, and `cas` is decimal text, because many readers round large numbers.
//!
//! Invariant: a line is one JSON object and ends with the only line end in it.

use std::io::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_types::{CollectionId, ManifestUid, ScopeId, Seqno};

use crate::change_token::Position;

/// A document that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DocumentLine<'a> {
    /// Kind of the change.
    pub change: DocumentChange<'a>,
    /// Vbucket and seqno.
    pub position: &'a Position,
    /// Scope and collection, if their names are known.
    pub path: Option<(&'a str, &'a str)>,
    /// Key without collection.
    pub key: &'a [u8],
    /// CAS.
    pub cas: u64,
    /// Revision.
    pub rev: u64,
    /// Extended attributes, if they are wanted.
    pub xattrs: &'a [LineXattr<'a>],
}

/// An extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineXattr<'a> {
    /// Name.
    pub name: &'a [u8],
    /// One JSON text in UTF-8; the caller has checked it.
    pub json: &'a [u8],
}

/// Kind of a document's change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DocumentChange<'a> {
    /// It was written.
    Mutation {
        /// Flags that the writer set.
        flags: u32,
        /// Expiry, 0 for none.
        expiry: u32,
        /// The server calls it JSON.
        is_json: bool,
        /// The value, if it is wanted.
        value: Option<LineValue<'a>>,
    },
    /// It was deleted; when, if that is known.
    Deletion(Option<u32>),
    /// It expired; when it was removed, if that is known.
    Expiration(Option<u32>),
}

/// A document's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineValue<'a> {
    /// One JSON text in UTF-8; the caller has checked it.
    Json(&'a [u8]),
    /// Anything else.
    Bytes(&'a [u8]),
}

/// A collection or scope that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemLine<'a> {
    /// Kind of the change.
    pub change: SystemChange,
    /// Vbucket and seqno.
    pub position: &'a Position,
    /// Version of the manifest.
    pub manifest_uid: ManifestUid,
    /// Id of the scope.
    pub scope: ScopeId,
    /// Its name, if it is known.
    pub scope_name: Option<&'a str>,
    /// Id of the collection, unless only a scope changed.
    pub collection: Option<CollectionId>,
    /// Its name, if it is known.
    pub collection_name: Option<&'a str>,
    /// Longest life of its documents in seconds, if it is limited.
    pub max_ttl_s: Option<u32>,
}

/// Change of a collection or scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemChange {
    /// A collection was created.
    CollectionCreated,
    /// A collection got another limit of its documents' lives.
    CollectionChanged,
    /// A collection was dropped.
    CollectionDropped,
    /// A scope was created.
    ScopeCreated,
    /// A scope was dropped.
    ScopeDropped,
}

impl SystemChange {
    /// The line's `type`.
    pub const fn name(self) -> &'static str {
        match self {
            SystemChange::CollectionCreated => "collection_created",
            SystemChange::CollectionChanged => "collection_changed",
            SystemChange::CollectionDropped => "collection_dropped",
            SystemChange::ScopeCreated => "scope_created",
            SystemChange::ScopeDropped => "scope_dropped",
        }
    }
}

impl DocumentChange<'_> {
    /// The line's `type`.
    pub const fn name(&self) -> &'static str {
        match self {
            DocumentChange::Mutation { .. } => "mutation",
            DocumentChange::Deletion(_) => "deletion",
            DocumentChange::Expiration(_) => "expiration",
        }
    }
}

impl DocumentLine<'_> {
    /// Appends the line.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(out);
        match self.change {
            DocumentChange::Mutation { value: Some(LineValue::Bytes(bytes)), .. } => {
                base64(out, "value_base64", bytes);
            }
            DocumentChange::Mutation { value: Some(LineValue::Json(json)), .. } => {
                name(out, "value");
                in_one_line(out, json.trim_ascii());
            }
            _ => {}
        }
        self.write_tail(out);
    }

    /// Appends the line of a mutation up to its value, for a writer that makes the value in pieces:
    /// JSON without its line ends, or base64.
    pub fn begin_value(&self, out: &mut Vec<u8>, is_json: bool) {
        self.write_head(out);
        name(out, if is_json { "value" } else { "value_base64" });
        if !is_json {
            out.push(b'"');
        }
    }

    /// Appends the rest of the line after such a value.
    pub fn end_value(&self, out: &mut Vec<u8>, is_json: bool) {
        if !is_json {
            out.push(b'"');
        }
        self.write_tail(out);
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        begin(out, self.position, self.change.name());
        if let Some((scope, collection)) = self.path {
            text(out, "scope", scope);
            text(out, "collection", collection);
        }
        match std::str::from_utf8(self.key) {
            Ok(key) => text(out, "key", key),
            Err(_) => base64(out, "key_base64", self.key),
        }
        plain(out, "cas", format_args!("\"{}\"", self.cas));
        plain(out, "rev", format_args!("{}", self.rev));
        match self.change {
            DocumentChange::Mutation { flags, expiry, is_json, .. } => {
                plain(out, "flags", format_args!("{flags}"));
                plain(out, "expiry", format_args!("{expiry}"));
                let datatype = if is_json { "[\"json\"]" } else { "[]" };
                plain(out, "datatype", format_args!("{datatype}"));
            }
            DocumentChange::Deletion(time) | DocumentChange::Expiration(time) => {
                if let Some(time) = time {
                    plain(out, "deleted_at", format_args!("{time}"));
                }
            }
        }
    }

    fn write_tail(&self, out: &mut Vec<u8>) {
        if !self.xattrs.is_empty() {
            name(out, "xattrs");
            attributes(out, self.xattrs);
        }
        end(out);
    }
}

impl SystemLine<'_> {
    /// Appends the line.
    pub fn write(&self, out: &mut Vec<u8>) {
        begin(out, self.position, self.change.name());
        if let Some(scope) = self.scope_name {
            text(out, "scope", scope);
        }
        if let Some(collection) = self.collection_name {
            text(out, "collection", collection);
        }
        plain(out, "scope_id", format_args!("\"{:x}\"", self.scope.0));
        if let Some(collection) = self.collection {
            plain(out, "collection_id", format_args!("\"{:x}\"", collection.0));
        }
        plain(out, "manifest", format_args!("\"{}\"", self.manifest_uid));
        if let Some(seconds) = self.max_ttl_s {
            plain(out, "max_ttl", format_args!("{seconds}"));
        }
        end(out);
    }
}

/// Appends the line of a snapshot that is complete.
pub fn write_snapshot_end(out: &mut Vec<u8>, position: &Position) {
    begin(out, position, "snapshot_end");
    end(out);
}

/// Appends the line of a rollback from a seqno to a position.
pub fn write_rollback(out: &mut Vec<u8>, from: Seqno, to: &Position) {
    begin(out, to, "rollback");
    plain(out, "from", format_args!("{}", from.0));
    end(out);
}

/// Appends the line of a stream that is over for this reason, a word of `a-z` and `_`.
pub fn write_end(out: &mut Vec<u8>, reason: &str) {
    let written = write!(out, "{{\"type\":\"end\",\"reason\":\"{reason}\"");
    written.expect("a vector takes every byte");
    end(out);
}

fn begin(out: &mut Vec<u8>, position: &Position, kind: &str) {
    let Position { vbid, seqno, .. } = position;
    let written = write!(
        out,
        "{{\"token\":\"{position}\",\"vbucket\":{},\"seqno\":{},\"type\":\"{kind}\"",
        vbid.0, seqno.0
    );
    written.expect("a vector takes every byte");
}

fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

fn name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn plain(out: &mut Vec<u8>, field: &str, value: std::fmt::Arguments<'_>) {
    name(out, field);
    out.write_fmt(value).expect("a vector takes every byte");
}

fn base64(out: &mut Vec<u8>, field: &str, bytes: &[u8]) {
    name(out, field);
    out.push(b'"');
    let at = out.len();
    // Into the line itself, because values are large.
    out.resize(at + bytes.len().div_ceil(3) * 4, 0);
    STANDARD.encode_slice(bytes, &mut out[at..]).expect("the room for it was made");
    out.push(b'"');
}

/// Names and JSON values as an object. Names are UTF-8 by the protocol; another one shows a
/// replacement character.
fn attributes(out: &mut Vec<u8>, all: &[LineXattr<'_>]) {
    for (at, xattr) in all.iter().enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        quoted(out, &String::from_utf8_lossy(xattr.name));
        out.push(b':');
        in_one_line(out, xattr.json.trim_ascii());
    }
    out.push(b'}');
}

fn text(out: &mut Vec<u8>, field: &str, value: &str) {
    name(out, field);
    quoted(out, value);
}

fn quoted(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    for char in value.chars() {
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            // Control characters, and the line ends that only some readers know.
            '\0'..'\u{20}' | '\u{7f}'..'\u{a0}' | '\u{2028}' | '\u{2029}' => {
                let escaped = write!(out, "\\u{:04x}", u32::from(char));
                escaped.expect("a vector takes every byte");
            }
            char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends JSON, or a part of it, without its line ends, which are optional: they are only between
/// tokens.
pub fn in_one_line(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len());
    for part in json.split(|byte| matches!(byte, b'\n' | b'\r')) {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests;
