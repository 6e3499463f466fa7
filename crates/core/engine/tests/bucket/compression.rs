//! Compressed values: in each mode, through every operation, out of memory and back.

use std::sync::Arc;

use oribi_engine::compression::{CompressionMode, inflate};
use oribi_engine::{
    Bucket, ConcatMode, ConcatRequest, CounterOutcome, CounterRequest, GetOutcome, ItemRef,
    MutationOutcome, OperationRejection, StoreRequest,
};
use oribi_storage::MemoryStore;
use oribi_types::{Cas, Datatype};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, key, open, set};

const SNAPPY: u8 = Datatype::SNAPPY.0;
const JSON: u8 = Datatype::JSON.0;

fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; snap::raw::max_compress_len(plain.len())];
    let bytes = snap::raw::Encoder::new().compress(plain, &mut out).expect("there is room");
    out.truncate(bytes);
    out
}

/// A JSON text that shrinks.
fn record(entries: usize) -> Vec<u8> {
    let list: Vec<String> =
        (0..entries).map(|n| format!("{{\"name\":\"someone\",\"n\":{n}}}")).collect();
    format!("[{}]", list.join(",")).into_bytes()
}

fn store(bucket: &Bucket, name: &str, value: &[u8], is_compressed: bool) -> MutationOutcome {
    bucket.store(VB, key(name), &StoreRequest { value, is_compressed, ..set("") }, NOW)
}

fn get(bucket: &Bucket, name: &str) -> ItemRef {
    match bucket.get(VB, key(name), NOW) {
        GetOutcome::Hit(item) => item,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(bucket: &Bucket, name: &str, plain: &[u8], datatype: u8) {
    let (item, mut scratch) = (get(bucket, name), Vec::new());
    assert!(item.plain_body(&mut scratch) == Ok(plain));
    assert_eq!(item.datatype().0, datatype);
    assert_eq!(item.plain_body_bytes(), Ok(plain.len()));
    assert_eq!(item.body().len() < plain.len(), datatype & SNAPPY != 0);
}

// Compat (Differences): Compression
#[test]
fn each_mode_stores_in_its_form() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let (json, text) = (record(20), b"text ".repeat(50));
    for (mode, sent_compressed, sent_plain) in [
        (CompressionMode::Off, 0, 0),
        (CompressionMode::Passive, SNAPPY, 0),
        (CompressionMode::Active, SNAPPY, SNAPPY),
    ] {
        bucket.set_compression_mode(mode);
        done(store(&bucket, "k", &compressed(&json), true));
        check(&bucket, "k", &json, JSON | sent_compressed);
        done(store(&bucket, "k", &compressed(&text), true));
        check(&bucket, "k", &text, sent_compressed);
        done(store(&bucket, "k", &json, false));
        check(&bucket, "k", &json, JSON | sent_plain);
        // What compressing makes longer stays as it is.
        done(store(&bucket, "k", &compressed(b"12"), true));
        check(&bucket, "k", b"12", JSON);
        done(store(&bucket, "k", b"12", false));
        check(&bucket, "k", b"12", JSON);
    }
}

#[test]
fn values_received_into_their_block_are_no_different() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let json = record(5000);
    for (mode, value, is_compressed, datatype) in [
        (CompressionMode::Off, compressed(&json), true, JSON),
        (CompressionMode::Passive, compressed(&json), true, JSON | SNAPPY),
        (CompressionMode::Passive, json.clone(), false, JSON),
        (CompressionMode::Active, json.clone(), false, JSON | SNAPPY),
    ] {
        bucket.set_compression_mode(mode);
        let request = StoreRequest { is_compressed, ..set("") };
        let mut filling = bucket.begin_store(key("k"), &request, value.len(), NOW);
        filling.as_mut().expect("there is room").append(&value);
        done(bucket.store_received(VB, &mut filling, &request, NOW));
        check(&bucket, "k", &json, datatype);
        assert_eq!(get(&bucket, "k").flags(), 7);
    }
    let request = StoreRequest { is_compressed: true, ..set("") };
    let mut filling = bucket.begin_store(key("k"), &request, 40_000, NOW);
    filling.as_mut().expect("there is room").append(&vec![b'x'; 40_000]);
    let refused = bucket.store_received(VB, &mut filling, &request, NOW);
    assert!(matches!(refused, MutationOutcome::Corrupt | MutationOutcome::TooLarge));
}

