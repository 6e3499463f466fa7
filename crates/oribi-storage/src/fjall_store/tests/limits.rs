//! Bounded journals and memory, interrupted removals, and what happens after a failure.

use std::time::{Duration, Instant};

use fjall::{AbstractTree, PersistMode};
use oribi_types::Vbid;

use super::super::layout;
use super::{DirectoryMedium, commit_values, count, record, state};
use crate::{FjallOptions, FjallStore, KvStore, StoreError, VbBatch};

/// Waits until `is_true`, at most half a minute.
fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_true() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::yield_now();
    }
}

/// Overwrites the same few documents until several journals' worth has been written: neither the
/// journals nor the memtable may keep it all.
#[test]
fn journals_and_memtables_stay_bounded() {
    let options = FjallOptions { memtable_bytes: 4 << 20, ..FjallOptions::default() };
    let medium = DirectoryMedium::new(options.clone());
    let store = FjallStore::open(&medium.path(), options).expect("a new store");
    let mut random = crate::SeededRandom::new(1);
    for round in 0..160 {
        let value: Vec<u8> = (0..1 << 20).map(|_| random.number() as u8).collect();
        let records = vec![record(round + 1, b"same", &value)];
        let batch = VbBatch { vbid: Vbid(0), records, state: state(round + 1) };
        store.commit(&[batch]).expect("the store commits");
        let memtable_bytes = store.keyspace.tree.active_memtable().size();
        assert!(memtable_bytes < 8 << 20, "the memtable grew to {memtable_bytes}");
    }
    eventually("sealed journals go away", || store.database.journal_count() <= 2);
    let bytes = store.stats().disk_bytes;
    drop(store);
    let store = medium.open_store();
    assert_eq!(count(&store, Vbid(0)).expect("scans"), 1);
    assert!(bytes < 300 << 20, "{bytes} bytes for one document of 1 MiB");
}

/// A crash between the first batch of a drop and its end: the next open finishes it.
#[test]
fn an_interrupted_drop_is_finished_by_the_next_open() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    let store = medium.open_store();
    commit_values(&store, Vbid(5), 1, &vec![b"value".to_vec(); 100]);
    commit_values(&store, Vbid(6), 1, &vec![b"value".to_vec(); 100]);
    let begun = store.writer.write(PersistMode::SyncData, |batch| {
        batch.remove(layout::state_key(Vbid(5)));
        batch.insert(layout::drop_key(Vbid(5)), Vec::new());
        Ok(())
    });
    begun.expect("the first step of a drop");
    drop(store);
    let store = medium.open_store();
    assert_eq!(count(&store, Vbid(5)).expect("scans"), 0);
    assert_eq!(count(&store, Vbid(6)).expect("scans"), 100);
    assert_eq!(store.vbucket_states().expect("listed"), vec![(Vbid(6), state(100))]);
}

/// A tombstone that was replaced between the scan and the removal must not take the new version
/// with it: the removal looks again.
#[test]
fn purging_spares_what_was_replaced_meanwhile() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    let store = medium.open_store();
    let tombstone = crate::Record { deleted: true, expiry: 5, ..record(1, b"key-1", b"") };
    let batch = VbBatch { vbid: Vbid(0), records: vec![tombstone], state: state(1) };
    store.commit(&[batch]).expect("the store commits");
    let seen_before = vec![(layout::document_key(Vbid(0), tombstone.key), tombstone.seqno)];
    let batch = VbBatch {
        vbid: Vbid(0),
        records: vec![record(2, b"key-1", b"created again")],
        state: state(2),
    };
    store.commit(&[batch]).expect("the store commits");
    assert_eq!(store.purge_batch(Vbid(0), &seen_before).expect("purges"), None);
    assert_eq!(count(&store, Vbid(0)).expect("scans"), 1);
}

#[test]
fn after_a_failure_every_write_is_refused_until_reopened() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    let store = medium.open_store();
    commit_values(&store, Vbid(0), 1, &[b"value".to_vec()]);
    let failed = store
        .writer
        .write(PersistMode::SyncData, |_| Err(StoreError::Io("the disk went away".into())));
    assert!(matches!(failed, Err(StoreError::Io(_))));
    let batch = VbBatch { vbid: Vbid(0), records: Vec::new(), state: state(2) };
    let refused = store.commit(&[batch]).expect_err("the store is poisoned");
    assert!(matches!(&refused, StoreError::Poisoned(text) if text.contains("went away")));
    assert!(matches!(store.put_local("manifest", b"x"), Err(StoreError::Poisoned(_))));
    assert_eq!(store.stats().commit_failures, 1);
    assert_eq!(count(&store, Vbid(0)).expect("reading goes on"), 1);
    drop(store);
    commit_values(&medium.open_store(), Vbid(0), 2, &[b"value".to_vec()]);
}

/// A panic inside a write is a failure like any other, not the end of the process.
#[test]
fn a_panic_in_a_write_poisons_the_store() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    let store = medium.open_store();
    let failed = store.writer.write(PersistMode::Buffer, |_| panic!("planted"));
    assert!(matches!(failed, Err(StoreError::Corrupt(text)) if text.contains("planted")));
    assert!(matches!(store.drop_vbucket(Vbid(0)), Err(StoreError::Poisoned(_))));
}
