//! Messages of a producer as events of the application.

use std::sync::Arc;

use bytes::Bytes;
use oribi_protocol::dcp::message::{Document, Message};
use oribi_protocol::dcp::system_event::{self, EventChange};
use oribi_protocol::leb128;
use oribi_types::{Cas, CollectionId, Datatype, RevSeqno};

use super::super::event::{Change, ChangeEvent, ChangeKind, SystemEvent, SystemEventKind};
use super::{Machine, Position};
use crate::error::Malformed;

impl Machine {
    /// The event that a message is, at `position`. Names are learned on the way.
    pub(super) fn translate(
        &mut self,
        position: Position,
        message: &Message<'_>,
        body: &Bytes,
        has_collections: bool,
    ) -> Result<ChangeEvent, Malformed> {
        let change = match message {
            Message::Mutation(document) => {
                let extras = &document.extras;
                let change =
                    self.change(position, document, extras.rev_seqno, body, has_collections)?;
                Change { flags: extras.flags, expiry: extras.expiry, ..change }
            }
            Message::Deletion(document) | Message::Expiration(document) => {
                let kind = match message {
                    Message::Expiration(_) => ChangeKind::Expiration,
                    _ => ChangeKind::Deletion,
                };
                let extras = &document.extras;
                let change =
                    self.change(position, document, extras.rev_seqno, body, has_collections)?;
                let deleted_at = extras.delete_time.filter(|time| *time != 0);
                Change { kind, deleted_at, ..change }
            }
            Message::SystemEvent(event) => return Ok(self.system_event(position, event)),
            _ => return Err(Malformed::new("a message without a change")),
        };
        Ok(ChangeEvent::Change(change))
    }

    fn change<E>(
        &self,
        position: Position,
        document: &Document<'_, E>,
        rev: RevSeqno,
        body: &Bytes,
        has_collections: bool,
    ) -> Result<Change, Malformed> {
        let (collection, key) = match has_collections {
            true => leb128::decode_u32(document.key)
                .ok_or_else(|| Malformed::new("a key without a collection"))?,
            false => (CollectionId::DEFAULT.0, document.key),
        };
        let collection = CollectionId(collection);
        Ok(Change {
            kind: ChangeKind::Mutation,
            position,
            collection,
            path: self.names.collection(collection).cloned(),
            key: body.slice_ref(key),
            cas: Cas(document.cas),
            rev,
            flags: 0,
            expiry: 0,
            deleted_at: None,
            datatype: Datatype(document.datatype),
            raw_value: body.slice_ref(document.value),
        })
    }

    fn system_event(
        &mut self,
        position: Position,
        event: &system_event::SystemEvent<'_>,
    ) -> ChangeEvent {
        let scope = event.scope;
        self.names.learn_from(scope, &event.change);
        self.manifest_uid = self.manifest_uid.max(event.manifest_uid);
        let scope_name = self.names.scope(scope).cloned();
        let (kind, collection, name, max_ttl_s) = match event.change {
            EventChange::CollectionBegin { collection, name, max_ttl } => {
                let name: Arc<str> = String::from_utf8_lossy(name).into();
                let max_ttl = max_ttl.filter(|ttl| *ttl > 0);
                (SystemEventKind::CollectionCreated, Some(collection), Some(name), max_ttl)
            }
            EventChange::CollectionEnd { collection } => {
                let name = self.names.collection(collection).map(|path| path.collection.clone());
                (SystemEventKind::CollectionDropped, Some(collection), name, None)
            }
            EventChange::ScopeBegin { .. } => (SystemEventKind::ScopeCreated, None, None, None),
            EventChange::ScopeEnd => (SystemEventKind::ScopeDropped, None, None, None),
        };
        ChangeEvent::System(SystemEvent {
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
