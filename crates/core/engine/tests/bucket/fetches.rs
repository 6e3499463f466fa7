//! Single cases of eviction and of fetches; `eviction` checks all answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, EvictionPolicy, FetchOutcome, FetchSink, GetOutcome,
    MetaOutcome, MutationOutcome, OperationRejection, ReadTarget, Storage, StoreCondition,
    StoreRequest, VersionOutcome,
};
use oribi_storage::{FaultPlan, FaultStore, MemoryMedium, MemoryStore};
use oribi_types::{Cas, Timestamp};

use crate::entropy;
use crate::eviction::{BEGIN_S, RecordingSink, doc_key, open, place, small};
use crate::operations_by_vbid::OperationsByVbid;

#[test]
fn a_bucket_in_memory_deletes_what_is_not_used() {
    let config = BucketConfig {
        storage: Storage::Memory,
        memory_quota_bytes: 256 << 10,
        ..small(EvictionPolicy::Nru)
    };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true)
        .expect("the bucket opens");
    let clock = || Timestamp::from_unix_s(BEGIN_S);
    let value = [b'x'; 500];
    for number in 0..5000 {
        let (vbid, name) = place(number);
        let request = StoreRequest::set(&value);
        let hot = place(number % 20);
        bucket.get(hot.0, doc_key(&hot.1), clock());
        while bucket.page_items_step(&clock).more {}
        let stored = bucket.store(vbid, doc_key(&name), &request, clock());
        assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
    }
    let hits = (0..20).map(place).filter(|(vbid, name)| {
        matches!(bucket.get(*vbid, doc_key(name), clock()), GetOutcome::Hit(_))
    });
    assert_eq!(hits.count(), 20, "what is read again and again stays");
    let stats = bucket.stats();
    assert!(stats.memory.nru_deletions > 4000, "{:?}", stats.memory);
    assert!(stats.memory.used_bytes <= 256 << 10);
    assert_eq!(stats.items as u64 + stats.memory.nru_deletions, 5000);
}

#[test]
fn equal_fetches_coalesce_and_end_with_the_bucket() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(EvictionPolicy::Value, &disk);
    let (vbid, name) = place(1);
    let now = Timestamp::from_unix_s(BEGIN_S);
    let request = crate::set("value");
    assert!(matches!(bucket.store(vbid, doc_key(&name), &request, now), MutationOutcome::Done(_)));
    assert!(!bucket.evict(vbid, doc_key(&name)), "what is not durable stays");
    bucket.flush_step().expect("the store works");
    let small_value_is_not_worth_it = !bucket.evict(vbid, doc_key(&name));
    assert!(small_value_is_not_worth_it);
    let long = "x".repeat(300);
    let request = crate::set(&long);
    assert!(matches!(bucket.store(vbid, doc_key(&name), &request, now), MutationOutcome::Done(_)));
    bucket.flush_step().expect("the store works");
    assert!(bucket.evict(vbid, doc_key(&name)));
    let vbucket = bucket.vbucket(vbid).unwrap();
    assert!(vbucket.needs_fetch(&bucket.context(now), doc_key(&name)));
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn FetchSink> = told.clone();
    let reads = bucket.stats().store.records_read;
    (0..5).for_each(|token| bucket.fetch(vbid, doc_key(&name), &sink, token));
    assert_eq!(bucket.fetch_step(), 5);
    assert_eq!(bucket.stats().store.records_read - reads, 1);
    let memory = bucket.stats().memory;
    assert_eq!((memory.fetches, memory.fetches_joined, memory.fetch_failures), (5, 4, 0));
    let ready: Vec<_> = (0..5).map(|token| (token, FetchOutcome::Ready)).collect();
    assert_eq!(*told.0.lock(), ready);
    assert!(!vbucket.needs_fetch(&bucket.context(now), doc_key(&name)));
}

/// Stores a document that is worth evicting, makes it durable and evicts it.
fn evict_one(bucket: &Bucket, number: u64) {
    evict_one_of(bucket, number, 500);
}

/// The same with a value of so many bytes.
fn evict_one_of(bucket: &Bucket, number: u64, bytes: usize) {
    let (vbid, name) = place(number);
    let now = Timestamp::from_unix_s(BEGIN_S);
    let value = "x".repeat(bytes);
    let stored = bucket.store(vbid, doc_key(&name), &crate::set(&value), now);
    assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
    bucket.flush_step().expect("the store works");
    assert!(bucket.evict(vbid, doc_key(&name)));
}

