//! Every operation's outcomes, flushing, restart and failure.

use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, ConcatMode, ConcatRequest, CounterOutcome, CounterRequest,
    EvictionPolicy, GetOutcome, ItemRef, MutationOutcome, OperationRejection, PersistOutcome,
    PersistenceSink, StoreCondition, StoreRequest, TaskState,
};
use oribi_storage::{FaultPlan, FaultStore, MemoryStore, StoreFault};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, Seqno, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, open, set};

fn hit(outcome: GetOutcome) -> ItemRef {
    match outcome {
        GetOutcome::Hit(item) => item,
        other => panic!("{other:?}"),
    }
}

fn is_miss(outcome: &GetOutcome) -> bool {
    matches!(outcome, GetOutcome::Miss)
}

#[derive(Default)]
struct RecordingSink(Mutex<Vec<(u64, PersistOutcome)>>);

impl PersistenceSink for RecordingSink {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.0.lock().push((token, outcome));
    }
}

#[test]
fn conditions_of_set_add_replace_and_delete() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let store =
        |mode, cas| bucket.store(VB, key("k"), &StoreRequest { mode, cas, ..set("{}") }, NOW);
    assert_eq!(store(StoreCondition::Replace, Cas(0)), MutationOutcome::NotFound);
    assert_eq!(store(StoreCondition::Set, Cas(9)), MutationOutcome::NotFound);
    let first = done(store(StoreCondition::Add, Cas(0)));
    assert_eq!(store(StoreCondition::Add, Cas(0)), MutationOutcome::Exists);
    assert_eq!(store(StoreCondition::Set, Cas(first.cas.0 + 1)), MutationOutcome::Exists);
    let second = done(store(StoreCondition::Replace, first.cas));
    assert!(second.cas > first.cas);
    assert_eq!((first.seqno, second.seqno), (Seqno(1), Seqno(2)));
    let item = hit(bucket.get(VB, key("k"), NOW));
    assert_eq!((item.value(), item.flags(), item.cas()), (&b"{}"[..], 7, second.cas));
    assert_eq!((item.datatype(), item.rev_seqno().0), (Datatype::JSON, 2));
    assert_eq!(bucket.delete(VB, key("k"), first.cas, NOW), MutationOutcome::Exists);
    let deleted = done(bucket.delete(VB, key("k"), second.cas, NOW));
    assert!(deleted.cas > second.cas);
    assert!(is_miss(&bucket.get(VB, key("k"), NOW)));
    assert_eq!(bucket.delete(VB, key("k"), Cas(0), NOW), MutationOutcome::NotFound);
    done(store(StoreCondition::Add, Cas(0)));
    assert_eq!(
        hit(bucket.get(VB, key("k"), NOW)).rev_seqno().0,
        4,
        "revisions go on over a deletion"
    );
}

