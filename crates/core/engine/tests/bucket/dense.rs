//! Cold values stay in memory in a dense form before they are evicted, and no client sees it.

use std::sync::Arc;

use oribi_engine::{
    Bucket, BucketConfig, ConcatMode, ConcatRequest, EvictionPolicy, GetOutcome, LockOutcome,
    MemoryTier, MutationOutcome, OperationRejection, Storage, StoreRequest, VersionOutcome,
    WarmupStep,
};
use oribi_engine::{ReadTarget, SharedOutcome};
use oribi_storage::{MemoryMedium, MemoryStore};
use oribi_types::{Cas, DocKey, Timestamp, Vbid};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, config, cover_process_memory, done, entropy, key};

const QUOTA: u64 = 6 << 20;

/// Documents whose plain form is about twice what stays in memory.
pub(crate) const ORDERS: u64 = 20_000;

pub(crate) fn bucket(storage: Storage, eviction: EvictionPolicy, tier: MemoryTier) -> Arc<Bucket> {
    on(&Arc::default(), (storage, eviction), tier)
}

fn on(
    disk: &Arc<MemoryMedium>,
    (storage, eviction): (Storage, EvictionPolicy),
    tier: MemoryTier,
) -> Arc<Bucket> {
    cover_process_memory();
    let config = BucketConfig { memory_quota_bytes: QUOTA, storage, eviction, ..config() };
    let store = Arc::new(MemoryStore::on(Arc::clone(disk)));
    let bucket = Bucket::open(config, store, entropy(), true).expect("the bucket opens");
    bucket.set_memory_tier(tier);
    bucket
}

pub(crate) fn place(number: u64) -> (Vbid, String) {
    (Vbid((number % 4) as u16), format!("order::{number:08}"))
}

pub(crate) fn order(number: u64) -> String {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let cities = ["Berlin", "Paris", "Madrid", "Rome", "Prague", "Oslo", "Lyon", "Porto"];
    let lines: Vec<String> = (0..2 + mixed % 4)
        .map(|line| {
            let sku = mixed.rotate_left(line as u32 * 7) % 1_000_000;
            format!(
                "{{\"sku\":\"SKU-{sku:06}\",\"quantity\":{},\"price\":{}.50}}",
                sku % 9,
                sku % 400
            )
        })
        .collect();
    format!(
        "{{\"type\":\"order\",\"id\":{number},\"customer\":{{\"email\":\"user{}@example.com\",\
         \"city\":\"{}\"}},\"status\":\"delivered\",\"created\":\"2026-{:02}-{:02}T10:00:00Z\",\
         \"items\":[{}],\"currency\":\"EUR\"}}",
        mixed >> 40,
        cities[(mixed >> 32) as usize % cities.len()],
        1 + mixed % 12,
        1 + mixed % 28,
        lines.join(",")
    )
}

pub(crate) fn settle(bucket: &Bucket, now: Timestamp) {
    while bucket.flush_step().expect("the store works").more {}
    loop {
        let report = bucket.page_items_step(&|| now);
        if !report.more || report.is_stuck {
            return;
        }
    }
}

fn store(bucket: &Bucket, number: u64, value: &str) {
    let (vbid, name) = place(number);
    done(bucket.store(vbid, key(&name), &StoreRequest::set(value.as_bytes()), NOW));
}

pub(crate) fn fill(bucket: &Bucket, numbers: std::ops::Range<u64>) {
    for number in numbers {
        store(bucket, number, &order(number));
        if number % 256 == 0 {
            settle(bucket, NOW);
        }
    }
    settle(bucket, NOW);
}

fn value(outcome: GetOutcome) -> String {
    match outcome {
        GetOutcome::Hit(item) => String::from_utf8(item.value().to_vec()).expect("it is text"),
        other => panic!("{other:?}"),
    }
}

fn is_dense(bucket: &Bucket, number: u64) -> bool {
    let (vbid, name) = place(number);
    let vbucket = bucket.vbucket(vbid).expect("it is there");
    let found = vbucket.get_meta(&bucket.context(NOW), key(&name));
    match found {
        oribi_engine::MetaOutcome::Found(item, _) => item.is_dense(),
        other => panic!("{other:?}"),
    }
}

fn first_dense(bucket: &Bucket, from: u64) -> u64 {
    (from..ORDERS).find(|number| is_dense(bucket, *number)).expect("a value is dense")
}

