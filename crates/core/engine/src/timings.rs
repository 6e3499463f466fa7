//! Histograms of a bucket's background work.
//!
//! Owns: one histogram per kind of event, with two significant digits. Flusher and fetcher record,
//! once per step, vbucket or sampled item; operations of clients do not. A value beyond a
//! histogram's range counts as its greatest. Stats read a copy.

use hdrhistogram::Histogram;
use oribi_types::Timestamp;

use crate::item::ItemRef;
use crate::tasks::elapsed_us;

/// Longest time in range: one hour, in microseconds.
const TIME_MAX_US: u64 = 3_600_000_000;
/// Largest number of items of one commit in range.
const ITEMS_MAX: u64 = 1 << 24;
/// Largest block in range: a value of 20 MiB with its key and header fits below.
const BLOCK_BYTES_MAX: u64 = 32 << 20;
/// Significant decimal digits: a resolution of one per cent, for about 10 KiB a histogram.
const DIGITS: u8 = 2;
/// One flushed item in so many is sampled; the first of each vbucket's batch always is.
const SAMPLE_EVERY: usize = 16;
const _: () = assert!(SAMPLE_EVERY > 0 && TIME_MAX_US > 1 && ITEMS_MAX > 1);
const _: () = assert!(DIGITS <= 5, "the most that a histogram has");

/// Copies of a bucket's histograms.
#[derive(Clone, Debug)]
pub struct BucketTimings {
    /// Time of one commit of all dirty vbuckets, its sync included, in microseconds.
    pub disk_commit: Histogram<u64>,
    /// Items of one commit.
    pub flush_batch_items: Histogram<u64>,
    /// Time to read one vbucket's queue, in microseconds.
    pub persistence_cursor_get_all_items: Histogram<u64>,
    /// Time from the mutation of a document until it is durable, in microseconds with a
    /// resolution of 65; one flushed item in sixteen is sampled.
    pub storage_age: Histogram<u64>,
    /// Time to take one vbucket's persisted items out of the queue and to tell their waiters, in
    /// microseconds.
    pub checkpoint_remover: Histogram<u64>,
    /// Time to read one batch of evicted documents and to put them into memory, in microseconds.
    pub bg_load: Histogram<u64>,
    /// Documents of one such batch.
    pub bg_load_items: Histogram<u64>,
    /// Bytes of item blocks; one flushed item in sixteen is sampled.
    pub item_alloc_sizes: Histogram<u64>,
}

impl Default for BucketTimings {
    fn default() -> BucketTimings {
        BucketTimings {
            disk_commit: histogram(TIME_MAX_US),
            flush_batch_items: histogram(ITEMS_MAX),
            persistence_cursor_get_all_items: histogram(TIME_MAX_US),
            storage_age: histogram(TIME_MAX_US),
            checkpoint_remover: histogram(TIME_MAX_US),
            bg_load: histogram(TIME_MAX_US),
            bg_load_items: histogram(ITEMS_MAX),
            item_alloc_sizes: histogram(BLOCK_BYTES_MAX),
        }
    }
}

impl BucketTimings {
    /// Histograms with the names under which tools know them.
    pub fn named(&self) -> [(&'static str, &Histogram<u64>); 8] {
        [
            ("disk_commit", &self.disk_commit),
            ("flush_batch_items", &self.flush_batch_items),
            ("persistence_cursor_get_all_items", &self.persistence_cursor_get_all_items),
            ("storage_age", &self.storage_age),
            ("checkpoint_remover", &self.checkpoint_remover),
            ("bg_load", &self.bg_load),
            ("bg_load_items", &self.bg_load_items),
            ("item_alloc_sizes", &self.item_alloc_sizes),
        ]
    }

    /// A batch of fetches has ended.
    pub(crate) fn fetched(&mut self, items: usize, took_us: u64) {
        self.bg_load.saturating_record(took_us);
        self.bg_load_items.saturating_record(items as u64);
    }

    /// Samples items of a commit that ended at `now`.
    pub(crate) fn flushed<'a>(&mut self, items: impl Iterator<Item = &'a ItemRef>, now: Timestamp) {
        for item in items.step_by(SAMPLE_EVERY) {
            // The upper 48 bits of a CAS are the wall clock at the time of the mutation.
            let queued = Timestamp { unix_ns: item.cas().0 & !0xffff };
            self.storage_age.saturating_record(elapsed_us(queued, now));
            self.item_alloc_sizes.saturating_record(item.block_bytes() as u64);
        }
    }
}

fn histogram(max: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, max, DIGITS)
        .expect("the bounds are constants that the histogram's rules allow")
}
