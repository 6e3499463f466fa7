//! Request for a stream, and the reasons to refuse it.
//!
//! Owns: these types. Callers: the server, which makes a request of a wire message.

use oribi_types::{CollectionId, ScopeId, Seqno, VbUuid, Vbid};

/// A stream of one vbucket.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    pub vbid: Vbid,
    /// Last seqno that the reader has; the stream begins after it.
    pub start: Seqno,
    /// The stream ends when this seqno is passed; the greatest number never ends.
    pub end: Seqno,
    /// History of `start`; 0 for none.
    pub uuid: VbUuid,
    /// Range of the snapshot that the reader was in, both ends included.
    pub snapshot: (Seqno, Seqno),
    /// The purge seqno that the reader saw last, if its request names one.
    pub client_purge_seqno: Option<Seqno>,
    pub flags: StreamOptions,
    pub filter: StreamFilter,
}

/// Variants of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamOptions {
    /// End at the seqno that is the highest at the opening.
    pub to_latest: bool,
    /// Begin after the seqno that is the highest at the opening.
    pub from_latest: bool,
    /// Only changes that are durable at the opening.
    pub disk_only: bool,
    /// Only from an active vbucket. Others serve no streams here anyway.
    pub active_only: bool,
    /// A history that is given must be right even for a stream from 0.
    pub strict_uuid: bool,
    /// Purged tombstones force no rollback.
    pub ignore_purged: bool,
}

/// Part of a vbucket that a stream shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamFilter {
    /// Documents of the default collection without events, for readers without collections.
    Default,
    All,
    /// As `All`, with prepares: for a copy on another node.
    Replica,
    /// A scope, its events, and its collections, those of the future included.
    Scope(ScopeId),
    /// Some collections and their events.
    Collections(Vec<CollectionId>),
}

/// Why a stream is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamOpenError {
    /// This node does not serve the vbucket.
    NotMyVbucket,
    /// Start, end and snapshot contradict each other.
    Range,
    /// The reader must forget all changes after this seqno, which is below its start.
    Rollback(Seqno),
    /// A collection of the filter does not exist.
    UnknownCollection,
    /// The scope of the filter does not exist.
    UnknownScope,
    NoMemory,
    /// The vbucket is still being loaded.
    TryLater,
}
