//! How much memory a bucket has, how much it uses, and which writes that refuses.
//!
//! Owns: the sum over all vbuckets, the watermarks, the flags that refuse writes, and the wake-up of the item
//! pager. A vbucket counts its own bytes exactly, under locks that it holds anyway, and reports a change to the
//! shared sum only once it is larger than [`Memory::report_bytes`]: the sum is then wrong by less than
//! [`UNREPORTED_BYTES_MAX`] over all vbuckets, and no operation pays for a shared counter. So the quota is
//! enforced by bytes and not by how often somebody looks.
//!
//! Callers: vbuckets report, operations ask what is refused, pager and fetcher read the watermarks.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use oribi_storage::KvStore;
use oribi_types::{DocKey, Timestamp, Vbid};

use crate::block_arena;
use crate::bucket::{Bucket, BucketConfig};
use crate::checkpoint_recovery::CheckpointPressure;
use crate::eviction::EvictionPolicy;
use crate::outcome::Refused;
use crate::stats::MemoryStats;

/// Bytes by which the shared sum may be wrong: all vbuckets together keep less than this to themselves. Of
/// a small quota it is a part, so that small buckets keep to theirs as well.
const UNREPORTED_BYTES_MAX: u64 = 4 << 20;
const UNREPORTED_PART: u64 = 64;

/// Memory is above the quota.
const OVER_QUOTA: u8 = 1;
/// The queue is longer than the store keeps up with.
const QUEUE_FULL: u8 = 2;
/// Commits fail.
const STORE_FAILING: u8 = 4;
/// The item pager has looked everywhere and found nothing that it could take. Refuses nothing by itself.
const NOTHING_TO_EVICT: u8 = 8;
/// Much memory is mapped that no document fits in; it is being given back.
const SPARSE: u8 = 16;
const REFUSING: u8 = OVER_QUOTA | QUEUE_FULL | STORE_FAILING | SPARSE;

/// Memory that may be mapped and free before writes wait for it to be given back: a part of the quotas of all buckets of
/// the process, and some. With the quotas it is what the process may have, less what connections and stores need.
const FREE_PART_MAX: u64 = 16;
const FREE_BYTES_MAX: u64 = 32 << 20;

/// Quotas of all buckets of the process, which share one arena.
static QUOTAS: AtomicU64 = AtomicU64::new(0);

/// Counts since the bucket was opened.
#[derive(Default)]
pub(crate) struct MemoryCounters {
    pub(crate) evictions: AtomicU64,
    pub(crate) nru_deletions: AtomicU64,
    pub(crate) pager_runs: AtomicU64,
    pub(crate) fetches: AtomicU64,
    pub(crate) fetches_joined: AtomicU64,
    pub(crate) fetch_failures: AtomicU64,
    pub(crate) blocks_moved: AtomicU64,
    refused_temporarily: AtomicU64,
    refused_no_memory: AtomicU64,
}

impl Bucket {
    /// The quota.
    pub fn memory_quota_bytes(&self) -> u64 {
        self.memory.quota_bytes()
    }

    /// Changes the quota. Writes follow it at once; what is too much is evicted by the pager.
    pub fn set_memory_quota(&self, bytes: u64) {
        self.memory.set_quota(bytes);
    }

    /// Looks at store and queue and decides whether they refuse writes. Called by the flusher's
    /// thread a few times a second; what memory refuses does not wait for it.
    pub fn review_pressure(&self) {
        let context = self.context(Timestamp::default());
        for vbucket in self.vbuckets() {
            vbucket.report_memory(&context);
        }
        let stats = self.memory_stats();
        let queues = self.checkpoint_pressure(stats.queue_bytes as u64);
        self.memory.review(stats.storage_failed, queues == CheckpointPressure::Full);
        if queues != CheckpointPressure::Low {
            self.memory.wake_pager();
        }
    }

    /// True while some writes are refused, so that somebody keeps looking whether they still must be.
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.memory.is_refusing()
    }
}

/// Memory of one bucket.
pub(crate) struct Memory {
    used: AtomicI64,
    flags: AtomicU8,
    pub(crate) policy: EvictionPolicy,
    quota_bytes: AtomicU64,
    report_bytes: AtomicU64,
    high_percent: u8,
    low_percent: u8,
    vbuckets: u64,
    store: Arc<dyn KvStore>,
    /// The item pager's thread, and whether it was woken since it looked last.
    pager: OnceLock<Thread>,
    pager_woken: AtomicBool,
    pub(crate) counters: MemoryCounters,
}

impl Memory {
    pub(crate) fn new(config: &BucketConfig, store: Arc<dyn KvStore>) -> Memory {
        let memory = Memory {
            used: AtomicI64::new(0),
            flags: AtomicU8::new(0),
            policy: config.eviction,
            quota_bytes: AtomicU64::new(0),
            report_bytes: AtomicU64::new(0),
            high_percent: config.high_watermark_percent,
            low_percent: config.low_watermark_percent,
            vbuckets: u64::from(config.vbuckets),
            store,
            pager: OnceLock::new(),
            pager_woken: AtomicBool::new(false),
            counters: MemoryCounters::default(),
        };
        memory.set_quota(config.memory_quota_bytes);
        memory
    }

