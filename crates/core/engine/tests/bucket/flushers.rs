//! Several flushers: a store that commits groups of vbuckets side by side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, MutationOutcome, OperationRejection, PersistOutcome,
    PersistenceSink, StoreOperation, WarmupStep,
};
use oribi_storage::{FaultPlan, FaultStore, KvStore, MemoryStore, unlimited};
use oribi_types::{DocKey, Vbid};
use parking_lot::{Condvar, Mutex};

use super::{NOW, config, done, entropy, key, set};
use crate::operations_by_vbid::OperationsByVbid;

const GROUPS: usize = 3;

/// Commits that wait for each other, or for the test.
#[derive(Default)]
struct Gate {
    /// Commits that have to be under way before one continues.
    wanted: Mutex<usize>,
    under_way: Mutex<usize>,
    changed: Condvar,
}

const DEADLINE: Duration = Duration::from_secs(60);

impl Gate {
    fn pass(&self) {
        let mut under_way = self.under_way.lock();
        *under_way += 1;
        self.changed.notify_all();
        let until = Instant::now() + DEADLINE;
        while *under_way < *self.wanted.lock() {
            let waited = self.changed.wait_until(&mut under_way, until);
            assert!(!waited.timed_out(), "a commit waits for one of another group for ever");
        }
    }

    /// From now on commits wait until so many are, or were, under way.
    fn want(&self, more: usize) {
        *self.wanted.lock() = *self.under_way.lock() + more;
    }

    fn open(&self) {
        let _under_way = self.under_way.lock();
        *self.wanted.lock() = 0;
        self.changed.notify_all();
    }

    fn wait_for_one(&self, before: usize) {
        let mut under_way = self.under_way.lock();
        let until = Instant::now() + DEADLINE;
        while *under_way <= before {
            let waited = self.changed.wait_until(&mut under_way, until);
            assert!(!waited.timed_out(), "no commit");
        }
    }

    fn count(&self) -> usize {
        *self.under_way.lock()
    }
}

/// A bucket over a store in memory that says that it commits three groups side by side.
struct Fixture {
    bucket: Arc<Bucket>,
    store: Arc<FaultStore<MemoryStore>>,
    plan: Arc<FaultPlan>,
    gate: Arc<Gate>,
}

/// Eight vbuckets: three in the first two groups, two in the last.
fn fixture(flush_interval_ms: u64) -> Fixture {
    let plan = FaultPlan::none();
    let store = Arc::new(FaultStore::new(MemoryStore::in_groups(GROUPS), Arc::clone(&plan)));
    let config = BucketConfig { vbuckets: 8, flush_interval_ms, ..config() };
    let of_bucket = Arc::clone(&store) as Arc<dyn KvStore>;
    let bucket = Bucket::open(config, of_bucket, entropy(), false).expect("a fresh bucket opens");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    let gate = Arc::<Gate>::default();
    let at_gate = Arc::clone(&gate);
    plan.before_commits(move |_| at_gate.pass());
    Fixture { bucket, store, plan, gate }
}

fn write_all(bucket: &Bucket, value: &str) {
    for vbid in (0..8).map(Vbid) {
        done(bucket.store(vbid, key("k"), &set(value), NOW));
    }
}

fn unflushed(bucket: &Bucket) -> Vec<u16> {
    (0..8).filter(|vbid| !bucket.vbucket(Vbid(*vbid)).expect("it is there").is_flushed()).collect()
}

#[derive(Default)]
struct RecordingSink(Mutex<Vec<(u64, PersistOutcome)>>);

impl PersistenceSink for RecordingSink {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.0.lock().push((token, outcome));
    }
}

