//! Pages of documents in key order, against a sorted map, whatever is evicted, flushed or deleted.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use oribi_engine::{
    Bucket, BucketConfig, EvictionPolicy, ListError, ListRequest, MutationOutcome, StoreRequest,
};
use oribi_storage::MemoryStore;
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use crate::entropy;
use crate::eviction::{BEGIN_S, small};
use crate::operations_by_vbid::OperationsByVbid;

/// Documents that are written.
const NUMBERS: u32 = 400;
const NOW: Timestamp = Timestamp::from_unix_s(BEGIN_S);

fn open(policy: EvictionPolicy) -> Arc<Bucket> {
    let config = BucketConfig { memory_quota_bytes: 4 << 20, ..small(policy) };
    let store = Arc::new(MemoryStore::new());
    Bucket::open(config, store, entropy(), true).expect("the bucket opens")
}

fn request(from: Bound<&[u8]>, until: Bound<&[u8]>, rows_max: usize) -> ListRequest {
    ListRequest {
        collection: CollectionId::DEFAULT,
        from: from.map(<[u8]>::to_vec),
        until: until.map(<[u8]>::to_vec),
        rows_max,
        now: NOW,
    }
}

fn page(bucket: &Bucket, request: &ListRequest) -> Vec<(Vec<u8>, u32)> {
    let rows = bucket.list_documents(request, &mut || true).expect("the store can be read");
    rows.into_iter().map(|(key, row)| (key.into_vec(), row.flags)).collect()
}

fn place(number: u32) -> (Vbid, String) {
    (Vbid((number % 2) as u16), format!("key-{:04}", number * 7 % 1000))
}

fn doc_key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

/// Writes, deletes, expires and evicts, and keeps what has to be listed.
fn fill(bucket: &Bucket) -> BTreeMap<Vec<u8>, u32> {
    let mut model = BTreeMap::new();
    for number in 0..NUMBERS {
        let (vbid, name) = place(number);
        let expiry = if number % 10 == 3 { BEGIN_S - 1 } else { 0 };
        let value = StoreRequest { flags: number, expiry, ..StoreRequest::set(&[b'x'; 300]) };
        let stored = bucket.store(vbid, doc_key(&name), &value, NOW);
        assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
        if expiry == 0 {
            model.insert(name.into_bytes(), number);
        }
        if number % 20 == 0 {
            while bucket.flush_step().expect("the store works").more {}
        }
    }
    for number in (0..NUMBERS - 30).step_by(4) {
        let (vbid, name) = place(number);
        bucket.evict(vbid, doc_key(&name));
        if number % 8 == 0 {
            let deleted = bucket.delete(vbid, doc_key(&name), Cas(0), NOW);
            if matches!(deleted, MutationOutcome::Done(_)) {
                model.remove(name.as_bytes());
            }
        }
    }
    model
}

// Invariant: A page of documents is in key order and complete, whatever is evicted or not flushed
// yet.
#[test]
fn pages_are_in_key_order_whatever_is_resident() {
    for policy in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let bucket = open(policy);
        let model = fill(&bucket);
        assert!(model.len() > 200, "{}", model.len());
        let mut listed = Vec::new();
        loop {
            let last: Vec<u8> =
                listed.last().map_or(Vec::new(), |(key, _): &(Vec<u8>, u32)| key.clone());
            let from = if listed.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*last) };
            let rows = page(&bucket, &request(from, Bound::Unbounded, 30));
            assert!(rows.len() <= 30);
            if rows.is_empty() {
                break;
            }
            listed.extend(rows);
        }
        let expected: Vec<(Vec<u8>, u32)> = model.clone().into_iter().collect();
        assert_eq!(listed, expected, "{policy:?}");

        let (from, until) = (Bound::Included(&b"key-02"[..]), Bound::Excluded(&b"key-03"[..]));
        let expected: Vec<(Vec<u8>, u32)> =
            model.into_iter().filter(|(key, _)| key.starts_with(b"key-02")).collect();
        assert_eq!(page(&bucket, &request(from, until, 1000)), expected, "{policy:?}");
    }
}

#[test]
fn a_page_is_given_up_when_its_time_is_over() {
    let bucket = open(EvictionPolicy::Value);
    fill(&bucket);
    let all = request(Bound::Unbounded, Bound::Unbounded, 10);
    let late = bucket.list_documents(&all, &mut || false);
    assert!(matches!(late, Err(ListError::Late)), "{late:?}");
}
