//! A bucket's account of memory: its quota, its use, and the writes that it refuses.
//!
//! Owns: the sum over all vbuckets, the watermarks, the flags that refuse writes, and the wake-up
//! of the item pager. A vbucket counts its own bytes exactly, under locks that it holds anyway. It
//! reports a change to the shared sum only once it is larger than [`Memory::report_bytes`]. The sum
//! is then wrong by less than [`UNREPORTED_BYTES_MAX`] over all vbuckets, and no operation pays for
//! a shared counter. So the quota is enforced in bytes, not by a poll. The bytes of the queues are
//! summed up likewise, for the checkpoint quota: it holds while a flusher's thread is in a commit
//! that does not end.
//!
//! Callers: vbuckets report, operations check whether to refuse, pager and fetchers read the
//! watermarks.

mod checkpoint_quota;
mod indexes;
mod process;
mod refusals;
mod stats;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use oribi_storage::KvStore;
use oribi_types::policy::EvictionPolicy;
use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::config::BucketConfig;
use crate::dense::{DenseTier, MemoryTier};
use crate::outcome::OperationRejection;

use refusals::{RefusalChange, Refusals};

pub use checkpoint_quota::CheckpointPressure;
pub(crate) use checkpoint_quota::CheckpointQuota;
pub use stats::MemoryStats;

/// Bytes by which the shared sums may be wrong: all vbuckets together keep less than this
/// unreported. Small quotas allow a part of it, so that small buckets keep to theirs as well.
const UNREPORTED_BYTES_MAX: u64 = 4 << 20;
const UNREPORTED_PART: u64 = 64;

/// Memory limit of DCP streams: a part of the quota.
const STREAMS_PART: u64 = 32;
const STREAMS_BYTES_MAX: u64 = 64 << 20;

/// Uses of late from which on a document is kept inflated while memory is below the low watermark,
/// and below the pager's target. Values with fewer than the second become dense.
const WARM_FREQUENCY: u32 = 2;
pub(crate) const HOT_FREQUENCY: u32 = 4;

/// Per cent of the quota above which streams read nothing more from the store, and values of open
/// prepares leave memory.
const BACKFILL_PERCENT: u8 = 96;

/// Memory limit of the store of a bucket that evicts whole documents, in addition to the quota: a
/// part of it, and 16 MiB in any case. A larger store takes memory from the documents, down to a
/// part of the quota.
const STORE_FREE_PART: u64 = 32;
const STORE_FREE_BYTES: u64 = 16 << 20;
const DOCUMENTS_PART: u64 = 4;

/// Memory is above the quota.
const OVER_QUOTA: u8 = 1;
/// The queue is longer than the store keeps up with.
const QUEUE_FULL: u8 = 2;
const STORE_FAILING: u8 = 4;
/// A whole round of the item pager met no document that it can ever evict or make dense. Refuses
/// nothing by itself.
const NOTHING_TO_EVICT: u8 = 8;
/// The process is at the bound of all its buckets, and the next allocation would exceed it.
const AT_BOUND: u8 = 16;
const REFUSING: u8 = OVER_QUOTA | QUEUE_FULL | STORE_FAILING | AT_BOUND;
const _: () = assert!(REFUSING & NOTHING_TO_EVICT == 0);
const _: () = assert!(QUEUE_FULL | STORE_FAILING == REFUSING & !(OVER_QUOTA | AT_BOUND));
const _: () = assert!(BACKFILL_PERCENT <= 100);
const _: () = assert!(STREAMS_PART > 0 && STORE_FREE_PART > 0 && DOCUMENTS_PART > 0);
const _: () = {
    let mut number = 0;
    while number < EvictionPolicy::ALL.len() {
        assert!(EvictionPolicy::ALL[number] as usize == number, "a policy is found by its number");
        number += 1;
    }
};

