//! Reads without the table's lock: they find what a read with it finds, or leave it to that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    Bucket, BucketConfig, EvictionPolicy, GetOutcome, LockOutcome, OperationRejection, ReadSection,
    SharedOutcome, StoreRequest, WarmupStep,
};
use oribi_storage::{KvStore, MemoryStore, SharedMemoryStore};
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use super::{NOW, VB, config, done, entropy, key, open, set};
use crate::operations_by_vbid::OperationsByVbid;
use crate::ownership::node;

/// Result of a read without a lock.
#[derive(PartialEq, Eq, Debug)]
enum ReaderState {
    Value(String),
    Miss,
    Undecided,
}

fn value(text: &str) -> ReaderState {
    ReaderState::Value(text.into())
}

fn shared(bucket: &Bucket, key: DocKey<'_>, now: Timestamp) -> ReaderState {
    let section = ReadSection::open();
    let vbucket = bucket.vbucket(VB).expect("the vbucket is in the map");
    match vbucket.get_shared(&section, &bucket.context(now), vbucket.hash_of(key), key) {
        SharedOutcome::Hit(found) => {
            ReaderState::Value(String::from_utf8_lossy(found.value()).into_owned())
        }
        SharedOutcome::Miss => ReaderState::Miss,
        SharedOutcome::Undecided => ReaderState::Undecided,
    }
}

fn flush(bucket: &Bucket) {
    for _ in bucket.vbuckets() {
        bucket.flush_step().expect("a store in memory takes everything");
    }
}

fn in_memory() -> Arc<Bucket> {
    open(Arc::new(MemoryStore::new()))
}

#[test]
fn the_newest_version_is_found_a_deleted_one_not() {
    let bucket = in_memory();
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Miss);
    for text in ["one", "two"] {
        done(bucket.store(VB, key("k"), &set(text), NOW));
        assert_eq!(shared(&bucket, key("k"), NOW), value(text));
    }
    done(bucket.delete(VB, key("k"), Cas(0), NOW));
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Miss);
    // Its tombstone leaves the table.
    flush(&bucket);
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Miss);
}

#[test]
fn all_documents_are_found_during_and_after_growth() {
    let bucket = in_memory();
    let names: Vec<String> = (0..5_000).map(|number| format!("k{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        done(bucket.store(VB, key(name), &set(name), NOW));
        // The first, the newest, and one in between, wherever the table has put them.
        for name in [&names[0], name, &names[number / 2]] {
            assert_eq!(shared(&bucket, key(name), NOW), value(name));
        }
    }
    for name in &names {
        assert_eq!(shared(&bucket, key(name), NOW), value(name));
    }
}

#[test]
fn a_found_item_stays_readable_after_the_table() {
    let bucket = in_memory();
    let section = ReadSection::open();
    let mut found = Vec::new();
    let value = "x".repeat(3_000);
    for number in 0..100 {
        let name = format!("k{number}");
        done(bucket.store(VB, key(&name), &set(&value), NOW));
        let vbucket = bucket.vbucket(VB).expect("the vbucket is in the map");
        let (context, hash) = (bucket.context(NOW), vbucket.hash_of(key(&name)));
        let SharedOutcome::Hit(item) = vbucket.get_shared(&section, &context, hash, key(&name))
        else {
            panic!("{name} is there");
        };
        found.push(item);
        done(bucket.delete(VB, key(&name), Cas(0), NOW));
        flush(&bucket);
        // Memory of the same size is allocated anew, and may not be that of what was found.
        done(bucket.store(VB, key("other"), &set(&"y".repeat(3_000)), NOW));
    }
    drop(bucket);
    assert!(found.iter().all(|item| item.value() == value.as_bytes()));
}

#[test]
fn an_expired_document_is_removed_by_the_next_read() {
    let bucket = in_memory();
    let short = StoreRequest { expiry: 10, ..set("v") };
    done(bucket.store(VB, key("k"), &short, NOW));
    assert_eq!(shared(&bucket, key("k"), NOW), value("v"));
    let later = Timestamp::from_unix_s(NOW.unix_s() + 11);
    assert_eq!(shared(&bucket, key("k"), later), ReaderState::Undecided);
    assert!(matches!(bucket.get(VB, key("k"), later), GetOutcome::Miss));
}

#[test]
fn while_a_client_has_a_lock_reads_ask_for_it() {
    let bucket = in_memory();
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    let locked = bucket.get_and_lock(VB, key("k"), 10, NOW);
    assert!(matches!(locked, LockOutcome::Done { .. }));
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Undecided);
    assert!(matches!(bucket.get(VB, key("k"), NOW), GetOutcome::HitLocked(_)));
    let later = Timestamp::from_unix_s(NOW.unix_s() + 11);
    assert_eq!(shared(&bucket, key("k"), later), value("v"));
}

