//! Figures of a bucket, summed over its vbuckets when somebody asks.

use oribi_storage::StoreStats;

use crate::vbucket::VbucketStats;

/// What warmup is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WarmupState {
    /// Loads documents with their values.
    #[default]
    Values,
    /// Memory has reached the low watermark: loads keys and metadata.
    Metadata,
    /// Nothing is left to load.
    Done,
}

/// Progress of loading documents from the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WarmupStats {
    /// What it is at.
    pub state: WarmupState,
    /// Vbuckets that had documents to load.
    pub vbuckets: usize,
    /// Of these, loaded. Stores that load all vbuckets together end with all of them.
    pub vbuckets_done: usize,
    /// Documents and tombstones that the store has; an estimate, and 0 when the store has none.
    pub items_estimate: u64,
    /// Documents loaded.
    pub items: u64,
    /// Of these, loaded with their values.
    pub values: u64,
    /// Tombstones seen in the store; they stay there.
    pub tombstones: u64,
    /// Documents that memory had a newer version of, or the same, which an operation had fetched.
    pub overtaken: u64,
    /// Vbuckets whose load failed; they stay in temporary failure.
    pub failed: usize,
    /// True when nothing is left to load.
    pub done: bool,
    /// Wall time from the first step to the last so far, in microseconds.
    pub elapsed_us: u64,
}

/// Memory of a bucket and what was done to keep it within its quota. Sizes in bytes; counts since the
/// bucket was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// The quota.
    pub quota_bytes: u64,
    /// Beyond this the item pager evicts.
    pub high_watermark_bytes: u64,
    /// Here it stops.
    pub low_watermark_bytes: u64,
    /// Sum of the three below: what counts against the quota.
    pub used_bytes: u64,
    /// Blocks reachable from the hash tables.
    pub item_bytes: u64,
    /// The hash tables.
    pub table_bytes: u64,
    /// The queues' slots, and blocks that only they still hold.
    pub queue_bytes: u64,
    /// Documents whose value is in memory.
    pub items_resident: u64,
    /// Documents whose value, or all of them, is in the store only.
    pub items_evicted: u64,
    /// Values, or under full eviction documents, that the item pager took out of memory.
    pub evictions: u64,
    /// Documents that the item pager deleted from a bucket in memory only.
    pub nru_deletions: u64,
    /// Times that the item pager began because memory was above the high watermark.
    pub pager_runs: u64,
    /// Documents asked for by [`crate::Bucket::fetch`].
    pub fetches: u64,
    /// Of these, joined to one for the same document.
    pub fetches_joined: u64,
    /// Of these, failed because the store did.
    pub fetch_failures: u64,
    /// Documents that wait to be fetched now.
    pub fetch_queue: u64,
    /// Writes refused until memory is made, and because none can be made.
    pub refused_temporarily: u64,
    /// As above.
    pub refused_no_memory: u64,
    /// Blocks moved out of sparse chunks to give those back.
    pub blocks_moved: u64,
}

impl MemoryStats {
    /// Part of the documents whose values are in memory, in per cent; 100 when there are none.
    pub fn resident_percent(&self) -> f64 {
        let all = self.items_resident + self.items_evicted;
        if all == 0 { 100.0 } else { self.items_resident as f64 * 100.0 / all as f64 }
    }
}

/// Sums over a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketStats {
    /// Documents, wherever their values are.
    pub items: usize,
    /// Documents by the bits of their datatype, as in [`VbucketStats::datatypes`].
    pub datatypes: [u64; 8],
    /// Tombstones in memory.
    pub tombstones: usize,
    /// Bytes of item blocks.
    pub item_bytes: usize,
    /// Bytes of hash tables.
    pub table_bytes: usize,
    /// Items not yet persisted, those that are being written included.
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
    /// Memory, watermarks, evictions and fetches.
    pub memory: MemoryStats,
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
        self.memory.used_bytes
    }

    pub(crate) fn add(&mut self, vbucket: &VbucketStats) {
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
