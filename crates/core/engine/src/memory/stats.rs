//! Figures of a bucket's memory.
//!
//! Owns: the struct that [`super::Memory`], the item pager, the fetcher and the sums over vbuckets
//! fill in.

use crate::dense::DenseStats;

/// Memory of a bucket, and the work that keeps it within its quota. Sizes in bytes; counts since
/// the bucket was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    pub quota_bytes: u64,
    /// Beyond this the item pager evicts.
    pub high_watermark_bytes: u64,
    pub low_watermark_bytes: u64,
    /// Sum of the six below: what counts against the quota.
    pub used_bytes: u64,
    /// Blocks reachable from the hash tables.
    pub item_bytes: u64,
    pub table_bytes: u64,
    /// The queues' slots, and blocks that only they still hold.
    pub queue_bytes: u64,
    /// Bytes that DCP streams have not sent yet: records of backfills, and copies of queued items.
    pub streams_bytes: u64,
    /// Entries of query indexes.
    pub indexes_bytes: u64,
    /// Dictionaries of dense values.
    pub dictionary_bytes: u64,
    /// Memory of the store's index, in addition to the quota.
    pub store_bytes: u64,
    /// Documents whose value is in memory.
    pub items_resident: u64,
    /// Documents that are in the store only, whole or with their value.
    pub items_evicted: u64,
    /// Of the documents whose value is in memory, those with a dense one, and what readers and the
    /// pager did with such values.
    pub dense: DenseStats,
    /// Values that were made dense.
    pub compressions: u64,
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
    /// Writes refused until memory is free, and because none can be freed.
    pub refused_temporarily: u64,
    pub refused_no_memory: u64,
    /// Of those refused until memory is free, refused only because the whole process is at its
    /// bound.
    pub refused_at_bound: u64,
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
