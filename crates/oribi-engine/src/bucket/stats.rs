//! What a bucket tells about itself.
//!
//! Owns: the accessors behind stats and metrics. Each holds locks for one vbucket at a time and for
//! a bounded time, none formats text, and none is on the data path; [`Bucket::key_on_disk`] and
//! [`Bucket::stats`] read the disk, so a caller that must not wait keeps away from these two.

use std::sync::atomic::Ordering;

use oribi_storage::{Record, StoreError};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Timestamp, Vbid};

use super::Bucket;
use crate::checkpoint::CheckpointManagerStats;
use crate::hash_table::HashTableStats;
use crate::item::ItemRef;
use crate::outcome::{MetaOutcome, Refused};
use crate::stats::BucketStats;
use crate::tasks::TaskStats;
use crate::timings::BucketTimings;
use crate::vbucket::{CollectionStats, KeyStats, VBucket, VbucketStats};

/// How a stored version relates to the one in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskState {
    /// Memory has the same version with the same content, or without its value.
    Same,
    /// Memory has a newer version, which is not flushed yet.
    Stale,
    /// Memory has nothing under this key: right for a tombstone and for what was evicted whole, wrong for
    /// any other document.
    NotInMemory,
    /// Memory has the same version with other content, or an older one: the store is damaged.
    Differs,
}

/// What the store has under one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyOnDisk {
    /// Compared with memory at the time of the read.
    pub state: DiskState,
    /// True for a tombstone.
    pub is_deleted: bool,
    /// Version.
    pub cas: Cas,
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    /// Revision count.
    pub rev_seqno: RevSeqno,
    /// Expiry in UNIX seconds, 0 for none; the time of deletion for a tombstone.
    pub expiry: u32,
    /// Opaque client flags.
    pub flags: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// Length of the value.
    pub value_bytes: usize,
}

impl Bucket {
    /// Sums over the bucket at this moment. May read the disk.
    pub fn stats(&self) -> BucketStats {
        BucketStats { store: self.store.stats(), ..self.memory_stats() }
    }

    /// As [`Bucket::stats`], without the store's figures, which may cost a look at the disk.
    pub(crate) fn memory_stats(&self) -> BucketStats {
        let mut stats = BucketStats {
            warmup: self.warmup.stats(),
            storage_failed: self.storage_failed.load(Ordering::Relaxed),
            memory_quota_bytes: self.memory.quota_bytes(),
            memory: self.memory.stats(),
            ..Default::default()
        };
        for vbucket in self.vbuckets() {
            stats.add(&vbucket.stats());
        }
        stats.memory.fetch_queue = self.fetches.len() as u64;
        stats
    }

    /// Figures of one vbucket.
    pub fn vbucket_stats(&self, vbid: Vbid) -> Option<VbucketStats> {
        self.vbucket(vbid).map(VBucket::stats)
    }

    /// Clears `out` and fills it with the figures of every collection that ever had a version in
    /// the vbucket, and of the default collection, in order of id. A collection that has left the
    /// manifest stays until its documents are purged; emptying the bucket begins all figures anew.
    /// False: there is no such vbucket.
    pub fn collection_stats(
        &self,
        vbid: Vbid,
        out: &mut Vec<(CollectionId, CollectionStats)>,
    ) -> bool {
        out.clear();
        let vbucket = self.vbucket(vbid);
        if let Some(vbucket) = vbucket {
            vbucket.collection_stats(out);
        }
        vbucket.is_some()
    }

    /// Figures of one vbucket's queue.
    pub fn checkpoint_stats(&self, vbid: Vbid) -> Option<CheckpointManagerStats> {
        self.vbucket(vbid).map(VBucket::checkpoint_stats)
    }

    /// Figures of one vbucket's hash table. Probe lengths are those of a sample of at most 448 items,
    /// so the lock is held for some ten microseconds whatever the size.
    pub fn hash_table_stats(&self, vbid: Vbid) -> Option<HashTableStats> {
        self.vbucket(vbid).map(VBucket::hash_table_stats)
    }

    /// Figures of the version in memory under one key: a document, expired or not, or a tombstone
    /// that has not left the queue.
    ///
    /// # Errors
    /// As a read of the document would be refused.
    pub fn key_stats(&self, vbid: Vbid, key: DocKey<'_>) -> Result<Option<KeyStats>, Refused> {
        let vbucket = self.vbucket(vbid).ok_or(Refused::NotMyVbucket)?;
        vbucket.key_stats(&self.context(Timestamp::default()), key)
    }

    /// Reads what the store has under one key and compares it with memory; `None` when it has
    /// nothing. Blocks for the disk. A vbucket outside the map has nothing.
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
        self.store.get(vbid, key, &mut |record| {
            // At time 0 nothing has expired, so the look-up changes nothing.
            let memory = match self.get_meta(vbid, key, Timestamp::default()) {
                MetaOutcome::Found(item, _) => Some(item),
                MetaOutcome::Miss | MetaOutcome::Refused(_) => None,
            };
            found = Some(on_disk(&record, memory.as_ref()));
        })?;
        Ok(found)
    }

    /// What background work there is and what it has cost.
    pub fn task_stats(&self) -> Vec<TaskStats> {
        self.tasks.stats()
    }

    /// A copy of the distributions that background work has recorded.
    pub fn timings(&self) -> BucketTimings {
        self.timings.lock().clone()
    }

    /// Begins all distributions anew.
    pub fn reset_timings(&self) {
        *self.timings.lock() = BucketTimings::default();
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
        && (item.is_evicted() || item.value() == record.value);
    if is_same { DiskState::Same } else { DiskState::Differs }
}
