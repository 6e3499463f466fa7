//! The flusher's side of a vbucket: what to persist next, and what follows from success or failure.
//!
//! Owns: the mark by which the flusher finds the vbucket, the moves of the persistence cursor, and
//! memory recovery of the queue. Invariants: a batch is either flushed or failed before the next
//! one is read; only a flushed batch is acknowledged; what leaves the queue is freed without a
//! lock. Called by the flusher and by checkpoint recovery.

use std::sync::atomic::Ordering;

use oribi_storage::{VbucketPhase, VbucketState};
use oribi_types::{Cas, CollectionId, RevSeqno, Seqno};

use super::{PrepareLog, VBucket};
use crate::checkpoint::{CursorBatch, ExpelledCheckpoints, ReadLimits, StreamWaker};
use crate::flusher_signal::FlusherSignals;

/// One vbucket's part of a flush.
pub(crate) struct FlushRead {
    pub(crate) batch: CursorBatch,
    /// The state at the end of the batch, without prepares.
    pub(crate) state: VbucketState,
    pub(crate) prepares: PrepareLog,
    /// To be handed back with the batch.
    pub(crate) incarnation: u64,
}

impl VBucket {
    /// Marks the vbucket for its flusher and wakes that, unless it is marked already or lives in
    /// memory only.
    pub(crate) fn mark_dirty(&self, signals: &FlusherSignals) {
        if self.persistence_cursor.is_none() {
            return;
        }
        if !self.dirty.load(Ordering::Relaxed) && !self.dirty.swap(true, Ordering::AcqRel) {
            signals.of(self.id()).notify();
        }
    }

