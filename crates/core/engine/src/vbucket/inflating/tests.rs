//! Dense values in one bucket, where a test needs what only the engine sees.

use std::sync::Arc;

use oribi_storage::{MemoryMedium, MemoryStore};
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use crate::bucket::Bucket;
use crate::config::BucketConfig;
use crate::dense::{DictionaryFault, MemoryTier, cover_process_memory};
use crate::item::{ItemRef, NewItem};
use crate::outcome::{GetOutcome, MetaOutcome, OperationRejection, StoreRequest};
use crate::vbucket::paging::Successor;

const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
const VB: Vbid = Vbid(0);
const ORDERS: u64 = 3000;

fn value(number: u64) -> String {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{{\"type\":\"order\",\"id\":{number},\"customer\":{{\"email\":\"user{}@example.com\",\"city\":\
         \"Berlin\"}},\"status\":\"delivered\",\"items\":[{{\"sku\":\"SKU-{:06}\",\"quantity\":{}}}]}}",
        mixed >> 40,
        mixed % 1_000_000,
        mixed % 9
    )
}

fn name(number: u64) -> String {
    format!("order-{number:05}")
}

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

fn page(bucket: &Bucket) {
    while bucket.flush_step().expect("the store works").more {}
    while bucket.page_items_step(&|| NOW).more {}
    bucket.check_invariants();
}

fn open(config: BucketConfig) -> Arc<Bucket> {
    let store = Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default())));
    Bucket::open(config, store, Box::new(|| 7), true).expect("the bucket opens")
}

/// A bucket whose values are dense.
fn bucket() -> Arc<Bucket> {
    cover_process_memory();
    let config = BucketConfig {
        vbuckets: 1,
        memory_quota_bytes: 8 << 20,
        high_watermark_percent: 8,
        low_watermark_percent: 6,
        ..BucketConfig::default()
    };
    let bucket = open(config);
    bucket.set_memory_tier(MemoryTier::Dense);
    let vbucket = bucket.vbucket(VB).expect("it is there");
    for number in 0..ORDERS {
        let value = value(number);
        let request = StoreRequest::set(value.as_bytes());
        let _ = vbucket.store(&bucket.context(NOW), key(&name(number)), &request);
    }
    page(&bucket);
    let memory = bucket.stats().memory;
    assert!(memory.dense.values > ORDERS / 3 && memory.evictions == 0, "{memory:?}");
    bucket
}

fn item(bucket: &Bucket, number: u64) -> ItemRef {
    let vbucket = bucket.vbucket(VB).expect("it is there");
    match vbucket.get_meta(&bucket.context(NOW), key(&name(number))) {
        MetaOutcome::Found(item, _) => item,
        other => panic!("{other:?}"),
    }
}

fn dense_items(bucket: &Bucket) -> impl Iterator<Item = (u64, ItemRef)> + '_ {
    let items = (0..ORDERS).map(|number| (number, item(bucket, number)));
    items.filter(|(_, item)| item.is_dense())
}

#[test]
fn a_dense_block_counts_with_its_own_size() {
    let bucket = bucket();
    for (number, item) in dense_items(&bucket) {
        let plain = item.to_plain().expect("it is not damaged");
        assert_eq!(plain.value(), value(number).as_bytes());
        assert_eq!((item.value(), item.value_bytes()), (&b""[..], plain.value().len()));
        assert!(item.block_bytes() < plain.block_bytes(), "{item:?}");
        assert_eq!(item.block_bytes_plain(), plain.block_bytes());
        let versions = [&item, &plain].map(|item| (item.cas(), item.seqno(), item.rev_seqno()));
        assert_eq!(versions[0], versions[1]);
    }
    let stats = bucket.stats();
    assert!(stats.item_bytes < ORDERS as usize * 200, "{}", stats.item_bytes);
}

