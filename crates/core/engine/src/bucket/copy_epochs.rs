//! Epochs of copies: promises, records and the beginning of an active copy, in two steps.
//!
//! Owns: that an epoch is durable before it counts. Called by the cluster, which chooses the
//! active, and by the consumer of a replication stream.

use std::sync::Arc;

use oribi_types::{CopiesEpoch, Seqno, Vbid};

use super::Bucket;
use super::copies::{CopyRoleError, FLUSH_STEPS_MAX};
use crate::persistence::{PersistOutcome, PersistenceSink};
use crate::tasks::no_clock;
use crate::vbucket::{Promotion, VBucket};

/// A promotion that the store knows and memory does not.
pub struct PreparedPromotion(pub(super) Promotion);

impl Bucket {
    /// Accepts nothing more of epochs before `epoch`. Durable when it returns. Blocks for the
    /// store.
    ///
    /// # Errors
    /// The bucket keeps no copies, or the store's; nothing is promised then.
    pub fn promise_epoch(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyRoleError> {
        self.learn_epoch(vbid, epoch, None)
    }

    /// Flushes the queue of a copy. No stream changes the copy, and it serves nothing. Blocks for
    /// the store.
    ///
    /// # Errors
    /// The bucket keeps no copies, or the store's.
    pub fn flush_copy(&self, vbid: Vbid) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        for _ in 0..FLUSH_STEPS_MAX {
            if vbucket.is_flushed() {
                return Ok(());
            }
            vbucket.mark_dirty(self.core.signals());
            self.flusher_step(usize::from(vbid.0) % self.flusher_count(), &no_clock)?;
        }
        Err(CopyRoleError::Busy)
    }

    /// Notes that the copy holds everything up to the beginning of `epoch`, so it is intact.
    /// Durable when it returns, with all that was there before. Blocks for the store.
    ///
    /// # Errors
    /// The bucket keeps no copies, or the store's.
    pub fn record_epoch(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyRoleError> {
        self.flush_up_to(vbid, self.copy_of(vbid)?.copy_standing().complete_end)?;
        self.learn_epoch(vbid, epoch, Some(epoch))
    }

    /// Makes what a copy has up to `end` durable: after a kill, a copy that has recorded an epoch
    /// has its beginning. Blocks for the store.
    fn flush_up_to(&self, vbid: Vbid, end: Seqno) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        for _ in 0..FLUSH_STEPS_MAX {
            if vbucket.persisted_seqno() >= end {
                return Ok(());
            }
            vbucket.mark_dirty(self.core.signals());
            self.flusher_step(usize::from(vbid.0) % self.flusher_count(), &no_clock)?;
        }
        Err(CopyRoleError::Busy)
    }

    fn learn_epoch(
        &self,
        vbid: Vbid,
        promised: CopiesEpoch,
        recorded: Option<CopiesEpoch>,
    ) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        let _no_flush_step = self.flushers.hold(vbid);
        let state = vbucket.state_with_epochs(promised, recorded);
        self.commit_state(vbid, state.clone())?;
        vbucket.adopt_epochs(&state);
        assert!(vbucket.copy_standing().promised >= promised, "a promise is kept");
        Ok(())
    }

    /// The first step of [`Bucket::promote`]: the store has the new history, and the vbucket still
    /// serves nothing. No stream changes the copy until the second step. Blocks for the store.
    ///
    /// # Errors
    /// As [`Bucket::promote`].
    pub fn prepare_promotion(
        &self,
        vbid: Vbid,
        epoch: CopiesEpoch,
    ) -> Result<PreparedPromotion, CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        self.flush_part(vbid, vbucket)?;
        let _no_flush_step = self.flushers.hold(vbid);
        self.store_promotion(vbid, vbucket, epoch).map(PreparedPromotion)
    }

    /// The second step: the vbucket serves. False when the copy has changed since the first. Does
    /// not wait for the store.
    pub fn complete_promotion(&self, vbid: Vbid, prepared: &PreparedPromotion) -> bool {
        let Some(vbucket) = self.vbucket(vbid) else { return false };
        let is_promoted = {
            let _change = self.core.ownership_changes().begin();
            vbucket.promote(&prepared.0)
        };
        if is_promoted {
            self.reconcile(std::iter::once(vbucket));
        }
        is_promoted
    }

    /// Continues as the active copy in another epoch, which begins at the high seqno. The history
    /// stays. Durable when it returns. Blocks for the store.
    ///
    /// # Errors
    /// The bucket keeps no copies, the vbucket is not active, or the store's.
    pub fn continue_in_epoch(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        {
            let _change = self.core.ownership_changes().begin();
            if !vbucket.continue_history(epoch) {
                return Err(CopyRoleError::NotActive);
            }
        }
        self.flush_up_to(vbid, vbucket.high_seqno())?;
        let _no_flush_step = self.flushers.hold(vbid);
        let state = vbucket.state_with_epochs(epoch, Some(epoch));
        self.commit_state(vbid, state.clone())?;
        vbucket.adopt_epochs(&state);
        assert!(vbucket.copy_standing().promised >= epoch, "an active has promised its epoch");
        Ok(())
    }

    /// Ends to serve clients, and feeds the copies that follow still. Does not block. False when
    /// that is not possible now.
    pub fn begin_hand_over(&self, vbid: Vbid) -> bool {
        let _change = self.core.ownership_changes().begin();
        self.vbucket(vbid).is_some_and(VBucket::begin_hand_over)
    }

    /// Calls `sink` once with `token` when a vbucket that hands over appends nothing any more; at
    /// once if that is so now.
    pub fn when_final(&self, vbid: Vbid, sink: &Arc<dyn PersistenceSink>, token: u64) {
        let vbucket = self.vbucket(vbid).filter(|vbucket| vbucket.is_handing_over());
        if vbucket.is_none_or(|vbucket| vbucket.wait_for_pending(sink, token)) {
            sink.persisted(token, PersistOutcome::Persisted);
        }
    }

    /// Ends to serve a vbucket as its active copy; the copy stays. Does not block.
    pub fn step_down(&self, vbid: Vbid) {
        let _change = self.core.ownership_changes().begin();
        if let Some(vbucket) = self.vbucket(vbid) {
            vbucket.step_down();
        }
    }

    /// Numbers of the vbuckets that are copies here, or active.
    pub fn copies(&self) -> impl Iterator<Item = &VBucket> {
        self.vbuckets().iter().filter(|vbucket| vbucket.is_owned())
    }
}
