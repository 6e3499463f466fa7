//! System events: collections and scopes that come and go, in the history of every vbucket.
//!
//! | Event | Id | Body | Key |
//! |---|---|---|---|
//! | collection begins | 0 | manifest u64, scope u32, collection u32 | name |
//! | the same with a time to live (version 1) | 0 | the same, ttl u32 | name |
//! | collection ends | 1 | manifest u64, scope u32, collection u32 | none |
//! | scope begins | 3 | manifest u64, scope u32 | name |
//! | scope ends | 4 | manifest u64, scope u32 | none |
//!
//! The extras are the seqno u64, the id u32 and the version u8.

use oribi_types::{CollectionId, ManifestUid, ScopeId, Seqno};

use crate::dcp::{MessageHead, StreamHead, write_head};
use crate::opcode::Opcode;
use crate::request::{split_u32, split_u64};

const COLLECTION_BEGIN: u32 = 0;
const COLLECTION_END: u32 = 1;
const SCOPE_BEGIN: u32 = 3;
const SCOPE_END: u32 = 4;

const EXTRAS_BYTES: usize = 13;
const BODY_BYTES_MAX: usize = 20;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemEvent<'a> {
    /// Seqno of the event.
    pub by_seqno: Seqno,
    /// Last manifest that is completely applied with this event.
    pub manifest_uid: ManifestUid,
    /// The scope, or the collection's scope.
    pub scope: ScopeId,
    /// Kind of the event.
    pub change: EventChange<'a>,
}

/// Contents of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventChange<'a> {
    /// A collection begins.
    CollectionBegin {
        /// Id of the collection.
        collection: CollectionId,
        /// Name of the collection.
        name: &'a [u8],
        /// Longest time to live of its documents in seconds, if it is set.
        max_ttl: Option<u32>,
    },
    /// A collection ends.
    CollectionEnd {
        /// Id of the collection.
        collection: CollectionId,
    },
    /// A scope begins.
    ScopeBegin {
        /// Name of the scope.
        name: &'a [u8],
    },
    /// A scope ends.
    ScopeEnd,
}

impl<'a> SystemEvent<'a> {
    /// Decodes the three parts of a message; `None` for an unknown event or a wrong length.
    pub fn decode(extras: &[u8], key: &'a [u8], value: &[u8]) -> Option<SystemEvent<'a>> {
        let (by_seqno, rest) = split_u64(extras)?;
        let (id, rest) = split_u32(rest)?;
        let [version] = *rest else { return None };
        let (manifest_uid, body) = split_u64(value)?;
        let (scope, body) = split_u32(body)?;
        let change = match (id, version) {
            (COLLECTION_BEGIN, 0) => collection_begin(key, body, None)?,
            (COLLECTION_BEGIN, 1) => {
                let (body, ttl) = body.split_at_checked(4)?;
                collection_begin(key, body, Some(u32::from_be_bytes(ttl.try_into().ok()?)))?
            }
            (COLLECTION_END, 0) if key.is_empty() => {
                EventChange::CollectionEnd { collection: collection(body)? }
            }
            (SCOPE_BEGIN, 0) if body.is_empty() => EventChange::ScopeBegin { name: key },
            (SCOPE_END, 0) if key.is_empty() && body.is_empty() => EventChange::ScopeEnd,
            _ => return None,
        };
        Some(SystemEvent {
            by_seqno: Seqno(by_seqno),
            manifest_uid: ManifestUid(manifest_uid),
            scope: ScopeId(scope),
            change,
        })
    }

    /// Appends the message, and returns the bytes of the frame.
    pub fn write(&self, out: &mut Vec<u8>, stream: StreamHead) -> usize {
        let mut body = [0; BODY_BYTES_MAX];
        body[..8].copy_from_slice(&self.manifest_uid.0.to_be_bytes());
        body[8..12].copy_from_slice(&self.scope.0.to_be_bytes());
        let (id, version, key, body_bytes) = match self.change {
            EventChange::CollectionBegin { collection, name, max_ttl } => {
                body[12..16].copy_from_slice(&collection.0.to_be_bytes());
                body[16..].copy_from_slice(&max_ttl.unwrap_or(0).to_be_bytes());
                let version = u8::from(max_ttl.is_some());
                (COLLECTION_BEGIN, version, name, 16 + 4 * usize::from(version))
            }
            EventChange::CollectionEnd { collection } => {
                body[12..16].copy_from_slice(&collection.0.to_be_bytes());
                (COLLECTION_END, 0, &b""[..], 16)
            }
            EventChange::ScopeBegin { name } => (SCOPE_BEGIN, 0, name, 12),
            EventChange::ScopeEnd => (SCOPE_END, 0, &b""[..], 12),
        };
        let mut extras = [0; EXTRAS_BYTES];
        extras[..8].copy_from_slice(&self.by_seqno.0.to_be_bytes());
        extras[8..12].copy_from_slice(&id.to_be_bytes());
        extras[12] = version;
        let head = MessageHead::new(Opcode::DcpSystemEvent, stream);
        let frame_bytes =
            write_head(out, &MessageHead { extras: &extras, key, ..head }, body_bytes);
        out.extend_from_slice(&body[..body_bytes]);
        frame_bytes
    }
}

fn collection_begin<'a>(
    name: &'a [u8],
    body: &[u8],
    max_ttl: Option<u32>,
) -> Option<EventChange<'a>> {
    Some(EventChange::CollectionBegin { collection: collection(body)?, name, max_ttl })
}

fn collection(body: &[u8]) -> Option<CollectionId> {
    body.try_into().ok().map(|bytes| CollectionId(u32::from_be_bytes(bytes)))
}
