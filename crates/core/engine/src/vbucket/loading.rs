//! Loading: how warmup fills a vbucket that already serves.
//!
//! Owns: how stored records enter the table, and the end of loading. Until then a miss is not
//! certain, because the record may still come. Invariants: a record enters the table only if
//! nothing is there under its key, because a present version is as new or newer. Nothing that was
//! written, not even a tombstone, leaves the table before loading ends, or the record that it
//! superseded would take its place. Called by warmup.

use std::sync::atomic::Ordering;

use oribi_storage::{Record, VbucketPhase};

use super::committing::CommitGarbage;
use super::{FAILED, LOADING, RECOMMITTING, REPLICA, REPLICA_LOADING, VBucket};
use crate::checkpoint::StreamWaker;
use crate::hash_table::KeyHash;
use crate::item::ItemRef;
use crate::memory::Memory;

impl VBucket {
    /// Makes space for this many documents in a table that is still empty.
    pub(crate) fn reserve(&self, items: u64) {
        let outgrown = {
            let mut table = self.table.lock();
            table.index.reserve(usize::try_from(items).unwrap_or(usize::MAX));
            table.index.take_retired()
        };
        drop(outgrown);
    }

    /// Adds stored documents to the table, each unless there is a version under its key. Leaves
    /// those in `batch` and returns their number. A load that began in another incarnation adds
    /// nothing: its documents may be stale.
    pub(crate) fn load(
        &self,
        memory: &Memory,
        incarnation: u64,
        batch: &mut Vec<(KeyHash, ItemRef)>,
    ) -> u64 {
        let (mut overtaken, mut committed) = (Vec::new(), Vec::new());
        let (retired, change) = {
            let mut table = self.table.lock();
            if self.incarnation() != incarnation {
                return batch.len() as u64;
            }
            for (hash, item) in batch.drain(..) {
                if table.pending.has_version(hash, item.seqno()) {
                    committed.push(self.commit_stored(&mut table, hash));
                    overtaken.push((hash, item));
                    continue;
                }
                if let Some(refused) = table.load(hash, item) {
                    overtaken.push((hash, refused));
                }
                table.show();
            }
            debug_assert!(batch.is_empty(), "every document was loaded or overtaken");
            let queue_bytes = self.queue.lock().own_bytes();
            let change = table.unreported(queue_bytes, memory.report_bytes());
            (table.index.take_retired(), change)
        };
        drop(retired);
        wake_all(committed);
        if let Some(bytes) = change {
            memory.report(bytes);
        }
        *batch = overtaken;
        batch.len() as u64
    }

    /// Notes a stored tombstone that stays in the store.
    pub(crate) fn load_tombstone(&self, incarnation: u64, record: &Record<'_>) {
        debug_assert!(record.deleted, "a stored tombstone");
        let mut committed = None;
        let mut table = self.table.lock();
        if self.incarnation() == incarnation {
            let hash = self.table.seed().hash(record.key);
            if table.pending.has_version(hash, record.seqno) {
                committed = Some(self.commit_stored(&mut table, hash));
            }
            table.load_tombstone(record);
        }
        drop(table);
        wake_all(committed);
    }

    /// Ends loading: all that the store has was added. Removes the tombstones that stayed only
    /// because the vbucket was loading.
    pub(crate) fn finish_loading(&self, incarnation: u64) {
        // Ended first: a tombstone whose slot leaves the queue after this is removed with its slot,
        // and one whose slot has left already is removed here.
        if !self.end_loading(incarnation, VbucketPhase::Active as u8, REPLICA) {
            return;
        }
        let lowest_queued = self.queue.lock().lowest_needed();
        let has_left = |item: &ItemRef| item.is_deleted() && item.seqno() < lowest_queued;
        self.remove_all(has_left, |_| {});
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Abandons loading: the store cannot be read, so the vbucket serves nothing. A replica is dead
    /// until it is loaded after a restart, or given up.
    pub(crate) fn fail_loading(&self, incarnation: u64) {
        if self.end_loading(incarnation, FAILED, VbucketPhase::Dead as u8) {
            self.is_unreadable.store(true, Ordering::Release);
        }
    }

    /// False when the vbucket is not loading, or loads for another incarnation.
    fn end_loading(&self, incarnation: u64, active: u8, replica: u8) -> bool {
        debug_assert_ne!(active, LOADING, "loading ends");
        let _phase_is_steady = self.table.lock();
        let is_same = self.is_loading() && self.incarnation() == incarnation;
        if is_same {
            let phase = if self.is_replica() { replica } else { active };
            self.table.phase().store(phase, Ordering::Release);
            assert!(!self.is_loading(), "loading has ended");
        }
        is_same
    }

    /// The incarnation of which everything stored was loaded and counted; `None` before.
    pub(crate) fn loaded_incarnation(&self) -> Option<u64> {
        let phase = self.table.phase().load(Ordering::Acquire);
        let is_active = phase == VbucketPhase::Active as u8 || phase == RECOMMITTING;
        let is_loaded = is_active || phase == REPLICA;
        is_loaded.then(|| self.incarnation())
    }

    /// True while stored records may still enter the table.
    pub(crate) fn is_loading(&self) -> bool {
        matches!(self.table.phase().load(Ordering::Acquire), LOADING | REPLICA_LOADING)
    }
}

/// Frees what commits have displaced, and wakes the streams that have more to read.
fn wake_all(committed: impl IntoIterator<Item = (CommitGarbage, Vec<StreamWaker>)>) {
    for (garbage, streams) in committed {
        drop(garbage);
        streams.iter().for_each(StreamWaker::wake);
    }
}