#[test]
fn a_value_that_was_evicted_is_left_to_a_fetch() {
    let bucket = in_memory();
    // Eviction of a short value would free nothing.
    done(bucket.store(VB, key("k"), &set(&"v".repeat(500)), NOW));
    flush(&bucket);
    assert!(bucket.evict(VB, key("k")));
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Undecided);
    assert_eq!(shared(&bucket, key("other"), NOW), ReaderState::Miss);
}

// Invariant: A look-up without the lock reports a miss only if the document was absent at some
// moment of the look-up.
#[test]
fn after_a_full_eviction_no_miss_is_certain() {
    let config = BucketConfig { eviction: EvictionPolicy::Full, ..config() };
    let store = Arc::new(MemoryStore::new());
    let bucket = Bucket::open(config, store, entropy(), false).expect("a fresh bucket opens");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    flush(&bucket);
    assert_eq!(shared(&bucket, key("other"), NOW), ReaderState::Miss);
    assert!(bucket.evict(VB, key("k")));
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Undecided);
    assert_eq!(shared(&bucket, key("other"), NOW), ReaderState::Undecided);
    assert!(matches!(
        bucket.get(VB, key("k"), NOW),
        GetOutcome::Refused(OperationRejection::NeedsFetch)
    ));
}

#[test]
fn while_documents_are_loaded_no_miss_is_certain() {
    let store = Arc::new(MemoryStore::new());
    let before = open(Arc::clone(&store) as Arc<dyn KvStore>);
    done(before.store(VB, key("k"), &set("v"), NOW));
    flush(&before);
    drop(before);
    let bucket = Bucket::open(config(), store, entropy(), false).expect("it opens again");
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Undecided);
    assert_eq!(shared(&bucket, key("other"), NOW), ReaderState::Undecided);
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    assert_eq!(shared(&bucket, key("k"), NOW), value("v"));
    assert_eq!(shared(&bucket, key("other"), NOW), ReaderState::Miss);
}

// Invariant: A look-up without the lock reports a miss only if the document was absent at some
// moment of the look-up.
/// Readers look for what is present all the time, while inserts move it from table to table.
#[test]
fn present_keys_are_found_while_the_table_grows() {
    const NAMES: usize = 30_000;
    let bucket = in_memory();
    let names: Vec<String> = (0..NAMES).map(|number| format!("k{number}")).collect();
    let (stored, misses) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let reader = || {
            let mut number = 0;
            while stored.load(Ordering::Acquire) < NAMES {
                let there = stored.load(Ordering::Acquire);
                // The newest, and others in an order that the table does not have.
                for at in [there.saturating_sub(1), number % there.max(1)] {
                    if there > 0 && shared(&bucket, key(&names[at]), NOW) == ReaderState::Miss {
                        misses.fetch_add(1, Ordering::Relaxed);
                    }
                }
                number += 7_919;
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for (number, name) in names.iter().enumerate() {
            done(bucket.store(VB, key(name), &set(name), NOW));
            stored.store(number + 1, Ordering::Release);
        }
        // A thread sanitizer does not see that the scope waits.
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
    assert_eq!(misses.into_inner(), 0, "documents that were there were missed");
}

#[test]
fn documents_of_a_dropped_collection_are_not_found() {
    let bucket = in_memory();
    let create = ManifestChange::CreateCollection {
        scope: "_default".into(),
        name: "c".into(),
        max_ttl_s: None,
    };
    let id = bucket.update_manifest(&create).expect("a new name").collection_id("_default", "c");
    let name = DocKey { collection: id.expect("it exists"), key: b"k" };
    assert_ne!(name.collection, CollectionId::DEFAULT);
    done(bucket.store(VB, name, &set("v"), NOW));
    assert_eq!(shared(&bucket, name, NOW), value("v"));
    let drop = ManifestChange::DropCollection { scope: "_default".into(), name: "c".into() };
    bucket.update_manifest(&drop).expect("it exists");
    assert_eq!(shared(&bucket, name, NOW), ReaderState::Undecided);
}

// Invariant: A read without the lock gives the answer of a read with the lock, or leaves the answer
// to that one.
#[test]
fn a_vbucket_that_was_given_up_shows_nothing() {
    let store: Arc<dyn KvStore> = Arc::new(SharedMemoryStore::on(Arc::default()));
    let bucket = node(store);
    bucket.take_over(&[VB]).expect("nobody has it");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    assert_eq!(shared(&bucket, key("k"), NOW), value("v"));
    // What is queued is still in the table until it is flushed.
    bucket.stop_serving(VB);
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Undecided);
    bucket.deactivate(VB);
    assert_eq!(shared(&bucket, key("k"), NOW), ReaderState::Undecided);
    assert!(bucket.announce(Vbid(9), key("k")).is_none());
}
