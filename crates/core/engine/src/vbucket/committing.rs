//! How a pending write of a vbucket begins, is committed, or is given up.
//!
//! Owns: those transitions, which change table, queue and [`PendingWrites`] together, under both
//! locks. Commits of a batch are made in slices, so that other operations get in between; what they
//! displace is freed and streams are woken without a lock. Called by writes, the flusher, fetches
//! and the loader.

use std::sync::atomic::Ordering;

use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno};

use super::VBucket;
use super::context::Context;
use super::pending::{PENDING_BYTES, PendingWrite, PendingWrites};
use super::shared_table::TableGuard;
use crate::checkpoint::{CheckpointManager, StreamWaker};
use crate::hash_table::{GroupMemory, KeyHash};
use crate::item::{ItemRef, NewItem};
use crate::outcome::{AppliedMutation, OperationRejection};
use crate::persistence::PersistOutcome;

/// Commits under one hold of the table's lock.
pub(super) const COMMITS_PER_SLICE: usize = 128;

/// Blocks that a commit displaced, to be dropped after the locks are released.
pub(super) type CommitGarbage = (Option<ItemRef>, Vec<GroupMemory>, Option<ItemRef>);

impl VBucket {
    /// Queues a version and holds it until the store has it. `previous` is the seqno of the version
    /// in the table.
    #[cold]
    pub(super) fn hold_back<K>(
        &self,
        context: &Context<'_>,
        mut table: TableGuard<'_>,
        (hash, new): (KeyHash, NewItem),
        (previous, rev_seqno, cas): (Option<Seqno>, RevSeqno, Option<Cas>),
        keep: impl FnOnce(&ItemRef) -> K,
    ) -> (AppliedMutation, K) {
        let report_bytes = context.memory.report_bytes();
        let mut queue = self.queue.lock();
        let item = queue.enqueue_pending(new, previous, rev_seqno, cas, context.now);
        assert_eq!(item.seqno(), queue.high_seqno(), "the newest version has the high seqno");
        assert!(previous.is_none_or(|previous| previous < item.seqno()), "versions in order");
        queue.pending_added(item.block_bytes() + PENDING_BYTES);
        let (queue_bytes, queued_bytes) = (queue.own_bytes(), queue.growth(report_bytes));
        // Before its seqno becomes visible: a writer that reads the seqno then checks for pending
        // writes.
        self.has_pending.store(true, Ordering::Release);
        drop(queue);
        let (cas, seqno, vb_uuid) = (item.cas(), item.seqno(), self.uuid());
        let written = (AppliedMutation { cas, seqno, vb_uuid }, keep(&item));
        if item.is_deleted() {
            // Persisted with the state of the batch, which may be read before the commit.
            table.raise_max_deleted_rev(rev_seqno);
        }
        table.pending.hold(hash, PendingWrite { item, prepare: None });
        let change = table.unreported(queue_bytes, report_bytes);
        drop(table);
        self.note_queued(context, change, queued_bytes, false);
        written
    }

    /// True while a write of the key waits for the store.
    pub(super) fn is_pending(&self, hash: KeyHash) -> bool {
        self.has_pending.load(Ordering::Acquire) && self.table.lock().pending.has(hash)
    }

    /// The rejection of a request whose key has a pending write.
    #[cold]
    pub(super) fn pending_rejection(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
    ) -> OperationRejection {
        match self.check_phase() {
            Err(rejection) => rejection,
            Ok(()) if !context.knows(key.collection) => OperationRejection::UnknownCollection,
            Ok(()) => OperationRejection::DurableWriteInProgress,
        }
    }

    /// The store has everything up to `end`: commits the pending writes up to there, some at a
    /// time. Does nothing unless the batch was read in this incarnation.
    pub(super) fn commit_pending(&self, end: Seqno, incarnation: u64) {
        let mut is_last = !self.has_pending.load(Ordering::Acquire);
        while !is_last {
            let mut garbage: Vec<CommitGarbage> = Vec::new();
            let streams = {
                let mut table = self.table.lock();
                let mut queue = self.queue.lock();
                if self.incarnation() != incarnation {
                    return;
                }
                let hash = |item: &ItemRef| self.table.seed().hash(item.key());
                while garbage.len() < COMMITS_PER_SLICE
                    && let Some(pending) = table.pending.take_oldest(end, hash)
                {
                    garbage.push(self.commit(&mut table, &mut queue, pending));
                }
                is_last = garbage.len() < COMMITS_PER_SLICE;
                debug_assert!(
                    !is_last || table.pending.lowest_held().is_none_or(|lowest| lowest > end),
                    "each flushed version is committed"
                );
                self.released(&table, &mut queue)
            };
            streams.iter().for_each(StreamWaker::wake);
        }
    }