// Compat (memcached's text protocol): Numbers with more after them
#[test]
fn append_prepend_and_counters() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let concat = |mode, value: &str| {
        bucket.concat(
            VB,
            key("k"),
            &ConcatRequest { mode, value: value.as_bytes(), cas: Cas(0) },
            NOW,
        )
    };
    assert_eq!(concat(ConcatMode::Append, "x"), MutationOutcome::NotStored);
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    done(concat(ConcatMode::Append, "]"));
    assert_eq!(hit(bucket.get(VB, key("k"), NOW)).datatype(), Datatype::RAW);
    done(concat(ConcatMode::Prepend, "[2,"));
    let item = hit(bucket.get(VB, key("k"), NOW));
    assert_eq!((item.value(), item.flags(), item.datatype()), (&b"[2,1]"[..], 7, Datatype::JSON));
    assert_eq!(concat(ConcatMode::Append, &"x".repeat(1 << 20)), MutationOutcome::TooLarge);

    let counter = |name: &str, delta, decrement, initial| {
        let request = CounterRequest { delta, decrement, initial, expiry: 0, cas: Cas(0) };
        match bucket.counter(VB, key(name), &request, NOW) {
            CounterOutcome::Done { value, .. } => Ok(value),
            other => Err(other),
        }
    };
    assert_eq!(counter("c", 1, false, None), Err(CounterOutcome::NotFound));
    assert_eq!(counter("c", 1, false, Some(10)), Ok(10));
    assert_eq!(counter("c", 5, false, None), Ok(15));
    assert_eq!(counter("c", 100, true, None), Ok(0));
    assert_eq!(counter("c", u64::MAX, false, None), Ok(u64::MAX));
    assert_eq!(counter("c", 2, false, None), Ok(1), "increments wrap");
    assert_eq!(counter("k", 1, false, None), Err(CounterOutcome::NotANumber));
    // What memcached 1.6 takes for a number, but for text after the space.
    for (text, sum) in [
        (" 12", Some(13)),
        ("\t\r\n\x0b\x0c 12", Some(13)),
        ("12 ", Some(13)),
        ("+12", Some(13)),
        ("00000000000000000000012", Some(13)),
        ("18446744073709551615", Some(0)),
        ("18446744073709551616", None),
        ("12 a", None),
        ("12a", None),
        ("1 2", None),
        ("-1", None),
        ("+ 1", None),
        ("++1", None),
        ("+", None),
        ("  ", None),
        ("", None),
        ("0x10", None),
    ] {
        done(bucket.store(VB, key("t"), &set(text), NOW));
        let expected = sum.ok_or(CounterOutcome::NotANumber);
        assert_eq!(counter("t", 1, false, None), expected, "{text:?}");
    }
    done(bucket.store(VB, key("t"), &set(&format!("{}12", " ".repeat(63))), NOW));
    assert_eq!(counter("t", 1, false, None), Err(CounterOutcome::NotANumber));
}

#[test]
fn expiry_touch_and_get_and_touch() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let at = |seconds| Timestamp::from_unix_s(NOW.unix_s() + seconds);
    let short = StoreRequest { expiry: 10, ..set("v") };
    let first = done(bucket.store(VB, key("k"), &short, NOW));
    assert_eq!(hit(bucket.get(VB, key("k"), at(9))).expiry(), NOW.unix_s() + 10);
    let touched = done(bucket.touch(VB, key("k"), 100, at(9)));
    assert!(touched.cas > first.cas);
    let same = hit(bucket.get_and_touch(VB, key("k"), NOW.unix_s() + 109, at(10)));
    assert_eq!(same.cas(), touched.cas, "the same expiry is no mutation");
    let queued = bucket.vbucket(VB).unwrap().stats().high_seqno;
    let again = done(bucket.touch(VB, key("k"), NOW.unix_s() + 109, at(11)));
    assert_eq!(again, touched, "nor is it for touch, which answers with the version that there is");
    assert_eq!(bucket.vbucket(VB).unwrap().stats().high_seqno, queued, "nothing is written");
    let kept = StoreRequest { preserve_expiry: true, ..set("w") };
    done(bucket.store(VB, key("k"), &kept, at(20)));
    assert_eq!(hit(bucket.get(VB, key("k"), at(108))).value(), b"w");
    assert!(is_miss(&bucket.get(VB, key("k"), at(109))));
    assert!(is_miss(&bucket.get(VB, key("k"), at(0))), "reading it expired left a tombstone");
    assert_eq!(bucket.touch(VB, key("k"), 1, at(110)), MutationOutcome::NotFound);
    assert!(is_miss(&bucket.get_and_touch(VB, key("k"), 1, at(110))));
}

