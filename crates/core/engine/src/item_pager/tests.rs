//! Trainings of a collection whose values change, and values that do not become smaller.

use std::sync::Arc;

use oribi_storage::{MemoryMedium, MemoryStore};
use oribi_types::policy::EvictionPolicy;
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

use crate::bucket::Bucket;
use crate::config::BucketConfig;
use crate::dense::{MemoryTier, cover_process_memory};
use crate::outcome::{GetOutcome, MutationOutcome, StoreRequest};

const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
const VB: Vbid = Vbid(0);
const DOCUMENTS: u64 = 12_000;

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

fn name(number: u64) -> String {
    format!("document-{number:06}")
}

fn mixed(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn order(number: u64) -> String {
    let mixed = mixed(number);
    format!(
        "{{\"type\":\"order\",\"id\":{number},\"customer\":{{\"email\":\"user{}@example.com\",\"city\":\
         \"Berlin\"}},\"status\":\"delivered\",\"items\":[{{\"sku\":\"SKU-{:06}\",\"quantity\":{}}}]}}",
        mixed >> 40,
        mixed % 1_000_000,
        mixed % 9
    )
}

/// Nothing that an order has.
fn reading(number: u64) -> String {
    let mixed = mixed(number);
    format!(
        "<reading><sensor>THERMOMETER {}</sensor><place>basement, north wall, second shelf</place>\
         <unit>kelvin</unit><value>{}.{}</value><calibrated>yes, by laboratory number {}</calibrated>\
         <quality>good enough for a forecast</quality></reading>",
        mixed >> 50,
        mixed % 300,
        mixed % 100,
        mixed % 40
    )
}

fn noise(number: u64) -> String {
    let mut state = mixed(number);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(33 + (state % 94) as u8)
    };
    (0..200).map(|_| next()).collect()
}

fn bucket(eviction: EvictionPolicy) -> Arc<Bucket> {
    cover_process_memory();
    let config = BucketConfig {
        vbuckets: 1,
        // Two dictionaries have their place.
        memory_quota_bytes: 16 << 20,
        high_watermark_percent: 6,
        low_watermark_percent: 5,
        eviction,
        ..BucketConfig::default()
    };
    let store = Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default())));
    let bucket = Bucket::open(config, store, Box::new(|| 7), true).expect("the bucket opens");
    bucket.set_memory_tier(MemoryTier::Dense);
    bucket
}

fn page(bucket: &Bucket, now: Timestamp) {
    while bucket.flush_step().expect("the store works").more {}
    // A stuck pager sweeps a slice in a step.
    let mut stuck = 0;
    while stuck < 300 {
        let report = bucket.page_items_step(&|| now);
        if !report.more {
            break;
        }
        stuck = if report.is_stuck { stuck + 1 } else { 0 };
    }
    bucket.check_invariants();
}

fn write(
    bucket: &Bucket,
    numbers: std::ops::Range<u64>,
    value: impl Fn(u64) -> String,
    now: Timestamp,
) {
    let vbucket = bucket.vbucket(VB).expect("it is there");
    for number in numbers {
        let value = value(number);
        let request = StoreRequest::set(value.as_bytes());
        let done = vbucket.store(&bucket.context(now), key(&name(number)), &request);
        assert!(matches!(done, MutationOutcome::Done(_)), "{done:?}");
        if number % 1024 == 1023 {
            page(bucket, now);
        }
    }
    page(bucket, now);
}

fn check(bucket: &Bucket, numbers: std::ops::Range<u64>, value: impl Fn(u64) -> String) {
    let vbucket = bucket.vbucket(VB).expect("it is there");
    for number in numbers {
        match vbucket.get_meta(&bucket.context(NOW), key(&name(number))) {
            crate::outcome::MetaOutcome::Found(item, _) if item.is_in_store_only() => continue,
            _ => {}
        }
        match vbucket.get(&bucket.context(NOW), key(&name(number))) {
            GetOutcome::Hit(item) => assert_eq!(item.value(), value(number).as_bytes()),
            other => panic!("{number}: {other:?}"),
        }
    }
}

fn versions(bucket: &Bucket) -> Vec<u32> {
    let dictionaries = bucket.core().memory().dense().dictionaries().lock();
    dictionaries.iter().map(|dictionary| dictionary.name().version).collect()
}

