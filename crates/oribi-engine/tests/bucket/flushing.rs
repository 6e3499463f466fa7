//! What one flush step brings into the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oribi_engine::limits::CHECKPOINT_BYTES_MAX;
use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, FlushReport, PersistOutcome, PersistenceSink, WarmupStep,
};
use oribi_storage::{KvStore, MemoryStore};
use oribi_types::Seqno;

use super::ownership::{Interrupted, node};
use super::{NOW, VB, config, done, entropy, key, open, set};

/// A key can be in several checkpoints of a queue, but only once in a batch for the store. They used to be one
/// batch, in which a store was free to keep the older version.
#[test]
fn two_checkpoints_are_two_batches_of_one_commit() {
    let store = Arc::new(MemoryStore::new());
    let bucket = open(Arc::clone(&store) as Arc<dyn KvStore>);
    let commits = store.stats().commits;
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    // Nothing is added to the first checkpoint any more once it has these.
    const LARGE: usize = 16;
    let large = "b".repeat(CHECKPOINT_BYTES_MAX / LARGE);
    for n in 0..LARGE {
        done(bucket.store(VB, key(&format!("b{n}")), &set(&large), NOW));
    }
    let newest = done(bucket.store(VB, key("a"), &set("2"), NOW));
    assert_eq!(bucket.vbucket_stats(VB).unwrap().checkpoints, 2);
    let report = bucket.flush_step().unwrap();
    assert_eq!(report, FlushReport { vbuckets: 1, items: LARGE + 2, more: false });
    assert_eq!(store.stats().commits, commits + 1);
    let mut found = None;
    let is_there = store.get(VB, key("a"), &mut |record| {
        found = Some((record.seqno, record.cas, record.value.to_vec()));
    });
    assert!(is_there.unwrap());
    let end = Seqno(LARGE as u64 + 2);
    assert_eq!(found, Some((end, newest.cas, b"2".to_vec())));
    let vbucket = bucket.vbucket_stats(VB).unwrap();
    assert_eq!((vbucket.persisted_seqno, vbucket.queue_items), (end, 0));
    // The version of `a` that only the queue held is free again.
    assert_eq!((vbucket.queue_bytes, vbucket.queue_own_bytes), (0, 0));
}

/// The flusher has taken it, but should the store fail now it is lost with the process: it used to count as written.
#[test]
fn what_is_being_written_is_not_persisted_yet() {
    let store = Interrupted::on(&Arc::default());
    let bucket = node(store.clone());
    bucket.take_over(&[VB]).unwrap();
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    done(bucket.store(VB, key("b"), &set("1"), NOW));
    let (during, seen) = (Arc::clone(&bucket), Arc::new(AtomicUsize::new(0)));
    let shown = Arc::clone(&seen);
    store.next(move || {
        let stats = during.vbucket_stats(VB).expect("it is owned");
        assert!(stats.queue_oldest.is_some());
        shown.store(stats.queue_items, Ordering::Relaxed);
    });
    bucket.flush_step().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    let after = bucket.vbucket_stats(VB).unwrap();
    assert_eq!((after.queue_items, after.queue_oldest), (0, None));
}

/// What one step leaves behind was due with the rest. It used to wait for an interval of its own, and so did a durable
/// write behind it.
#[test]
fn what_a_step_leaves_waits_for_no_interval_of_its_own() {
    let config = BucketConfig { flush_interval_ms: 3_600_000, ..config() };
    let store = Arc::new(MemoryStore::new());
    let bucket = Bucket::open(config, store, entropy(), false).expect("a fresh bucket opens");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    // More than one step takes of a vbucket, before anybody flushes.
    for n in 0..40_000 {
        done(bucket.store(VB, key(&format!("k{n}")), &set("1"), NOW));
    }
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let sink: Arc<dyn PersistenceSink> = Arc::new(Nobody);
    let last = done(bucket.store(VB, key("durable"), &set("1"), NOW));
    bucket.when_persisted(VB, (last.seqno, Some(last.vb_uuid)), &sink, 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while bucket.vbucket_stats(VB).unwrap().persisted_seqno < last.seqno {
        assert!(Instant::now() < deadline, "{:?}", bucket.vbucket_stats(VB));
        std::thread::yield_now();
    }
    threads.stop().unwrap();
}

/// Waits for a write without listening.
struct Nobody;

impl PersistenceSink for Nobody {
    fn persisted(&self, _token: u64, _outcome: PersistOutcome) {}
}