#[test]
fn a_crash_keeps_flushed_items_and_adds_a_history() {
    let disk = MemoryStore::new().medium();
    let before = {
        let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
        for n in 0..1000 {
            done(bucket.store(VB, key(&format!("k{n}")), &set(&n.to_string()), NOW));
        }
        done(bucket.delete(VB, key("k7"), Cas(0), NOW));
        bucket.flush_step().unwrap();
        let stats = bucket.vbucket(VB).unwrap().stats();
        assert_eq!(
            (stats.persisted_seqno, stats.queue_items, stats.tombstones),
            (Seqno(1001), 0, 0)
        );
        done(bucket.store(VB, key("lost"), &set("never flushed"), NOW));
        stats
    };
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    let after = bucket.vbucket(VB).unwrap().stats();
    assert_eq!((after.items, after.high_seqno, after.max_cas), (999, Seqno(1001), before.max_cas));
    assert_ne!(after.uuid, before.uuid);
    assert!(is_miss(&bucket.get(VB, key("k7"), NOW)));
    assert!(is_miss(&bucket.get(VB, key("lost"), NOW)));
    let item = hit(bucket.get(VB, key("k42"), NOW));
    assert_eq!((item.value(), item.flags()), (&b"42"[..], 7));
    let again = done(bucket.store(VB, key("k7"), &set("back"), Timestamp::default()));
    assert!(again.cas > before.max_cas, "CAS never goes back, whatever the clock says");
    assert!(hit(bucket.get(VB, key("k7"), NOW)).rev_seqno().0 > 2);
    drop(bucket);
    let clean = Bucket::open(config(), Arc::new(MemoryStore::on(disk)), entropy(), true).unwrap();
    assert_eq!(
        clean.vbucket(VB).unwrap().stats().uuid,
        after.uuid,
        "a clean stop keeps the history"
    );
    assert!(matches!(
        clean.get(VB, key("k42"), NOW),
        GetOutcome::Refused(OperationRejection::NeedsFetch)
    ));
}

#[test]
fn waiters_are_told_after_the_commit_and_only_then() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn PersistenceSink> = told.clone();
    let first = done(bucket.store(VB, key("k"), &set("1"), NOW));
    assert!(!bucket.when_persisted(VB, (first.seqno, Some(first.vb_uuid)), &sink, 5));
    assert!(told.0.lock().is_empty());
    bucket.flush_step().unwrap();
    assert_eq!(*told.0.lock(), [(5, PersistOutcome::Persisted)]);
    assert!(bucket.when_persisted(VB, (first.seqno, Some(first.vb_uuid)), &sink, 6));
}

#[test]
fn a_failing_store_refuses_writes_until_it_works() {
    for fault in [
        StoreFault::BeforeCommit,
        StoreFault::AfterCommit,
        StoreFault::NoSpace,
        StoreFault::Torn { dropped: 1 },
    ] {
        fail_and_heal(fault);
    }
}

fn fail_and_heal(fault: StoreFault) {
    let disk = MemoryStore::new().medium();
    let plan = FaultPlan::none();
    let faulty = FaultStore::new(MemoryStore::on(disk.clone()), plan.clone());
    let bucket = open(Arc::new(faulty));
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn PersistenceSink> = told.clone();
    let written = done(bucket.store(VB, key("k"), &set("1"), NOW));
    assert!(!bucket.when_persisted(VB, (written.seqno, Some(written.vb_uuid)), &sink, 5));
    plan.fail_from(plan.commits() + 1, fault);
    bucket.flush_step().expect_err("the plan fails this commit");
    assert_eq!(*told.0.lock(), [(5, PersistOutcome::Failed)]);
    assert_eq!(
        bucket.vbucket(VB).expect("the test knows that this works").stats().persisted_seqno,
        Seqno(0)
    );
    let refused = bucket.store(VB, key("k2"), &set("2"), NOW);
    assert_eq!(refused, MutationOutcome::Refused(OperationRejection::TemporaryFailure));
    assert_eq!(hit(bucket.get(VB, key("k"), NOW)).value(), b"1", "reads go on");
    plan.heal();
    assert_eq!(bucket.flush_step().expect("the test knows that this works").items, 1);
    bucket.review_pressure();
    done(bucket.store(VB, key("k2"), &set("2"), NOW));
    bucket.flush_step().expect("the test knows that this works");
    assert_eq!(open(Arc::new(MemoryStore::on(disk))).stats().items, 2);
}

