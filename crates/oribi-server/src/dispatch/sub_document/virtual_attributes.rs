//! Attributes that no document has: `$document`, `$vbucket` and `$XTOC` are made when they are read.
//!
//! Each is made as an object that holds it under its own key, so that a path leads into it as into any
//! other. Names and formats are Couchbase's.

use oribi_engine::ItemRef;
use oribi_protocol::status::Status;
use oribi_types::{Datatype, Timestamp, VbUuid};
use serde_json::{Map, Value, json};

use super::crc32c::crc32c;
use super::view::View;

/// The JSON object with the attribute `key` of a version.
pub(super) fn text_of(
    key: &[u8],
    item: &ItemRef,
    view: &View<'_>,
    vb_uuid: VbUuid,
    now: Timestamp,
) -> Result<Vec<u8>, Status> {
    let (name, value) = match key {
        b"$document" => return Ok(document_text(Some(item), view, vb_uuid)),
        b"$vbucket" => {
            let now_s = now.unix_s().to_string();
            ("$vbucket", json!({"HLC": {"now": now_s, "mode": "real"}}))
        }
        b"$XTOC" => {
            let keys = view.xattrs.iter().map(|(key, _)| String::from_utf8_lossy(key));
            ("$XTOC", keys.collect())
        }
        _ => return Err(Status::SubdocXattrUnknownVattr),
    };
    let mut whole = Map::new();
    whole.insert(name.to_owned(), value);
    Ok(Value::Object(whole).to_string().into_bytes())
}

/// The JSON object with the attribute `$document` of a version, or of none: then all is zero.
pub(super) fn document_text(item: Option<&ItemRef>, view: &View<'_>, vb_uuid: VbUuid) -> Vec<u8> {
    let mut whole = Map::new();
    whole.insert("$document".to_owned(), document(item, view, vb_uuid));
    Value::Object(whole).to_string().into_bytes()
}

fn document(item: Option<&ItemRef>, view: &View<'_>, vb_uuid: VbUuid) -> Value {
    let datatype = item.map_or(Datatype::RAW, ItemRef::datatype);
    let cas = item.map_or(0, |item| item.cas().0);
    let all = [(Datatype::JSON, "json"), (Datatype::SNAPPY, "snappy"), (Datatype::XATTR, "xattr")];
    let names = all.iter().filter(|(bit, _)| datatype.contains(*bit)).map(|(_, name)| *name);
    let mut names: Vec<&str> = names.collect();
    if names.is_empty() {
        names.push("raw");
    }
    // The upper 48 bits of a CAS are the wall clock.
    let modified = Timestamp { unix_ns: cas & !0xffff };
    json!({
        "CAS": format!("{cas:#018x}"),
        "vbucket_uuid": format!("{:#018x}", vb_uuid.0),
        "seqno": format!("{:#018x}", item.map_or(0, |item| item.seqno().0)),
        "revid": item.map_or(0, |item| item.rev_seqno().0).to_string(),
        "exptime": item.map_or(0, ItemRef::expiry),
        "flags": item.map_or(0, ItemRef::flags),
        "value_bytes": view.body.len(),
        "value_crc32c": format!("{:#010x}", crc32c(&[view.body])),
        "datatype": names,
        "deleted": item.is_some_and(ItemRef::is_deleted),
        "last_modified": modified.unix_s().to_string(),
    })
}