/// Memory of one bucket.
pub(crate) struct Memory {
    used: AtomicI64,
    /// Bytes of all queues, items included, also those in flight to the store.
    queued: AtomicI64,
    /// Bytes of records that backfills hold for streams, and of items that streams have copied.
    streams: Arc<AtomicU64>,
    /// Bytes of the entries of query indexes.
    indexes: AtomicU64,
    dense: DenseTier,
    flags: AtomicU8,
    /// An [`EvictionPolicy`] by its number.
    policy: AtomicU8,
    quota_bytes: AtomicU64,
    /// Quota that the store's index leaves.
    document_quota_bytes: AtomicU64,
    report_bytes: AtomicU64,
    high_percent: u8,
    low_percent: u8,
    queue_percent: u8,
    vbuckets: u64,
    store: Arc<dyn KvStore>,
    /// The item pager's thread, and whether it was woken since it looked last.
    pager: OnceLock<Thread>,
    pager_woken: AtomicBool,
    refusals: Mutex<Refusals>,
    /// Counts since the bucket was opened.
    refused_temporarily: AtomicU64,
    refused_no_memory: AtomicU64,
    refused_at_bound: AtomicU64,
    blocks_moved: AtomicU64,
}

impl Memory {
    pub(crate) fn new(config: &BucketConfig, store: Arc<dyn KvStore>) -> Memory {
        assert!(config.vbuckets > 0, "a bucket has a vbucket");
        assert!(
            config.low_watermark_percent < config.high_watermark_percent,
            "the low mark is lower"
        );
        let memory = Memory {
            used: AtomicI64::new(0),
            queued: AtomicI64::new(0),
            streams: Arc::default(),
            indexes: AtomicU64::new(0),
            dense: DenseTier::default(),
            flags: AtomicU8::new(0),
            policy: AtomicU8::new(config.eviction as u8),
            quota_bytes: AtomicU64::new(0),
            document_quota_bytes: AtomicU64::new(0),
            report_bytes: AtomicU64::new(0),
            high_percent: config.high_watermark_percent,
            low_percent: config.low_watermark_percent,
            queue_percent: config.upkeep.checkpoint_quota_percent,
            vbuckets: u64::from(config.vbuckets),
            store,
            pager: OnceLock::new(),
            pager_woken: AtomicBool::new(false),
            refusals: Mutex::default(),
            refused_temporarily: AtomicU64::new(0),
            refused_no_memory: AtomicU64::new(0),
            refused_at_bound: AtomicU64::new(0),
            blocks_moved: AtomicU64::new(0),
        };
        memory.set_quota(config.memory_quota_bytes);
        memory
    }

    #[inline]
    pub(crate) fn policy(&self) -> EvictionPolicy {
        EvictionPolicy::ALL[usize::from(self.policy.load(Ordering::Relaxed))]
    }

    /// Changes the policy. Documents that an earlier policy evicted stay where they are, and are
    /// fetched when they are asked for.
    pub(crate) fn set_policy(&self, policy: EvictionPolicy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
        // The new policy may find something, and the pager has to look.
        self.set_flag(NOTHING_TO_EVICT, false);
        self.report(0);
    }

    /// Changes what happens to cold values.
    pub(crate) fn set_tier(&self, tier: MemoryTier) {
        self.dense.set_tier(tier);
        self.set_flag(NOTHING_TO_EVICT, false);
        self.report(0);
    }

    /// True when the item pager can free memory.
    pub(crate) fn can_shrink(&self) -> bool {
        self.policy() != EvictionPolicy::None || self.dense.tier() == MemoryTier::Dense
    }

    pub(crate) fn vbuckets(&self) -> u64 {
        self.vbuckets
    }

    /// The dense tier's dictionaries and setting.
    pub(crate) fn dense(&self) -> &DenseTier {
        &self.dense
    }

    /// Bytes of all vbuckets, as far as they have reported them, of change streams, of indexes and
    /// of dictionaries.
    pub(crate) fn used_bytes(&self) -> u64 {
        let vbuckets = self.used.load(Ordering::Relaxed).max(0) as u64;
        vbuckets + self.streams_bytes() + self.indexes_bytes() + self.dense.dictionary_bytes()
    }

