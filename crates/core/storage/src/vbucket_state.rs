//! The state of a vbucket, which is committed together with its records.

use oribi_types::{Cas, RevSeqno, Seqno, VbUuid};

/// What a vbucket does on this node. Persisted as its discriminant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum VbucketPhase {
    /// Serves reads and writes.
    Active = 1,
    /// Copy kept up to date by another node.
    Replica = 2,
    /// About to become active.
    Pending = 3,
    Dead = 4,
}

/// One entry of a failover table: the history `uuid` began after `seqno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailoverEntry {
    /// Identity of the history.
    pub uuid: VbUuid,
    /// Last seqno of the history before it.
    pub seqno: Seqno,
}

/// State of a vbucket that is committed together with its records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VbucketState {
    /// What the vbucket does.
    pub phase: VbucketPhase,
    /// Highest seqno in the store once the batch is committed.
    pub high_seqno: Seqno,
    /// Highest CAS handed out up to `high_seqno`.
    pub max_cas: Cas,
    /// Highest revision among deletions, so that a re-created document continues above it.
    pub max_deleted_rev_seqno: RevSeqno,
    /// Tombstones up to this seqno may have been purged. It never falls while the vbucket exists: a
    /// store keeps the highest one that it knows in a state whose sender knew less.
    pub purge_seqno: Seqno,
    /// Newest first, at most 25 entries.
    pub failover_table: Vec<FailoverEntry>,
}

impl VbucketState {
    /// An active vbucket that nothing was written to, without a history.
    pub fn empty() -> VbucketState {
        VbucketState {
            phase: VbucketPhase::Active,
            high_seqno: Seqno(0),
            max_cas: Cas(0),
            max_deleted_rev_seqno: RevSeqno(0),
            purge_seqno: Seqno(0),
            failover_table: Vec::new(),
        }
    }

    /// This state, without taking back what `known` says of purges: see
    /// [`VbucketState::purge_seqno`].
    pub fn knowing_purges_of(&self, known: Option<&VbucketState>) -> VbucketState {
        let purge_seqno = known.map_or(Seqno(0), |known| known.purge_seqno).max(self.purge_seqno);
        VbucketState { purge_seqno, ..self.clone() }
    }
}