fn wait_until(is_reached: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_reached() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn each_flusher_flushes_its_own_group() {
    let Fixture { bucket, plan, .. } = fixture(0);
    assert_eq!(bucket.flusher_count(), GROUPS);
    let commits = plan.commits();
    write_all(&bucket, "1");
    let clock = || NOW;
    for (group, left) in
        [(1, vec![0, 2, 3, 5, 6]), (0, vec![2, 5]), (1, vec![2, 5]), (2, Vec::new())]
    {
        let report = bucket.flusher_step(group, &clock).expect("the store takes it");
        assert!(!report.more && !report.is_mid_pass, "{report:?}");
        assert_eq!(unflushed(&bucket), left, "after a step of {group}");
    }
    assert_eq!(plan.commits() - commits, 3, "one for each group");
    write_all(&bucket, "2");
    let report = bucket.flush_step().expect("the store takes it");
    assert_eq!((report.vbuckets, report.items, report.more), (8, 8, false));
    assert!(unflushed(&bucket).is_empty());
}

// Invariant: Each group of vbuckets has its own flusher; a failed group refuses writes until its
// own commit succeeds.
/// Each commit waits here until those of the other groups have begun.
#[test]
fn groups_are_committed_side_by_side() {
    let Fixture { bucket, gate, .. } = fixture(0);
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    gate.want(GROUPS);
    write_all(&bucket, "1");
    wait_until(|| unflushed(&bucket).is_empty());
    gate.open();
    threads.stop().expect("the rest is flushed");
}

/// A durable write hurries the flusher of its vbucket, and no other.
#[test]
fn a_waiter_hurries_the_vbuckets_flusher_only() {
    let Fixture { bucket, .. } = fixture(3_600_000);
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    write_all(&bucket, "1");
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn PersistenceSink> = Arc::clone(&told) as Arc<dyn PersistenceSink>;
    let durable = done(bucket.store(Vbid(4), key("durable"), &set("1"), NOW));
    bucket.when_persisted(Vbid(4), (durable.seqno, Some(durable.vb_uuid)), &sink, 9);
    wait_until(|| !told.0.lock().is_empty());
    assert_eq!(*told.0.lock(), [(9, PersistOutcome::Persisted)]);
    assert_eq!(unflushed(&bucket), [0, 2, 3, 5, 6], "the interval of the others is an hour");
    bucket.set_flush_interval_ms(1);
    wait_until(|| unflushed(&bucket).is_empty());
    bucket.set_flush_interval_ms(3_600_000);
    write_all(&bucket, "2");
    threads.stop().expect("the rest is flushed");
    assert!(unflushed(&bucket).is_empty(), "a stop flushes every group");
}

// Invariant: Each group of vbuckets has its own flusher; a failed group refuses writes until its
// own commit succeeds.
/// A commit of another group proves nothing of the one that fails.
#[test]
fn a_failing_group_refuses_writes_until_it_works() {
    let Fixture { bucket, plan, .. } = fixture(0);
    write_all(&bucket, "1");
    plan.fail_group(Some(1));
    bucket.flush_step().expect_err("one group fails");
    assert_eq!(unflushed(&bucket), [1, 4, 7], "the others are flushed nevertheless");
    let is_refused = |vbid| {
        matches!(
            bucket.store(vbid, key("k"), &set("2"), NOW),
            MutationOutcome::Refused(OperationRejection::TemporaryFailure)
        )
    };
    for _ in 0..3 {
        assert!(bucket.stats().failed.has(StoreOperation::Commit));
        assert!(is_refused(Vbid(0)) && is_refused(Vbid(1)));
        bucket.flusher_step(0, &|| NOW).expect("this group works");
        bucket.flusher_step(2, &|| NOW).expect("and this one");
        bucket.review_pressure();
    }
    bucket.flusher_step(1, &|| NOW).expect_err("it still fails");
    plan.fail_group(None);
    bucket.flusher_step(1, &|| NOW).expect("it works again");
    assert!(!bucket.stats().failed.refuse_writes());
    assert!(unflushed(&bucket).is_empty() && !is_refused(Vbid(1)));
}

// Invariant: No flusher commits while documents of a dropped collection are purged.
/// A flusher that had read a document before its collection was dropped used to be the only one.
/// With several, the purge has to wait for that commit, or the document would come back after it.
#[test]
fn no_document_of_a_dropped_collection_comes_back() {
    let Fixture { bucket, store, gate, .. } = fixture(0);
    let (scope, name) = ("s".to_owned(), "c".to_owned());
    let change = |change| bucket.update_manifest(&change).expect("the manifest changes");
    change(ManifestChange::CreateScope { name: scope.clone() });
    let create = ManifestChange::CreateCollection {
        scope: scope.clone(),
        name: name.clone(),
        max_ttl_s: None,
    };
    let manifest = change(create);
    let collection = manifest.scopes().iter().flat_map(|scope| &scope.collections);
    let collection = collection.map(|collection| collection.id).max().expect("there is one");
    let doomed = DocKey { collection, key: b"doomed" };
    bucket.flush_step().expect("the store takes it");
    done(bucket.store(Vbid(1), doomed, &set("1"), NOW));
    let before = gate.count();
    gate.want(2);
    std::thread::scope(|threads| {
        let commit = threads.spawn(|| bucket.flusher_step(1, &|| NOW));
        gate.wait_for_one(before);
        // It has been read and is about to be written.
        change(ManifestChange::DropCollection { scope, name });
        let purge = threads.spawn(|| bucket.flusher_step(0, &|| NOW));
        // Time for a purge without a waiter.
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        gate.open();
        commit.join().expect("no panic").expect("the store takes it");
        purge.join().expect("no panic").expect("the store takes it");
    });
    assert!(
        !store.get(Vbid(1), doomed, &mut unlimited, &mut |_| ()).expect("the store is read"),
        "it is purged"
    );
}
