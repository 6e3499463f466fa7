//! The contents of one flush step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oribi_engine::limits::{CHECKPOINT_BYTES_MAX, CHECKPOINT_ITEMS_MAX};
use oribi_engine::{
    AppliedMutation, Bucket, BucketConfig, BucketThreads, FlushReport, PersistOutcome,
    PersistenceSink, Upkeep, WarmupStep,
};
use oribi_storage::{
    FaultPlan, FaultStore, KvStore, MemoryStore, StoreFault, StoreMaintenance, unlimited,
};
use oribi_types::{Seqno, Vbid};

use super::ownership::{InterruptedStore, node};
use super::{NOW, VB, config, done, entropy, key, open, set};
use crate::operations_by_vbid::OperationsByVbid;

// Invariant: A batch is a run of checkpoints with the newest version of each key, durable as a
// whole or not at all.
/// A key can be in several checkpoints of a queue, but only once in a batch for the store. They
/// used to be one batch, in which a store was free to keep the older version.
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
    assert_eq!(bucket.vbucket(VB).unwrap().stats().checkpoints, 2);
    let report = bucket.flush_step().unwrap();
    assert_eq!(report, FlushReport { vbuckets: 1, items: LARGE + 2, ..Default::default() });
    assert_eq!(store.stats().commits, commits + 1);
    let mut found = None;
    let is_there = store.get(VB, key("a"), &mut unlimited, &mut |record| {
        found = Some((record.seqno, record.cas, record.value.to_vec()));
    });
    assert!(is_there.unwrap());
    let end = Seqno(LARGE as u64 + 2);
    assert_eq!(found, Some((end, newest.cas, b"2".to_vec())));
    let vbucket = bucket.vbucket(VB).unwrap().stats();
    assert_eq!((vbucket.persisted_seqno, vbucket.queue_items), (end, 0));
    // The version of `a` that only the queue held is free again.
    assert_eq!((vbucket.queue_bytes, vbucket.queue_own_bytes), (0, 0));
}

/// The flusher has taken it, but should the store fail now it is lost with the process: it used to
/// count as written.
#[test]
fn items_in_a_commit_are_not_persisted_yet() {
    let store = InterruptedStore::on(&Arc::default());
    let bucket = node(store.clone());
    bucket.take_over(&[VB]).unwrap();
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    done(bucket.store(VB, key("b"), &set("1"), NOW));
    let (during, seen) = (Arc::clone(&bucket), Arc::new(AtomicUsize::new(0)));
    let shown = Arc::clone(&seen);
    store.next(move || {
        let stats = during.vbucket(VB).expect("it is owned").stats();
        assert!(stats.queue_oldest.is_some());
        shown.store(stats.queue_items, Ordering::Relaxed);
    });
    bucket.flush_step().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    let after = bucket.vbucket(VB).unwrap().stats();
    assert_eq!((after.queue_items, after.queue_oldest), (0, None));
}

/// Items that one step leaves were due with the rest. They used to wait for their own interval, and
/// so did a durable write after it.
#[test]
fn the_rest_of_a_step_needs_no_further_interval() {
    let bucket = rarely_flushed(Arc::new(MemoryStore::new()), Upkeep::default());
    // More than one step takes of a vbucket, before anybody flushes.
    for n in 0..40_000 {
        done(bucket.store(VB, key(&format!("k{n}")), &set("1"), NOW));
    }
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let sink: Arc<dyn PersistenceSink> = Arc::new(NoSink);
    let last = done(bucket.store(VB, key("durable"), &set("1"), NOW));
    bucket.when_persisted(VB, (last.seqno, Some(last.vb_uuid)), &sink, 1);
    wait_until(&bucket, |bucket| bucket.vbucket(VB).unwrap().is_flushed());
    threads.stop().unwrap();
}

/// A bucket that flushes once an hour unless an operation waits.
fn rarely_flushed(store: Arc<dyn KvStore>, upkeep: Upkeep) -> Arc<Bucket> {
    let config = BucketConfig { flush_interval_ms: 3_600_000, upkeep, ..config() };
    let bucket = Bucket::open(config, store, entropy(), false).expect("a fresh bucket opens");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    bucket
}

/// Writes that gather when the interval becomes shorter do not wait for the old one.
#[test]
fn a_shorter_flush_interval_counts_at_once() {
    let bucket = rarely_flushed(Arc::new(MemoryStore::new()), Upkeep::default());
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    write(&bucket, VB.0);
    assert!(!bucket.vbucket(VB).unwrap().is_flushed(), "the interval is an hour");
    bucket.set_flush_interval_ms(1);
    assert_eq!(bucket.flush_interval_ms(), 1);
    wait_until(&bucket, |bucket| bucket.vbucket(VB).unwrap().is_flushed());
    threads.stop().unwrap();
}

fn wait_until(bucket: &Bucket, is_reached: impl Fn(&Bucket) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_reached(bucket) {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            bucket.vbucket(VB).expect("it is there").stats()
        );
        std::thread::yield_now();
    }
}

/// A bucket of which one flush step takes one vbucket.
fn one_vbucket_a_step(store: Arc<dyn KvStore>) -> Arc<Bucket> {
    rarely_flushed(store, Upkeep { flush_bytes_max: 1, ..Upkeep::default() })
}

