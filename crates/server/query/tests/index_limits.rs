//! Documents on which the keys of an index take too much work or memory.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_query::{
    DocumentIndex, IndexDefinition, IndexEntry, InsertRejection, KeyspaceName, QueryDocument,
};
use rustix::time::{ClockId, clock_gettime};
use support::{MemoryDatastore, TestBudget};

/// Time of this thread on a processor, which does not pass while other tests run. Generous, because
/// machines of CI are slow.
const CPU_MAX: Duration = Duration::from_secs(100);

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A number for each pair of elements of `a`.
const PAIRS: &str = "(array_length(array (array_length(array (`y`) for `y` in `a` end)) \
                     for `x` in `a` end))";

fn index(key: &str, bytes: usize) -> (DocumentIndex, Arc<TestBudget>) {
    let definition = IndexDefinition {
        name: "i".to_owned(),
        keyspace: KeyspaceName { bucket: "d".to_owned(), collection: None },
        keys: vec![key.to_owned()],
        ..IndexDefinition::default()
    };
    let budget = Arc::new(TestBudget::new(bytes));
    (DocumentIndex::new(definition, budget.clone()).unwrap(), budget)
}

/// A document with a list of numbers and a text.
fn document(numbers: usize, text: usize) -> QueryDocument {
    let numbers: Vec<String> = (0..numbers).map(|number| number.to_string()).collect();
    let value = format!("{{\"a\":[{}],\"text\":\"{}\"}}", numbers.join(","), "x".repeat(text));
    QueryDocument {
        key: Bytes::from_static(b"k"),
        value: Bytes::from(value),
        is_json: true,
        cas: 1,
        flags: 0,
        expiration: 0,
    }
}

#[test]
fn costly_keys_are_rejected_in_bounded_time() {
    let every = |inner: &str| format!("(array_length(array ({inner}) for `x` in `a` end))");
    let keys = [
        PAIRS.to_owned(),
        every("contains(`text`, \"y\")"),
        every("regexp_contains(`text`, \"y$\")"),
        every("`text` like \"%x%x%x%x%x%x%x%y\""),
        every("repeat(`text`, 100)"),
    ];
    for key in keys {
        let (index, budget) = index(&key, 1 << 30);
        let before = cpu_time();
        let inserted = index.insert(&(&document(20_000, 200_000)).into(), false);
        let spent = cpu_time() - before;
        assert_eq!(inserted, Err(InsertRejection::TooCostly), "{key}");
        assert!(spent < CPU_MAX, "{spent:?}: {key}");
        assert!(budget.most() <= 128 << 20, "{} bytes: {key}", budget.most());
        assert_eq!(budget.used(), 0, "{key}");
        assert_eq!(index.insert(&(&document(0, 2)).into(), false), Ok(()), "{key}");
    }
}

#[test]
fn large_documents_with_usual_keys_are_indexed() {
    let numbers = document(100_000, 500_000);
    for (key, entries) in [
        ("(distinct (array (`x` + 1) for `x` in `a` end))", 100_000),
        ("(array_length(`a`))", 1),
        ("(regexp_contains(`text`, \"^x+$\"))", 1),
        ("(lower(`text`) like \"%y\")", 1),
    ] {
        let (index, _budget) = index(key, 256 << 20);
        assert_eq!(index.insert(&(&numbers).into(), false), Ok(()), "{key}");
        assert_eq!(index.entry_count(), entries, "{key}");
    }
}

#[test]
fn keys_without_memory_are_rejected_as_full() {
    let (index, budget) = index("(distinct (array (`x`) for `x` in `a` end))", 256 << 10);
    assert_eq!(index.insert(&(&document(20_000, 0)).into(), false), Err(InsertRejection::Full));
    index.clear();
    drop(index);
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_evaluation_ends_when_it_is_cancelled() {
    let (index, _budget) = index(PAIRS, 1 << 30);
    std::thread::scope(|scope| {
        let insertion = scope.spawn(|| index.insert(&(&document(20_000, 0)).into(), false));
        index.cancel();
        assert_eq!(insertion.join().unwrap(), Err(InsertRejection::Cancelled));
    });
}

#[test]
fn a_scan_reads_no_costly_document() {
    let (index, _budget) = index(PAIRS, 1 << 30);
    index.insert(&(&document(2, 0)).into(), false).unwrap();
    let (encoded, key) = index.all_entries().remove(0);
    let entry = [&encoded[..], &key].concat();
    let keyspace = MemoryDatastore::default().add("d");
    let costly = String::from_utf8(document(20_000, 0).value.to_vec()).unwrap();
    keyspace.put("k", &costly);
    let error = index.read_entry(IndexEntry::new(&entry, key.len()), &*keyspace).unwrap_err();
    assert!(error.retry && error.msg.contains("too much work"), "{error:?}");
    assert_eq!(index.entry_count(), 1, "nothing is known of its entries");
}
