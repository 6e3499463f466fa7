//! Which vbuckets of a shared store are this node's: taking over, and giving up.
//!
//! Owns: the order of the steps. A take-over waits until no flush and no purge of this bucket is in
//! flight. Then it claims the vbuckets, fences earlier owners and reads the states
//! ([`oribi_storage::SharedStore::take_over`]), serves, and makes the beginning of a new
//! history durable before anything else. So the store never repeats a commit of one ownership in
//! another. If the node dies before that, its history was never persisted, and no write of it was:
//! the next owner's history begins at the same seqno. An orderly hand-over is
//! [`Bucket::stop_serving`], flush steps until [`VBucket::is_flushed`], then
//! [`Bucket::deactivate`]; a sudden one is the last alone. Called by the cluster, which assigns
//! vbuckets to nodes.

use std::sync::Arc;

use oribi_storage::{FailoverEntry, Ownership, SharedStore, StoreError, VbBatch, VbucketState};
use oribi_types::{CopiesEpoch, Vbid};

use super::Bucket;
use crate::vbucket::{VBucket, push_history};

impl Bucket {
    /// The store when several nodes may have the bucket's documents open at once.
    pub fn shared_store(&self) -> Option<&dyn SharedStore> {
        self.core.store().shared()
    }

    /// Removes the documents that a shared store has outside of the bucket's directory, for a
    /// stopped bucket that is being deleted.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_shared_data(&self) -> Result<(), StoreError> {
        self.shared_store().map_or(Ok(()), SharedStore::remove)
    }

    /// Vbuckets that this node owns, including those that it only flushes still.
    pub fn owned(&self) -> Vec<Vbid> {
        self.core.owned()
    }

    /// The number of changes of which vbuckets this node serves and with which histories, those
    /// under way included. State that was built from the vbuckets at an earlier number may lack
    /// some.
    pub fn ownership_changes(&self) -> u64 {
        self.core.ownership_changes().count()
    }

    /// The same, unless a change is under way.
    pub fn settled_ownership_changes(&self) -> Option<u64> {
        self.core.ownership_changes().settled()
    }

    /// Reads from the store to find out whether it answers. Blocks for it.
    ///
    /// # Errors
    /// The store's.
    pub fn ask_store(&self) -> Result<(), StoreError> {
        self.core.store().vbucket_states().map(drop)
    }

    /// Sets the source that knows how long this node owns its vbuckets. Called before the first
    /// take-over.
    pub fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        self.core.set_ownership(ownership);
    }

    /// Takes vbuckets over from their last owners, and serves each as soon as the store allows;
    /// warmup loads their documents concurrently. Skips those that this node owns already. Gives
    /// those up again that their last owner has written to since. Blocks until the store has the
    /// new histories, which no flush of the bucket precedes.
    ///
    /// # Errors
    /// The store's. All of the vbuckets are given up then, also those that were served already;
    /// with `Fenced` only those that were lost, or that the store did not come to.
    pub fn take_over(&self, vbuckets: &[Vbid]) -> Result<(), StoreError> {
        self.take_over_unless(vbuckets, &|| false)
    }

    /// [`Bucket::take_over`] that can be called off while it waits for the store: it serves nothing
    /// more if `is_called_off` becomes true and [`Bucket::call_off`] is called after that. It does
    /// not end sooner.
    ///
    /// # Errors
    /// As [`Bucket::take_over`]; `Fenced` when it was called off.
    pub fn take_over_unless(
        &self,
        vbuckets: &[Vbid],
        is_called_off: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let _no_purge = self.tombstone_purge.hold();
        let _no_flush_step = self.flushers.hold_all();
        let is_wanted =
            |vbid: &Vbid| self.vbucket(*vbid).is_some_and(|vbucket| !vbucket.is_owned());
        let wanted: Vec<Vbid> = vbuckets.iter().copied().filter(is_wanted).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        // First, because the store asks what this node owns, and a loss of ownership must find
        // these vbuckets too.
        wanted.iter().filter_map(|vbid| self.vbucket(*vbid)).for_each(VBucket::claim);
        // Asked after the claim: a later `call_off` finds the claimed vbuckets and keeps them from
        // being served.
        let taken = match is_called_off() {
            true => Err(StoreError::Fenced("the take-over was called off".into())),
            false => self.take_over_claimed(&wanted),
        };
        let lost = match &taken {
            Ok(()) => self.core.lost(&wanted, true),
            Err(StoreError::Fenced(_)) => self.core.lost(&wanted, false),
            Err(_) => wanted.clone(),
        };
        assert!(lost.len() <= wanted.len(), "only a claimed vbucket is lost");
        lost.iter().for_each(|vbid| self.deactivate(*vbid));
        // Those that the store did not come to.
        self.call_off(&wanted);
        match (taken, lost.is_empty()) {
            (Ok(()), false) => Err(StoreError::Fenced("it was lost meanwhile".into())),
            (taken, _) => taken,
        }
    }

    /// Serves each vbucket as soon as the store reports it, and persists the beginnings of the new
    /// histories at the end, because the store may accept no write before.
    fn take_over_claimed(&self, wanted: &[Vbid]) -> Result<(), StoreError> {
        let mut batches = Vec::with_capacity(wanted.len());
        let Some(store) = self.shared_store() else {
            return Err(StoreError::Foreign("this kind of store belongs to one process".into()));
        };
        let overtaken = store.take_over(wanted, &mut |part, known| {
            for vbid in part {
                let found = known.iter().find(|(known, _)| known == vbid);
                let state = found.map_or_else(VbucketState::empty, |(_, state)| state.clone());
                let state = self.first_state(state);
                if let Some(vbucket) = self.vbucket(*vbid) {
                    vbucket.continue_from(&state);
                }
                batches.push(VbBatch { vbid: *vbid, records: Vec::new(), state });
            }
            self.serve(part);
        })?;
        // As if this node had died: nothing of its time was persisted.
        overtaken.iter().for_each(|vbid| self.deactivate(*vbid));
        batches.retain(|batch| !overtaken.contains(&batch.vbid));
        assert!(batches.len() <= wanted.len(), "a vbucket is taken over once");
        self.core.store().commit(&batches)
    }

    /// Serves those of the claimed vbuckets that this node has not lost since.
    fn serve(&self, claimed: &[Vbid]) {
        let lost = self.core.lost(claimed, true);
        let kept = claimed.iter().copied().filter(|vbid| !lost.contains(vbid));
        let kept: Vec<Vbid> = kept.collect();
        self.reconcile(kept.iter().filter_map(|vbid| self.vbucket(*vbid)));
        self.warmup.serve_and_load(&self.core, &kept);
    }

    /// The state with which a vbucket continues here. It begins a new history, because writes that
    /// the last owner acknowledged and had not persisted are lost.
    fn first_state(&self, mut state: VbucketState) -> VbucketState {
        let entry =
            FailoverEntry { uuid: self.new_uuid(), seqno: state.high_seqno, epoch: CopiesEpoch(0) };
        push_history(&mut state.failover_table, entry);
        assert_eq!(state.failover_table.first(), Some(&entry), "the newest history comes first");
        VbucketState { phase: oribi_storage::VbucketPhase::Active, ..state }
    }

    /// Answers "not my vbucket" from here on. The flusher still flushes the queue, soon.
    pub fn stop_serving(&self, vbid: Vbid) {
        if let Some(vbucket) = self.vbucket(vbid) {
            let _change = self.core.ownership_changes().begin();
            vbucket.retire();
            self.core.signals().of(vbid).hurry();
        }
    }

    /// Answers "not my vbucket" from here on and forgets the vbucket, flushed or not. Waits for
    /// durability end as ambiguous. Does not wait for the store.
    pub fn deactivate(&self, vbid: Vbid) {
        self.core.deactivate(vbid);
    }

    /// Abandons vbuckets whose take-over is under way.
    pub fn call_off(&self, vbuckets: &[Vbid]) {
        for vbucket in vbuckets.iter().filter_map(|vbid| self.vbucket(*vbid)) {
            vbucket.relinquish_claimed();
        }
    }
}