// Compat (Buckets over HTTP): `maxTTL`
#[test]
fn a_collections_longest_life_precedes_the_buckets() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let rules = [("inherits", None, 30), ("has_own", Some(60), 60), ("has_none", Some(0), 0)];
    let expiry = |collection, wire| {
        let key = DocKey { collection, key: b"k" };
        done(bucket.store(VB, key, &StoreRequest { expiry: wire, ..set("v") }, NOW));
        hit(bucket.get(VB, key, NOW)).expiry().saturating_sub(NOW.unix_s())
    };
    assert_eq!(expiry(CollectionId::DEFAULT, 0), 0);
    bucket.set_max_ttl_s(30);
    assert_eq!(expiry(CollectionId::DEFAULT, 0), 30);
    assert_eq!((expiry(CollectionId::DEFAULT, 10), expiry(CollectionId::DEFAULT, 90)), (10, 30));
    for (name, max_ttl_s, wanted) in rules {
        let (scope, name) = ("_default".to_owned(), name.to_owned());
        let create = ManifestChange::CreateCollection { scope, name: name.clone(), max_ttl_s };
        let manifest = bucket.update_manifest(&create).unwrap();
        let collection = manifest.collection_id("_default", &name).unwrap();
        assert_eq!(expiry(collection, 0), wanted, "{name}");
    }
    bucket.set_max_ttl_s(0);
    assert_eq!(expiry(CollectionId::DEFAULT, 90), 90);
}

#[test]
fn a_dropped_collection_never_returns() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    bucket.update_manifest(&ManifestChange::CreateScope { name: "s".to_owned() }).unwrap();
    let create = ManifestChange::CreateCollection {
        scope: "s".to_owned(),
        name: "c".to_owned(),
        max_ttl_s: Some(60),
    };
    let manifest = bucket.update_manifest(&create).unwrap();
    let collection = manifest.collection_id("s", "c").unwrap();
    let named = |name| DocKey { collection, key: name };
    assert_eq!(
        bucket.store(VB, DocKey { collection: CollectionId(99), key: b"k" }, &set("x"), NOW),
        MutationOutcome::Refused(OperationRejection::UnknownCollection)
    );
    done(bucket.store(VB, named(b"flushed"), &set("1"), NOW));
    assert_eq!(hit(bucket.get(VB, named(b"flushed"), NOW)).expiry(), NOW.unix_s() + 60);
    assert!(is_miss(&bucket.get(VB, key("flushed"), NOW)), "collections are separate key spaces");
    bucket.flush_step().unwrap();
    done(bucket.store(VB, named(b"queued"), &set("2"), NOW));
    done(bucket.store(VB, key("kept"), &set("3"), NOW));
    let drop = ManifestChange::DropCollection { scope: "s".to_owned(), name: "c".to_owned() };
    bucket.update_manifest(&drop).unwrap();
    assert!(matches!(
        bucket.get(VB, named(b"flushed"), NOW),
        GetOutcome::Refused(OperationRejection::UnknownCollection)
    ));
    bucket.flush_step().unwrap();
    assert_eq!(bucket.stats().items, 1);
    let reopened = open(Arc::new(MemoryStore::on(disk)));
    assert_eq!((reopened.stats().items, reopened.manifest().uid()), (1, bucket.manifest().uid()));
}

#[test]
fn flush_all_empties_memory_and_store_cas_continues() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    let before = done(bucket.store(VB, key("flushed"), &set("1"), NOW));
    bucket.flush_step().unwrap();
    done(bucket.store(VB, key("queued"), &set("2"), NOW));
    bucket.flush_all().unwrap();
    bucket.flush_step().unwrap();
    assert_eq!(bucket.stats().items, 0);
    let after = done(bucket.store(VB, key("new"), &set("3"), NOW));
    assert!(
        after.cas > before.cas && after.seqno > before.seqno && after.vb_uuid != before.vb_uuid
    );
    bucket.flush_step().unwrap();
    let reopened = open(Arc::new(MemoryStore::on(disk)));
    assert_eq!(reopened.stats().items, 1);
    assert!(is_miss(&reopened.get(VB, key("flushed"), NOW)));
}

