//! Events of a change stream.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use oribi_protocol::change_token::Position;
use oribi_types::{Cas, CollectionId, Datatype, ManifestUid, RevSeqno, ScopeId, Seqno, Vbid};

use super::attributes::{self, Attribute};
use crate::compression::decompress;
use crate::error::{ClientError, MalformedResponse, Site};
use crate::version::{DocumentVersion, VersionKind};

/// One thing that a change stream yields.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DcpEvent {
    /// A document changed.
    Change(DcpChange),
    /// A collection or scope came or went. Each vbucket tells it once.
    System(DcpSystemEvent),
    /// A vbucket's snapshot is complete: what was derived from the vbucket is consistent here.
    SnapshotEnd(Position),
    /// A vbucket lost the end of its history, and continues from an earlier place.
    Rollback(Rollback),
    /// A connection ended. The stream opens it again by itself and leaves nothing out.
    Disconnected(Disconnection),
}

/// Kind of a document's change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It was written.
    Mutation,
    /// It was deleted.
    Deletion,
    /// Its time was over. Servers that do not tell expirations apart call them deletions.
    Expiration,
}

/// A scope's and a collection's name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CollectionNames {
    /// Name of the scope.
    pub scope: Arc<str>,
    /// Name of the collection.
    pub collection: Arc<str>,
}

/// A change of a document.
///
/// Key and value share the memory of the block that they were received in. Copy them out before
/// you keep few of them for long.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DcpChange {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Vbucket and seqno of the change, as the place to continue after it.
    pub position: Position,
    /// The document's collection.
    pub collection: CollectionId,
    /// Its name; `None` when the collection was dropped before the stream could learn it.
    pub path: Option<Arc<CollectionNames>>,
    /// The document's key.
    pub key: Bytes,
    /// CAS of this version.
    pub cas: Cas,
    /// How often the document was changed.
    pub rev: RevSeqno,
    /// Flags that the writer set; 0 for a removal.
    pub flags: u32,
    /// Expiry as UNIX time; 0 for none.
    pub expiry: u32,
    /// When the document was removed, as UNIX time, if it was and the server tells.
    pub deleted_at: Option<u32>,
    /// Type of `raw_value`.
    pub datatype: Datatype,
    /// Attributes and value as they came. It is empty when the stream does not ask for values.
    pub raw_value: Bytes,
}

impl DcpChange {
    /// Its vbucket.
    pub fn vbid(&self) -> Vbid {
        self.position.vbid
    }

    /// Its place in the vbucket's history.
    pub fn seqno(&self) -> Seqno {
        self.position.seqno
    }

    /// The document's value, inflated and without attributes; empty for a removal, and when the
    /// stream does not ask for values. Costs nothing when the value came neither compressed nor
    /// with attributes.
    pub fn value(&self) -> Result<Bytes, ClientError> {
        let plain = self.plain()?;
        match self.datatype.contains(Datatype::XATTR) && !plain.is_empty() {
            false => Ok(plain),
            true => attributes::body(&plain).map_err(|malformed| self.damaged(malformed)),
        }
    }

    /// The document's extended attributes; none when the stream does not ask for them.
    pub fn attributes(&self) -> Result<Vec<Attribute>, ClientError> {
        if !self.datatype.contains(Datatype::XATTR) {
            return Ok(Vec::new());
        }
        let plain = self.plain()?;
        if plain.is_empty() {
            return Ok(Vec::new());
        }
        attributes::decode(&plain).map_err(|malformed| self.damaged(malformed))
    }

    /// This version of the document, to be written elsewhere with [`DcpChange::raw_value`].
    pub fn version(&self) -> DocumentVersion {
        let (kind, expiry) = match self.kind {
            ChangeKind::Mutation => (VersionKind::Mutation, self.expiry),
            ChangeKind::Deletion => (VersionKind::Deletion, self.deleted_at.unwrap_or(0)),
            ChangeKind::Expiration => (VersionKind::Expiration, self.deleted_at.unwrap_or(0)),
        };
        let version = DocumentVersion::new(kind, self.cas, self.rev);
        version.flags(self.flags).expiry(expiry).datatype(self.datatype)
    }

    fn plain(&self) -> Result<Bytes, ClientError> {
        if self.raw_value.is_empty() || !self.datatype.contains(Datatype::SNAPPY) {
            return Ok(self.raw_value.clone());
        }
        decompress(&self.raw_value).map_err(|malformed| self.damaged(malformed))
    }