#[test]
fn a_read_failure_fails_only_its_fetch() {
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), plan.clone());
    let bucket = Bucket::open(small(EvictionPolicy::Value), Arc::new(store), entropy(), true)
        .expect("the bucket opens");
    evict_one(&bucket, 1);
    let (vbid, name) = place(1);
    let now = Timestamp::from_unix_s(BEGIN_S);
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn FetchSink> = told.clone();
    plan.fail_gets(true);
    bucket.fetch(vbid, doc_key(&name), &sink, 1);
    assert_eq!(bucket.fetch_step(), 1);
    plan.fail_gets(false);
    bucket.fetch(vbid, doc_key(&name), &sink, 2);
    assert_eq!(bucket.fetch_step(), 1);
    assert_eq!(*told.0.lock(), [(1, FetchOutcome::Failed), (2, FetchOutcome::Ready)]);
    assert_eq!(bucket.stats().memory.fetch_failures, 1);
    assert!(matches!(bucket.get(vbid, doc_key(&name), now), GetOutcome::Hit(_)));
}

// Invariant: A request gives up ten seconds after it began to wait for an absent store, and a stop
// ends reads at once.
/// A store that does not answer was asked for one document after the other, each for as long as it
/// takes to give up.
#[test]
fn all_fetches_fail_together_without_a_store() {
    const DOCUMENTS: u64 = 400;
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), plan.clone());
    let config = BucketConfig { memory_quota_bytes: 64 << 20, ..small(EvictionPolicy::Value) };
    let bucket = Bucket::open(config, Arc::new(store), entropy(), true).expect("the bucket opens");
    (0..DOCUMENTS).for_each(|number| evict_one(&bucket, number));
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn FetchSink> = told.clone();
    let ask = || {
        for number in 0..DOCUMENTS {
            let (vbid, name) = place(number);
            bucket.fetch(vbid, doc_key(&name), &sink, number);
        }
    };
    plan.be_away(true);
    ask();
    let gets = plan.gets();
    assert_eq!(bucket.fetch_step(), DOCUMENTS as usize, "more than one batch");
    assert_eq!(plan.gets() - gets, 1);
    assert!(told.0.lock().drain(..).all(|(_, outcome)| outcome == FetchOutcome::Failed));
    assert_eq!(bucket.stats().memory.fetch_failures, DOCUMENTS);
    plan.be_away(false);
    ask();
    while bucket.fetch_step() > 0 {}
    let told = told.0.lock();
    assert_eq!(told.len(), DOCUMENTS as usize);
    assert!(told.iter().all(|(_, outcome)| *outcome == FetchOutcome::Ready));
}

// Invariant: A batch of fetches ends after 1 MiB, and a document over 256 KiB is read alone, one at
// a time in the process.
/// The size of a batch is checked by the one before. Documents that are larger than those were once
/// read all at once, 256 of up to 20 MiB.
#[test]
fn a_batch_ends_when_it_has_read_enough() {
    const BYTES: usize = 250 << 10;
    const ENOUGH: usize = 1 << 20;
    let (small_ones, large_ones) = (0..300, 1000..1040);
    let config = BucketConfig { memory_quota_bytes: 128 << 20, ..small(EvictionPolicy::Value) };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true)
        .expect("the bucket opens");
    small_ones.clone().for_each(|number| evict_one(&bucket, number));
    large_ones.clone().for_each(|number| evict_one_of(&bucket, number, BYTES));
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn FetchSink> = told.clone();
    let ask = |number: u64| {
        let (vbid, name) = place(number);
        bucket.fetch(vbid, doc_key(&name), &sink, number);
    };
    small_ones.clone().for_each(ask);
    while bucket.fetch_step() > 0 {}
    told.0.lock().clear();
    // After others that were asked for before, so that the batch is as large as those made it.
    large_ones.clone().for_each(ask);
    let read_bytes = || bucket.stats().store.bytes_read as usize;
    let (mut steps, mut before) = (0, read_bytes());
    loop {
        let of_step = bucket.fetch_step();
        let read = read_bytes() - before;
        assert!(read < ENOUGH + BYTES, "{read} bytes in one step");
        if of_step == 0 {
            break;
        }
        // One that is asked for while it waits for the next step is still read once.
        large_ones.clone().skip(30).take(1).filter(|_| steps == 0).for_each(ask);
        (steps, before) = (steps + 1, read_bytes());
    }
    let mut told: Vec<_> = told.0.lock().clone();
    told.sort_by_key(|(number, _)| *number);
    let again = large_ones.clone().nth(30);
    let mut expected: Vec<u64> = large_ones.chain(again).collect();
    expected.sort_unstable();
    let ready: Vec<_> = expected.into_iter().map(|number| (number, FetchOutcome::Ready)).collect();
    assert_eq!(told, ready, "all are read in {steps} steps");
}

