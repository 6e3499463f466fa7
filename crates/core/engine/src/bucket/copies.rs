//! Roles of vbuckets on a store that belongs to this process: active, replica, dead.
//!
//! Owns: the order of memory and store in a change of role, and how a collection that only the
//! active knows yet comes into force. Called by the owner of the assignment and the replication
//! consumer. Invariants:
//! 1. A change waits for the flush step under way, so no commit of one role lands in another.
//! 2. A vbucket has a role in memory only when the store has it. The store is first: if it fails,
//!    the old role stays, and the next commit repeats that in the store.
//! 3. A vbucket whose documents go is dead until the store has forgotten them, in one step with
//!    its next state. If the store fails, it stays dead, and the change can be repeated.

use oribi_storage::{StoreError, VbBatch, VbucketPhase, VbucketState};
use oribi_types::policy::Storage;
use oribi_types::{CopiesEpoch, Timestamp, Vbid};

use super::Bucket;
use crate::collections::BucketManifest;
use crate::error::ManifestUpdateError;
use crate::system_event::ManifestEvent;
use crate::tasks::no_clock;
use crate::vbucket::{Promotion, VBucket};

/// Flush steps that a promotion waits for.
pub(super) const FLUSH_STEPS_MAX: usize = 10_000;

/// Why the role of a vbucket does not change.
#[derive(Debug, thiserror::Error)]
pub enum CopyRoleError {
    #[error("the bucket has no such vbucket")]
    NoVbucket,
    #[error("the bucket's store keeps no copies: copies need a persistent bucket on the local log")]
    Unsupported,
    #[error("the vbucket is no replica")]
    NotReplica,
    #[error("the vbucket is not active")]
    NotActive,
    #[error("the vbucket is still being flushed; stop its stream and try again")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Bucket {
    pub(super) fn copy_of(&self, vbid: Vbid) -> Result<&VBucket, CopyRoleError> {
        let is_supported =
            self.config().storage == Storage::Persistent && self.shared_store().is_none();
        let vbucket = self.vbucket(vbid).ok_or(CopyRoleError::NoVbucket)?;
        if is_supported { Ok(vbucket) } else { Err(CopyRoleError::Unsupported) }
    }

    /// Makes a vbucket a copy of one that is active elsewhere. It keeps its documents, if it could
    /// load them; the stream says whether it has to forget them. Blocks for the store.
    ///
    /// # Errors
    /// The bucket keeps no copies, or the store's.
    pub fn become_replica(&self, vbid: Vbid) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        if vbucket.is_replica() {
            return Ok(());
        }
        {
            let _no_flush_step = self.flushers.hold(vbid);
            if let Some(state) = vbucket.replica_state() {
                self.commit_state(vbid, state)?;
                let _change = self.core.ownership_changes().begin();
                if vbucket.become_replica() {
                    return Ok(());
                }
            }
        }
        self.forget(vbid, VbucketPhase::Replica)
    }

    /// Makes a replica active. A new history begins at the end of the last complete snapshot.
    /// Blocks for the store.
    ///
    /// # Errors
    /// `NotReplica`, or the store's.
    pub fn promote(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        self.flush_part(vbid, vbucket)?;
        {
            let _no_flush_step = self.flushers.hold(vbid);
            let promotion = self.store_promotion(vbid, vbucket, epoch)?;
            let _change = self.core.ownership_changes().begin();
            if !vbucket.promote(&promotion) {
                return Err(CopyRoleError::Busy);
            }
        }
        self.reconcile(std::iter::once(vbucket));
        Ok(())
    }

    /// Flushes until the store is not inside of a snapshot that memory has to its end: a backfill
    /// of the new active would take that for a moment of the history.
    pub(super) fn flush_part(&self, vbid: Vbid, vbucket: &VBucket) -> Result<(), CopyRoleError> {
        for _ in 0..FLUSH_STEPS_MAX {
            if !vbucket.has_unflushed_part() {
                break;
            }
            vbucket.mark_dirty(self.core.signals());
            self.flusher_step(usize::from(vbid.0) % self.flusher_count(), &no_clock)?;
        }
        Ok(())
    }

    /// Makes the state of a promotion durable. No flush is under way.
    pub(super) fn store_promotion(
        &self,
        vbid: Vbid,
        vbucket: &VBucket,
        epoch: CopiesEpoch,
    ) -> Result<Promotion, CopyRoleError> {
        if vbucket.has_unflushed_part() {
            return Err(CopyRoleError::Busy);
        }
        let promotion = vbucket.promotion(self.new_uuid(), epoch);
        let promotion = promotion.ok_or(CopyRoleError::NotReplica)?;
        assert_eq!(promotion.state.phase, VbucketPhase::Active, "a promoted copy is active");
        self.commit_state(vbid, promotion.state.clone())?;
        Ok(promotion)
    }

    /// Drops a vbucket's documents, in memory and on disk, and continues as an empty copy. Blocks
    /// for the store.
    ///
    /// # Errors
    /// `NotReplica`, or the store's.
    pub fn empty_replica(&self, vbid: Vbid) -> Result<(), CopyRoleError> {
        if !self.copy_of(vbid)?.is_replica() {
            return Err(CopyRoleError::NotReplica);
        }
        self.forget(vbid, VbucketPhase::Replica)
    }

    /// Forgets a vbucket, in memory and on disk. Blocks for the store.
    ///
    /// # Errors
    /// The bucket keeps no copies, or the store's.
    pub fn drop_copy(&self, vbid: Vbid) -> Result<(), CopyRoleError> {
        self.copy_of(vbid)?;
        self.forget(vbid, VbucketPhase::Dead)
    }

    fn forget(&self, vbid: Vbid, phase: VbucketPhase) -> Result<(), CopyRoleError> {
        let vbucket = self.copy_of(vbid)?;
        let _no_purge = self.tombstone_purge.hold();
        let _no_flush_step = self.flushers.hold(vbid);
        let _change = self.core.ownership_changes().begin();
        let state = VbucketState { phase, ..vbucket.give_up_copy() };
        vbucket.report_memory(&self.core.context(Timestamp::default()));
        self.core.store().drop_vbucket(vbid, Some(&state))?;
        assert!(!vbucket.is_owned(), "a copy that was given up is dead");
        if phase == VbucketPhase::Replica {
            vbucket.begin_empty_copy();
            assert!(vbucket.is_replica(), "an emptied copy is a replica");
        }
        Ok(())
    }

    pub(super) fn commit_state(&self, vbid: Vbid, state: VbucketState) -> Result<(), StoreError> {
        self.core.store().commit(&[VbBatch { vbid, records: Vec::new(), state }])
    }

    /// Brings the scope or collection of an active's event into force, unless the manifest has it.
    ///
    /// # Errors
    /// The event contradicts the manifest, or the store cannot be written.
    pub fn follow_event(&self, event: &ManifestEvent<'_>) -> Result<(), ManifestUpdateError> {
        let next = |before: &BucketManifest| {
            let after = before.following(event).map_err(ManifestUpdateError::Change)?;
            if let Some(after) = &after {
                self.write_manifest(after)?;
            }
            Ok(after)
        };
        self.core
            .collections()
            .change(self.core.signals().first(), next, |before, after| {
                self.add_events_of(before, after);
            })
            .map(drop)
    }
}
