//! How the figures of a vbucket are read.
//!
//! Owns: one accessor for each struct of figures. Each holds the vbucket's locks for a copy of a
//! few sums; none visits all items, and none is on the data path.

use std::sync::atomic::Ordering;

use oribi_types::{CollectionId, DocKey, Seqno};

use super::VBucket;
use super::collection_figures::CollectionStats;
use super::context::Context;
use super::fetching::is_absence_marker;
use super::locks::Locks;
use super::stats::{KeyStats, VbucketStats};
use crate::checkpoint::CheckpointManagerStats;
use crate::hash_table::HashTableStats;
use crate::item::ItemRef;
use crate::outcome::{OperationRejection, ReadTarget};

impl VBucket {
    /// Seqno of the newest version of a collection; 0 when it never had one here.
    pub fn collection_high_seqno(&self, collection: CollectionId) -> Seqno {
        self.table.lock().collections().get(collection).map_or(Seqno(0), |found| found.high_seqno)
    }

    /// A seqno that nothing of the collections was ever written above. It may be too high after a
    /// restart: the newest version of a collection may have been a tombstone that was purged.
    pub(crate) fn collections_high_seqno(&self, ids: &[CollectionId]) -> Seqno {
        let purged_before = Seqno(self.purged_before.load(Ordering::Relaxed));
        ids.iter().map(|id| self.collection_high_seqno(*id)).fold(purged_before, Seqno::max)
    }

    /// Figures at this moment.
    pub fn stats(&self) -> VbucketStats {
        let loading = self.is_loading();
        let expired = self.expired.load(Ordering::Relaxed);
        let cursor = self.persistence_cursor;
        let table = self.table.lock();
        let queue = self.queue.lock();
        assert!(table.evicted_items() <= table.items(), "an evicted document is still a document");
        debug_assert!(
            self.persisted_seqno() <= queue.high_seqno(),
            "the persisted seqno is at most the high seqno"
        );
        VbucketStats {
            phase: self.phase(),
            loading,
            items: table.items(),
            items_evicted: table.evicted_items(),
            datatypes: table.datatypes(),
            tombstones: table.tombstones(),
            item_bytes: table.item_bytes(),
            table_bytes: table.index.table_bytes(),
            queue_items: cursor.map_or(0, |cursor| queue.unprocessed(cursor)),
            queue_bytes: queue.queue_bytes(),
            queue_own_bytes: queue.own_bytes(),
            checkpoints: queue.checkpoint_count(),
            queue_oldest: cursor.and_then(|cursor| queue.oldest_unprocessed(cursor)),
            queue_fill: queue.enqueued(),
            queue_drain: self.drained.load(Ordering::Relaxed),
            ops_create: table.writes().created,
            ops_update: table.writes().updated,
            ops_delete: table.writes().deleted.saturating_sub(expired),
            expired,
            high_seqno: queue.high_seqno(),
            visible_seqno: table.pending.visible_seqno(queue.high_seqno()),
            pending_writes: table.pending.len(),
            persisted_seqno: self.persisted_seqno(),
            purge_seqno: Seqno(self.purge_seqno.load(Ordering::Relaxed)),
            max_cas: queue.max_cas(),
            max_deleted_rev_seqno: table.max_deleted_rev(),
            uuid: self.uuid(),
        }
    }

    /// Clears `out` and fills it with the figures of every collection that ever had a version here,
    /// and of the default one, in order of id. A collection that has left the manifest stays until
    /// its documents are purged; emptying the bucket begins all figures anew. Nothing is allocated
    /// while the lock is held.
    pub fn collection_stats(&self, out: &mut Vec<(CollectionId, CollectionStats)>) {
        out.clear();
        loop {
            let table = self.table.lock();
            let len = table.collections().len();
            if len <= out.capacity() {
                table.collections().copy_to(out);
                assert_eq!(out.len(), len, "every collection has figures");
                return;
            }
            drop(table);
            out.reserve(len);
        }
    }

    /// Figures of the queue.
    pub fn checkpoint_stats(&self) -> CheckpointManagerStats {
        self.queue.lock().stats()
    }

    /// Figures of the hash table. Probe lengths are those of a sample of at most 448 items, so the
    /// lock is held for some ten microseconds whatever the size.
    pub fn hash_table_stats(&self) -> HashTableStats {
        let table = self.table.lock();
        HashTableStats {
            items: table.items(),
            tombstones: table.tombstones(),
            item_bytes: table.item_bytes(),
            ..table.index.stats()
        }
    }

    /// Figures of the version in memory under one key: a document, expired or not, or a tombstone
    /// that has not left the queue.
    ///
    /// # Errors
    /// As a read of the document would be refused.
    pub fn key_stats(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
    ) -> Result<Option<KeyStats>, OperationRejection> {
        let (hash, refer) =
            (self.table.seed().hash(key), |_: &mut Locks, item: &ItemRef| item.clone());
        let found = self.look_up(context, hash, key, ReadTarget::Document, refer)?;
        let found = found.filter(|item| !is_absence_marker(item));
        Ok(found.map(|item| KeyStats {
            is_dirty: item.seqno() > self.persisted_seqno(),
            is_deleted: item.is_deleted(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            flags: item.flags(),
            cas: item.cas(),
            seqno: item.seqno(),
            rev_seqno: item.rev_seqno(),
            is_resident: !item.is_in_store_only(),
        }))
    }
}
