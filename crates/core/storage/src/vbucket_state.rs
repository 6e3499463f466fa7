//! The state of a vbucket, which is committed together with its records.

use oribi_types::{Cas, CopiesEpoch, RevSeqno, Seqno, VbUuid};

/// Phase of a vbucket on this node. Persisted as its discriminant.
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

/// One entry of a failover table: the history `uuid` began after `seqno`, or continued in another
/// epoch; then the next older entry has the same uuid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailoverEntry {
    /// Identity of the history.
    pub uuid: VbUuid,
    /// Last seqno before it.
    pub seqno: Seqno,
    /// Epoch of the vbucket's copies that begins here; 0 without copies.
    pub epoch: CopiesEpoch,
}

/// State of a vbucket that is committed together with its records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VbucketState {
    /// Phase of the vbucket.
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
    /// Everything up to here is complete. The high seqno, unless a replica has received a part of a
    /// snapshot.
    pub snapshot_start: Seqno,
    /// End of the snapshot that the high seqno belongs to; above it when the snapshot is
    /// incomplete.
    pub snapshot_end: Seqno,
    /// Highest prepare that this copy acknowledged.
    pub high_prepared_seqno: Seqno,
    /// Prepares up to here are committed or aborted. Never ahead of the completions in the store.
    pub high_completed_seqno: Seqno,
    /// Highest seqno of a change that readers see: not a prepare or an abort.
    pub max_visible_seqno: Seqno,
    /// The copy accepts no stream of an earlier epoch.
    pub promised_epoch: CopiesEpoch,
    /// Newest epoch whose beginning this copy holds.
    pub recorded_epoch: CopiesEpoch,
    /// The last run stopped cleanly. Removed durably before the vbucket changes again.
    pub stopped_cleanly: bool,
    /// The copy holds everything that it acknowledged. False after an unclean stop, until the copy
    /// caught up with an active.
    pub is_intact: bool,
    /// The copy rolled back and lacks versions that a snapshot from disk brings.
    pub is_rewound: bool,
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
            snapshot_start: Seqno(0),
            snapshot_end: Seqno(0),
            high_prepared_seqno: Seqno(0),
            high_completed_seqno: Seqno(0),
            max_visible_seqno: Seqno(0),
            promised_epoch: CopiesEpoch(0),
            recorded_epoch: CopiesEpoch(0),
            stopped_cleanly: false,
            is_intact: true,
            is_rewound: false,
            failover_table: Vec::new(),
        }
    }

    /// This state with a high seqno that ends a snapshot and that readers see.
    pub fn complete_at(self, high_seqno: Seqno) -> VbucketState {
        VbucketState {
            high_seqno,
            snapshot_start: high_seqno,
            snapshot_end: high_seqno,
            max_visible_seqno: high_seqno,
            ..self
        }
    }

    /// The last seqno up to which the copy holds everything.
    pub fn complete_end(&self) -> Seqno {
        if self.snapshot_end <= self.high_seqno { self.high_seqno } else { self.snapshot_start }
    }

    /// This state, without taking back what `known` says of purges: see
    /// [`VbucketState::purge_seqno`].
    pub fn knowing_purges_of(&self, known: Option<&VbucketState>) -> VbucketState {
        let purge_seqno = known.map_or(Seqno(0), |known| known.purge_seqno).max(self.purge_seqno);
        VbucketState { purge_seqno, ..self.clone() }
    }
}