#[test]
fn cold_values_become_dense_before_any_is_evicted() {
    let mut resident = [0, 0];
    for (at, tier) in [MemoryTier::Off, MemoryTier::Dense].into_iter().enumerate() {
        let bucket = bucket(Storage::Persistent, EvictionPolicy::Value, tier);
        fill(&bucket, 0..ORDERS);
        let memory = bucket.stats().memory;
        resident[at] = memory.items_resident;
        assert!(memory.used_bytes <= QUOTA, "{memory:?}");
        if tier == MemoryTier::Off {
            assert_eq!((memory.dense.values, memory.dictionary_bytes), (0, 0));
            assert!(memory.evictions > 0);
            continue;
        }
        assert!(memory.dense.values > 0 && memory.evictions == 0, "{memory:?}");
        assert!(memory.dense.plain_bytes > 3 * memory.dense.dense_bytes, "{memory:?}");
        assert!(memory.dictionary_bytes > 0);
        for number in 0..ORDERS {
            let (vbid, name) = place(number);
            assert_eq!(value(bucket.get(vbid, key(&name), NOW)), order(number));
        }
        assert!(bucket.stats().memory.dense.inflations > 0);
    }
    assert_eq!(resident[1], ORDERS);
    assert!(resident[0] * 3 < resident[1] * 2, "{resident:?}");
}

#[test]
fn a_cache_holds_more_documents_before_it_deletes() {
    let items = [MemoryTier::Off, MemoryTier::Dense].map(|tier| {
        let bucket = bucket(Storage::Memory, EvictionPolicy::Nru, tier);
        fill(&bucket, 0..4 * ORDERS);
        let stats = bucket.stats();
        assert!(stats.memory.used_bytes <= QUOTA && stats.memory.nru_deletions > 0);
        stats.items
    });
    assert!(2 * items[1] > 3 * items[0], "{items:?}");
}

#[test]
fn a_bucket_that_evicts_nothing_compresses() {
    for storage in [Storage::Persistent, Storage::Memory] {
        let items = [MemoryTier::Off, MemoryTier::Dense].map(|tier| {
            let bucket = bucket(storage, EvictionPolicy::None, tier);
            let stored = fill_until_no_memory(&bucket);
            let memory = bucket.stats().memory;
            assert!(memory.used_bytes <= QUOTA + QUOTA / 16, "{memory:?}");
            assert_eq!((memory.items_resident, memory.evictions), (stored, 0));
            for number in 0..stored {
                let (vbid, name) = place(number);
                assert_eq!(value(bucket.get(vbid, key(&name), NOW)), order(number));
            }
            stored
        });
        assert!(items[1] > 2 * items[0], "{items:?}");
    }
}

/// Documents until "no memory"; "try again" is answered by the pager.
fn fill_until_no_memory(bucket: &Bucket) -> u64 {
    let mut tries = 0;
    for number in 0.. {
        let (vbid, name) = place(number);
        loop {
            let order = order(number);
            match bucket.store(vbid, key(&name), &StoreRequest::set(order.as_bytes()), NOW) {
                MutationOutcome::Done(_) => break,
                MutationOutcome::Refused(OperationRejection::NoMemory) => return number,
                MutationOutcome::Refused(OperationRejection::TemporaryFailure) => tries += 1,
                other => panic!("{other:?}"),
            }
            assert!(tries < 10_000, "writes wait for memory that does not come");
            settle(bucket, NOW);
        }
        if number % 256 == 0 {
            settle(bucket, NOW);
        }
    }
    unreachable!("memory is finite")
}

#[test]
fn a_restart_loads_as_many_values_as_were_dense() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full, EvictionPolicy::None] {
        let disk: Arc<MemoryMedium> = Arc::default();
        let filled = on(&disk, (Storage::Persistent, eviction), MemoryTier::Dense);
        fill(&filled, 0..ORDERS);
        assert_eq!(filled.stats().memory.items_resident, ORDERS);
        drop(filled);
        let again = on(&disk, (Storage::Persistent, eviction), MemoryTier::Dense);
        while !matches!(again.warmup_step_timed(&|| NOW), WarmupStep::Done) {
            let memory = again.stats().memory;
            assert!(memory.used_bytes <= QUOTA, "{eviction:?}: {memory:?}");
        }
        let memory = again.stats().memory;
        assert_eq!(memory.items_resident, ORDERS, "{eviction:?}: {memory:?}");
        assert!(memory.dense.values > ORDERS / 4 && memory.fetches == 0, "{memory:?}");
        for number in 0..ORDERS {
            let (vbid, name) = place(number);
            assert_eq!(value(again.get(vbid, key(&name), NOW)), order(number));
        }
    }
}

