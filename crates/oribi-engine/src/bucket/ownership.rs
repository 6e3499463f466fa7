//! Which vbuckets of a shared store are this node's: taking over, and giving up.
//!
//! Owns: the order of what has to happen. To take over is, with no flush and no purge of this bucket under
//! way: fence earlier owners and read the states ([`oribi_storage::KvStore::take_over`]), claim the
//! vbuckets, make the beginning of a new history durable, serve. Because nothing of an earlier ownership
//! is under way then, no commit that was begun in one can be repeated by the store in another.
//! To give up in order is [`Bucket::stop_serving`], flush steps until [`Bucket::is_flushed`], then
//! [`Bucket::deactivate`]; without order it is the last alone. Called by whoever assigns vbuckets to
//! nodes, and by the flusher when the store says that another owner has come.

use std::sync::Arc;

use oribi_storage::{FailoverEntry, Ownership, StoreError, VbBatch, VbucketState};
use oribi_types::Vbid;

use super::Bucket;
use crate::vbucket::{VBucket, push_history};

impl Bucket {
    /// Whether several nodes may have the bucket's documents open at once.
    pub fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Names what the nodes share, alike on all of them.
    pub fn shared_id(&self) -> Option<String> {
        self.store.shared_id()
    }

    /// Removes what the store has outside of the bucket's directory. The bucket was stopped and is deleted.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_remote(&self) -> Result<(), StoreError> {
        self.store.remove_remote()
    }

    /// Vbuckets that this node owns, those that it serves no more but still flushes included.
    pub fn owned(&self) -> Vec<Vbid> {
        self.vbuckets.iter().filter(|vbucket| vbucket.is_owned()).map(VBucket::id).collect()
    }

    /// Asks the store something, to find out whether it answers. Blocks for it.
    ///
    /// # Errors
    /// The store's.
    pub fn ask_store(&self) -> Result<(), StoreError> {
        self.store.vbucket_states().map(drop)
    }

    /// Whether this node owns a vbucket.
    pub fn is_owned(&self, vbid: Vbid) -> bool {
        self.vbucket(vbid).is_some_and(VBucket::is_owned)
    }

    /// Whether clients may be told what a vbucket has.
    pub fn is_serving(&self, vbid: Vbid) -> bool {
        self.vbucket(vbid).is_some_and(VBucket::is_serving)
    }

    /// Sets who knows how long this node owns what it has taken over. To be called before that.
    pub fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        self.store.set_ownership(Arc::clone(&ownership));
        self.ownership.store(Some(Arc::new(ownership)));
    }

    /// Takes vbuckets over from whoever had them and serves them when it returns; their documents are
    /// loaded meanwhile. Those that are owned already are left as they are. Blocks for the store.
    ///
    /// # Errors
    /// The store's. None of the vbuckets was taken over then.
    pub fn take_over(&self, vbuckets: &[Vbid]) -> Result<(), StoreError> {
        self.take_over_unless(vbuckets, &|| false)
    }

    /// [`Bucket::take_over`] for somebody who may change their mind while it waits for the store: it serves nothing if
    /// `is_called_off` comes true and after that [`Bucket::call_off`] is called. It ends no sooner for that.
    ///
    /// # Errors
    /// As there; `Fenced` when it was called off.
    pub fn take_over_unless(
        &self,
        vbuckets: &[Vbid],
        is_called_off: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let _no_purge = self.tombstone_purge.hold();
        let _no_flush_step = self.flush_lock.lock();
        let is_wanted =
            |vbid: &Vbid| self.vbucket(*vbid).is_some_and(|vbucket| !vbucket.is_owned());
        let wanted: Vec<Vbid> = vbuckets.iter().copied().filter(is_wanted).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        // First, because the store asks what is owned; and whoever ends ownership finds these vbuckets, too.
        wanted.iter().filter_map(|vbid| self.vbucket(*vbid)).for_each(VBucket::claim);
        // Asked once they are claimed: whoever calls it off later finds them, and they are not served.
        let taken = match is_called_off() {
            true => Err(StoreError::Fenced("the take-over was called off".into())),
            false => self.take_over_claimed(&wanted),
        };
        match taken {
            Ok(()) => self.serve_and_load(&wanted),
            Err(_) => wanted.iter().for_each(|vbid| self.deactivate(*vbid)),
        }
        taken
    }

    fn take_over_claimed(&self, wanted: &[Vbid]) -> Result<(), StoreError> {
        let known = self.store.take_over(wanted)?;
        let mut batches = Vec::with_capacity(wanted.len());
        for vbid in wanted {
            let found = known.iter().find(|(known, _)| known == vbid);
            let state = self
                .first_state(found.map_or_else(VbucketState::empty, |(_, state)| state.clone()));
            if let Some(vbucket) = self.vbucket(*vbid) {
                vbucket.continue_from(&state);
            }
            batches.push(VbBatch { vbid: *vbid, records: Vec::new(), state });
        }
        self.store.commit(&batches)?;
        match self.lost(wanted, true).is_empty() {
            true => Ok(()),
            false => Err(StoreError::Fenced("the node's lease ended meanwhile".into())),
        }
    }

    /// The state in which a vbucket goes on here: in a history of its own, because what the last owner had
    /// acknowledged and not yet persisted is gone.
    fn first_state(&self, mut state: VbucketState) -> VbucketState {
        let entry = FailoverEntry { uuid: self.new_uuid(), seqno: state.high_seqno };
        push_history(&mut state.failover_table, entry);
        VbucketState { phase: oribi_storage::VbucketPhase::Active, ..state }
    }

    /// Answers "not my vbucket" from here on. What is queued is still flushed, soon.
    pub fn stop_serving(&self, vbid: Vbid) {
        if let Some(vbucket) = self.vbucket(vbid) {
            vbucket.retire();
            self.signal.hurry();
        }
    }

    /// True when nothing of the vbucket waits to be flushed.
    pub fn is_flushed(&self, vbid: Vbid) -> bool {
        self.vbucket(vbid).is_none_or(VBucket::is_flushed)
    }

    /// Answers "not my vbucket" from here on and forgets the vbucket, be it flushed or not. Whoever waits for
    /// durability is told that nobody knows. Waits for no store.
    pub fn deactivate(&self, vbid: Vbid) {
        if let Some(vbucket) = self.vbucket(vbid)
            && vbucket.relinquish()
        {
            vbucket.report_memory(&self.context(oribi_types::Timestamp::default()));
        }
    }

    /// Gives up what is being taken over and not served yet.
    pub fn call_off(&self, vbuckets: &[Vbid]) {
        for vbucket in vbuckets.iter().filter_map(|vbid| self.vbucket(*vbid)) {
            vbucket.relinquish_claimed();
        }
    }

    /// The store says that another owner has taken something over: what is not this node's by its own account is
    /// given up; everything, when there is nobody to ask.
    pub(crate) fn deactivate_fenced(&self, error: &StoreError) {
        let lost = self.lost(&self.owned(), false);
        if lost.is_empty() {
            return;
        }
        let bucket = self.config().name.as_str();
        tracing::error!(bucket, %error, vbuckets = lost.len(), "another node owns vbuckets that were served here; they are given up");
        lost.into_iter().for_each(|vbid| self.deactivate(vbid));
    }

    /// Those that this node does not own by its own account; when there is nobody to ask it owns all or none.
    fn lost(&self, vbuckets: &[Vbid], unasked: bool) -> Vec<Vbid> {
        let ownership = self.ownership.load();
        let owns = |vbid| {
            let says = ownership.as_ref().map_or(unasked, |ownership| ownership.owns(vbid));
            says && self.is_owned(vbid)
        };
        vbuckets.iter().copied().filter(|vbid| !owns(*vbid)).collect()
    }
}
