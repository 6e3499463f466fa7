//! Messages of a producer as events of the application.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use oribi_protocol::dcp::message::DcpDocument;
use oribi_protocol::dcp::system_event::{self, EventChange};
use oribi_protocol::leb128;
use oribi_types::{Cas, CollectionId, Datatype, RevSeqno};

use super::super::event::{
    ChangeKind, DcpChange, DcpEvent, DcpSystemEvent, DcpSystemEventKind, PlacedChange,
};
use super::{DcpStateMachine, Position};
use crate::error::MalformedResponse;

/// Where a part of a block is.
fn place_in(block: &[u8], part: &[u8]) -> Range<usize> {
    let begin = part.as_ptr().addr() - block.as_ptr().addr();
    begin..begin + part.len()
}

impl DcpStateMachine {
    /// A document's change or removal at `position`; `block` has its key and value.
    pub(super) fn placed<E>(
        position: Position,
        document: &DcpDocument<'_, E>,
        rev: RevSeqno,
        block: &[u8],
        has_collections: bool,
    ) -> Result<PlacedChange, MalformedResponse> {
        let (collection, key) = match has_collections {
            true => leb128::decode_u32(document.key)
                .ok_or_else(|| MalformedResponse::new("a key without a collection"))?,
            false => (CollectionId::DEFAULT.0, document.key),
        };
        Ok(PlacedChange {
            kind: ChangeKind::Mutation,
            position,
            collection: CollectionId(collection),
            key: place_in(block, key),
            cas: Cas(document.cas),
            rev,
            flags: 0,
            expiry: 0,
            deleted_at: None,
            datatype: Datatype(document.datatype),
            raw_value: place_in(block, document.value),
        })
    }

    /// A change that was taken, with its collection's name and shares of its block's memory.
    pub fn share(&self, change: PlacedChange, block: &Bytes) -> DcpChange {
        let path = self.names.collection(change.collection).cloned();
        change.share(block, path)
    }

    /// The change of a collection or scope. Names are learned on the way.
    pub(super) fn system_event(
        &mut self,
        position: Position,
        event: &system_event::SystemEvent<'_>,
    ) -> DcpEvent {
        let scope = event.scope;
        self.names.learn_from(scope, &event.change);
        self.manifest_uid = self.manifest_uid.max(event.manifest_uid);
        let scope_name = self.names.scope(scope).cloned();
        let (kind, collection, name, max_ttl_s) = match event.change {
            EventChange::CollectionBegin { collection, name, max_ttl } => {
                let name: Arc<str> = String::from_utf8_lossy(name).into();
                let max_ttl = max_ttl.filter(|ttl| *ttl > 0);
                (DcpSystemEventKind::CollectionCreated, Some(collection), Some(name), max_ttl)
            }
            EventChange::CollectionEnd { collection } => {
                let name = self.names.collection(collection).map(|path| path.collection.clone());
                (DcpSystemEventKind::CollectionDropped, Some(collection), name, None)
            }
            EventChange::ScopeBegin { .. } => (DcpSystemEventKind::ScopeCreated, None, None, None),
            EventChange::ScopeEnd => (DcpSystemEventKind::ScopeDropped, None, None, None),
        };
        DcpEvent::System(DcpSystemEvent {
            kind,
            position,
            manifest_uid: event.manifest_uid,
            scope,
            scope_name,
            collection,
            collection_name: name,
            max_ttl_s,
        })
    }
}
