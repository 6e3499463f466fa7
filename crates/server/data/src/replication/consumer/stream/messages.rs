//! Messages of a stream as changes of a copy: documents, prepares and events.
//!
//! Owns: the checks of what another node sends, before it becomes a change. Called by the stream.

use oribi_engine::{
    ManifestEventKind, PreparedVersion, ReplicatedDocument, ReplicatedVersion, SnapshotChanges,
    VBucket,
};
use oribi_protocol::dcp::item::DeletionExtras;
use oribi_protocol::dcp::message::DcpDocument;
use oribi_protocol::dcp::system_event::{EventChange, SystemEvent};
use oribi_protocol::leb128::split_collection_key;
use oribi_protocol::limits::{COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_subdoc::xattr;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use crate::replication::failure::LinkFailure;
use crate::replication::work::OwnedEvent;

/// Longest value: the largest body with the most attributes.
const STORED_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);

/// What a prepare has in front of the key and of the value of its document, at most.
const PREPARE_BYTES_MAX: usize = 32;

/// What documents of all kinds have.
pub(super) struct DocumentFields {
    pub(super) seqno: Seqno,
    pub(super) rev_seqno: RevSeqno,
    pub(super) flags: u32,
    pub(super) expiry: u32,
    pub(super) deleted: bool,
    pub(super) expired: bool,
}

pub(super) fn deletion(
    document: &DcpDocument<'_, DeletionExtras>,
    expired: bool,
) -> DocumentFields {
    let extras = &document.extras;
    DocumentFields {
        seqno: extras.by_seqno,
        rev_seqno: extras.rev_seqno,
        flags: 0,
        expiry: extras.delete_time.unwrap_or(0),
        deleted: true,
        expired,
    }
}

pub(super) fn add_document<E>(
    vbucket: &VBucket,
    changes: &mut SnapshotChanges,
    document: &DcpDocument<'_, E>,
    fields: DocumentFields,
) -> Result<(), LinkFailure> {
    if let Some(key) = document.key.strip_prefix(&[CollectionId::PREPARES.0 as u8]) {
        return add_prepare(vbucket, changes, (key, document), &fields);
    }
    let key = split_collection_key(document.key);
    let key = key.map_err(|_| LinkFailure::Protocol("a malformed key"))?;
    let datatype = Datatype(document.datatype);
    // Compressed together is a form that no node of this version sends.
    if datatype.contains(Datatype::XATTR) && datatype.contains(Datatype::SNAPPY) {
        return Err(LinkFailure::Protocol("a datatype that was not agreed"));
    }
    check_value(datatype, document.value)?;
    if document.cas == 0 || fields.rev_seqno == RevSeqno(0) {
        return Err(LinkFailure::Protocol("a document without CAS or revision"));
    }
    let version = ReplicatedVersion {
        seqno: fields.seqno,
        cas: Cas(document.cas),
        rev_seqno: fields.rev_seqno,
    };
    let DocumentFields { flags, expiry, deleted, expired, .. } = fields;
    let value = document.value;
    let document =
        ReplicatedDocument { key, version, flags, expiry, datatype, deleted, expired, value };
    vbucket.add_replicated(changes, &document);
    Ok(())
}

/// Checks the value of a document, and what its datatype says of it.
fn check_value(datatype: Datatype, value: &[u8]) -> Result<(), LinkFailure> {
    let known = Datatype::JSON.0 | Datatype::SNAPPY.0 | Datatype::XATTR.0;
    if datatype.0 & !known != 0 {
        return Err(LinkFailure::Protocol("a datatype that was not agreed"));
    }
    if value.len() > STORED_BYTES_MAX {
        return Err(LinkFailure::Protocol("a value that is too long"));
    }
    match datatype.contains(Datatype::XATTR) && xattr::split(value).is_err() {
        true => Err(LinkFailure::Protocol("malformed extended attributes")),
        false => Ok(()),
    }
}

/// Adds a prepare or an abort, which has the form of a document of a reserved collection.
fn add_prepare<E>(
    vbucket: &VBucket,
    changes: &mut SnapshotChanges,
    (key, document): (&[u8], &DcpDocument<'_, E>),
    fields: &DocumentFields,
) -> Result<(), LinkFailure> {
    let malformed = LinkFailure::Protocol("a malformed prepare");
    let is_short = key.len() <= KEY_BYTES_MAX + PREPARE_BYTES_MAX
        && document.value.len() <= STORED_BYTES_MAX + PREPARE_BYTES_MAX;
    let is_plain = document.datatype == 0 && document.cas != 0 && fields.rev_seqno != RevSeqno(0);
    if !is_short || !is_plain {
        return Err(malformed);
    }
    let version = ReplicatedVersion {
        seqno: fields.seqno,
        cas: Cas(document.cas),
        rev_seqno: fields.rev_seqno,
    };
    let prepare = ReplicatedDocument {
        key: DocKey { collection: CollectionId::PREPARES, key },
        version,
        flags: fields.flags,
        expiry: fields.expiry,
        datatype: Datatype(document.datatype),
        deleted: fields.deleted,
        expired: fields.expired,
        value: document.value,
    };
    let value = (!fields.deleted).then_some(document.value);
    let Some(prepared) = PreparedVersion::of(key, value) else { return Err(malformed) };
    let key_bytes_max = match prepared.key.collection {
        CollectionId::DEFAULT => KEY_BYTES_MAX,
        _ => COLLECTION_KEY_BYTES_MAX,
    };
    if prepared.key.key.len() > key_bytes_max {
        return Err(malformed);
    }
    check_value(prepared.datatype, prepared.value)?;
    match vbucket.add_prepare(changes, &prepare) {
        true => Ok(()),
        false => Err(malformed),
    }
}

pub(super) fn owned(event: &SystemEvent<'_>) -> Result<OwnedEvent, LinkFailure> {
    let name = |name: &[u8]| {
        let name = std::str::from_utf8(name).map_err(|_| LinkFailure::Protocol("a malformed name"));
        name.map(str::to_owned)
    };
    let (kind, collection, max_ttl_s, name) = match event.change {
        EventChange::CollectionBegin { collection, name: text, max_ttl } => {
            (ManifestEventKind::CollectionBegin, Some(collection), max_ttl, name(text)?)
        }
        EventChange::CollectionEnd { collection } => {
            (ManifestEventKind::CollectionEnd, Some(collection), None, String::new())
        }
        EventChange::ScopeBegin { name: text } => {
            (ManifestEventKind::ScopeBegin, None, None, name(text)?)
        }
        EventChange::ScopeEnd => (ManifestEventKind::ScopeEnd, None, None, String::new()),
    };
    let (seqno, manifest_uid, scope) = (event.by_seqno, event.manifest_uid, event.scope);
    Ok(OwnedEvent { seqno, kind, manifest_uid, scope, collection, max_ttl_s, name })
}