    fn damaged(&self, malformed: MalformedResponse) -> ClientError {
        let Position { vbid, seqno, .. } = self.position;
        let peer = format!("{vbid}, seqno {}", seqno.0).into();
        malformed.at(Site { peer, operation: "value of a change" })
    }
}

/// An event of [`crate::DcpStream::next_borrowed`].
#[derive(Debug)]
#[non_exhaustive]
pub enum BorrowedEvent<'a> {
    /// A document changed.
    Change(BorrowedChange<'a>),
    /// Anything else; never [`DcpEvent::Change`].
    Other(DcpEvent),
}

/// A change of a document, in the memory that it was received into; its fields are those of a
/// [`DcpChange`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BorrowedChange<'a> {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Vbucket and seqno of the change, as the place to continue after it.
    pub position: Position,
    /// The document's collection.
    pub collection: CollectionId,
    /// The document's key.
    pub key: &'a [u8],
    /// CAS of this version.
    pub cas: Cas,
    /// How often the document was changed.
    pub rev: RevSeqno,
    /// Flags that the writer set; 0 for a removal.
    pub flags: u32,
    /// Expiry as UNIX time; 0 for none.
    pub expiry: u32,
    /// When the document was removed, as UNIX time, if it was and the server tells.
    pub deleted_at: Option<u32>,
    /// Type of `raw_value`.
    pub datatype: Datatype,
    /// Attributes and value as they came.
    pub raw_value: &'a [u8],
}

/// A change whose key and value are places in a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PlacedChange {
    pub kind: ChangeKind,
    pub position: Position,
    pub collection: CollectionId,
    pub key: Range<usize>,
    pub cas: Cas,
    pub rev: RevSeqno,
    pub flags: u32,
    pub expiry: u32,
    pub deleted_at: Option<u32>,
    pub datatype: Datatype,
    pub raw_value: Range<usize>,
}

impl PlacedChange {
    /// The change, with parts of its block.
    pub fn borrow(self, block: &[u8]) -> BorrowedChange<'_> {
        let PlacedChange { kind, position, collection, cas, rev, flags, expiry, .. } = self;
        let (deleted_at, datatype) = (self.deleted_at, self.datatype);
        let (key, raw_value) = (&block[self.key], &block[self.raw_value]);
        #[rustfmt::skip]
        let lent = BorrowedChange {
            kind, position, collection, key, cas, rev, flags, expiry, deleted_at, datatype, raw_value,
        };
        lent
    }

    /// The change, with shares of its block's memory.
    pub fn share(self, block: &Bytes, path: Option<Arc<CollectionNames>>) -> DcpChange {
        let PlacedChange { kind, position, collection, cas, rev, flags, expiry, .. } = self;
        let (deleted_at, datatype) = (self.deleted_at, self.datatype);
        let (key, raw_value) = (block.slice(self.key), block.slice(self.raw_value));
        #[rustfmt::skip]
        let shared = DcpChange {
            kind, position, collection, path, key, cas, rev, flags, expiry, deleted_at, datatype,
            raw_value,
        };
        shared
    }
}

/// Change of a collection or scope.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DcpSystemEventKind {
    /// A collection was created.
    CollectionCreated,
    /// A collection was dropped, with all its documents; they are not listed.
    CollectionDropped,
    /// A scope was created.
    ScopeCreated,
    /// A scope was dropped.
    ScopeDropped,
}

/// A collection or scope that came or went.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DcpSystemEvent {
    /// Kind of the change.
    pub kind: DcpSystemEventKind,
    /// Vbucket and seqno of the event, as the place to continue after it.
    pub position: Position,
    /// Version of the manifest with this change and all before it.
    pub manifest_uid: ManifestUid,
    /// Id of the scope.
    pub scope: ScopeId,
    /// Name of the scope, if it is known.
    pub scope_name: Option<Arc<str>>,
    /// Id of the collection, unless it is an event of a scope.
    pub collection: Option<CollectionId>,
    /// Name of the collection, if it is known.
    pub collection_name: Option<Arc<str>>,
    /// Longest life of a document of a new collection in seconds, if it is limited.
    pub max_ttl_s: Option<u32>,
}

/// A vbucket's history ended earlier than the stream had come: a server crashed before it had
/// written its last changes to disk.
///
/// Changes after `to` may not have happened; those that did retry. A document that changed behind
/// `to` may be what it was before, which the stream does not tell: read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Rollback {
    /// How far the stream had come.
    pub from: Seqno,
    /// Vbucket and seqno that the stream continues behind. Everything after it is to be forgotten.
    pub to: Position,
}

/// A connection that ended, or could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Disconnection {
    /// The node, as `host:port`.
    pub peer: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}