#[test]
fn an_overtaken_dense_version_is_not_inflated() {
    let bucket = bucket();
    let (context, vbucket) = (bucket.context(NOW), bucket.vbucket(VB).expect("it is there"));
    let (number, old) = dense_items(&bucket).next().expect("values are dense");
    let name = name(number);
    let hash = vbucket.hash_of(key(&name));
    // The same length of history, so that only the block tells the versions apart.
    let _ = vbucket.store(&context, key(&name), &StoreRequest::set(b"newer"));
    vbucket.inflate_in_place(&context, hash, &old).expect("it is not damaged");
    let GetOutcome::Hit(found) = vbucket.get(&context, key(&name)) else { panic!("it is there") };
    assert_eq!(found.value(), b"newer");
    assert_eq!(old.to_plain().expect("its dictionary is kept").value(), value(number).as_bytes());
    bucket.check_invariants();
}

#[test]
fn an_overtaken_or_held_version_is_not_recoded() {
    let bucket = bucket();
    let (context, vbucket) = (bucket.context(NOW), bucket.vbucket(VB).expect("it is there"));
    let (number, old) = dense_items(&bucket).next().expect("values are dense");
    let name = name(number);
    let recoded = || Successor::Copy(NewItem::copy_of(&old, false).publish());
    let reader = old.clone();
    assert!(!vbucket.replace(&context, old.clone(), recoded()), "a reader has it");
    drop(reader);
    let _ = vbucket.store(&context, key(&name), &StoreRequest::set(b"newer"));
    while bucket.flush_step().expect("the store works").more {}
    assert!(!vbucket.replace(&context, old.clone(), recoded()), "it was overtaken");
    let GetOutcome::Hit(found) = vbucket.get(&context, key(&name)) else { panic!("it is there") };
    assert_eq!(found.value(), b"newer");
    bucket.check_invariants();
}

#[test]
fn a_faulty_dictionary_is_named_and_the_store_read() {
    let bucket = bucket();
    let (context, vbucket) = (bucket.context(NOW), bucket.vbucket(VB).expect("it is there"));
    let (number, old) = dense_items(&bucket).next().expect("values are dense");
    let name = name(number);
    let dictionary = Arc::clone(&bucket.core().memory().dense().dictionaries().lock()[0]);
    for (fault, said) in [
        (DictionaryFault::Missing, format!("slot {}, which is missing", dictionary.slot())),
        (DictionaryFault::Damaged, "dictionary 1 of collection 0x0 does not inflate".to_owned()),
    ] {
        dictionary.set_fault(fault);
        let error = old.to_plain().expect_err("the dictionary has a fault").to_string();
        assert!(error.contains(&said), "{error}");
        let refused = vbucket.get(&context, key(&name));
        assert!(
            matches!(refused, GetOutcome::Refused(OperationRejection::NeedsFetch)),
            "{refused:?}"
        );
        assert!(vbucket.begin_fetch(key(&name)).is_some(), "the store has it");
    }
    dictionary.set_fault(DictionaryFault::None);
    assert!(vbucket.begin_fetch(key(&name)).is_none());
}

#[test]
fn a_held_dense_version_outlives_its_bucket() {
    let bucket = bucket();
    let (number, held) = dense_items(&bucket).next().expect("values are dense");
    drop(bucket);
    assert_eq!(held.to_plain().expect("its dictionary is kept").value(), value(number).as_bytes());
}

#[test]
fn blocks_move_without_losing_their_dictionary() {
    let bucket = bucket();
    let (number, held) = dense_items(&bucket).next().expect("values are dense");
    let values = bucket.stats().memory.dense.values;
    let copy = crate::item::NewItem::copy_of(&held, false).publish();
    assert!(copy.is_dense() && copy.cas() == held.cas() && copy.cas() != Cas(0));
    assert_eq!(bucket.stats().memory.dense.values, values + 1);
    assert_eq!(copy.to_plain().expect("it is not damaged").value(), value(number).as_bytes());
    drop(copy);
    assert_eq!(bucket.stats().memory.dense.values, values);
}