#[test]
fn other_values_train_a_newer_dictionary() {
    let bucket = bucket(EvictionPolicy::None);
    write(&bucket, 0..DOCUMENTS, order, NOW);
    assert_eq!(versions(&bucket), [1]);
    let one = bucket.core().memory().dense().dictionary_bytes();
    write(&bucket, 0..DOCUMENTS / 2, reading, NOW);
    assert_eq!(versions(&bucket), [1], "there is a least time between two trainings");
    let later = Timestamp::from_unix_s(NOW.unix_s() + 61);
    write(&bucket, DOCUMENTS..2 * DOCUMENTS, reading, later);
    page(&bucket, later);
    let left: Vec<u64> = {
        let dictionaries = bucket.core().memory().dense().dictionaries().lock();
        dictionaries.iter().map(|dictionary| dictionary.values()).collect()
    };
    assert_eq!(
        versions(&bucket),
        [2],
        "{left:?}: its values were recoded, and the earlier one went"
    );
    let stats = bucket.stats().memory;
    assert!(stats.dense.plain_bytes > 3 * stats.dense.dense_bytes, "{stats:?}");
    assert!(stats.dictionary_bytes < 3 * one / 2, "one is counted: {stats:?}");
    assert_eq!(stats.items_evicted, 0);
    check(&bucket, 0..DOCUMENTS / 2, reading);
    check(&bucket, DOCUMENTS / 2..DOCUMENTS, order);
    check(&bucket, DOCUMENTS..2 * DOCUMENTS, reading);
}

#[test]
fn a_value_that_did_not_shrink_is_tried_once() {
    let bucket = bucket(EvictionPolicy::None);
    let mixture = |number| if number % 3 == 0 { noise(number) } else { order(number) };
    write(&bucket, 0..DOCUMENTS, mixture, NOW);
    page(&bucket, NOW);
    let stats = bucket.stats().memory;
    assert!(stats.dense.values > DOCUMENTS / 2 && stats.dense.values < DOCUMENTS, "{stats:?}");
    let attempts = bucket.pager().compression_attempts();
    for _ in 0..4 {
        page(&bucket, NOW);
    }
    assert_eq!(bucket.pager().compression_attempts(), attempts);
    check(&bucket, 0..DOCUMENTS, mixture);
    // A newer version of the document is a new value.
    write(&bucket, 0..3, order, NOW);
    page(&bucket, NOW);
    assert!(bucket.pager().compression_attempts() > attempts);
}

#[test]
fn a_collection_left_alone_is_sampled_again() {
    let bucket = bucket(EvictionPolicy::None);
    write(&bucket, 0..DOCUMENTS, noise, NOW);
    assert_eq!(versions(&bucket), Vec::<u32>::new());
    write(&bucket, 0..DOCUMENTS, order, NOW);
    assert_eq!(versions(&bucket), Vec::<u32>::new(), "it is left alone for some minutes");
    page(&bucket, Timestamp::from_unix_s(NOW.unix_s() + 601));
    assert_eq!(bucket.stats().memory.dense.dictionaries, 1);
    check(&bucket, 0..DOCUMENTS, order);
}

#[test]
fn a_mixture_keeps_its_dictionary() {
    let bucket = bucket(EvictionPolicy::None);
    write(&bucket, 0..DOCUMENTS, order, NOW);
    assert_eq!(versions(&bucket), [1]);
    // Most values do not shrink, with a newer dictionary as with this one.
    let mixture = |number| if number % 5 > 0 { noise(number) } else { order(number) };
    for round in 1..4 {
        let later = Timestamp::from_unix_s(NOW.unix_s() + 61 * round);
        let first = u64::from(round) * DOCUMENTS;
        write(&bucket, first..first + DOCUMENTS, mixture, later);
        assert_eq!(versions(&bucket), [1], "round {round}");
    }
    check(&bucket, 0..DOCUMENTS, order);
}

#[test]
fn warm_values_are_compressed_before_cold_ones_leave() {
    let bucket = bucket(EvictionPolicy::Value);
    let vbucket = bucket.vbucket(VB).expect("it is there");
    let half = DOCUMENTS / 4;
    for number in 0..2 * half {
        let (name, value) = (name(number), order(number));
        let request = StoreRequest::set(value.as_bytes());
        let _ = vbucket.store(&bucket.context(NOW), key(&name), &request);
        // Used three times: warm, and not hot.
        for _ in 0..if number < half { 0 } else { 3 } {
            let _ = vbucket.get(&bucket.context(NOW), key(&name));
        }
    }
    page(&bucket, NOW);
    let stats = bucket.stats().memory;
    assert_eq!(stats.evictions, 0, "{stats:?}");
    assert!(stats.dense.values > half, "warm ones are dense: {stats:?}");
    check(&bucket, 0..2 * half, order);
}
