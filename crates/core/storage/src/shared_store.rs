//! Stores whose data several processes have open at once: ownership and takeover of vbuckets.
//!
//! Invariant: at most one process writes a vbucket. A takeover fences the earlier owner in the
//! store itself, so it does not depend on a message that reaches that owner.

use std::sync::Arc;

use oribi_types::Vbid;

use crate::{StoreError, VbucketState};

/// Knows which vbuckets this process still owns. The store's own threads call it when another
/// process has changed something, so it may be called at any time from several threads.
pub trait Ownership: Send + Sync {
    /// Whether this process may still write the vbucket. "Yes" must hold by a lease's deadline on a
    /// monotonic clock, not by a message that could be late.
    fn owns(&self, vbid: Vbid) -> bool;
}

/// Receives vbuckets that were taken over, and the states of those that have one.
pub type PartVisitor<'v> = dyn FnMut(&[Vbid], Vec<(Vbid, VbucketState)>) + 'v;

/// A [`KvStore`](crate::KvStore) whose data several processes can have open. A takeover precedes
/// the first write.
pub trait SharedStore: Send + Sync {
    /// Makes this process the owner of these vbuckets: whatever an earlier owner has sent and will
    /// ever send fails as a whole, however late it arrives, unless that owner's [`Ownership`] says
    /// that it still owns the vbucket.
    ///
    /// `ready` gets vbuckets as soon as they can be served, and the states of those that have one;
    /// each vbucket once, unless there is an error. A later write may wait until the store accepts
    /// it. Returns the vbuckets that `ready` got too early, because an earlier owner has written
    /// since: the caller has to give them up. With an [`Ownership`] it can, because that owner
    /// acknowledges nothing any more.
    fn take_over(
        &self,
        vbuckets: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError>;

    /// Sets the source that knows which vbuckets this process owns. Without it the process owns
    /// the vbuckets that it has taken over, until another process takes any over.
    fn set_ownership(&self, ownership: Arc<dyn Ownership>);

    /// An id of the shared data: the same for all processes and for as long as the data exists.
    fn id(&self) -> Option<String> {
        None
    }

    /// Removes the data of a deleted bucket. The caller uses the store no more.
    fn remove(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The owner is about to close the store. From now on reads for clients and loads end at once,
    /// with [`StoreError::Away`], and any other call that waits for the network within half a
    /// minute.
    fn end_waits(&self) {}
}
