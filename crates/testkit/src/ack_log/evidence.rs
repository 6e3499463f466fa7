//! Evidence for the oracle: answers, documents that were read, and the state after a restart.

use oribi_types::{Cas, Seqno, VbUuid};

/// A document as read: value and CAS, or `None` when there is none.
pub type ReadResult = Option<(Vec<u8>, Cas)>;

/// The server's answer to a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Version given to the document or its tombstone.
    pub cas: Cas,
    /// Place of the mutation in its vbucket's history.
    pub seqno: Seqno,
    /// History that the seqno belongs to.
    pub vb_uuid: VbUuid,
    /// True when the answer promises that the mutation is on disk.
    pub persisted: bool,
}

/// How the server ended before it was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Killed: a write that was not acknowledged as persisted may be gone. The server was started
    /// this often since and killed again each time but the last.
    Crash {
        /// Starts, at least 1.
        starts: usize,
    },
    /// Stopped in order: no acknowledged write may be gone. The server may have been killed while
    /// it started again, before any client could write.
    CleanStop {
        /// Starts that were killed; usually 0.
        killed_starts: usize,
    },
}

/// The server's report on a vbucket when it serves again.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VbucketReport {
    /// Highest seqno that came back.
    pub high_seqno: Seqno,
    /// The failover table, newest first: identity and the seqno at which it began.
    pub histories: Vec<(VbUuid, Seqno)>,
}
