//! Figures of one vbucket and of one key in it.
//!
//! Owns: their types and how they are read. Each accessor holds the vbucket's locks for a copy of a
//! few sums; none visits all items, and none is on the data path.

use std::sync::atomic::Ordering;

use oribi_storage::VbucketPhase;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Timestamp, VbUuid};

use super::fetching::is_absence_marker;
use super::operations::Context;
use super::sub_document::Sought;
use super::table::DATATYPES;
use super::{CollectionStats, LOADING, VBucket};
use crate::checkpoint::CheckpointManagerStats;
use crate::hash_table::HashTableStats;
use crate::outcome::Refused;

/// Figures of one vbucket, for stats and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VbucketStats {
    /// What the vbucket does.
    pub phase: VbucketPhase,
    /// True while its documents are loaded from the store.
    pub loading: bool,
    /// Documents, wherever their values are.
    pub items: usize,
    /// Of these, with their values, or all of them, in the store only.
    pub items_evicted: usize,
    /// Documents by the bits of their datatype; those that full eviction left in the store of an
    /// earlier run are not among them.
    pub datatypes: [u32; DATATYPES],
    /// Tombstones in memory, waiting to leave the queue.
    pub tombstones: usize,
    /// Bytes of item blocks reachable from the table.
    pub item_bytes: usize,
    /// Bytes of the table itself.
    pub table_bytes: usize,
    /// Items not yet persisted, those that are being written included.
    pub queue_items: usize,
    /// Bytes of queued items and of the queue around them: what the checkpoint quota counts. Most of
    /// the items are the table's as well.
    pub queue_bytes: usize,
    /// Bytes that are the queue's alone: its slots, and blocks that the table has let go of.
    pub queue_own_bytes: usize,
    /// Checkpoints in the queue.
    pub checkpoints: usize,
    /// When the oldest item that is not persisted was queued, by the clock of the write;
    /// `None` when all are persisted.
    pub queue_oldest: Option<Timestamp>,
    /// Mutations queued since the bucket was opened, those that were deduplicated included.
    pub queue_fill: u64,
    /// Items persisted since the bucket was opened.
    pub queue_drain: u64,
    /// Documents created since the bucket was opened.
    pub ops_create: u64,
    /// Documents replaced or changed since the bucket was opened.
    pub ops_update: u64,
    /// Documents deleted since the bucket was opened, expired ones not included.
    pub ops_delete: u64,
    /// Expired documents that were found and removed since the bucket was opened.
    pub expired: u64,
    /// Last seqno assigned.
    pub high_seqno: Seqno,
    /// Last seqno known to be durable.
    pub persisted_seqno: Seqno,
    /// Tombstones up to here may be gone from the store.
    pub purge_seqno: Seqno,
    /// Highest CAS assigned.
    pub max_cas: Cas,
    /// Highest revision of a deletion.
    pub max_deleted_rev_seqno: RevSeqno,
    /// Current history.
    pub uuid: VbUuid,
}

/// Figures of the version in memory under one key: a document, expired or not, or a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyStats {
    /// True while the version is not known to be durable.
    pub is_dirty: bool,
    /// True for a tombstone.
    pub is_deleted: bool,
    /// Expiry in UNIX seconds, 0 for none; the time of deletion for a tombstone.
    pub expiry: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// Opaque client flags.
    pub flags: u32,
    /// Version.
    pub cas: Cas,
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    /// Revision count.
    pub rev_seqno: RevSeqno,
    /// True while the value is in memory.
    pub is_resident: bool,
}

impl VBucket {
    /// Seqno of the newest version of a collection; 0 when it never had one here.
    pub fn collection_high_seqno(&self, collection: CollectionId) -> Seqno {
        self.table.lock().collections().get(collection).map_or(Seqno(0), |found| found.high_seqno)
    }

    /// Figures at this moment.
    pub fn stats(&self) -> VbucketStats {
        let loading = self.phase.load(Ordering::Relaxed) == LOADING;
        let expired = self.expired.load(Ordering::Relaxed);
        let cursor = self.persistence_cursor;
        let table = self.table.lock();
        let queue = self.queue.lock();
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
            persisted_seqno: self.persisted_seqno(),
            purge_seqno: Seqno(self.purge_seqno.load(Ordering::Relaxed)),
            max_cas: queue.max_cas(),
            max_deleted_rev_seqno: table.max_deleted_rev(),
            uuid: self.uuid(),
        }
    }

    /// Clears and fills `out` with the figures of every collection that ever had a version here, and
    /// of the default one, in order of id. Nothing is allocated while the lock is held.
    pub(crate) fn collection_stats(&self, out: &mut Vec<(CollectionId, CollectionStats)>) {
        out.clear();
        loop {
            let table = self.table.lock();
            let len = table.collections().len();
            if len <= out.capacity() {
                table.collections().copy_to(out);
                return;
            }
            drop(table);
            out.reserve(len);
        }
    }

    /// Figures of the queue.
    pub(crate) fn checkpoint_stats(&self) -> CheckpointManagerStats {
        self.queue.lock().stats()
    }

    /// Figures of the hash table, probe lengths by sample.
    pub(crate) fn hash_table_stats(&self) -> HashTableStats {
        let table = self.table.lock();
        HashTableStats {
            items: table.items(),
            tombstones: table.tombstones(),
            item_bytes: table.item_bytes(),
            ..table.index.stats()
        }
    }

    /// Figures of the version under `key`, dead or alive.
    pub(crate) fn key_stats(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
    ) -> Result<Option<KeyStats>, Refused> {
        let found = self.find(context, self.seed.hash(key), key, Sought::Document)?;
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
            is_resident: !item.is_evicted(),
        }))
    }
}
