//! Prepares whose values are in the store only.
//!
//! Owns: how the value of an open prepare leaves memory, and how it returns. A copy has to take all
//! that its active took, in that order: were prepares to keep their memory until they are
//! completed, a copy that is full of them could not take what comes before their commits, and two
//! nodes could wait for each other. A replica needs no value, because the commit brings it. An
//! active copy reads it back when the other copies have acknowledged the prepare. Invariants:
//! 1. Only a prepare that the store has is without its value; the store keeps it while it is open.
//! 2. No prepare is committed without its value.
//!
//! Called by the item pager, the flusher, and the completion of prepares.

use std::sync::atomic::Ordering;

use oribi_storage::{KvStore, LARGE_RECORD_BYTES, StoreError, unlimited};
use oribi_types::{CollectionId, DocKey, Seqno};

use super::VBucket;
use super::context::Context;
use super::pending::{PendingWrite, without_value};
use super::preparing::OwnedPrepare;
use crate::item::ItemRef;
use crate::large_read::LARGE_READ;
use crate::prepare;

/// Prepares under one hold of the locks.
const EVICTIONS_PER_SLICE: usize = 128;
/// Bytes of values after which a step of a flusher reads no more back.
const RESTORED_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(EVICTIONS_PER_SLICE > 0 && RESTORED_BYTES_MAX > 0);

impl VBucket {
    /// Takes the values of prepares that the store has out of memory. Returns their number.
    pub(crate) fn evict_prepares(&self, context: &Context<'_>) -> u64 {
        let mut evicted = 0;
        let mut is_last = !self.has_pending.load(Ordering::Acquire);
        while !is_last {
            let values = self.evict_some_prepares();
            is_last = values.len() < EVICTIONS_PER_SLICE;
            evicted += values.len() as u64;
        }
        if evicted > 0 {
            self.report_memory(context);
        }
        evicted
    }

    /// Returns the blocks with the values, to be dropped without a lock.
    fn evict_some_prepares(&self) -> Vec<ItemRef> {
        let mut table = self.table.lock();
        let mut queue = self.queue.lock();
        let stored = table.pending.stored_prepares(self.persisted_seqno());
        let evict = |pending: &mut PendingWrite| {
            queue.pending_removed(pending.counted_bytes());
            let rest = without_value(&pending.item);
            let before = std::mem::replace(&mut pending.item, rest);
            if let Some(prepare) = &mut pending.prepare
                && std::mem::take(&mut prepare.queued_bytes) > 0
            {
                queue.prepare_stored(before.seqno());
            }
            queue.pending_added(pending.counted_bytes());
            assert!(!pending.can_shrink(), "a value is evicted once");
            before
        };
        stored.take(EVICTIONS_PER_SLICE).map(evict).collect()
    }

    /// The oldest prepare is to be committed: its flusher reads the value.
    #[cold]
    pub(super) fn ask_for_value(&self, context: &Context<'_>) {
        debug_assert!(self.persistence_cursor.is_some(), "the value is in the store");
        self.wants_value.store(true, Ordering::Release);
        context.signals.of(self.id).hurry();
    }

    /// True after a commit was put off for want of a value.
    pub(crate) fn wants_value(&self) -> bool {
        self.wants_value.load(Ordering::Acquire)
    }

    /// Reads values back that commits wait for, and commits. A vbucket with more to read wants a
    /// value still.
    ///
    /// # Errors
    /// The store's, or that it has lost a prepare; the next call tries again.
    pub(crate) fn restore_prepares(
        &self,
        context: &Context<'_>,
        store: &dyn KvStore,
    ) -> Result<(), StoreError> {
        let mut bytes = 0;
        while bytes < RESTORED_BYTES_MAX && self.wants_value.swap(false, Ordering::AcqRel) {
            match self.restore_oldest(store) {
                Ok(restored) => bytes += restored,
                Err(error) => {
                    self.wants_value.store(true, Ordering::Release);
                    return Err(error);
                }
            }
            self.complete_prepares(context);
        }
        Ok(())
    }

    /// Reads the value of the oldest prepare, if it is not here. Returns its bytes.
    fn restore_oldest(&self, store: &dyn KvStore) -> Result<usize, StoreError> {
        let Some((seqno, key, bytes)) = self.oldest_without_value() else { return Ok(0) };
        let _turn = (bytes + key.len() >= LARGE_RECORD_BYTES).then(|| LARGE_READ.lock());
        let key = DocKey { collection: CollectionId::PREPARES, key: &key };
        let mut found = None;
        store.get(self.id, key, &mut unlimited, &mut |record| found = OwnedPrepare::of(&record))?;
        let value = found.filter(|found| found.seqno() == seqno).map(|found| found.item);
        let before = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let oldest = table.pending.oldest_without_value();
            match oldest.filter(|oldest| oldest.item.seqno() == seqno) {
                // It was completed since.
                None => return Ok(bytes),
                Some(oldest) => {
                    let Some(value) = value else {
                        let lost =
                            format!("the prepare of {} at seqno {} is lost", self.id, seqno.0);
                        return Err(StoreError::Corrupt(lost));
                    };
                    assert_eq!(value.cas(), oldest.item.cas(), "a seqno has one version");
                    queue.pending_removed(oldest.counted_bytes());
                    let before = std::mem::replace(&mut oldest.item, value);
                    queue.pending_added(oldest.counted_bytes());
                    before
                }
            }
        };
        drop(before);
        Ok(bytes)
    }

    /// Seqno of the oldest prepare, if its value is in the store only, the key that the store has
    /// it under, and the bytes of the value.
    fn oldest_without_value(&self) -> Option<(Seqno, Vec<u8>, usize)> {
        let mut table = self.table.lock();
        let item = &table.pending.oldest_without_value()?.item;
        Some((item.seqno(), prepare::stored_key(item.key()), item.value_bytes()))
    }
}
