//! Resident memory at a full quota, while the size of documents changes.
//!
//! its own process, because it measures the process: the quota of a bucket is filled several times
//! over with documents of 512 bytes, then of 4 KiB, then of 100 bytes. The store keeps nothing, so
//! all resident memory is the engine's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, EvictionPolicy, MutationOutcome, OperationRejection,
    Storage, StoreRequest,
};
use oribi_storage::testing::NullStore;
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

const MIB: u64 = 1 << 20;
const VBUCKETS: u16 = 16;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system has /proc");
    let pages = statm.split(' ').nth(1).expect("the second number is what is resident");
    pages.parse::<u64>().expect("a number") * 4096
}

struct Run {
    bucket: Arc<Bucket>,
    quota: u64,
    used_max: u64,
    resident_max: u64,
}

impl Run {
    /// Writes documents of one size until `bytes` of values were written.
    fn fill(&mut self, phase: u32, value_bytes: usize, bytes: u64) {
        let value = vec![b'x'; value_bytes];
        for number in 0..bytes / value_bytes as u64 {
            let name = format!("{phase}-{number}");
            self.store(Vbid((number % u64::from(VBUCKETS)) as u16), &name, &value);
            if number.is_multiple_of(4096) {
                self.look();
            }
        }
        self.look();
    }

    fn store(&mut self, vbid: Vbid, name: &str, value: &[u8]) {
        let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
        let request = StoreRequest::set(value);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let vbucket = self.bucket.vbucket(vbid).expect("it is there");
            let context = self.bucket.context(Timestamp::from_unix_s(1_700_000_000));
            match vbucket.store(&context, key, &request) {
                MutationOutcome::Done(_) => return,
                MutationOutcome::Refused(OperationRejection::TemporaryFailure) => {
                    self.look();
                    std::thread::yield_now();
                }
                other => panic!("{other:?} {:?}", self.bucket.stats().memory),
            }
            assert!(Instant::now() < deadline, "no memory comes free: {:?}", self.bucket.stats());
        }
    }

    fn look(&mut self) {
        self.used_max = self.used_max.max(self.bucket.stats().memory.used_bytes);
        self.resident_max = self.resident_max.max(resident_bytes());
    }
}

fn run(eviction: EvictionPolicy, storage: Storage, quota: u64) {
    let config = BucketConfig {
        vbuckets: VBUCKETS,
        memory_quota_bytes: quota,
        value_bytes_max: 1 << 20,
        flush_interval_ms: 5,
        storage,
        eviction,
        ..BucketConfig::default()
    };
    let mut next = 1;
    let entropy = Box::new(move || {
        next += 1;
        next
    });
    let before = resident_bytes();
    let bucket = Bucket::open(config, Arc::new(NullStore), entropy, true).expect("a bucket opens");
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let mut run = Run { bucket, quota, used_max: 0, resident_max: 0 };
    for (phase, value_bytes, part) in [(1, 512, 110), (2, 4096, 160), (3, 100, 25)] {
        let begun = Instant::now();
        run.fill(phase, value_bytes, run.quota * part / 100);
        let memory = run.bucket.stats().memory;
        println!(
            "{eviction:?} {value_bytes} B: {:.1} s, used {} MiB (max {}), resident {} MiB (max {}), moved {}, evicted {}, arena {:?}",
            begun.elapsed().as_secs_f64(),
            memory.used_bytes / MIB,
            run.used_max / MIB,
            (resident_bytes() - before) / MIB,
            (run.resident_max - before) / MIB,
            memory.blocks_moved,
            memory.evictions,
            oribi_engine::block_arena::stats(),
        );
    }
    threads.stop().expect("the store takes everything");
    assert!(run.used_max <= quota + 5 * MIB, "the quota is enforced by bytes: {}", run.used_max);
    let limit = before + quota + quota / 10 + 64 * MIB;
    assert!(run.resident_max <= limit, "{} MiB of {}", run.resident_max / MIB, limit / MIB);
}

#[test]
fn residency_stays_near_the_quota_as_sizes_change() {
    let quota =
        std::env::var("ORIBI_TEST_QUOTA_MIB").map_or(96, |mib| mib.parse().expect("a number"));
    run(EvictionPolicy::Full, Storage::Persistent, quota * MIB);
}