// Compat (Differences): Memory
// Invariant: Writes do not pass the quota between two reviews, nor the queue its part while a
// commit hangs.
#[test]
fn beyond_the_quota_writes_fail_and_deletes_succeed() {
    let small =
        BucketConfig { memory_quota_bytes: 20_000, eviction: EvictionPolicy::None, ..config() };
    let bucket = Bucket::open(small, Arc::new(MemoryStore::new()), entropy(), false).unwrap();
    let value = "x".repeat(1000);
    // No review is needed: the write that passes the quota is the last one. Little is queued
    // concurrently.
    let written = (0..40)
        .take_while(|n| {
            bucket.flush_step().unwrap();
            let outcome = bucket.store(VB, key(&format!("k{n}")), &set(&value), NOW);
            let is_done = matches!(outcome, MutationOutcome::Done(_));
            assert!(is_done || outcome == MutationOutcome::Refused(OperationRejection::NoMemory));
            is_done
        })
        .count();
    assert!((12..20).contains(&written), "{written} documents of 1 KB in 20 KB");
    bucket.flush_step().unwrap();
    for n in 0..written {
        done(bucket.delete(VB, key(&format!("k{n}")), Cas(0), NOW));
    }
    bucket.flush_step().unwrap();
    bucket.review_pressure();
    done(bucket.store(VB, key("more"), &set("1"), NOW));
}

/// A store's index beyond its free share reduces the documents' memory, down to a quarter.
#[test]
fn a_large_index_takes_from_the_quota_of_documents() {
    let plan = FaultPlan::none();
    let store = Arc::new(FaultStore::new(MemoryStore::new(), plan.clone()));
    let full =
        BucketConfig { memory_quota_bytes: 80_000, eviction: EvictionPolicy::Full, ..config() };
    let bucket = Bucket::open(full, store, entropy(), false).unwrap();
    let value = "x".repeat(1000);
    let mut number = 0;
    // Documents that are written until one is refused.
    let mut fill = |index_bytes: u64| {
        plan.need_memory(index_bytes);
        bucket.review_pressure();
        let before = number;
        while matches!(
            bucket.store(VB, key(&format!("k{number}")), &set(&value), NOW),
            MutationOutcome::Done(_)
        ) {
            bucket.flush_step().unwrap();
            number += 1;
            assert!(number < 200);
        }
        number - before
    };
    let free = 16 << 20;
    let (least, half, all) = (fill(1 << 30), fill(free + 40_000), fill(free));
    assert!((10..20).contains(&least), "{least} documents in a quarter of 80 KB");
    assert!((10..25).contains(&half), "{half} more in a half");
    assert!((25..45).contains(&all), "{all} more in all of it");
    assert_eq!(bucket.memory_quota_bytes(), 80_000);
}

#[test]
fn a_vbucket_outside_the_map_is_refused() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let outside = Vbid(4);
    assert!(matches!(
        bucket.get(outside, key("k"), NOW),
        GetOutcome::Refused(OperationRejection::NotMyVbucket)
    ));
    assert_eq!(
        bucket.store(outside, key("k"), &set("1"), NOW),
        MutationOutcome::Refused(OperationRejection::NotMyVbucket)
    );
}

// Invariant: Versions of a key enter queue and table in the same order.
#[test]
fn concurrent_writers_leave_no_seqno_gap() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    let threads = BucketThreads::start(Arc::clone(&bucket)).unwrap();
    let request =
        CounterRequest { delta: 1, decrement: false, initial: Some(1), expiry: 0, cas: Cas(0) };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..2000u32 {
                    let name = format!("c{}", n % 8);
                    let outcome = bucket.counter(VB, key(&name), &request, NOW);
                    assert!(matches!(outcome, CounterOutcome::Done { .. }), "{outcome:?}");
                }
            });
        }
    });
    threads.stop().unwrap();
    let flusher = bucket.task_stats().into_iter().find(|task| task.name == "flusher").unwrap();
    assert!(flusher.state == TaskState::Dead && flusher.runs > 0, "{flusher:?}");
    let stats = bucket.vbucket(VB).unwrap().stats();
    assert_eq!(
        (stats.high_seqno, stats.persisted_seqno, stats.queue_items),
        (Seqno(8000), Seqno(8000), 0)
    );
    let reopened = open(Arc::new(MemoryStore::on(disk)));
    for n in 0..8 {
        assert_eq!(hit(reopened.get(VB, key(&format!("c{n}")), NOW)).value(), b"1000");
    }
}
