//! The parts of a version that a replica takes from the active (seqno, CAS and revision), and the
//! bounds of the snapshot of which it has a part.

use oribi_types::{Cas, RevSeqno, Seqno};

/// The snapshot of which a replica has a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IncompleteSnapshot {
    /// Everything up to here is complete.
    pub complete_end: Seqno,
    /// The next seqno at which everything is complete.
    pub snapshot_end: Seqno,
}

/// The fields of a version that the active assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicatedVersion {
    pub seqno: Seqno,
    pub cas: Cas,
    pub rev_seqno: RevSeqno,
}
