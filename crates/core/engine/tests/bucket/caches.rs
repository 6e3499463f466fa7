//! What a bucket that is a cache evicts: the documents that were written last are spared.

use std::sync::Arc;

use oribi_engine::{
    Bucket, BucketConfig, EvictionPolicy, GetOutcome, MetaOutcome, MutationOutcome, Storage,
    StoreRequest,
};
use oribi_storage::MemoryStore;
use oribi_types::Timestamp;

use crate::entropy;
use crate::eviction::{BEGIN_S, doc_key, place, small};
use crate::operations_by_vbid::OperationsByVbid;

fn cache(quota_bytes: u64) -> Arc<Bucket> {
    let config = BucketConfig {
        storage: Storage::Memory,
        memory_quota_bytes: quota_bytes,
        ..small(EvictionPolicy::Nru)
    };
    Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true).expect("the bucket opens")
}

/// The time of the write of this number.
fn time(number: u64) -> Timestamp {
    Timestamp { unix_ns: u64::from(BEGIN_S) * 1_000_000_000 + number * 1_000_000 }
}

/// Evicts until the pager has nothing more to do.
fn page(bucket: &Bucket, now: Timestamp) {
    for _ in 0..100 {
        if !bucket.page_items_step(&|| now).more {
            return;
        }
    }
    panic!("the pager does not come to an end");
}

fn has(bucket: &Bucket, number: u64, now: Timestamp) -> bool {
    let (vbid, name) = place(number);
    let found = bucket.get_meta(vbid, doc_key(&name), now);
    matches!(found, MetaOutcome::Found(item, _) if !item.is_deleted())
}

/// Writes documents of `value_bytes`, pages after each write, and checks that the last `spared`
/// documents are there.
fn fill(quota_bytes: u64, value_bytes: usize, spared: u64) {
    let bucket = cache(quota_bytes);
    let value = vec![b'x'; value_bytes];
    let writes = 6 * (quota_bytes / value_bytes as u64).max(4);
    for number in 0..writes {
        let (now, (vbid, name)) = (time(number), place(number));
        let stored = bucket.store(vbid, doc_key(&name), &StoreRequest::set(&value), now);
        assert!(matches!(stored, MutationOutcome::Done(_)), "{value_bytes}: {stored:?}");
        page(&bucket, now);
        let found = bucket.get(vbid, doc_key(&name), now);
        assert!(matches!(found, GetOutcome::Hit(_)), "{value_bytes} bytes: {number} is gone");
        for last in number.saturating_sub(spared - 1)..=number {
            assert!(has(&bucket, last, now), "{value_bytes} bytes: {last} is gone at {number}");
        }
    }
    let stats = bucket.stats();
    assert!(stats.memory.nru_deletions >= writes / 2, "{:?}", stats.memory);
    assert!(stats.memory.used_bytes <= quota_bytes);
}

#[test]
fn the_newest_documents_are_evicted_last() {
    const QUOTA: u64 = 4 << 20;
    // The documents of a quarter of the quota, and at least the newest.
    for value_bytes in [400, 4 << 10, 60 << 10, 300 << 10, 600 << 10, 1 << 20] {
        let spared = (QUOTA / 4 / value_bytes as u64).clamp(1, 40);
        fill(QUOTA, value_bytes, spared);
    }
}

#[test]
fn a_document_that_fits_the_quota_alone_stays() {
    // Two are above the quota, and one is above the watermarks.
    fill(1200 << 10, 1 << 20, 1);
}

#[test]
fn newer_documents_are_evicted_if_older_ones_are_read() {
    let bucket = cache(1 << 20);
    let value = vec![b'x'; 8 << 10];
    let hot = 20;
    for number in 0..2000 {
        let (now, (vbid, name)) = (time(number), place(number));
        let stored = bucket.store(vbid, doc_key(&name), &StoreRequest::set(&value), now);
        assert!(matches!(stored, MutationOutcome::Done(_)), "{stored:?}");
        page(&bucket, now);
        for read in 0..hot.min(number + 1) {
            let (vbid, name) = place(read);
            let found = bucket.get(vbid, doc_key(&name), now);
            assert!(matches!(found, GetOutcome::Hit(_)), "{read} is gone at {number}");
        }
        assert!(has(&bucket, number, now), "{number}");
    }
}
