//! Figures of one vbucket and of one key in it.

use oribi_storage::VbucketPhase;
use oribi_types::{Cas, Datatype, RevSeqno, Seqno, Timestamp, VbUuid};

use super::table::DATATYPES;

/// Figures of one vbucket, for stats and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VbucketStats {
    /// Phase of the vbucket.
    pub phase: VbucketPhase,
    /// True while its documents are loaded from the store.
    pub loading: bool,
    /// Documents, wherever their values are.
    pub items: usize,
    /// Of these, documents that are in the store only, by value or whole.
    pub items_evicted: usize,
    /// Documents by the bits of their datatype; those that full eviction left in the store of an
    /// earlier run are not among them.
    pub datatypes: [u32; DATATYPES],
    /// Tombstones in memory, waiting to leave the queue.
    pub tombstones: usize,
    /// Bytes of item blocks reachable from the table.
    pub item_bytes: usize,
    /// Bytes of the table itself.
    pub table_bytes: usize,
    /// Items not yet persisted, including those of the commit under way.
    pub queue_items: usize,
    /// Bytes of queued items and of the queue around them: what the checkpoint quota counts. Most
    /// of the items are the table's as well.
    pub queue_bytes: usize,
    /// Bytes that only the queue holds: its slots, and blocks that the table has released.
    pub queue_own_bytes: usize,
    /// Checkpoints in the queue.
    pub checkpoints: usize,
    /// When the oldest item that is not persisted was queued, by the clock of the write;
    /// `None` when all are persisted.
    pub queue_oldest: Option<Timestamp>,
    /// Mutations queued since the bucket was opened, those that were deduplicated included.
    pub queue_fill: u64,
    /// Items persisted since the bucket was opened.
    pub queue_drain: u64,
    /// Documents created since the bucket was opened.
    pub ops_create: u64,
    /// Documents replaced or changed since the bucket was opened.
    pub ops_update: u64,
    /// Documents deleted since the bucket was opened, expired ones not included.
    pub ops_delete: u64,
    /// Expired documents that were found and removed since the bucket was opened.
    pub expired: u64,
    pub high_seqno: Seqno,
    /// The highest seqno of a version that readers see; below the high seqno while the newest write
    /// waits for the store.
    pub visible_seqno: Seqno,
    /// Writes that wait for the store before they become visible.
    pub pending_writes: usize,
    /// Last seqno known to be durable.
    pub persisted_seqno: Seqno,
    /// Tombstones up to here may be gone from the store.
    pub purge_seqno: Seqno,
    pub max_cas: Cas,
    /// Highest revision of a deletion.
    pub max_deleted_rev_seqno: RevSeqno,
    pub uuid: VbUuid,
}

/// How far a vbucket's history goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryEnds {
    /// The highest seqno that was given out.
    pub high: Seqno,
    /// Streams read up to here, because nothing before it is pending.
    pub readable: Seqno,
    /// The highest seqno of a version that readers see.
    pub visible: Seqno,
}

/// Figures of the version in memory under one key: a document, expired or not, or a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyStats {
    /// True while the version is not known to be durable.
    pub is_dirty: bool,
    /// True for a tombstone.
    pub is_deleted: bool,
    /// Expiry in UNIX seconds, 0 for none; the time of deletion for a tombstone.
    pub expiry: u32,
    /// Datatype of the value.
    pub datatype: Datatype,
    pub flags: u32,
    pub cas: Cas,
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    pub rev_seqno: RevSeqno,
    /// True while the value is in memory.
    pub is_resident: bool,
}
