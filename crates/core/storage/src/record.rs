//! Data that crosses the seam: records, and the batches in which they are committed.

use oribi_types::{Cas, Datatype, DocKey, RevSeqno, Seqno, Vbid};

use crate::VbucketState;

/// One version of one document, or its tombstone, as it crosses the seam in either direction.
/// Bytes are borrowed: from item blocks on the way down, from store pages on the way up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Collection and logical key.
    pub key: DocKey<'a>,
    /// Document body; empty for a tombstone.
    pub value: &'a [u8],
    pub cas: Cas,
    /// Position in the vbucket's history, at least 1.
    pub seqno: Seqno,
    /// Revision count, at least 1.
    pub rev_seqno: RevSeqno,
    /// Opaque client flags, host order.
    pub flags: u32,
    /// Expiry in UNIX seconds, 0 for none; for a tombstone the time of deletion.
    pub expiry: u32,
    /// Format of the body.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
    /// True for a tombstone that expiry made, never for anything else.
    pub expired: bool,
}
/// Everything one flush writes for one vbucket. Atomic: all of it becomes durable or none.
#[derive(Debug)]
pub struct VbBatch<'a> {
    pub vbid: Vbid,
    /// Ascending seqnos, at most one record per key.
    pub records: Vec<Record<'a>>,
    /// State after these records.
    pub state: VbucketState,
}
