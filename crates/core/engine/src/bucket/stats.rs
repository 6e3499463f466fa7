//! Figures of a bucket.
//!
//! Owns: the accessors behind stats and metrics. Each locks one vbucket at a time, for a bounded
//! time; none formats text or is on the data path. [`Bucket::key_on_disk`] and [`Bucket::stats`]
//! read the disk, so a caller that must not wait does not call them.

use std::collections::BTreeMap;

use oribi_storage::{Record, StoreError, StoreStats, unlimited};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Timestamp, Vbid};

use super::Bucket;
use crate::backfill::BackfillStats;
use crate::dense::DenseStats;
use crate::failure::{FailedOperations, StoreOperation};
use crate::item::ItemRef;
use crate::memory::MemoryStats;
use crate::outcome::MetaOutcome;
use crate::tasks::TaskStats;
use crate::timings::BucketTimings;
use crate::vbucket::VbucketStats;
use crate::warmup::WarmupStats;

/// Sums over a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketStats {
    /// Documents, wherever their values are.
    pub items: usize,
    /// Documents by the bits of their datatype, as in [`VbucketStats::datatypes`].
    pub datatypes: [u64; 8],
    pub tombstones: usize,
    /// Bytes of item blocks.
    pub item_bytes: usize,
    /// Bytes of hash tables.
    pub table_bytes: usize,
    /// Items not yet persisted, including those in flight to the store.
    pub queue_items: usize,
    /// Bytes held by the checkpoint queues, most of them shared with the tables.
    pub queue_bytes: usize,
    /// Checkpoints over all vbuckets.
    pub checkpoints: usize,
    pub vbuckets_active: usize,
    /// Vbuckets that are still loading.
    pub vbuckets_loading: usize,
    pub memory_quota_bytes: u64,
    /// Memory, watermarks, evictions and fetches.
    pub memory: MemoryStats,
    pub warmup: WarmupStats,
    /// The store's own figures.
    pub store: StoreStats,
    /// Operations that fail in the store now.
    pub failed: FailedOperations,
}

impl BucketStats {
    /// Bytes that count against the quota.
    pub fn mem_used_bytes(&self) -> u64 {
        self.memory.used_bytes
    }

    fn add(&mut self, vbucket: &VbucketStats) {
        assert!(vbucket.items_evicted <= vbucket.items, "an evicted document is still a document");
        self.items += vbucket.items;
        self.tombstones += vbucket.tombstones;
        for (sum, count) in self.datatypes.iter_mut().zip(vbucket.datatypes) {
            *sum += u64::from(count);
        }
        self.item_bytes += vbucket.item_bytes;
        self.table_bytes += vbucket.table_bytes;
        self.memory.used_bytes +=
            (vbucket.item_bytes + vbucket.table_bytes + vbucket.queue_own_bytes) as u64;
        self.memory.item_bytes += vbucket.item_bytes as u64;
        self.memory.table_bytes += vbucket.table_bytes as u64;
        self.memory.queue_bytes += vbucket.queue_own_bytes as u64;
        self.memory.items_resident += (vbucket.items - vbucket.items_evicted) as u64;
        self.memory.items_evicted += vbucket.items_evicted as u64;
        self.queue_items += vbucket.queue_items;
        self.queue_bytes += vbucket.queue_bytes;
        self.checkpoints += vbucket.checkpoints;
        self.vbuckets_active += usize::from(!vbucket.loading);
        self.vbuckets_loading += usize::from(vbucket.loading);
    }
}

impl Bucket {
    /// Figures of the dense values of each collection that has some.
    pub fn dense_collections(&self) -> BTreeMap<CollectionId, DenseStats> {
        self.core.memory().dense().collection_stats()
    }
}

/// How a stored version relates to the one in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskState {
    /// Memory has the same version with the same content, or without its value.
    Same,
    /// Memory has a newer version, which is not flushed yet.
    Stale,
    /// Memory has nothing under this key: right for a tombstone and for a document that was evicted
    /// whole, wrong for any other.
    NotInMemory,
    /// Memory has the same version with other content, or an older one: the store is damaged.
    Differs,
}

