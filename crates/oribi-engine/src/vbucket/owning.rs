//! How a vbucket becomes this node's, and how it ceases to be.
//!
//! Owns: those transitions. A vbucket of a store that several nodes share is on one node at a time: it is
//! dead elsewhere, with an empty table and an empty queue. Invariants:
//! 1. The phase and the incarnation change only while the table is locked, the incarnation also only while
//!    the queue is, so that an operation that has begun under a lock ends before ownership does.
//! 2. Whatever was begun without a lock (a flush, a load, a fetch) carries the incarnation in which it
//!    began, and nothing of it counts in another.
//! 3. Ownership begins only while no flush is under way; the bucket sees to it.
//! 4. Nobody waits in one history for a seqno of another: who waits names the history that gave the seqno, and a history
//!    that begins shows its name before its seqnos, and then tells everybody who still waits that nobody knows.
//!
//! Callers: the bucket, for whoever assigns vbuckets to nodes.

use std::sync::atomic::Ordering;

use oribi_storage::{VbucketPhase, VbucketState};

use super::{FAILED, LOADING, RETIRING, STARTING, VBucket};

impl VBucket {
    /// What the vbucket does on this node.
    pub fn phase(&self) -> VbucketPhase {
        match self.phase.load(Ordering::Acquire) {
            // One that could not be loaded is active, too: nobody else serves it.
            LOADING | FAILED => VbucketPhase::Active,
            STARTING => VbucketPhase::Pending,
            phase if phase == VbucketPhase::Active as u8 => VbucketPhase::Active,
            _ => VbucketPhase::Dead,
        }
    }

    /// True while this node may change what the store has of the vbucket.
    pub fn is_owned(&self) -> bool {
        self.phase.load(Ordering::Acquire) != VbucketPhase::Dead as u8
    }

    /// True while clients may be told what the vbucket has: it is this node's, and its last time has not come.
    pub fn is_serving(&self) -> bool {
        self.phase() == VbucketPhase::Active
    }

    /// Number of the ownership, or of the time without.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Marks a dead vbucket as one that this node is taking over. From here on the store is told that it owns it.
    pub(crate) fn claim(&self) {
        let _phase_is_steady = self.table.lock();
        if !self.is_owned() {
            self.phase.store(STARTING, Ordering::Release);
        }
    }

    /// Continues what was claimed from the state in the store. It serves nothing yet.
    pub(crate) fn continue_from(&self, state: &VbucketState) {
        let uuid = state.failover_table.first().map_or(0, |entry| entry.uuid.0);
        *self.failover_table.lock() = state.failover_table.clone();
        // Before anything by which a waiter of the history before could take its seqno for durable.
        self.uuid.store(uuid, Ordering::Release);
        let expelled = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let expelled = queue.restart(state.high_seqno, state.max_cas);
            table.continue_from(state.max_deleted_rev_seqno, state.high_seqno);
            self.persisted_seqno.store(state.high_seqno.0, Ordering::Release);
            self.purge_seqno.store(state.purge_seqno.0, Ordering::Relaxed);
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            expelled
        };
        self.settle(expelled);
        // Who was about to wait when the last history ended may have come after those who waited were told.
        self.waiters.fail_all();
    }

    /// Begins to serve what was claimed; its documents are loaded meanwhile, if there are any.
    pub(crate) fn begin_serving(&self) {
        let _phase_is_steady = self.table.lock();
        if self.phase.load(Ordering::Acquire) != STARTING {
            return;
        }
        let is_empty = self.persisted_seqno().0 == 0;
        let phase = if is_empty { VbucketPhase::Active as u8 } else { LOADING };
        self.phase.store(phase, Ordering::Release);
    }

    /// Serves nothing from here on. What is queued is still flushed.
    pub(crate) fn retire(&self) {
        let _phase_is_steady = self.table.lock();
        if self.is_owned() {
            self.phase.store(RETIRING, Ordering::Release);
        }
    }

    /// Serves nothing from here on and forgets everything, be it durable or not. Who waits for the store is told
    /// that nobody knows. True when the vbucket was this node's.
    pub(crate) fn relinquish(&self) -> bool {
        self.relinquish_if(|_| true)
    }

    /// The same, only for a vbucket that is claimed and not served yet.
    pub(crate) fn relinquish_claimed(&self) -> bool {
        self.relinquish_if(|phase| phase == STARTING)
    }

    fn relinquish_if(&self, is_to_go: impl FnOnce(u8) -> bool) -> bool {
        let (dropped, expelled) = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            if !self.is_owned() || !is_to_go(self.phase.load(Ordering::Acquire)) {
                return false;
            }
            self.phase.store(VbucketPhase::Dead as u8, Ordering::Release);
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            let (dropped, expelled) = (table.clear(), queue.clear());
            table.index.show_to(&self.groups);
            (dropped, expelled)
        };
        drop(dropped);
        self.settle(expelled);
        self.waiters.fail_all();
        true
    }

    /// True when everything that was queued is durable.
    pub(crate) fn is_flushed(&self) -> bool {
        self.high_seqno() == self.persisted_seqno()
    }
}
