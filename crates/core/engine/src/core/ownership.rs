//! Which vbuckets of a shared store this node owns, and giving them up.
//!
//! Owns: the answer, from the vbuckets' phases and from the [`Ownership`] that knows how long a
//! lease holds. Giving up does not wait for the store. Called by the facade, which takes over, and
//! by the flusher when the store reports another owner.

use std::sync::Arc;

use oribi_storage::{Ownership, StoreError};
use oribi_types::{Timestamp, Vbid};

use super::Core;
use crate::vbucket::VBucket;

impl Core {
    /// Vbuckets that this node owns, including those that it only flushes still.
    pub(crate) fn owned(&self) -> Vec<Vbid> {
        self.vbuckets.iter().filter(|vbucket| vbucket.is_owned()).map(VBucket::id).collect()
    }

    /// Sets the source that knows how long this node owns its vbuckets.
    pub(crate) fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        if let Some(store) = self.store.shared() {
            store.set_ownership(Arc::clone(&ownership));
        }
        self.ownership.store(Some(Arc::new(ownership)));
    }

    /// Those that this node no longer owns by its own account; without an [`Ownership`] it owns all
    /// (`unasked`) or none.
    pub(crate) fn lost(&self, vbuckets: &[Vbid], unasked: bool) -> Vec<Vbid> {
        let ownership = self.ownership.load();
        debug_assert!(
            vbuckets.iter().all(|vbid| self.vbucket(*vbid).is_some()),
            "vbuckets of the map"
        );
        let owns = |vbid| {
            let says = ownership.as_ref().map_or(unasked, |ownership| ownership.owns(vbid));
            says && self.vbucket(vbid).is_some_and(VBucket::is_owned)
        };
        vbuckets.iter().copied().filter(|vbid| !owns(*vbid)).collect()
    }

    /// Forgets a vbucket, flushed or not. Waits for durability end as ambiguous.
    pub(crate) fn deactivate(&self, vbid: Vbid) {
        let _change = self.ownership_changes.begin();
        if let Some(vbucket) = self.vbucket(vbid)
            && vbucket.relinquish()
        {
            vbucket.report_memory(&self.context(Timestamp::default()));
        }
    }

    /// The store reports another owner: deactivates the vbuckets that this node no longer owns by
    /// its own account, or all without an [`Ownership`].
    pub(crate) fn deactivate_fenced(&self, error: &StoreError) {
        let lost = self.lost(&self.owned(), false);
        if lost.is_empty() {
            return;
        }
        tracing::error!(bucket = self.name(), %error, vbuckets = lost.len(), "another node owns vbuckets that were served here; they are given up");
        lost.into_iter().for_each(|vbid| self.deactivate(vbid));
    }
}