/// The store's version of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyOnDisk {
    /// Compared with memory at the time of the read.
    pub state: DiskState,
    /// True for a tombstone.
    pub is_deleted: bool,
    pub cas: Cas,
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    pub rev_seqno: RevSeqno,
    /// Expiry in UNIX seconds, 0 for none; the time of deletion for a tombstone.
    pub expiry: u32,
    pub flags: u32,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// Length of the value.
    pub value_bytes: usize,
}

impl Bucket {
    /// Sums over the bucket at this moment. May read the disk.
    pub fn stats(&self) -> BucketStats {
        let mut memory = self.core.memory().stats();
        self.pager.add_stats(&mut memory);
        self.fetcher.add_stats(&mut memory);
        let mut stats = BucketStats {
            warmup: self.warmup.stats(),
            store: self.core.store().stats(),
            failed: self.core.failing(),
            memory_quota_bytes: memory.quota_bytes,
            memory,
            ..Default::default()
        };
        stats.memory.used_bytes =
            stats.memory.streams_bytes + stats.memory.indexes_bytes + stats.memory.dictionary_bytes;
        for vbucket in self.vbuckets() {
            stats.add(&vbucket.stats());
        }
        if stats.store.compaction_fails {
            stats.failed = stats.failed.with(StoreOperation::Compaction);
        }
        stats
    }

    /// Figures of the backfills of change streams.
    pub fn backfill_stats(&self) -> BackfillStats {
        self.backfiller.stats(self.core.memory())
    }

    /// Reads the store's version of one key and compares it with memory; `None` when the store has
    /// none or the vbucket is outside the map. Blocks for the disk.
    ///
    /// # Errors
    /// The store's, when it cannot be read.
    pub fn key_on_disk(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
    ) -> Result<Option<KeyOnDisk>, StoreError> {
        let mut found = None;
        // Memory is read last: it may be ahead of the store, never behind it.
        self.core.store().get(vbid, key, &mut unlimited, &mut |record| {
            // At time 0 nothing has expired, so the look-up changes nothing.
            let context = self.context(Timestamp::default());
            let memory = self.vbucket(vbid).map(|vbucket| match vbucket.is_replica() {
                true => vbucket.get_replica_meta(&context, key),
                false => vbucket.get_meta(&context, key),
            });
            let memory = match memory {
                Some(MetaOutcome::Found(item, _)) => Some(item),
                Some(MetaOutcome::Miss | MetaOutcome::Refused(_)) | None => None,
            };
            found = Some(on_disk(&record, memory.as_ref()));
        })?;
        Ok(found)
    }

    /// Kinds of background work and their cost.
    pub fn task_stats(&self) -> Vec<TaskStats> {
        self.core.tasks().stats()
    }

    /// A copy of the distributions that background work has recorded.
    pub fn timings(&self) -> BucketTimings {
        self.core.timings().clone()
    }

    /// Begins all distributions anew.
    pub fn reset_timings(&self) {
        *self.core.timings() = BucketTimings::default();
    }
}

fn on_disk(record: &Record<'_>, memory: Option<&ItemRef>) -> KeyOnDisk {
    KeyOnDisk {
        state: memory.map_or(DiskState::NotInMemory, |item| compare(record, item)),
        is_deleted: record.deleted,
        cas: record.cas,
        seqno: record.seqno,
        rev_seqno: record.rev_seqno,
        expiry: record.expiry,
        flags: record.flags,
        datatype: record.datatype,
        value_bytes: record.value.len(),
    }
}

fn compare(record: &Record<'_>, item: &ItemRef) -> DiskState {
    if item.seqno() > record.seqno {
        return DiskState::Stale;
    }
    let is_same = item.seqno() == record.seqno
        && item.cas() == record.cas
        && item.rev_seqno() == record.rev_seqno
        && item.flags() == record.flags
        && item.expiry() == record.expiry
        && item.datatype() == record.datatype
        && item.is_deleted() == record.deleted
        && (item.is_in_store_only()
            || item.to_plain().is_ok_and(|plain| plain.value() == record.value));
    if is_same { DiskState::Same } else { DiskState::Differs }
}
