//! Memory while readers of change streams stall.
//!
//! its own process, because it measures the process. Reader after reader begins to read every
//! vbucket, takes a change of each, and stalls for ever; all documents are written anew
//! concurrently. What such a reader holds has to be counted, or to leave when memory is short, and
//! writers wait for none of them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oribi_engine::dcp::{
    StreamFilter, StreamOptions, StreamPhase, StreamRequest, StreamSink, StreamStats, StreamStep,
    VbucketDcpStream,
};
use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, EvictionPolicy, MutationOutcome, OperationRejection,
    Storage, StoreRequest, block_arena,
};
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, DocKey, Seqno, Timestamp, VbUuid, Vbid};

const MIB: u64 = 1 << 20;
const VBUCKETS: u16 = 16;
const VALUE_BYTES: usize = 4000;
const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
const PATIENCE: Duration = Duration::from_secs(60);

/// The tests of this file share a process, so one at a time looks at its memory.
static ALONE: Mutex<()> = Mutex::new(());

struct NoSink;

impl StreamSink for NoSink {
    fn ready(&self, _: u64) {}
}

struct World {
    bucket: Arc<Bucket>,
    threads: BucketThreads,
    quota: u64,
    uncounted_max: u64,
    in_use_max: u64,
}

impl World {
    fn new(storage: Storage, eviction: EvictionPolicy, quota: u64) -> World {
        let config = BucketConfig {
            vbuckets: VBUCKETS,
            memory_quota_bytes: quota,
            flush_interval_ms: 1000,
            storage,
            eviction,
            ..BucketConfig::default()
        };
        let mut next = 1;
        let entropy = Box::new(move || {
            next += 1;
            next
        });
        let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy, true)
            .expect("a bucket opens");
        let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
        World { bucket, threads, quota, uncounted_max: 0, in_use_max: 0 }
    }

    /// Writes documents until there are `bytes` of them. A refusal has to be over soon.
    fn write(&mut self, bytes: u64) {
        let value = vec![b'x'; VALUE_BYTES];
        for number in 0..bytes / VALUE_BYTES as u64 {
            let name = format!("document {number}");
            let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
            let vbid = Vbid((number % u64::from(VBUCKETS)) as u16);
            let begun = Instant::now();
            loop {
                let vbucket = self.bucket.vbucket(vbid).expect("it is there");
                let context = self.bucket.context(NOW);
                match vbucket.store(&context, key, &StoreRequest::set(&value)) {
                    MutationOutcome::Done(_) => break,
                    MutationOutcome::Refused(OperationRejection::TemporaryFailure) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => panic!("{other:?} {:?}", self.bucket.stats().memory),
                }
                let memory = self.bucket.stats().memory;
                assert!(begun.elapsed() < PATIENCE, "writers wait for readers: {memory:?}");
            }
            if number.is_multiple_of(1024) {
                self.look();
            }
        }
        self.look();
    }

    fn look(&mut self) {
        let arena = block_arena::stats();
        let free = arena.free_block_bytes + arena.free_unit_bytes;
        let in_use = (arena.chunk_bytes - free) as u64;
        let counted = self.bucket.stats().memory.used_bytes;
        self.in_use_max = self.in_use_max.max(in_use);
        self.uncounted_max = self.uncounted_max.max(in_use.saturating_sub(counted));
    }

    /// Streams of all vbuckets from the beginning.
    fn open(&self) -> Vec<VbucketDcpStream> {
        let request = |vbid| StreamRequest {
            vbid: Vbid(vbid),
            start: Seqno(0),
            end: Seqno(u64::MAX),
            uuid: VbUuid(0),
            snapshot: (Seqno(0), Seqno(0)),
            client_purge_seqno: None,
            flags: StreamOptions::default(),
            filter: StreamFilter::All,
        };
        let opened = (0..VBUCKETS)
            .map(|vbid| self.bucket.open_stream(&request(vbid), Arc::new(NoSink), u64::from(vbid)));
        opened.map(|opened| opened.expect("a stream opens")).collect()
    }

    /// Has each stream read to the end.
    fn catch_up(streams: &mut [VbucketDcpStream]) {
        for stream in streams {
            let begun = Instant::now();
            let is_done = |stats: StreamStats| {
                stats.phase == StreamPhase::InMemory && stats.items_remaining == 0
            };
            while !matches!(stream.next(), StreamStep::Idle) || !is_done(stream.stats()) {
                assert!(begun.elapsed() < PATIENCE, "it gets nowhere: {:?}", stream.stats());
                std::thread::yield_now();
            }
        }
    }

    /// Has each stream take a change.
    fn begin(streams: &mut [VbucketDcpStream]) {
        for stream in streams {
            let begun = Instant::now();
            while !matches!(stream.next(), StreamStep::Change(_)) {
                assert!(begun.elapsed() < PATIENCE, "nothing comes: {:?}", stream.stats());
                std::thread::yield_now();
            }
        }
    }

    fn end(self, standing: Vec<VbucketDcpStream>) {
        drop(standing);
        self.threads.stop().expect("the store takes everything");
        let (uncounted, in_use) = (self.uncounted_max / MIB, self.in_use_max / MIB);
        println!("at most {uncounted} MiB are not counted, {in_use} MiB in use");
        // What a backfill may have in inboxes, and blocks that threads keep at hand.
        let bound = self.quota / 16 + 16 * MIB;
        assert!(self.uncounted_max <= bound, "{uncounted} MiB of {} are not counted", bound / MIB);
        let bound = self.quota + self.quota / 10 + 64 * MIB;
        assert!(self.in_use_max <= bound, "{in_use} MiB of {} are in use", bound / MIB);
    }
}

// Invariant: The memory of unsent changes is counted, and the queue frees it when memory is
// short.
#[test]
fn memory_of_stalled_queue_readers_is_counted() {
    let _alone = ALONE.lock();
    let mut world = World::new(Storage::Persistent, EvictionPolicy::Full, 96 * MIB);
    let mut standing = Vec::new();
    for _ in 0..12 {
        let mut streams = world.open();
        World::catch_up(&mut streams);
        world.write(12 * MIB);
        World::begin(&mut streams);
        standing.append(&mut streams);
        world.write(24 * MIB);
    }
    world.end(standing);
}

// Invariant: The memory of unsent changes is counted, and the queue frees it when memory is
// short.
#[test]
fn memory_of_stalled_memory_bucket_readers_is_freed() {
    let _alone = ALONE.lock();
    let mut world = World::new(Storage::Memory, EvictionPolicy::None, 96 * MIB);
    world.write(48 * MIB);
    let mut standing = Vec::new();
    for _ in 0..4 {
        let mut streams = world.open();
        // The scans of the others follow by themselves, as far as they may.
        World::begin(&mut streams[..1]);
        standing.append(&mut streams);
        world.write(48 * MIB);
    }
    world.end(standing);
}
