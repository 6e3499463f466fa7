//! Figures of a bucket, summed over its vbuckets when somebody asks.

use oribi_storage::StoreStats;

use crate::vbucket::VbucketStats;

/// Progress of loading documents from the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WarmupStats {
    /// Vbuckets that had documents to load.
    pub vbuckets: usize,
    /// Of these, loaded.
    pub vbuckets_done: usize,
    /// Documents loaded.
    pub items: u64,
    /// Tombstones seen in the store; they stay there.
    pub tombstones: u64,
    /// Vbuckets whose load failed; they stay in temporary failure.
    pub failed: usize,
    /// True when nothing is left to load.
    pub done: bool,
    /// Wall time from the first load to the last, in microseconds.
    pub elapsed_us: u64,
}

/// Sums over a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketStats {
    /// Documents in memory.
    pub items: usize,
    /// Tombstones in memory.
    pub tombstones: usize,
    /// Bytes of item blocks.
    pub item_bytes: usize,
    /// Bytes of hash tables.
    pub table_bytes: usize,
    /// Items not yet persisted.
    pub queue_items: usize,
    /// Bytes held by the checkpoint queues, most of them shared with the tables.
    pub queue_bytes: usize,
    /// Checkpoints over all vbuckets.
    pub checkpoints: usize,
    /// Vbuckets that serve.
    pub vbuckets_active: usize,
    /// Vbuckets that are still loading.
    pub vbuckets_loading: usize,
    /// The quota.
    pub memory_quota_bytes: u64,
    /// Loading.
    pub warmup: WarmupStats,
    /// The store's own figures.
    pub store: StoreStats,
    /// True while commits fail; writes are refused meanwhile.
    pub storage_failed: bool,
}

impl BucketStats {
    /// Bytes that count against the quota.
    pub fn mem_used_bytes(&self) -> u64 {
        (self.item_bytes + self.table_bytes) as u64
    }

    pub(crate) fn add(&mut self, vbucket: &VbucketStats) {
        self.items += vbucket.items;
        self.tombstones += vbucket.tombstones;
        self.item_bytes += vbucket.item_bytes;
        self.table_bytes += vbucket.table_bytes;
        self.queue_items += vbucket.queue_items;
        self.queue_bytes += vbucket.queue_bytes;
        self.checkpoints += vbucket.checkpoints;
        self.vbuckets_active += usize::from(!vbucket.loading);
        self.vbuckets_loading += usize::from(vbucket.loading);
    }
}
