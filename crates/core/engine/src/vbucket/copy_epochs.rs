//! A vbucket among its copies: which epochs it knows, and how it stops serving as the active one.
//!
//! Owns: the view of a copy that elections are decided by, and the step from active to replica in
//! memory. Invariant: a copy whose documents could not be loaded claims to hold nothing, so it is
//! never promoted for what its disk may have. Called by the bucket on behalf of the cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oribi_storage::{FailoverEntry, VbucketPhase, VbucketState};
use oribi_types::{CopiesEpoch, Seqno};

use super::{
    FAILED, HANDING_OVER, LOADING, RECOMMITTING, REPLICA, REPLICA_LOADING, VBucket, push_history,
};
use crate::checkpoint::StreamWaker;
use crate::persistence::{PersistOutcome, PersistenceSink};

/// Epochs that a copy knows, and the end of its complete part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStanding {
    /// It accepts nothing of earlier epochs.
    pub promised: CopiesEpoch,
    /// Newest epoch whose beginning it holds.
    pub recorded: CopiesEpoch,
    /// Everything up to here is complete.
    pub complete_end: Seqno,
    /// It holds everything that it acknowledged.
    pub is_intact: bool,
    /// Its documents are not in memory.
    pub is_lost: bool,
    /// The store has them, and they could not be loaded.
    pub is_unreadable: bool,
}

impl VBucket {
    /// The vbucket's standing as a copy.
    pub fn copy_standing(&self) -> CopyStanding {
        let (promised, recorded, is_intact) = {
            let state = self.copy_state.lock();
            (state.promised_epoch, state.recorded_epoch, state.is_intact)
        };
        let phase = self.table.phase().load(Ordering::Acquire);
        if phase == FAILED || phase == VbucketPhase::Dead as u8 {
            let (recorded, complete_end) = (CopiesEpoch(0), Seqno(0));
            return CopyStanding {
                promised,
                recorded,
                complete_end,
                is_intact: false,
                is_lost: true,
                is_unreadable: self.is_unreadable.load(Ordering::Acquire),
            };
        }
        let complete_end = self.queue.lock().complete_end();
        let (is_lost, is_unreadable) = (false, false);
        CopyStanding { promised, recorded, complete_end, is_intact, is_lost, is_unreadable }
    }

    /// The state that records the copy's epochs in the store. No flush is under way.
    pub(crate) fn state_with_epochs(
        &self,
        promised: CopiesEpoch,
        recorded: Option<CopiesEpoch>,
    ) -> VbucketState {
        let mut state = self.persisted_state();
        state.promised_epoch = state.promised_epoch.max(promised);
        if let Some(recorded) = recorded {
            (state.recorded_epoch, state.is_intact) = (recorded, true);
        }
        assert!(
            recorded.is_none_or(|recorded| recorded <= state.promised_epoch),
            "a recorded epoch was promised"
        );
        state
    }

    /// The store has this state: the copy's epochs count from here on. No flush is under way.
    pub(crate) fn adopt_epochs(&self, stored: &VbucketState) {
        let mut state = self.copy_state.lock();
        assert!(stored.promised_epoch >= state.promised_epoch, "a promise is never taken back");
        state.promised_epoch = stored.promised_epoch;
        state.recorded_epoch = stored.recorded_epoch;
        state.is_intact = stored.is_intact;
    }

    /// Notes where another epoch begins in the history of an active vbucket, which it continues:
    /// what a copy has received of it since is what the vbucket has, so no reader has to roll back.
    /// False when it is not active.
    pub(crate) fn continue_history(&self, epoch: CopiesEpoch) -> bool {
        let _phase_is_steady = self.table.lock();
        let queue = self.queue.lock();
        if !self.is_serving() {
            return false;
        }
        let mut table = self.failover_table.lock();
        let newest = *table.first().expect("an active vbucket has a history");
        if newest.epoch != epoch {
            let seqno = queue.high_seqno();
            push_history(&mut table, FailoverEntry { seqno, epoch, ..newest });
        }
        assert_eq!(table[0].uuid.0, self.uuid.load(Ordering::Acquire), "it is the same history");
        true
    }

    /// Serves no client from here on, and feeds the copies that follow still. Durable writes that
    /// wait get their outcome; then its high seqno is final. Does not block. False when it is not
    /// active, or its documents are being loaded.
    pub(crate) fn begin_hand_over(&self) -> bool {
        let _phase_is_steady = self.table.lock();
        let is_active = self.table.phase().load(Ordering::Acquire) == VbucketPhase::Active as u8;
        if is_active {
            self.table.phase().store(HANDING_OVER, Ordering::Release);
            assert!(self.is_serving(), "a vbucket serves until its hand-over ends");
        }
        is_active
    }

    /// Serves clients again, after a hand-over that no other copy has taken. No effect without one.
    pub fn withdraw_hand_over(&self) {
        let _phase_is_steady = self.table.lock();
        if self.is_handing_over() {
            self.table.phase().store(VbucketPhase::Active as u8, Ordering::Release);
        }
    }

    /// True when [`VBucket::begin_hand_over`] is possible, or was called.
    pub fn can_hand_over(&self) -> bool {
        let phase = self.table.phase().load(Ordering::Acquire);
        phase == VbucketPhase::Active as u8 || phase == HANDING_OVER
    }

    /// True after [`VBucket::begin_hand_over`], until the vbucket is a copy.
    pub fn is_handing_over(&self) -> bool {
        self.table.phase().load(Ordering::Acquire) == HANDING_OVER
    }

    /// True once a vbucket that hands over appends nothing any more, until it is a copy.
    pub fn has_final_seqno(&self) -> bool {
        // No prepare begins in this phase.
        self.is_handing_over() && !self.has_pending.load(Ordering::Acquire)
    }

    /// Registers a wait until the vbucket has no pending version, while none begins. True when it
    /// has none.
    pub(crate) fn wait_for_pending(&self, sink: &Arc<dyn PersistenceSink>, token: u64) -> bool {
        let Some((seqno, is_prepare)) = self.table.lock().pending.newest() else { return true };
        assert!(seqno > Seqno(0), "a pending version has a seqno");
        let waiters = if is_prepare { &self.commit_waiters } else { &self.waiters };
        let is_over = || {
            let is_open = self.table.lock().pending.has_seqno(seqno);
            (!is_open).then_some(PersistOutcome::Persisted)
        };
        waiters.register(seqno, sink, token, is_over).is_some()
    }

    /// Serves nothing from here on, and is a copy in memory; the store learns of it with the next
    /// change. Streams end, and waiters are failed. Does not block. No effect on a vbucket that is
    /// not active.
    pub(crate) fn step_down(&self) {
        let streams = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let phase = match self.table.phase().load(Ordering::Acquire) {
                LOADING => REPLICA_LOADING,
                // Its documents are not here: it is no copy before it was copied afresh.
                FAILED => VbucketPhase::Dead as u8,
                HANDING_OVER | RECOMMITTING => REPLICA,
                active if active == VbucketPhase::Active as u8 => REPLICA,
                _ => return,
            };
            self.table.phase().store(phase, Ordering::Release);
            assert!(!self.is_serving(), "a vbucket that stepped down serves no client");
            table.locks.clear();
            self.end_streams(&mut queue)
        };
        streams.iter().for_each(StreamWaker::wake);
        self.fail_waits();
    }
}
