//! An event as a line of JSON; the shape is `oribi_protocol::change_line`'s.

use anyhow::Context;
use bytes::Bytes;
use oribi_client::{ChangeKind, Datatype, DcpChange, DcpEvent, DcpSystemEvent, DcpSystemEventKind};
use oribi_protocol::change_line::{
    DocumentChange, DocumentLine, LineValue, LineXattr, SystemChange, SystemLine, write_rollback,
    write_snapshot_end,
};

use crate::doc::is_json;

/// Optional fields of lines.
#[derive(Clone, Copy, Debug)]
pub struct WatchExtent {
    pub values: bool,
    pub xattrs: bool,
}

/// Appends the line of an event, if it has one.
pub fn write(out: &mut Vec<u8>, event: &DcpEvent, extent: WatchExtent) -> anyhow::Result<()> {
    match event {
        DcpEvent::Change(change) => return write_change(out, change, extent),
        DcpEvent::System(event) => write_system_event(out, event),
        DcpEvent::SnapshotEnd(position) => write_snapshot_end(out, position),
        DcpEvent::Rollback(rollback) => write_rollback(out, rollback.from, &rollback.to),
        _ => {}
    }
    Ok(())
}

fn write_change(out: &mut Vec<u8>, change: &DcpChange, extent: WatchExtent) -> anyhow::Result<()> {
    let value: Bytes;
    let what = match change.kind {
        ChangeKind::Deletion => DocumentChange::Deletion(change.deleted_at),
        ChangeKind::Expiration => DocumentChange::Expiration(change.deleted_at),
        _ => {
            let is_called_json = change.datatype.contains(Datatype::JSON);
            let value = match extent.values {
                false => None,
                true => {
                    value = change.value().context("a value that cannot be read")?;
                    Some(match is_called_json && is_json(&value) {
                        true => LineValue::Json(&value),
                        false => LineValue::Bytes(&value),
                    })
                }
            };
            let (flags, expiry) = (change.flags, change.expiry);
            DocumentChange::Mutation { flags, expiry, is_json: is_called_json, value }
        }
    };
    let attributes = match extent.xattrs {
        true => change.attributes().context("attributes that cannot be read")?,
        false => Vec::new(),
    };
    let xattrs: Vec<LineXattr<'_>> = attributes
        .iter()
        .map(|one| {
            let json = if is_json(&one.value) { &one.value[..] } else { b"null" };
            LineXattr { name: &one.name, json }
        })
        .collect();
    let line = DocumentLine {
        change: what,
        position: &change.position,
        path: change.path.as_ref().map(|path| (&*path.scope, &*path.collection)),
        key: &change.key,
        cas: change.cas.0,
        rev: change.rev.0,
        xattrs: &xattrs,
    };
    line.write(out);
    Ok(())
}

fn write_system_event(out: &mut Vec<u8>, event: &DcpSystemEvent) {
    let change = match event.kind {
        DcpSystemEventKind::CollectionCreated => SystemChange::CollectionCreated,
        DcpSystemEventKind::CollectionDropped => SystemChange::CollectionDropped,
        DcpSystemEventKind::ScopeCreated => SystemChange::ScopeCreated,
        DcpSystemEventKind::ScopeDropped => SystemChange::ScopeDropped,
        // A kind that this program is older than.
        _ => return,
    };
    let line = SystemLine {
        change,
        position: &event.position,
        manifest_uid: event.manifest_uid,
        scope: event.scope,
        scope_name: event.scope_name.as_deref(),
        collection: event.collection,
        collection_name: event.collection_name.as_deref(),
        max_ttl_s: event.max_ttl_s,
    };
    line.write(out);
}