// Invariant: A batch of fetches ends after 1 MiB, and a document over 256 KiB is read alone, one at
// a time in the process.
/// Documents that are read and not yet items are beyond the quota, so of large documents a step
/// reads one. Small ones that are asked for after them do not wait for all of them.
#[test]
fn large_documents_are_fetched_one_at_a_time() {
    let (large_ones, small_ones) = (0..5, 100..110);
    let config = BucketConfig { memory_quota_bytes: 128 << 20, ..small(EvictionPolicy::Value) };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true)
        .expect("the bucket opens");
    large_ones.clone().for_each(|number| evict_one_of(&bucket, number, 1 << 20));
    small_ones.clone().for_each(|number| evict_one(&bucket, number));
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn FetchSink> = told.clone();
    for number in large_ones.clone().chain(small_ones.clone()) {
        let (vbid, name) = place(number);
        bucket.fetch(vbid, doc_key(&name), &sink, number);
    }
    let of_step = || {
        bucket.fetch_step();
        let mut told: Vec<u64> = told.0.lock().drain(..).map(|(number, _)| number).collect();
        told.sort_unstable();
        told
    };
    assert_eq!(of_step(), small_ones.collect::<Vec<_>>(), "large ones are put aside");
    for number in large_ones {
        assert_eq!(of_step(), [number], "in the order in which they were asked for");
    }
    assert!(of_step().is_empty());
    assert_eq!(bucket.stats().memory.fetch_queue, 0);
    // A step that only finds out that documents are large continues, or its driver would rest.
    evict_one_of(&bucket, 1, 1 << 20);
    let (vbid, name) = place(1);
    bucket.fetch(vbid, doc_key(&name), &sink, 1);
    assert_eq!(of_step(), [1]);
}

// Invariant: A request that waits for an evicted document is completed once.
/// Many clients, more documents than memory, and several fetchers: everybody is told once, and
/// reads what is present.
#[test]
fn everybody_is_told_once_by_several_fetchers() {
    const DOCUMENTS: u64 = 400;
    const CLIENTS: u64 = 4;
    const READS: u64 = 2000;
    let config = BucketConfig { memory_quota_bytes: 64 << 20, ..small(EvictionPolicy::Full) };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true)
        .expect("the bucket opens");
    let bytes_of = |number: u64| if number.is_multiple_of(40) { 300 << 10 } else { 500 };
    (0..DOCUMENTS).for_each(|number| evict_one_of(&bucket, number, bytes_of(number)));
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let now = Timestamp::from_unix_s(BEGIN_S);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let bucket = &bucket;
            scope.spawn(move || {
                let told = Arc::new(RecordingSink::default());
                let sink: Arc<dyn FetchSink> = told.clone();
                for read in 0..READS {
                    // The clients meet: all of them want the same documents at about the same time.
                    let number = read * 7 % DOCUMENTS;
                    let (vbid, name) = place(number);
                    let mut fetches = 0;
                    let bytes = loop {
                        match bucket.get(vbid, doc_key(&name), now) {
                            GetOutcome::Hit(item) => break item.value().len(),
                            GetOutcome::Refused(OperationRejection::NeedsFetch) => fetches += 1,
                            other => panic!("{other:?}"),
                        }
                        assert!(fetches < 1000, "{number} is fetched for ever");
                        bucket.fetch(vbid, doc_key(&name), &sink, read);
                        let deadline = Instant::now() + Duration::from_secs(60);
                        let outcomes = loop {
                            let outcomes = std::mem::take(&mut *told.0.lock());
                            if !outcomes.is_empty() {
                                break outcomes;
                            }
                            assert!(Instant::now() < deadline, "nobody is told");
                            std::thread::yield_now();
                        };
                        assert_eq!(outcomes, [(read, FetchOutcome::Ready)]);
                    };
                    assert_eq!(bytes, bytes_of(number));
                    if (read + client).is_multiple_of(3) {
                        bucket.evict(vbid, doc_key(&name));
                    }
                }
                assert!(told.0.lock().is_empty(), "nobody is told twice");
            });
        }
    });
    assert_eq!(bucket.stats().memory.fetch_failures, 0);
    threads.stop().expect("the store works");
}

