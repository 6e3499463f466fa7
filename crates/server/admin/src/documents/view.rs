//! Documents as JSON.
//!
//! Owns: the fields, and which of them a user sees. Values are text or base64, never parsed JSON,
//! so that a reader gets each digit of a number. Invariant: an answer is bounded, whatever the
//! document holds; the answer names the missing parts. Caller: `documents`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use oribi_auth::{Privilege, PrivilegeSet};
use oribi_engine::{LOCKED_CAS, ListedDocument, ListedPage};
use oribi_subdoc::xattr;
use oribi_types::Datatype;
use serde_json::{Map, Value, json};

use super::super::message::{HttpReply, json_reply};
use super::operations::{DocumentTarget, DocumentView};

/// Bytes of a value that a page shows of each document.
pub(super) const PREVIEW_BYTES: usize = 120;

/// Part of a document that is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewScope {
    has_values: bool,
    has_metadata: bool,
    has_system_attributes: bool,
    bytes_max: usize,
}

impl ViewScope {
    /// The document as a user with these rights sees it, with at most so many bytes of its value.
    pub(super) fn of(held: PrivilegeSet, bytes_max: usize) -> ViewScope {
        ViewScope {
            has_values: held.holds(Privilege::Read.into()),
            has_metadata: held.holds(Privilege::MetaRead.into()),
            has_system_attributes: held.holds(Privilege::SystemXattrRead.into()),
            bytes_max,
        }
    }
}

pub(super) fn document(
    target: &DocumentTarget,
    seen: &DocumentView,
    scope: ViewScope,
) -> HttpReply {
    let DocumentView { item, cas } = seen;
    let mut scratch = Vec::new();
    let (body, is_damaged) = match item.plain_body(&mut scratch) {
        Ok(body) => (body, false),
        Err(_) => (&[][..], true),
    };
    let mut shown = json!({
        "cas": cas.0.to_string(),
        "locked": *cas == LOCKED_CAS,
        "flags": item.flags(),
        "bytes": body.len(),
        "compressed": item.is_compressed(),
        "damaged": is_damaged,
        "vbucket": target.vbid.0,
    });
    put_key(&mut shown, &target.key);
    put_body(&mut shown, item.datatype(), body, scope.bytes_max);
    shown["attributes"] = attributes(item.datatype(), item.value(), scope);
    if scope.has_metadata {
        shown["expiry"] = json!(item.expiry());
        shown["revision"] = json!(item.rev_seqno().0.to_string());
        shown["seqno"] = json!(item.seqno().0.to_string());
    }
    json_reply(&shown)
}

/// A page of at most `rows_max` rows. One more says where the next page begins.
pub(super) fn page(mut page: ListedPage, rows_max: usize, scope: ViewScope) -> HttpReply {
    let has_more = page.len() > rows_max;
    while page.len() > rows_max {
        page.pop_last();
    }
    let next = page.last_key_value().filter(|_| has_more).map(|(key, _)| BASE64.encode(key));
    let rows: Vec<Value> = page.iter().map(|(key, row)| listed(key, row, scope)).collect();
    json_reply(&json!({ "documents": rows, "next": next }))
}

fn listed(key: &[u8], row: &ListedDocument, scope: ViewScope) -> Value {
    let mut shown = json!({});
    put_key(&mut shown, key);
    if scope.has_metadata {
        shown["bytes"] = json!(row.value_bytes);
        shown["expiry"] = json!(row.expiry);
        shown["flags"] = json!(row.flags);
    }
    let item = row.item.as_ref().and_then(|item| item.to_plain().ok());
    let at_hand = item.filter(|item| !item.is_evicted() && !item.is_compressed());
    if let Some(item) = at_hand.filter(|_| scope.has_values) {
        put_body(&mut shown, item.datatype(), item.body(), scope.bytes_max);
    } else if scope.has_values {
        shown["datatype"] = json!(datatype(row.datatype, b""));
    }
    shown
}

fn put_key(shown: &mut Value, key: &[u8]) {
    shown["id"] = json!(BASE64.encode(key));
    if let Ok(text) = std::str::from_utf8(key) {
        shown["key"] = json!(text);
    }
}

fn datatype(bits: Datatype, body: &[u8]) -> &'static str {
    match bits.contains(Datatype::JSON) {
        true => "json",
        false if std::str::from_utf8(body).is_ok() => "text",
        false => "binary",
    }
}

/// The beginning of a body, as text if it is text.
fn put_body(shown: &mut Value, bits: Datatype, body: &[u8], bytes_max: usize) {
    let mut beginning = &body[..body.len().min(bytes_max)];
    let is_cut = beginning.len() < body.len();
    if let (true, Err(error)) = (is_cut, std::str::from_utf8(beginning)) {
        // A character may be cut in two.
        if error.error_len().is_none() {
            beginning = &beginning[..error.valid_up_to()];
        }
    }
    shown["datatype"] = json!(datatype(bits, beginning));
    shown["truncated"] = json!(is_cut);
    match std::str::from_utf8(beginning) {
        Ok(text) => shown["text"] = json!(text),
        Err(_) => shown["base64"] = json!(STANDARD.encode(beginning)),
    }
}

/// The attributes by name, each as its JSON text; `null` for one that would make the answer too
/// long.
fn attributes(bits: Datatype, value: &[u8], scope: ViewScope) -> Value {
    let mut shown = Map::new();
    let block = match bits.contains(Datatype::XATTR) {
        true => xattr::split(value).ok(),
        false => None,
    };
    let mut left = scope.bytes_max;
    for (name, value) in block.iter().flat_map(|(xattrs, _)| xattrs.iter()) {
        if xattr::is_system(name) && !scope.has_system_attributes {
            continue;
        }
        let text = (value.len() <= left).then(|| String::from_utf8_lossy(value));
        left = left.saturating_sub(value.len());
        let name = String::from_utf8_lossy(name).into_owned();
        shown.insert(name, text.map(Cow::into_owned).into());
    }
    Value::Object(shown)
}
