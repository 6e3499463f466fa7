//! Resident memory of several buckets at once, while documents of every size come and go.
//!
//! its own process, because it measures the process. Two threads write, delete and read documents
//! of 0 to 32 KiB as fast as they can, in several buckets that share the arena. The documents stay
//! far below the quotas, so nothing is evicted and nothing may be refused. The stores keep nothing,
//! so all resident memory is the engine's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oribi_engine::block_arena::{self, CompactionStats};
use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, EvictionPolicy, GetOutcome, MemoryStats, MutationOutcome,
    Storage, StoreRequest,
};
use oribi_storage::testing::NullStore;
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

const MIB: u64 = 1 << 20;
const VBUCKETS: u16 = 16;
const THREADS: u64 = 2;
const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);

/// The tests of this file share a process, so one at a time looks at its memory.
static ALONE: Mutex<()> = Mutex::new(());

/// The buckets, and the resident bytes of each.
struct Workload {
    buckets: usize,
    quota_mib: u64,
    live_mib: u64,
    value_bytes_max: usize,
    storage: Storage,
    eviction: EvictionPolicy,
}

impl Workload {
    /// Of the operations that write, a sixth delete.
    fn keys(&self) -> u64 {
        self.live_mib * MIB / (self.value_bytes_max as u64 / 2) * 6 / 5
    }

    /// More lives than the quota holds, so that something has to leave.
    fn is_too_much(&self) -> bool {
        self.live_mib > self.quota_mib
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[derive(Default)]
struct LookupResult {
    resident_max: AtomicU64,
    operations: AtomicU64,
    written_bytes: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system has /proc");
    let pages = statm.split(' ').nth(1).expect("the second number is what is resident");
    pages.parse::<u64>().expect("a number") * 4096
}

fn open(number: usize, workload: &Workload) -> (Arc<Bucket>, BucketThreads) {
    let config = BucketConfig {
        name: format!("bucket{number}"),
        vbuckets: VBUCKETS,
        memory_quota_bytes: workload.quota_mib * MIB,
        value_bytes_max: 1 << 20,
        flush_interval_ms: 5,
        storage: workload.storage,
        eviction: workload.eviction,
        ..BucketConfig::default()
    };
    let mut next = number as u64;
    let entropy = Box::new(move || {
        next += 1;
        next
    });
    let bucket = Bucket::open(config, Arc::new(NullStore), entropy, true).expect("a bucket opens");
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    (bucket, threads)
}

/// One of the threads that do what clients would.
fn operate(buckets: &[Arc<Bucket>], workload: &Workload, seed: u64, seen: &LookupResult) {
    let mut random = Random(seed);
    let value = vec![b'x'; workload.value_bytes_max];
    let keys = workload.keys();
    while !seen.is_over.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let bucket = &buckets[random.below(buckets.len() as u64) as usize];
            let number = random.below(keys);
            let vbid = Vbid((number % u64::from(VBUCKETS)) as u16);
            let name = number.to_string();
            let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
            let (vbucket, context) =
                (bucket.vbucket(vbid).expect("it is there"), bucket.context(NOW));
            match random.below(8) {
                0 | 1 => {
                    let outcome = vbucket.get(&context, key);
                    let is_refused = matches!(outcome, GetOutcome::Refused(_));
                    assert!(!is_refused || workload.is_too_much(), "a read is refused");
                }
                2 => drop(vbucket.delete(&context, key, Cas(0))),
                _ => {
                    let value = &value[..random.below(value.len() as u64 + 1) as usize];
                    let request = StoreRequest::set(value);
                    match vbucket.store(&context, key, &request) {
                        MutationOutcome::Done(_) => {
                            seen.written_bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
                        }
                        MutationOutcome::Refused(_) => {
                            seen.refused.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        seen.operations.fetch_add(64, Ordering::Relaxed);
        seen.resident_max.fetch_max(resident_bytes(), Ordering::Relaxed);
    }
}

fn seconds() -> u64 {
    std::env::var("ORIBI_TEST_SECONDS").map_or(4, |text| text.parse().expect("a number"))
}

fn run(workload: &Workload) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let opened: Vec<_> = (0..workload.buckets).map(|number| open(number, workload)).collect();
    let buckets: Vec<Arc<Bucket>> = opened.iter().map(|(bucket, _)| Arc::clone(bucket)).collect();
    let (seen, before) = (LookupResult::default(), block_arena::compaction_stats());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (buckets, seen) = (&buckets, &seen);
            scope.spawn(move || operate(buckets, workload, 0x9e37_79b9 + thread, seen));
        }
        let end = Instant::now() + Duration::from_secs(seconds());
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left.min(Duration::from_secs(1)));
            println!("resident {} MiB, {:?}", resident_bytes() / MIB, block_arena::stats());
        }
        seen.is_over.store(true, Ordering::Relaxed);
    });
    check(workload, &seen, &buckets, block_arena::compaction_stats(), before);
    for (_, threads) in &opened {
        threads.stop().expect("the store takes everything");
    }
}