fn write(bucket: &Bucket, vbucket: u16) -> AppliedMutation {
    done(bucket.store(Vbid(vbucket), key("k"), &set("1"), NOW))
}

/// The vbuckets with something to flush.
fn unflushed(bucket: &Bucket) -> Vec<u16> {
    let vbuckets = 0..bucket.config().vbuckets;
    vbuckets
        .filter(|vbucket| !bucket.vbucket(Vbid(*vbucket)).expect("it is there").is_flushed())
        .collect()
}

// Invariant: A flush pass visits each vbucket once; new writes wait for the next pass.
/// A pass of several steps used to go round: what was written again concurrently was flushed again
/// at once, and under load the flusher never paused, however long the interval was.
#[test]
fn a_rewrite_after_its_visit_waits_for_the_next_pass() {
    let bucket = one_vbucket_a_step(Arc::new(MemoryStore::new()));
    for vbucket in 0..3 {
        write(&bucket, vbucket);
    }
    let one = FlushReport { vbuckets: 1, items: 1, more: true, is_mid_pass: true };
    assert_eq!(bucket.flush_step().unwrap(), one);
    write(&bucket, 0);
    assert_eq!(bucket.flush_step().unwrap(), one);
    assert_eq!(bucket.flush_step().unwrap(), one);
    // The rest of the pass has nothing, and the write after it is known to be due.
    let over = FlushReport { more: true, ..FlushReport::default() };
    assert_eq!((bucket.flush_step().unwrap(), unflushed(&bucket)), (over, vec![0]));
    while bucket.flush_step().unwrap().more {}
    assert!(unflushed(&bucket).is_empty());
}

// Invariant: A durable write to a vbucket that the pass has visited starts a new round before the
// pass ends.
#[test]
fn a_waiter_is_served_before_the_pass_ends() {
    let bucket = one_vbucket_a_step(Arc::new(MemoryStore::new()));
    for vbucket in 0..3 {
        write(&bucket, vbucket);
    }
    assert!(bucket.flush_step().unwrap().is_mid_pass);
    let sink: Arc<dyn PersistenceSink> = Arc::new(NoSink);
    let written = write(&bucket, 0);
    bucket.when_persisted(Vbid(0), (written.seqno, Some(written.vb_uuid)), &sink, 1);
    while bucket.flush_step().unwrap().is_mid_pass {}
    assert!(unflushed(&bucket).is_empty());
}

/// Vbuckets that a pass had not reached when a commit failed are due as soon as the store recovers,
/// not an interval later.
#[test]
fn a_waiter_of_a_failed_pass_is_served_by_the_next() {
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), plan.clone());
    let bucket = one_vbucket_a_step(Arc::new(store));
    let written = [0, 1, 2].map(|vbucket| write(&bucket, vbucket));
    plan.fail_commit(plan.commits() + 2, StoreFault::BeforeCommit);
    let sink: Arc<dyn PersistenceSink> = Arc::new(NoSink);
    bucket.when_persisted(Vbid(2), (written[2].seqno, None), &sink, 1);
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    wait_until(&bucket, |bucket| unflushed(bucket).is_empty());
    threads.stop().unwrap();
}

/// A busy vbucket is visited again after the others.
#[test]
fn a_large_vbucket_is_finished_in_the_same_pass() {
    let bucket = one_vbucket_a_step(Arc::new(MemoryStore::new()));
    let large = "b".repeat(CHECKPOINT_BYTES_MAX / 16);
    for n in 0..40 {
        done(bucket.store(Vbid(0), key(&format!("b{n}")), &set(&large), NOW));
    }
    assert_eq!(bucket.vbucket(Vbid(0)).unwrap().stats().checkpoints, 3);
    write(&bucket, 1);
    assert!(bucket.flush_step().unwrap().is_mid_pass);
    assert_eq!(unflushed(&bucket), [0, 1]);
    assert!(bucket.flush_step().unwrap().is_mid_pass);
    assert_eq!(unflushed(&bucket), [0]);
    while bucket.flush_step().unwrap().is_mid_pass {}
    assert!(unflushed(&bucket).is_empty());
}

/// One read of a vbucket is limited, and a step with capacity left could read the rest into
/// the same commit; a store gets one stretch of each vbucket.
#[test]
fn a_vbucket_is_in_a_commit_once() {
    let bucket = rarely_flushed(Arc::new(MemoryStore::new()), Upkeep::default());
    let more = 10;
    for n in 0..CHECKPOINT_ITEMS_MAX + more {
        done(bucket.store(Vbid(0), key(&format!("k{n}")), &set("1"), NOW));
    }
    write(&bucket, 1);
    let items = CHECKPOINT_ITEMS_MAX + 1;
    let first = FlushReport { vbuckets: 2, items, more: true, is_mid_pass: true };
    assert_eq!(bucket.flush_step().unwrap(), first);
    let second = bucket.flush_step().unwrap();
    assert_eq!((second.vbuckets, second.items, second.is_mid_pass), (1, more, false));
    assert!(unflushed(&bucket).is_empty());
}

/// Waits for a write without listening.
struct NoSink;

impl PersistenceSink for NoSink {
    fn persisted(&self, _token: u64, _outcome: PersistOutcome) {}
}