#[test]
fn every_operation_sees_the_plain_value() {
    let bucket = bucket(Storage::Persistent, EvictionPolicy::Value, MemoryTier::Dense);
    fill(&bucket, 0..ORDERS);
    let (vbuckets, context) = (bucket.vbuckets(), bucket.context(NOW));
    let mut from = 0;
    let mut next = || {
        let number = first_dense(&bucket, from);
        from = number + 1;
        let (vbid, name) = place(number);
        (&vbuckets[usize::from(vbid.0)], number, name)
    };
    // Reads.
    let (vbucket, number, name) = next();
    let hash = vbucket.hash_of(key(&name));
    let section = oribi_engine::ReadSection::open();
    assert!(matches!(
        vbucket.get_shared(&section, &context, hash, key(&name)),
        SharedOutcome::Undecided
    ));
    drop(section);
    assert!(!vbucket.needs_fetch(&context, key(&name)));
    let found = vbucket.read_version(&context, key(&name), ReadTarget::Document);
    let VersionOutcome::Found(item, _) = found else { panic!("{found:?}") };
    assert_eq!(item.value(), order(number).as_bytes());
    let locked = vbucket.get_and_lock(&context, key(&name), 15);
    let LockOutcome::Done { item, .. } = locked else { panic!("{locked:?}") };
    assert_eq!(item.value(), order(number).as_bytes());
    // Writes that begin with the value.
    let (vbucket, number, name) = next();
    let request = ConcatRequest { mode: ConcatMode::Append, value: b" ", cas: Cas(0) };
    done(vbucket.concat(&context, key(&name), &request));
    assert_eq!(value(vbucket.get(&context, key(&name))), order(number) + " ");
    let (vbucket, number, name) = next();
    let expiry = NOW.unix_s() + 1000;
    assert_eq!(value(vbucket.get_and_touch(&context, key(&name), expiry)), order(number));
    // Replaced and deleted without a look at the value.
    let (vbucket, _, name) = next();
    done(vbucket.store(&context, key(&name), &StoreRequest::set(b"short")));
    assert_eq!(value(vbucket.get(&context, key(&name))), "short");
    let (vbucket, _, name) = next();
    done(vbucket.delete(&context, key(&name), Cas(0)));
    assert!(matches!(vbucket.get(&context, key(&name)), GetOutcome::Miss));
    // A document at random.
    for _ in 0..100 {
        let found = bucket.random_document(key("").collection, NOW).expect("there is one");
        assert!(!found.expect("there are many").0.value().is_empty());
    }
}

#[test]
fn a_hot_document_is_inflated_again() {
    let bucket = bucket(Storage::Persistent, EvictionPolicy::Value, MemoryTier::Dense);
    fill(&bucket, 0..ORDERS);
    let number = first_dense(&bucket, 0);
    let (vbid, name) = place(number);
    assert_eq!(value(bucket.get(vbid, key(&name), NOW)), order(number));
    assert!(is_dense(&bucket, number), "one use is not hot");
    for _ in 0..4 {
        assert_eq!(value(bucket.get(vbid, key(&name), NOW)), order(number));
    }
    assert!(!is_dense(&bucket, number));
}

#[test]
fn a_dictionary_ends_with_its_last_value() {
    let bucket = bucket(Storage::Persistent, EvictionPolicy::Value, MemoryTier::Dense);
    fill(&bucket, 0..ORDERS);
    assert!(bucket.stats().memory.dense.dictionaries == 1);
    bucket.set_memory_tier(MemoryTier::Off);
    settle(&bucket, NOW);
    assert!(bucket.stats().memory.dictionary_bytes > 0, "values need it");
    for number in 0..ORDERS {
        let (vbid, name) = place(number);
        done(bucket.delete(vbid, key(&name), Cas(0), NOW));
    }
    settle(&bucket, NOW);
    let memory = bucket.stats().memory;
    assert_eq!((memory.dense.dictionaries, memory.dictionary_bytes), (0, 0));
    assert_eq!(
        (memory.dense.values, memory.dense.plain_bytes, memory.dense.dense_bytes),
        (0, 0, 0)
    );
}

#[test]
fn values_that_do_not_compress_are_left_alone() {
    let bucket = bucket(Storage::Persistent, EvictionPolicy::Value, MemoryTier::Dense);
    let mut state = 88_172_645_463_325_252_u64;
    for number in 0..ORDERS {
        let noise: String = (0..300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                char::from(33 + (state % 94) as u8)
            })
            .collect();
        store(&bucket, number, &noise);
        if number % 256 == 0 {
            settle(&bucket, NOW);
        }
    }
    settle(&bucket, NOW);
    let memory = bucket.stats().memory;
    assert_eq!((memory.dense.values, memory.dictionary_bytes), (0, 0), "{memory:?}");
}

#[test]
fn scans_of_memory_show_plain_values() {
    let bucket = bucket(Storage::Memory, EvictionPolicy::Nru, MemoryTier::Dense);
    fill(&bucket, 0..2 * ORDERS);
    assert!(bucket.stats().memory.dense.values > 0);
    let from = DocKey { key: b"", ..key("") };
    let mut shown = 0;
    bucket
        .scan_persisted(Vbid(1), from, &mut |record| {
            let name = std::str::from_utf8(record.key.key).expect("keys are text");
            let number = name["order::".len()..].parse().expect("a key ends with its number");
            assert_eq!(record.value, order(number).as_bytes());
            shown += 1;
            std::ops::ControlFlow::Continue(())
        })
        .expect("memory can be scanned");
    assert!(shown > ORDERS as usize / 6, "{shown}");
}