#[test]
fn stopped_fetchers_leave_no_waiter() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(EvictionPolicy::Value, &disk);
    evict_one(&bucket, 1);
    evict_one(&bucket, 2);
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn FetchSink> = told.clone();
    let (vbid, name) = place(1);
    bucket.fetch(vbid, doc_key(&name), &sink, 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while told.0.lock().is_empty() {
        assert!(Instant::now() < deadline, "the fetcher's thread is woken");
        std::thread::yield_now();
    }
    threads.stop().expect("the store works");
    let (vbid, name) = place(2);
    bucket.fetch(vbid, doc_key(&name), &sink, 2);
    assert_eq!(*told.0.lock(), [(1, FetchOutcome::Ready), (2, FetchOutcome::Failed)]);
}

/// A tombstone leaves memory as soon as it is durable. A read after that was told
/// that there is none, so the attributes that outlive a document were there or not by chance.
#[test]
fn an_evicted_tombstone_is_fetched_on_request() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(EvictionPolicy::Value, &disk);
    let now = Timestamp::from_unix_s(BEGIN_S);
    let (vbid, name) = place(1);
    let key = doc_key(&name);
    let look = |sought| bucket.read_version(vbid, key, sought, now);
    assert!(
        matches!(look(ReadTarget::Tombstone), VersionOutcome::Miss),
        "nothing was ever deleted"
    );
    let stored = bucket.store(vbid, key, &crate::set("value"), now);
    assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
    let MutationOutcome::Done(deletion) = bucket.delete(vbid, key, Cas(0), now) else {
        panic!("the document is there");
    };
    bucket.flush_step().expect("the store works");
    assert!(matches!(look(ReadTarget::Document), VersionOutcome::Miss), "no need to ask the store");
    let refused = look(ReadTarget::Tombstone);
    assert!(
        matches!(refused, VersionOutcome::Refused(OperationRejection::NeedsFetch)),
        "{refused:?}"
    );
    let refused = bucket.get_meta(vbid, key, now);
    assert!(matches!(refused, MetaOutcome::Refused(OperationRejection::NeedsFetch)), "{refused:?}");
    let sink: Arc<dyn FetchSink> = Arc::new(RecordingSink::default());
    bucket.fetch(vbid, key, &sink, 1);
    assert_eq!(bucket.fetch_step(), 1);
    let VersionOutcome::Found(tombstone, _) = look(ReadTarget::Tombstone) else {
        panic!("it is there")
    };
    assert!(tombstone.is_deleted());
    assert_eq!((tombstone.cas(), tombstone.seqno()), (deletion.cas, deletion.seqno));
    assert!(matches!(bucket.get(vbid, key, now), GetOutcome::Miss));
    assert_eq!(bucket.stats().items, 0);
    // Of a key that was never written the store says that there is nothing, and that is kept in
    // mind.
    let never = oribi_types::DocKey { key: b"never", ..key };
    if let VersionOutcome::Refused(_) = bucket.read_version(vbid, never, ReadTarget::Tombstone, now)
    {
        bucket.fetch(vbid, never, &sink, 2);
        assert_eq!(bucket.fetch_step(), 1);
    }
    let found = bucket.read_version(vbid, never, ReadTarget::Tombstone, now);
    assert!(matches!(found, VersionOutcome::Miss), "{found:?}");
    let stored = bucket.store(vbid, key, &crate::set("again"), now);
    assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
    assert_eq!(bucket.stats().items, 1);
}

#[test]
fn a_value_comes_back_into_its_block_after_a_fetch() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(EvictionPolicy::Full, &disk);
    evict_one(&bucket, 1);
    let (vbid, name) = place(1);
    let now = Timestamp::from_unix_s(BEGIN_S);
    let request = StoreRequest { mode: StoreCondition::Replace, ..crate::set("") };
    let mut received = bucket.begin_store(doc_key(&name), &request, 4, now);
    received.as_mut().expect("there is room").append(b"next");
    let refused = bucket.store_received(vbid, &mut received, &request, now);
    assert_eq!(refused, MutationOutcome::Refused(OperationRejection::NeedsFetch));
    assert!(received.is_some(), "the block is needed again");
    let sink: Arc<dyn FetchSink> = Arc::new(RecordingSink::default());
    bucket.fetch(vbid, doc_key(&name), &sink, 1);
    bucket.fetch_step();
    let stored = bucket.store_received(vbid, &mut received, &request, now);
    assert!(matches!(stored, MutationOutcome::Done(_)) && received.is_none(), "{stored:?}");
    match bucket.get(vbid, doc_key(&name), now) {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => assert_eq!(item.value(), b"next"),
        other => panic!("{other:?}"),
    }
}
