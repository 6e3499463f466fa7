//! Checks of looking up many keys at once, and of asking whether a key may be there.

use std::ops::ControlFlow;

use oribi_types::{CollectionId, DocKey, Vbid};

use super::Medium;
use super::fixture::{OwnedFields, commit, get, open};
use crate::{KvStore, LARGE_RECORD_BYTES, LookupResult};

const VBUCKETS: u16 = 3;
const KEYS: u64 = 60;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn doc_key(collection: u32, key: &[u8]) -> DocKey<'_> {
    DocKey { collection: CollectionId(collection), key }
}

/// Documents of many sizes, some overwritten, some deleted, and some keys that never were.
fn fill(store: &dyn KvStore) {
    for vbid in (0..VBUCKETS).map(Vbid) {
        let sizes = [0, 10, 500, 1100, 5000, 40_000, 300_000];
        let value = |number: u64| vec![number as u8; sizes[number as usize % sizes.len()]];
        let all: Vec<OwnedFields> = (1..=KEYS)
            .map(|number| OwnedFields::document(number, &key(number), &value(number)))
            .collect();
        for chunk in all.chunks(17) {
            commit(store, vbid, chunk);
        }
        let mut later =
            vec![OwnedFields::document(KEYS + 1, &key(3), b"other collection").in_collection(9)];
        let overwritten = (4..=KEYS).step_by(5);
        later.extend(
            overwritten.map(|number| OwnedFields::document(KEYS + number, &key(number), b"new")),
        );
        later.push(OwnedFields::tombstone(3 * KEYS, &key(5), 77));
        commit(store, vbid, &later);
    }
}

/// Every key of every vbucket, backwards, one of them twice.
fn wanted(keys: &[Vec<u8>]) -> Vec<(Vbid, DocKey<'_>)> {
    let of = |vbid| keys.iter().rev().map(move |key| (Vbid(vbid), doc_key(0, key)));
    let mut wanted: Vec<(Vbid, DocKey<'_>)> = (0..=VBUCKETS).flat_map(of).collect();
    wanted.push((Vbid(1), doc_key(9, &keys[3])));
    wanted.push(wanted[7]);
    wanted
}

pub(super) fn get_many(medium: &dyn Medium) {
    let store = open(medium);
    fill(&*store);
    let keys: Vec<Vec<u8>> = (0..KEYS + 5).map(key).collect();
    let wanted = wanted(&keys);
    for _ in 0..2 {
        let before = store.stats();
        let mut seen: Vec<Option<Option<OwnedFields>>> = vec![None; wanted.len()];
        let outcome = store.get_many(&wanted, usize::MAX, &mut |index, answer| {
            let kept = match answer {
                LookupResult::Record(record) => Some(OwnedFields::of(record)),
                LookupResult::Absent => None,
                LookupResult::Large => panic!("any length is wanted"),
            };
            let earlier = seen[index].replace(kept);
            assert!(earlier.is_none(), "each key is answered once");
            ControlFlow::Continue(())
        });
        outcome.expect("the store answers");
        let found = seen.iter().flatten().flatten().count() as u64;
        assert_eq!(store.stats().records_read - before.records_read, found, "reads count");
        assert_eq!(found, u64::from(VBUCKETS) * KEYS + 2, "one under a key of its own, one twice");
        for ((vbid, key), seen) in wanted.iter().zip(seen) {
            // Not assert_eq!, which would print large values.
            let is_right = seen == Some(get(&*store, *vbid, *key));
            assert!(is_right, "{vbid} {:?}", String::from_utf8_lossy(key.key));
        }
    }
    for enough in [1, wanted.len() / 2, wanted.len()] {
        let mut answers = 0;
        let outcome = store.get_many(&wanted, usize::MAX, &mut |_, _| {
            answers += 1;
            match answers < enough {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        outcome.expect("the store answers");
        assert_eq!(answers, enough, "nothing is answered behind what is enough");
    }
    let nothing = store.get_many(&[], usize::MAX, &mut |_, _| panic!("nothing was asked"));
    nothing.expect("the store answers");
    large_records_are_not_read(&*store, &wanted);
}

/// A record longer than the limit is only announced.
fn large_records_are_not_read(store: &dyn KvStore, wanted: &[(Vbid, DocKey<'_>)]) {
    let lengths: Vec<Option<usize>> = wanted
        .iter()
        .map(|(vbid, key)| get(store, *vbid, *key).map(|kept| kept.value.len()))
        .collect();
    for bytes_max in [0, 1000, LARGE_RECORD_BYTES] {
        let mut large = 0;
        let mut seen = vec![false; wanted.len()];
        let outcome = store.get_many(wanted, bytes_max, &mut |index, answer| {
            seen[index] = true;
            match answer {
                LookupResult::Absent => assert!(lengths[index].is_none()),
                LookupResult::Record(record) => {
                    assert!(record.value.len() <= bytes_max);
                    assert_eq!(lengths[index], Some(record.value.len()));
                }
                // Its length as stored counts headers, key, and what compresses it.
                LookupResult::Large => large += 1,
            }
            ControlFlow::Continue(())
        });
        outcome.expect("the store answers");
        assert!(seen.into_iter().all(|is_seen| is_seen), "each key is answered");
        let longer = lengths.iter().flatten().filter(|bytes| **bytes > bytes_max).count();
        assert!(large >= longer, "{large} of {longer} longer than {bytes_max}");
    }
}

pub(super) fn may_contain(medium: &dyn Medium) {
    let store = open(medium);
    fill(&*store);
    store.drop_vbucket(Vbid(0), None).expect("dropped");
    store.purge_collection(Vbid(1), CollectionId(0)).expect("purged");
    store.compact(Vbid(2), 78).expect("compacted");
    let check = |store: &dyn KvStore| {
        let mut found = 0;
        for vbid in (0..VBUCKETS).map(Vbid) {
            for number in 0..KEYS + 5 {
                for collection in [0, 9] {
                    // The look-up asks both and compares.
                    let kept = get(store, vbid, doc_key(collection, &key(number)));
                    found += u64::from(kept.is_some());
                }
            }
        }
        assert_eq!(found, 1 + KEYS - 1 + 1, "what was removed is gone and nothing else");
    };
    check(&*store);
    drop(store);
    check(&*open(medium));
}