    /// Bytes of all vbuckets, but for what they have not reported yet.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(0) as u64
    }

    pub(crate) fn quota_bytes(&self) -> u64 {
        self.quota_bytes.load(Ordering::Relaxed)
    }

    /// Changes the quota; what is refused follows at once, what is evicted as soon as the pager runs.
    pub(crate) fn set_quota(&self, bytes: u64) {
        let before = self.quota_bytes.swap(bytes, Ordering::Relaxed);
        QUOTAS.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        let unreported = (bytes / UNREPORTED_PART).min(UNREPORTED_BYTES_MAX);
        self.report_bytes.store((unreported / self.vbuckets).max(1), Ordering::Relaxed);
        self.report(0);
    }

    /// Beyond this the item pager begins.
    pub(crate) fn high_watermark_bytes(&self) -> u64 {
        part(self.quota_bytes(), self.high_percent)
    }

    /// Here it stops.
    pub(crate) fn low_watermark_bytes(&self) -> u64 {
        part(self.quota_bytes(), self.low_percent)
    }

    /// What one vbucket may keep to itself.
    #[inline]
    pub(crate) fn report_bytes(&self) -> u64 {
        self.report_bytes.load(Ordering::Relaxed)
    }

    /// A vbucket has grown by `bytes`, or shrunk.
    #[cold]
    pub(crate) fn report(&self, bytes: i64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let used = used.max(0) as u64;
        self.set_flag(OVER_QUOTA, used > self.quota_bytes());
        // Somebody may have reported in between, and set the flag before.
        self.set_flag(OVER_QUOTA, self.used_bytes() > self.quota_bytes());
        if bytes < 0 {
            self.set_flag(NOTHING_TO_EVICT, false);
        }
        if used > self.high_watermark_bytes() && self.policy != EvictionPolicy::None {
            self.wake_pager();
        }
    }

    /// What the queue and the store say about writes.
    pub(crate) fn review(&self, is_store_failing: bool, is_queue_full: bool) {
        self.set_flag(STORE_FAILING, is_store_failing);
        self.set_flag(QUEUE_FULL, is_queue_full);
        self.report(0);
    }

    /// True when too much memory is mapped and free.
    pub(crate) fn is_sparse(&self) -> bool {
        let arena = block_arena::stats();
        let free_bytes = (arena.free_block_bytes + arena.free_unit_bytes) as u64;
        let quotas = QUOTAS.load(Ordering::Relaxed);
        free_bytes > quotas / FREE_PART_MAX + FREE_BYTES_MAX
    }

    /// Whether writes wait for memory to be given back.
    pub(crate) fn set_sparse(&self, is_sparse: bool) {
        self.set_flag(SPARSE, is_sparse);
    }

    /// The item pager has or has not found something that it could take now or later.
    pub(crate) fn set_nothing_to_evict(&self, nothing: bool) {
        self.set_flag(NOTHING_TO_EVICT, nothing);
    }

    fn set_flag(&self, flag: u8, on: bool) {
        // Mostly nothing changes, and a load leaves the line with its readers.
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

    /// Whether a write may not happen now. One that frees memory is not asked to wait for memory.
    #[inline]
    pub(crate) fn refuses(&self, frees_memory: bool) -> Option<Refused> {
        match self.flags.load(Ordering::Relaxed) {
            flags if flags & REFUSING == 0 => None,
            flags => self.refuse(flags, frees_memory),
        }
    }

    #[cold]
    fn refuse(&self, flags: u8, frees_memory: bool) -> Option<Refused> {
        let only_memory = flags & (QUEUE_FULL | STORE_FAILING) == 0;
        if only_memory && frees_memory {
            return None;
        }
        let is_full = only_memory && flags & OVER_QUOTA != 0;
        let can_evict = self.policy != EvictionPolicy::None && flags & NOTHING_TO_EVICT == 0;
        let (counter, refused) = match can_evict || !is_full {
            true => (&self.counters.refused_temporarily, Refused::TemporaryFailure),
            false => (&self.counters.refused_no_memory, Refused::NoMemory),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Some(refused)
    }

    /// False only when the store has nothing under the key. Never waits.
    pub(crate) fn may_be_stored(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        self.store.may_contain(vbid, key)
    }

    /// True when documents may be in the store only.
    #[inline]
    pub(crate) fn is_full_eviction(&self) -> bool {
        self.policy == EvictionPolicy::Full
    }

    /// From now on `thread` is woken when memory passes the high watermark.
    pub(crate) fn attach_pager(&self, thread: Thread) {
        // A second driver of the same bucket would be a bug, and harmless: steps exclude each other.
        let _ = self.pager.set(thread);
    }

    /// Wakes the pager's thread unless that has been done since it looked last.
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

    /// Watermarks and counts; what is summed over vbuckets is the caller's to fill in.
    pub(crate) fn stats(&self) -> MemoryStats {
        let counters = &self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemoryStats {
            quota_bytes: self.quota_bytes(),
            high_watermark_bytes: self.high_watermark_bytes(),
            low_watermark_bytes: self.low_watermark_bytes(),
            evictions: count(&counters.evictions),
            nru_deletions: count(&counters.nru_deletions),
            pager_runs: count(&counters.pager_runs),
            fetches: count(&counters.fetches),
            fetches_joined: count(&counters.fetches_joined),
            fetch_failures: count(&counters.fetch_failures),
            refused_temporarily: count(&counters.refused_temporarily),
            refused_no_memory: count(&counters.refused_no_memory),
            blocks_moved: count(&counters.blocks_moved),
            ..MemoryStats::default()
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        QUOTAS.fetch_sub(self.quota_bytes(), Ordering::Relaxed);
    }
}

fn part(bytes: u64, percent: u8) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}