/// Checks the limit, and that holding it was not too expensive.
fn check(
    workload: &Workload,
    seen: &LookupResult,
    buckets: &[Arc<Bucket>],
    after: CompactionStats,
    before: CompactionStats,
) {
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let memory: Vec<_> = buckets.iter().map(|bucket| bucket.stats().memory).collect();
    let sum = |figure: fn(&MemoryStats) -> u64| memory.iter().map(figure).sum::<u64>();
    let quotas = workload.quota_mib * MIB * workload.buckets as u64;
    let limit = quotas + quotas / 10 + 64 * MIB;
    let moved_bytes = after.moved_bytes - before.moved_bytes;
    let gained_bytes = after.gained_bytes - before.gained_bytes;
    println!(
        "{} x {} MiB: {} operations, {} MiB written, {} refused, used {} MiB, resident at most {} MiB of {}, \
         {} rounds moved {} MiB and gained {}",
        workload.buckets,
        workload.quota_mib,
        count(&seen.operations),
        count(&seen.written_bytes) / MIB,
        count(&seen.refused),
        sum(|memory| memory.used_bytes) / MIB,
        count(&seen.resident_max) / MIB,
        limit / MIB,
        after.rounds - before.rounds,
        moved_bytes / MIB,
        gained_bytes / MIB,
    );
    assert!(count(&seen.resident_max) <= limit, "more is resident than was promised");
    assert!(moved_bytes <= 5 * gained_bytes + 16 * MIB, "much is moved for little");
    assert!(moved_bytes <= count(&seen.written_bytes) / 4, "more is moved than is written");
    if !workload.is_too_much() {
        // The queue may be longer than the flusher keeps up with; that is no matter of memory.
        assert_eq!(sum(|memory| memory.refused_no_memory + memory.refused_at_bound), 0);
        assert_eq!(sum(|memory| memory.evictions), 0, "what lives is far below the quota");
    }
}

// Invariant: The process stays within all quotas, a tenth of them, and 64 MiB.
#[test]
fn four_buckets_stay_within_what_was_promised() {
    run(&Workload {
        buckets: 4,
        quota_mib: 64,
        live_mib: 20,
        value_bytes_max: 32 << 10,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Value,
    });
}

#[test]
fn eight_small_buckets_stay_within_what_was_promised() {
    run(&Workload {
        buckets: 8,
        quota_mib: 32,
        live_mib: 10,
        value_bytes_max: 32 << 10,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Value,
    });
}

#[test]
fn two_memory_buckets_stay_within_the_bound() {
    run(&Workload {
        buckets: 2,
        quota_mib: 128,
        live_mib: 20,
        value_bytes_max: 32 << 10,
        storage: Storage::Memory,
        eviction: EvictionPolicy::None,
    });
}

#[test]
fn one_bucket_alone_stays_within_what_was_promised() {
    run(&Workload {
        buckets: 1,
        quota_mib: 48,
        live_mib: 20,
        value_bytes_max: 32 << 10,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Full,
    });
}

#[test]
fn large_documents_stay_within_what_was_promised() {
    for value_bytes_max in [128 << 10, 1 << 20] {
        run(&Workload {
            buckets: 2,
            quota_mib: 128,
            live_mib: 40,
            value_bytes_max,
            storage: Storage::Persistent,
            eviction: EvictionPolicy::Value,
        });
    }
}

#[test]
fn an_undersized_cache_stays_within_its_bound() {
    run(&Workload {
        buckets: 2,
        quota_mib: 64,
        live_mib: 192,
        value_bytes_max: 48 << 10,
        storage: Storage::Memory,
        eviction: EvictionPolicy::Nru,
    });
}

#[test]
fn documents_beyond_the_quota_stay_within_the_bound() {
    run(&Workload {
        buckets: 2,
        quota_mib: 64,
        live_mib: 192,
        value_bytes_max: 24 << 10,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Full,
    });
}