    /// A read of the store has returned the pending version of a key, so the store has it.
    pub(super) fn commit_stored(
        &self,
        table: &mut TableGuard<'_>,
        hash: KeyHash,
    ) -> (CommitGarbage, Vec<StreamWaker>) {
        let mut queue = self.queue.lock();
        let pending = table.pending.take(hash).expect("the caller has found it");
        let garbage = self.commit(table, &mut queue, pending);
        let streams = self.released(table, &mut queue);
        (garbage, streams)
    }

    pub(super) fn commit(
        &self,
        table: &mut TableGuard<'_>,
        queue: &mut CheckpointManager,
        pending: PendingWrite,
    ) -> CommitGarbage {
        debug_assert!(pending.prepare.is_none(), "a commit of a prepare has its own seqno");
        queue.pending_removed(pending.counted_bytes());
        let item = pending.item;
        let hash = self.table.seed().hash(item.key());
        let seqno = item.seqno();
        let replaced = table.commit(hash, item);
        assert!(
            replaced.as_ref().is_none_or(|replaced| replaced.seqno() < seqno),
            "a commit replaces an older version"
        );
        if let Some(replaced) = &replaced {
            table.locks.end(replaced);
            queue.released(replaced.seqno());
        }
        table.show();
        (replaced, table.index.take_retired(), None)
    }

    /// After versions were committed or given up. Returns the streams that have more to read: the
    /// caller has to wake them, because nothing else will.
    #[must_use]
    pub(super) fn released(
        &self,
        table: &TableGuard<'_>,
        queue: &mut CheckpointManager,
    ) -> Vec<StreamWaker> {
        queue.hold_from(table.pending.lowest_held());
        debug_assert!(
            table.pending.lowest_held().is_none_or(|lowest| queue.readable_seqno() < lowest),
            "streams stop in front of a pending version"
        );
        self.has_pending.store(!table.pending.is_empty(), Ordering::Release);
        if queue.has_idle_stream() { queue.take_idle_streams() } else { Vec::new() }
    }

    /// Drops the pending versions of collections that `keep` refuses: they never enter the table.
    pub(super) fn retain_pending(&self, keep: impl Fn(CollectionId) -> bool) {
        if !self.has_pending.load(Ordering::Acquire) {
            return;
        }
        let (mut dropped, mut closed, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
        let streams = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let hash = |item: &ItemRef| self.table.seed().hash(item.key());
            let gone: Vec<KeyHash> = table.pending.of_dropped(&keep).map(hash).collect();
            for hash in gone {
                let Some(pending) = table.pending.take(hash) else { continue };
                debug_assert!(
                    !keep(pending.item.key().collection),
                    "only writes of dropped collections leave"
                );
                if pending.prepare.is_some() {
                    given_up.push((pending.item.seqno(), PersistOutcome::Failed));
                    let at = Seqno(queue.high_seqno().0.max(pending.item.seqno().0 + 1));
                    closed.push(self.close_prepare(&mut table, &mut queue, pending, at));
                    continue;
                }
                queue.pending_removed(pending.counted_bytes());
                queue.orphaned(&pending.item);
                dropped.push(pending);
            }
            self.end_recommitting(&table);
            self.released(&table, &mut queue)
        };
        drop((dropped, closed));
        self.commit_waiters.decided(&given_up);
        streams.iter().for_each(StreamWaker::wake);
    }

    /// Drops the pending writes, because the vbucket is emptied or abandoned.
    pub(super) fn clear_pending(
        &self,
        table: &mut TableGuard<'_>,
        queue: &mut CheckpointManager,
    ) -> PendingWrites {
        let pending = std::mem::take(&mut table.pending);
        for write in pending.iter() {
            queue.pending_removed(write.counted_bytes());
        }
        queue.hold_from(None);
        self.has_pending.store(false, Ordering::Release);
        pending
    }

    /// True while a write of `key` is pending.
    #[cfg(test)]
    pub(crate) fn has_pending_write(&self, key: DocKey<'_>) -> bool {
        self.is_pending(self.table.seed().hash(key))
    }
}