// Compat (Differences): Compression
#[test]
fn malformed_or_too_long_values_are_rejected() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let limit = bucket.config().value_bytes_max;
    assert_eq!(store(&bucket, "k", b"plain text", true), MutationOutcome::Corrupt);
    assert_eq!(store(&bucket, "k", b"", true), MutationOutcome::Corrupt);
    let exact = vec![b'x'; limit];
    done(store(&bucket, "k", &compressed(&exact), true));
    check(&bucket, "k", &exact, SNAPPY);
    let over = compressed(&vec![b'x'; limit + 1]);
    assert_eq!(store(&bucket, "k", &over, true), MutationOutcome::TooLarge);
    // A value that appending makes too long, though what is stored is short.
    let request = ConcatRequest { mode: ConcatMode::Append, value: b"y", cas: Cas(0) };
    assert_eq!(bucket.concat(VB, key("k"), &request, NOW), MutationOutcome::TooLarge);
    check(&bucket, "k", &exact, SNAPPY);
}

// Compat (Key-value): APPEND, PREPEND
#[test]
fn operations_see_the_inflated_value() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let text = b"text ".repeat(50);
    for (mode, afterwards) in [(CompressionMode::Passive, 0), (CompressionMode::Active, SNAPPY)] {
        bucket.set_compression_mode(mode);
        done(store(&bucket, "k", &compressed(&text), true));
        done(bucket.touch(VB, key("k"), 100, NOW));
        check(&bucket, "k", &text, SNAPPY);
        assert!(matches!(bucket.get_and_touch(VB, key("k"), 200, NOW), GetOutcome::Hit(_)));
        check(&bucket, "k", &text, SNAPPY);
        for (mode, value) in [(ConcatMode::Append, "after"), (ConcatMode::Prepend, "before ")] {
            let request = ConcatRequest { mode, value: value.as_bytes(), cas: Cas(0) };
            done(bucket.concat(VB, key("k"), &request, NOW));
        }
        check(&bucket, "k", &[b"before ", &text[..], b"after"].concat(), afterwards);
    }
    // A number that compressing makes shorter cannot be a counter.
    let count =
        CounterRequest { delta: 1, decrement: false, initial: None, expiry: 0, cas: Cas(0) };
    done(store(&bucket, "n", &compressed(&[b'7'; 200]), true));
    assert_eq!(bucket.counter(VB, key("n"), &count, NOW), CounterOutcome::NotANumber);
    done(store(&bucket, "n", &compressed(&[b'7'; 19]), true));
    let counted = bucket.counter(VB, key("n"), &count, NOW);
    assert!(matches!(counted, CounterOutcome::Done { value: 7_777_777_777_777_777_778, .. }));
}

#[test]
fn eviction_and_a_restart_bring_back_what_was_stored() {
    let store_of_both = Arc::new(MemoryStore::new());
    let bucket = open(store_of_both.clone());
    let json = record(200);
    done(store(&bucket, "k", &compressed(&json), true));
    done(store(&bucket, "plain", &json, false));
    let stats = bucket.stats();
    let of = |bits: u8| stats.datatypes[usize::from(bits)];
    assert_eq!((of(JSON), of(JSON | SNAPPY), of(0)), (1, 1, 0));
    bucket.flush_step().expect("the store works");
    assert!(bucket.evict(VB, key("k")));
    assert_eq!(bucket.stats().datatypes, stats.datatypes);
    let missing = bucket.get(VB, key("k"), NOW);
    assert!(matches!(missing, GetOutcome::Refused(OperationRejection::NeedsFetch)), "{missing:?}");
    drop(bucket);
    let bucket = open(store_of_both);
    check(&bucket, "k", &json, JSON | SNAPPY);
    assert_eq!(bucket.stats().datatypes, stats.datatypes);
    assert_eq!(inflate(get(&bucket, "k").body(), json.len()), Ok(json));
}
