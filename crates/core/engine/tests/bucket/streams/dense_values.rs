//! Streams of a bucket in memory whose values are dense.

use std::sync::Arc;

use oribi_engine::{Bucket, EvictionPolicy, GetOutcome, MemoryTier, Storage, StoreRequest};
use oribi_types::{Cas, VbUuid};

use super::{StreamContents, WakeCount, backfill, from};
use crate::dense::{ORDERS, bucket, fill, order, place, settle};
use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, key};
use oribi_engine::dcp::{StreamFilter, StreamPhase};

fn filled() -> Arc<Bucket> {
    let bucket = bucket(Storage::Memory, EvictionPolicy::None, MemoryTier::Dense);
    fill(&bucket, 0..ORDERS);
    assert!(bucket.stats().memory.dense.values > ORDERS / 3);
    bucket
}

fn numbers() -> impl Iterator<Item = u64> {
    (0..ORDERS).filter(|number| place(*number).0 == VB)
}

fn check(heard: &StreamContents, wanted: impl Fn(u64) -> String) {
    assert_eq!(heard.table.len(), numbers().count());
    for number in numbers() {
        let found = &heard.table[place(number).1.as_bytes()];
        assert_eq!(*found, wanted(number).into_bytes(), "{number}");
    }
}

#[test]
fn memory_streams_show_plain_values() {
    let bucket = filled();
    let sink = Arc::new(WakeCount::default());
    let request = from(0, VbUuid(0), StreamFilter::All);
    let mut stream = bucket.open_stream(&request, sink, 1).expect("it opens");
    let mut heard = StreamContents::default();
    for round in 0_u64.. {
        assert!(round < 10_000, "the stream does not end: {:?}", stream.stats());
        backfill(&bucket);
        // Concurrently a document is used until it is inflated, and the pager works.
        let number = numbers().nth(round as usize % 100).expect("there are many");
        for _ in 0..4 {
            let found = bucket.get(VB, key(&place(number).1), NOW);
            assert!(matches!(found, GetOutcome::Hit(_)), "{found:?}");
        }
        settle(&bucket, NOW);
        heard.read(&mut stream);
        if stream.stats().phase == StreamPhase::InMemory {
            break;
        }
    }
    check(&heard, order);
    // The stream sends plain values, which become dense after it has read them.
    let newer = |number| if number % 7 == 0 { order(number + 1) } else { order(number) };
    for number in numbers().filter(|number| number % 7 == 0) {
        let value = newer(number);
        let request = StoreRequest::set(value.as_bytes());
        done(bucket.store(VB, key(&place(number).1), &request, NOW));
    }
    settle(&bucket, NOW);
    heard.read(&mut stream);
    check(&heard, newer);
}

#[test]
fn versions_in_a_backfill_keep_their_dictionary() {
    let bucket = filled();
    let sink = Arc::new(WakeCount::default());
    let request = from(0, VbUuid(0), StreamFilter::All);
    let mut stream = bucket.open_stream(&request, sink, 1).expect("it opens");
    let mut heard = StreamContents::default();
    heard.read(&mut stream);
    backfill(&bucket);
    bucket.set_memory_tier(MemoryTier::Off);
    for number in 0..ORDERS {
        let (vbid, name) = place(number);
        done(bucket.delete(vbid, key(&name), Cas(0), NOW));
    }
    settle(&bucket, NOW);
    assert!(bucket.stats().memory.dictionary_bytes > 0, "the backfill's versions need it");
    heard.read(&mut stream);
    assert!(!heard.table.is_empty() || heard.seqno > 0);
    for (name, found) in &heard.table {
        let name = std::str::from_utf8(name).expect("keys are text");
        let number = name["order::".len()..].parse().expect("a key ends with its number");
        assert_eq!(*found, order(number).into_bytes());
    }
    drop(stream);
    settle(&bucket, NOW);
    assert_eq!(bucket.stats().memory.dictionary_bytes, 0);
}