    /// Bytes of changes that streams hold: records of backfills, and copies of queued items.
    pub(crate) fn streams_bytes(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Where they are counted.
    pub(crate) fn streams_account(&self) -> &Arc<AtomicU64> {
        &self.streams
    }

    /// Bytes that the inboxes of all backfills may have, and beyond which streams copy no items.
    pub(crate) fn streams_bytes_max(&self) -> u64 {
        (self.quota_bytes() / STREAMS_PART).min(STREAMS_BYTES_MAX)
    }

    /// Bytes of queued items that a stream may copy now.
    pub(crate) fn copied_bytes_max(&self) -> usize {
        self.streams_bytes_max().saturating_sub(self.streams_bytes()) as usize
    }

    /// A stream has copied items of so many bytes.
    pub(crate) fn copied_for_streams(&self, bytes: usize) {
        if bytes > 0 {
            self.streams.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// A stream has released them.
    pub(crate) fn released_by_streams(&self, bytes: usize) {
        if bytes > 0 {
            let before = self.streams.fetch_sub(bytes as u64, Ordering::Relaxed);
            assert!(before >= bytes as u64, "streams release what they hold");
        }
    }

    /// Streams hold more than before.
    pub(crate) fn streams_grew(&self) {
        self.report(0);
    }

    pub(crate) fn quota_bytes(&self) -> u64 {
        self.quota_bytes.load(Ordering::Relaxed)
    }

    /// Changes the quota. It refuses writes at once; the pager evicts as soon as it runs.
    pub(crate) fn set_quota(&self, bytes: u64) {
        self.quota_bytes.store(bytes, Ordering::Relaxed);
        self.update_document_quota();
        let unreported = (bytes / UNREPORTED_PART).min(UNREPORTED_BYTES_MAX);
        self.report_bytes.store((unreported / self.vbuckets).max(1), Ordering::Relaxed);
        debug_assert!(unreported <= UNREPORTED_BYTES_MAX, "the shared sum is nearly right");
        debug_assert!(self.report_bytes() <= unreported.max(1), "all vbuckets report in time");
        self.report(0);
        self.report_queued(0);
    }

    /// Bytes for documents: the quota without the store's need beyond its free share. Only
    /// a bucket that evicts whole documents has that many keys. Documents keep a part in any case.
    pub(crate) fn document_quota_bytes(&self) -> u64 {
        self.document_quota_bytes.load(Ordering::Relaxed)
    }

    fn update_document_quota(&self) {
        let quota = self.quota_bytes();
        let documents = match self.policy() {
            EvictionPolicy::Full => {
                let free = (quota / STORE_FREE_PART).max(STORE_FREE_BYTES);
                let beyond = self.store.memory_bytes().saturating_sub(free);
                quota.saturating_sub(beyond).max(quota / DOCUMENTS_PART)
            }
            _ => quota,
        };
        assert!(documents <= quota, "documents have a part of the quota");
        let before = self.document_quota_bytes.swap(documents, Ordering::Relaxed);
        assert!(documents >= quota / DOCUMENTS_PART, "documents keep a part of the quota");
        process::change_quotas(before, documents);
    }

    /// The quota of all queues together, queued items included.
    pub(crate) fn queue_quota(&self) -> CheckpointQuota {
        CheckpointQuota { bytes: part(self.document_quota_bytes(), self.queue_percent) }
    }

    /// Bytes of all queues, as far as vbuckets have reported them.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued.load(Ordering::Relaxed).max(0) as u64
    }

    /// Above this the item pager begins.
    pub(crate) fn high_watermark_bytes(&self) -> u64 {
        part(self.document_quota_bytes(), self.high_percent)
    }

    pub(crate) fn low_watermark_bytes(&self) -> u64 {
        part(self.document_quota_bytes(), self.low_percent)
    }

    /// Above this no stream is opened and no backfill begins. Source of the share: Couchbase.
    pub(crate) fn backfill_threshold_bytes(&self) -> u64 {
        part(self.document_quota_bytes(), BACKFILL_PERCENT)
    }

    /// Little is left before the quota.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.used_bytes() > self.backfill_threshold_bytes()
    }

    /// Where a run of the item pager ends: the low watermark. With the dense tier it is three
    /// quarters of the way to the high one, because a dense document frees little and its eviction
    /// costs a read of the disk.
    pub(crate) fn pager_target_bytes(&self) -> u64 {
        // Both of one read of the quota, which other threads change.
        let quota = self.document_quota_bytes();
        let (low, high) = (part(quota, self.low_percent), part(quota, self.high_percent));
        debug_assert!(low <= high, "the low mark is lower");
        match self.dense.tier() {
            MemoryTier::Off => low,
            MemoryTier::Dense => low + (high - low) / 4 * 3,
        }
    }

    /// True while a dense value that was used so often of late may be kept inflated. Nothing is
    /// evicted for it: above the pager's target only writes and fetches take memory.
    pub(crate) fn may_inflate(&self, frequency: u32) -> bool {
        let limit = match frequency {
            0..WARM_FREQUENCY => return false,
            WARM_FREQUENCY..HOT_FREQUENCY => self.low_watermark_bytes(),
            HOT_FREQUENCY.. => self.pager_target_bytes(),
        };
        self.used_bytes() < limit
    }

    /// Bytes that one vbucket may leave unreported.
    #[inline]
    pub(crate) fn report_bytes(&self) -> u64 {
        self.report_bytes.load(Ordering::Relaxed)
    }

    /// A vbucket has grown by `bytes`, or shrunk.
    #[cold]
    pub(crate) fn report(&self, bytes: i64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let used = self.used_bytes();
        self.set_flag(OVER_QUOTA, used > self.document_quota_bytes());
        // Another report may have come in between and set the flag first.
        self.set_flag(OVER_QUOTA, self.used_bytes() > self.document_quota_bytes());
        if bytes < 0 {
            self.set_flag(NOTHING_TO_EVICT, false);
        }
        let is_work = used > self.high_watermark_bytes() && self.can_shrink();
        if is_work || used > self.backfill_threshold_bytes() {
            self.wake_pager();
        }
    }

    /// A vbucket's queue has grown by `bytes`, or shrunk. Queued items can only wait for the store,
    /// so at the quota writes are refused, whatever the flusher does.
    #[cold]
    pub(crate) fn report_queued(&self, bytes: i64) {
        self.queued.fetch_add(bytes, Ordering::Relaxed);
        let pressure = || self.queue_quota().pressure(self.queued_bytes());
        self.set_flag(QUEUE_FULL, pressure() == CheckpointPressure::Full);
        // Another report may have come in between and set the flag first.
        let pressure = pressure();
        self.set_flag(QUEUE_FULL, pressure == CheckpointPressure::Full);
        if pressure != CheckpointPressure::Low {
            self.wake_pager();
        }
    }

    /// Refuses writes while the store fails, and reviews the other reasons.
    pub(crate) fn review(&self, is_store_failing: bool) {
        self.update_document_quota();
        self.set_flag(STORE_FAILING, is_store_failing);
        self.report(0);
        self.report_queued(0);
    }

    /// Whether the process's memory is at its bound.
    pub(crate) fn set_at_bound(&self, is_at_bound: bool) {
        self.set_flag(AT_BOUND, is_at_bound);
    }

    /// Whether the item pager met no document in a whole round that it can evict or make dense.
    pub(crate) fn set_nothing_to_evict(&self, nothing: bool) {
        self.set_flag(NOTHING_TO_EVICT, nothing);
    }

    fn set_flag(&self, flag: u8, on: bool) {
        debug_assert!(flag.is_power_of_two(), "one flag at a time");
        // The flag mostly stays the same, and a load leaves the cache line shared.
        if (self.flags.load(Ordering::Relaxed) & flag != 0) == on {
            return;
        }
        match on {
            true => self.flags.fetch_or(flag, Ordering::Relaxed),
            false => self.flags.fetch_and(!flag, Ordering::Relaxed),
        };
    }

    /// True while some writes are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & REFUSING != 0
    }