    /// Takes the flusher's mark away; true when there was one.
    pub(crate) fn take_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) && self.dirty.swap(false, Ordering::AcqRel)
    }

    /// Reads the next batch to persist, and the state at its end. `None` when there is nothing, or
    /// the vbucket is not this node's.
    pub(crate) fn read_for_flush(&self, limits: ReadLimits) -> Option<FlushRead> {
        let cursor = self.persistence_cursor?;
        // The queue is read first: the table's maximum can then only be too high, which costs
        // nothing.
        let (batch, incarnation) = {
            let mut queue = self.queue.lock();
            if !self.is_owned() {
                return None;
            }
            (queue.read(cursor, limits)?, self.incarnation())
        };
        let state = self.state_at(batch.end, batch.max_cas);
        debug_assert_eq!(state.high_seqno, batch.end, "a state ends with its batch");
        let prepares = self.table.lock().pending.log.clone();
        Some(FlushRead { batch, state, prepares, incarnation })
    }

    /// The state to persist together with everything up to `end`.
    fn state_at(&self, end: Seqno, max_cas: Cas) -> VbucketState {
        VbucketState {
            phase: if self.is_replica() { VbucketPhase::Replica } else { VbucketPhase::Active },
            max_cas,
            max_deleted_rev_seqno: self.table.lock().max_deleted_rev(),
            purge_seqno: self.purge_seqno(),
            failover_table: self.failover_table(),
            ..self.copy_state.lock().clone()
        }
        .complete_at(end)
    }

    /// The durable state. Only while no flush is under way.
    pub(crate) fn persisted_state(&self) -> VbucketState {
        debug_assert!(
            self.persisted_seqno() <= self.high_seqno(),
            "the persisted seqno is at most the high seqno"
        );
        let max_cas = self.queue.lock().max_cas();
        let mut state = self.state_at(self.persisted_seqno(), max_cas);
        if let Some(incomplete) = *self.persisted_incomplete.lock() {
            state.snapshot_start = incomplete.complete_end;
            state.snapshot_end = incomplete.snapshot_end;
        }
        state
    }

    /// Tombstones up to here may be gone.
    pub(crate) fn purge_seqno(&self) -> Seqno {
        Seqno(self.purge_seqno.load(Ordering::Acquire))
    }

    /// Notes that the store may have removed tombstones up to `seqno`.
    pub(crate) fn raise_purge_seqno(&self, seqno: Seqno) {
        self.purge_seqno.fetch_max(seqno.0, Ordering::Release);
    }

    /// Notes the same of tombstones that no figure of a collection may have counted.
    pub(crate) fn purged_unseen(&self, seqno: Seqno) {
        self.purged_before.fetch_max(seqno.0, Ordering::Relaxed);
    }

    /// False only when nothing was ever deleted here.
    pub(crate) fn may_have_tombstones(&self) -> bool {
        self.table.lock().max_deleted_rev() > RevSeqno(0)
    }

    /// The batch that was read is durable: notifies its waiters, and removes the changes that no
    /// cursor needs from the queue, tombstones also from the table. `newest` are the highest seqnos
    /// of the batch by collection. Ignores a batch that was read in an earlier ownership; its
    /// waiters were notified when that ended.
    pub(crate) fn flushed(
        &self,
        batch: CursorBatch,
        incarnation: u64,
        newest: &[(CollectionId, Seqno)],
    ) {
        let end = batch.end;
        debug_assert!(newest.iter().all(|(_, seqno)| *seqno <= end), "seqnos are of the batch");
        self.commit_pending(end, incarnation);
        let expelled = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            if self.incarnation() != incarnation {
                return;
            }
            table.persisted(newest);
            if !table.pending.log.is_empty() {
                let mut stored = self.copy_state.lock();
                *stored = table.pending.log.describe(stored.clone(), end);
                table.pending.log.stored(end);
            }
            drop(table);
            if let Some(cursor) = self.persistence_cursor {
                queue.advance(cursor);
                assert!(queue.high_seqno() >= end, "the persisted seqno is at most the high seqno");
                assert_eq!(queue.settled(cursor), Some(end), "a flushed batch is processed");
            }
            self.drained.fetch_add(batch.item_count as u64, Ordering::Relaxed);
            if self.is_replica() {
                let part = batch.incomplete();
                let part = part.filter(|part| part.snapshot_end > batch.end);
                *self.persisted_incomplete.lock() = part;
            }
            queue.expel()
        };
        // Dropped before the queue's references, so that no block is freed under the table lock.
        drop(batch);
        self.finish_expel(expelled);
        // If ownership has ended concurrently, no waiter is left, and it begins anew only after
        // this.
        debug_assert!(self.persisted_seqno() <= end, "what is durable stays durable");
        self.persisted_seqno.store(end.0, Ordering::Release);
        self.waiters.persisted(end);
    }

    /// The batch that was read may not be durable: it will be read again, unless ownership has
    /// ended.
    pub(crate) fn flush_failed(&self, incarnation: u64) {
        if let Some(cursor) = self.persistence_cursor {
            let mut queue = self.queue.lock();
            if self.incarnation() != incarnation {
                return;
            }
            if let Some(read_to) = queue.stream_position(cursor) {
                self.doubtful_seqno.fetch_max(read_to.0, Ordering::Relaxed);
            }
            queue.rewind(cursor);
            assert!(queue.settled(cursor).is_some(), "a failed batch is read again");
        }
        self.waiters.fail_all();
    }

    /// Bytes that the checkpoint quota counts.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.queue.lock().queue_bytes()
    }

    /// Closes the open checkpoint if it holds at least `bytes_min`, so that it can leave once it is
    /// read.
    pub(crate) fn close_big_checkpoint(&self, bytes_min: usize) {
        let mut queue = self.queue.lock();
        if queue.open_bytes() >= bytes_min {
            queue.close_open();
            debug_assert_eq!(queue.open_bytes(), 0, "a new open checkpoint is empty");
        }
    }

    /// Frees the checkpoints that every cursor has passed.
    pub(crate) fn expel_checkpoints(&self) {
        let expelled = self.queue.lock().expel();
        self.finish_expel(expelled);
    }

    /// Drops streams' cursors that block the queue, and notifies their owners; returns their
    /// number.
    pub(crate) fn drop_slow_cursors(&self) -> usize {
        let dropped = self.queue.lock().drop_slow_cursors();
        dropped.iter().for_each(StreamWaker::wake);
        dropped.len()
    }

    /// Tombstones that have left the queue leave the table, unless documents are still being
    /// loaded: a tombstone keeps the loader from bringing the deleted document back. In memory only
    /// they are gone then, so the purge seqno rises first.
    pub(super) fn finish_expel(&self, expelled: ExpelledCheckpoints) {
        if expelled.is_empty() {
            return;
        }
        for item in expelled.tombstones() {
            debug_assert!(item.is_deleted(), "only tombstones leave the table with their slot");
            let hash = self.table.seed().hash(item.key());
            let mut table = self.table.lock();
            if self.is_loading() {
                break;
            }
            if self.persistence_cursor.is_none() {
                if self.keeps(item) || !table.has_same(hash, item) {
                    continue;
                }
                self.raise_purge_seqno(item.seqno());
            }
            table.remove_same(hash, item);
        }
        self.settle(expelled);
    }

    /// Frees the items that have left the queue, then releases their bytes from the account.
    pub(super) fn settle(&self, expelled: ExpelledCheckpoints) {
        let freed = expelled.free();
        self.queue.lock().settle(freed);
    }
}
