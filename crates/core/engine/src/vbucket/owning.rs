//! Ownership of a vbucket: how this node takes it and gives it up.
//!
//! Owns: those transitions. A vbucket of a store that several nodes share is on one node at a time:
//! it is dead elsewhere, with an empty table and an empty queue. Invariants:
//! 1. The phase and the incarnation change only under the table's lock, the incarnation also only
//!    under the queue's. So an operation that has begun under a lock ends before ownership does.
//! 2. Work without a lock (a flush, a load, a fetch) carries the incarnation in which it began, and
//!    is ignored in another.
//! 3. Ownership begins only while no flush is under way; the bucket ensures it.
//! 4. A waiter in one history never waits for a seqno of another: it names the history of its
//!    seqno. A history that begins shows its name before its seqnos, and then fails all waiters
//!    that are left.
//!
//! Called by the bucket, on behalf of the cluster's assignment.

use std::sync::atomic::Ordering;

use oribi_storage::{VbucketPhase, VbucketState};

use super::{
    FAILED, HANDING_OVER, LOADING, RECOMMITTING, REPLICA, REPLICA_LOADING, RETIRING, STARTING,
    VBucket,
};
use crate::checkpoint::StreamWaker;

impl VBucket {
    /// Phase of the vbucket on this node.
    pub fn phase(&self) -> VbucketPhase {
        match self.table.phase().load(Ordering::Acquire) {
            // A vbucket that could not be loaded is active, too: no other node serves it.
            LOADING | FAILED | HANDING_OVER | RECOMMITTING => VbucketPhase::Active,
            STARTING => VbucketPhase::Pending,
            REPLICA | REPLICA_LOADING => VbucketPhase::Replica,
            phase if phase == VbucketPhase::Active as u8 => VbucketPhase::Active,
            _ => VbucketPhase::Dead,
        }
    }

    /// True while this node may change what the store has of the vbucket.
    pub fn is_owned(&self) -> bool {
        self.table.phase().load(Ordering::Acquire) != VbucketPhase::Dead as u8
    }

    /// True while clients are served: the vbucket is this node's and not retiring.
    pub fn is_serving(&self) -> bool {
        self.phase() == VbucketPhase::Active
    }

    /// True while clients may see documents of a vbucket that is served. Streams to other nodes
    /// need [`VBucket::is_serving`] only.
    pub fn serves_clients(&self) -> bool {
        self.is_serving() && self.table.phase().load(Ordering::Acquire) != RECOMMITTING
    }

    /// True for a copy of another node's vbucket.
    pub fn is_replica(&self) -> bool {
        self.phase() == VbucketPhase::Replica
    }

    /// Number of the ownership, or of the time without one.
    pub fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Marks a dead vbucket as one that this node is taking over. From here on this node may write
    /// its state.
    pub(crate) fn claim(&self) {
        let _phase_is_steady = self.table.lock();
        if !self.is_owned() {
            self.table.phase().store(STARTING, Ordering::Release);
            assert!(!self.is_serving(), "a claimed vbucket serves nothing yet");
        }
    }

    /// Continues a claimed vbucket from its stored state. The vbucket serves nothing yet.
    pub(crate) fn continue_from(&self, state: &VbucketState) {
        *self.copy_state.lock() = super::copy_state::copy_state_of(state);
        let uuid = state.failover_table.first().map_or(0, |entry| entry.uuid.0);
        *self.failover_table.lock() = state.failover_table.clone();
        // Stored before the seqnos, by which a waiter of the last history could take its write for
        // durable.
        self.uuid.store(uuid, Ordering::Release);
        let expelled = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            assert!(!self.is_serving(), "a history begins before it is served");
            assert_eq!(table.index.len(), 0, "a vbucket of another node has nothing in memory");
            let expelled = queue.restart(state.high_seqno, state.max_cas);
            table.continue_from(state.max_deleted_rev_seqno, state.high_seqno);
            self.persisted_seqno.store(state.high_seqno.0, Ordering::Release);
            self.purge_seqno.store(state.purge_seqno.0, Ordering::Relaxed);
            self.purged_before.store(state.purge_seqno.0, Ordering::Relaxed);
            self.doubtful_seqno.store(0, Ordering::Relaxed);
            assert_eq!(queue.high_seqno(), state.high_seqno, "the queue continues from the store");
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            expelled
        };
        self.settle(expelled);
        // A waiter of the last history may have registered after that history failed its waiters.
        self.fail_waits();
    }

    /// Begins to serve a claimed vbucket; its documents, if any, are loaded concurrently.
    pub(crate) fn begin_serving(&self) {
        let _phase_is_steady = self.table.lock();
        if self.table.phase().load(Ordering::Acquire) != STARTING {
            return;
        }
        let is_empty = self.persisted_seqno().0 == 0;
        let phase = if is_empty { VbucketPhase::Active as u8 } else { LOADING };
        self.table.phase().store(phase, Ordering::Release);
        assert!(self.is_serving(), "a vbucket that begins to serve is active");
    }

    /// Serves nothing from here on. The flusher still writes the queue.
    pub(crate) fn retire(&self) {
        let phase_is_steady = self.table.lock();
        if self.is_owned() {
            self.table.phase().store(RETIRING, Ordering::Release);
            assert!(self.is_owned() && !self.is_serving(), "a retiring vbucket is only flushed");
        }
        drop(phase_is_steady);
        let streams = self.end_streams(&mut self.queue.lock());
        streams.iter().for_each(StreamWaker::wake);
    }

    /// Serves nothing from here on and forgets everything, durable or not. Waiters are failed. True
    /// when the vbucket was this node's.
    pub(crate) fn relinquish(&self) -> bool {
        self.relinquish_if(|_| true)
    }

    /// The same, if the vbucket is claimed and not served yet.
    pub(crate) fn relinquish_claimed(&self) -> bool {
        self.relinquish_if(|phase| phase == STARTING)
    }

    fn relinquish_if(&self, is_to_go: impl FnOnce(u8) -> bool) -> bool {
        let (streams, dropped, pending, expelled) = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            if !self.is_owned() || !is_to_go(self.table.phase().load(Ordering::Acquire)) {
                return false;
            }
            self.table.phase().store(VbucketPhase::Dead as u8, Ordering::Release);
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            let streams = self.end_streams(&mut queue);
            let pending = self.clear_pending(&mut table, &mut queue);
            let (dropped, expelled) = (table.clear(), queue.clear());
            assert!(!self.is_owned(), "a vbucket that was given up is dead");
            assert_eq!(table.items(), 0, "a dead vbucket has no document in memory");
            (streams, dropped, pending, expelled)
        };
        drop((dropped, pending));
        self.settle(expelled);
        streams.iter().for_each(StreamWaker::wake);
        self.fail_waits();
        true
    }

    /// True when everything that was queued is durable.
    pub fn is_flushed(&self) -> bool {
        self.high_seqno() == self.persisted_seqno()
    }
}