    /// True while queue or store refuse even deletions.
    pub(crate) fn refuses_deletions(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (QUEUE_FULL | STORE_FAILING) != 0
    }

    /// Why a write is refused now, if it is. A write that frees memory does not wait for memory.
    #[inline]
    pub(crate) fn refuses(&self, frees_memory: bool) -> Option<OperationRejection> {
        match self.flags.load(Ordering::Relaxed) {
            flags if flags & REFUSING == 0 => None,
            flags => self.refuse(flags, frees_memory),
        }
    }

    #[cold]
    fn refuse(&self, flags: u8, frees_memory: bool) -> Option<OperationRejection> {
        debug_assert!(flags & REFUSING != 0, "a write is refused for a reason");
        let only_memory = flags & (QUEUE_FULL | STORE_FAILING) == 0;
        if only_memory && frees_memory {
            return None;
        }
        if flags & REFUSING == AT_BOUND {
            self.refused_at_bound.fetch_add(1, Ordering::Relaxed);
        }
        debug_assert!(!only_memory || flags & (OVER_QUOTA | AT_BOUND) != 0, "memory is why");
        let is_full = only_memory && flags & OVER_QUOTA != 0;
        let can_shrink = self.can_shrink() && flags & NOTHING_TO_EVICT == 0;
        let (counter, refused) = match can_shrink || !is_full {
            true => (&self.refused_temporarily, OperationRejection::TemporaryFailure),
            false => (&self.refused_no_memory, OperationRejection::NoMemory),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Some(refused)
    }

    /// True from the first refusal for lack of memory until some seconds after the last.
    pub(crate) fn has_refusals(&self) -> bool {
        self.refusals.lock().is_current()
    }

    /// Logs when writes begin to be refused for lack of memory, and when that is over.
    pub(crate) fn log_refusals(&self, bucket: &str, now: Timestamp) {
        let counters =
            [&self.refused_temporarily, &self.refused_no_memory].map(|c| c.load(Ordering::Relaxed));
        let flags = self.flags.load(Ordering::Relaxed);
        let lacks_memory = flags & (OVER_QUOTA | QUEUE_FULL | AT_BOUND) != 0;
        let reasons = (flags & STORE_FAILING == 0, lacks_memory);
        let change = self.refusals.lock().look(counters.iter().sum(), reasons, now);
        let (used_bytes, quota_bytes) = (self.used_bytes(), self.quota_bytes());
        match change {
            Some(RefusalChange::Begin) => {
                let why = match flags {
                    flags if flags & AT_BOUND != 0 => "the process is at its memory bound",
                    flags if flags & QUEUE_FULL != 0 => {
                        "the store does not keep up with the writes"
                    }
                    _ => "the bucket is at its quota",
                };
                tracing::info!(
                    bucket,
                    used_bytes,
                    quota_bytes,
                    "writes are refused: {why}; give the bucket more memory, or write less"
                );
            }
            Some(RefusalChange::End { refused }) => {
                tracing::info!(
                    bucket,
                    refused,
                    used_bytes,
                    quota_bytes,
                    "writes are accepted again"
                );
            }
            None => {}
        }
    }

    /// False only when the store has nothing under the key. Never waits.
    pub(crate) fn may_be_stored(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        self.store.may_contain(vbid, key)
    }

    /// From now on `thread` is woken when memory passes the high watermark.
    pub(crate) fn attach_pager(&self, thread: Thread) {
        // A second driver of the same bucket would be a bug, and harmless: steps exclude each
        // other.
        let _ = self.pager.set(thread);
    }

    /// Wakes the pager's thread, once until it looks.
    pub(crate) fn wake_pager(&self) {
        if let Some(thread) = self.pager.get()
            && !self.pager_woken.swap(true, Ordering::AcqRel)
        {
            thread.unpark();
        }
    }

    /// The pager's thread is about to look.
    pub(crate) fn pager_looks(&self) {
        self.pager_woken.store(false, Ordering::Release);
    }

    /// Counts blocks that compaction has moved.
    pub(crate) fn count_moved(&self, blocks: u64) {
        self.blocks_moved.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Watermarks and counts; pager, fetcher and vbuckets fill in the rest.
    pub(crate) fn stats(&self) -> MemoryStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemoryStats {
            quota_bytes: self.quota_bytes(),
            high_watermark_bytes: self.high_watermark_bytes(),
            low_watermark_bytes: self.low_watermark_bytes(),
            refused_temporarily: count(&self.refused_temporarily),
            refused_no_memory: count(&self.refused_no_memory),
            refused_at_bound: count(&self.refused_at_bound),
            blocks_moved: count(&self.blocks_moved),
            streams_bytes: self.streams_bytes(),
            indexes_bytes: self.indexes_bytes(),
            dictionary_bytes: self.dense.dictionary_bytes(),
            dense: self.dense.stats(),
            compressions: self.dense.compressions(),
            store_bytes: self.store.memory_bytes(),
            ..MemoryStats::default()
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        process::change_quotas(self.document_quota_bytes(), 0);
    }
}

fn part(bytes: u64, percent: u8) -> u64 {
    debug_assert!(percent <= 100, "a part is not more than the whole");
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}
