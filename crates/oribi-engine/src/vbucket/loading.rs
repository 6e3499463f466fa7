//! What warmup does to a vbucket, and how its operations are told.
//!
//! Owns: how stored records enter the table, and the end of loading. A vbucket that loads serves; only
//! that a key is absent is not certain, because the record may still come. Invariants: a record
//! enters the table only if nothing is there under its key, for whatever is there is newer or the same;
//! so nothing that was written, not even a tombstone, leaves the table before loading ends, or the record
//! that it superseded would come in its place. Callers: warmup.

use std::sync::atomic::Ordering;

use oribi_storage::{Record, VbucketPhase};

use super::{FAILED, LOADING, VBucket};
use crate::hash_table::KeyHash;
use crate::item::ItemRef;
use crate::memory::Memory;

/// Groups of the table that are looked at under one hold of its lock.
const GROUPS_PER_SLICE: usize = 256;

impl VBucket {
    /// Makes room for this many documents in a table that is still empty.
    pub(crate) fn reserve(&self, items: u64) {
        let mut table = self.table.lock();
        table.index.reserve(usize::try_from(items).unwrap_or(usize::MAX));
        table.index.show_to(&self.groups);
    }

    /// Puts stored documents into the table, each unless there is something under its key. Leaves
    /// those in `batch`, and says how many they are. All of them when the load began in another
    /// incarnation: what it reads may be older than what the vbucket is now.
    pub(crate) fn load(
        &self,
        memory: &Memory,
        incarnation: u64,
        batch: &mut Vec<(KeyHash, ItemRef)>,
    ) -> u64 {
        let mut overtaken = Vec::new();
        let (retired, change) = {
            let mut table = self.table.lock();
            if self.incarnation() != incarnation {
                return batch.len() as u64;
            }
            for (hash, item) in batch.drain(..) {
                if let Some(refused) = table.load(hash, item) {
                    overtaken.push((hash, refused));
                }
            }
            table.index.show_to(&self.groups);
            let queue_bytes = self.queue.lock().own_bytes();
            let change = table.unreported(queue_bytes, memory.report_bytes());
            (table.index.take_retired(), change)
        };
        drop(retired);
        if let Some(bytes) = change {
            memory.report(bytes);
        }
        *batch = overtaken;
        batch.len() as u64
    }

    /// Takes note of a stored record that stays in the store.
    pub(crate) fn load_tombstone(&self, incarnation: u64, record: &Record<'_>) {
        let mut table = self.table.lock();
        if self.incarnation() == incarnation {
            table.load_tombstone(record);
        }
    }

    /// Ends loading: everything that the store has was in the table or is. Removes the tombstones
    /// that stayed only because the vbucket was loading.
    pub(crate) fn finish_loading(&self, incarnation: u64) {
        // First, so that a tombstone whose slot leaves the queue from here on is removed by whoever
        // lets the slot go, and one whose slot has left already is removed here.
        if !self.end_loading(incarnation, VbucketPhase::Active as u8) {
            return;
        }
        let lowest_queued = self.queue.lock().lowest_needed();
        let mut next = 0;
        let mut seen_count = self.table.lock().index.group_count();
        loop {
            let mut table = self.table.lock();
            let count = table.index.group_count();
            if count != seen_count {
                // The table grew meanwhile, and groups have new numbers.
                (next, seen_count) = (0, count);
            }
            if next >= count {
                return;
            }
            let mut gone = Vec::new();
            for group in next..(next + GROUPS_PER_SLICE).min(count) {
                table.index.visit_group(group, |item| {
                    if item.is_deleted() && item.seqno() < lowest_queued {
                        gone.push(item.clone());
                    }
                });
            }
            for item in &gone {
                table.remove_same(self.seed.hash(item.key()), item);
            }
            next += GROUPS_PER_SLICE;
            drop(table);
            drop(gone);
        }
    }

    /// Gives loading up: the store cannot be read, so the vbucket serves nothing.
    pub(crate) fn fail_loading(&self, incarnation: u64) {
        self.end_loading(incarnation, FAILED);
    }

    /// False when the vbucket is not loading any more, or a load of another incarnation.
    fn end_loading(&self, incarnation: u64, phase: u8) -> bool {
        let _phase_is_steady = self.table.lock();
        let is_same = self.is_loading() && self.incarnation() == incarnation;
        if is_same {
            self.phase.store(phase, Ordering::Release);
        }
        is_same
    }

    /// True while stored records may still come into the table.
    pub(crate) fn is_loading(&self) -> bool {
        self.phase.load(Ordering::Acquire) == LOADING
    }
}
