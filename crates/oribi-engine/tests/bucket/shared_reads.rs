//! Reads without the table's lock: they find what a read with it finds, or leave it to that one.

use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::{Bucket, GetOutcome, LockOutcome, ReadSection, StoreRequest, WarmupStep};
use oribi_storage::{KvStore, MemoryStore, SharedMemoryStore};
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use super::{NOW, VB, done, key, open, set};
use crate::ownership::node;

/// The value of a document that is found without a lock.
fn shared(bucket: &Bucket, key: DocKey<'_>, now: Timestamp) -> Option<String> {
    let section = ReadSection::open();
    let ahead = bucket.hash(VB, key).expect("the vbucket is in the map");
    let found = bucket.get_shared(&section, ahead, key, now)?;
    Some(String::from_utf8_lossy(found.value()).into_owned())
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
fn the_newest_version_is_found_and_a_deleted_one_is_not() {
    let bucket = in_memory();
    assert_eq!(shared(&bucket, key("k"), NOW), None);
    for value in ["one", "two"] {
        done(bucket.store(VB, key("k"), &set(value), NOW));
        assert_eq!(shared(&bucket, key("k"), NOW).as_deref(), Some(value));
    }
    done(bucket.delete(VB, key("k"), Cas(0), NOW));
    assert_eq!(shared(&bucket, key("k"), NOW), None);
}

#[test]
fn all_documents_are_found_while_the_table_grows_and_after() {
    let bucket = in_memory();
    let names: Vec<String> = (0..5_000).map(|number| format!("k{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        done(bucket.store(VB, key(name), &set(name), NOW));
        // The first, the newest, and one in between, wherever the table has put them.
        for name in [&names[0], name, &names[number / 2]] {
            assert_eq!(shared(&bucket, key(name), NOW).as_ref(), Some(name));
        }
    }
    for name in &names {
        assert_eq!(shared(&bucket, key(name), NOW).as_ref(), Some(name));
    }
}

#[test]
fn what_was_found_stays_readable_when_everything_is_gone() {
    let bucket = in_memory();
    let section = ReadSection::open();
    let mut found = Vec::new();
    let value = "x".repeat(3_000);
    for number in 0..100 {
        let name = format!("k{number}");
        done(bucket.store(VB, key(&name), &set(&value), NOW));
        let ahead = bucket.hash(VB, key(&name)).expect("the vbucket is in the map");
        found.push(bucket.get_shared(&section, ahead, key(&name), NOW).expect("it is there"));
        done(bucket.delete(VB, key(&name), Cas(0), NOW));
        flush(&bucket);
        // Memory of the same size is allocated anew, and may not be that of what was found.
        done(bucket.store(VB, key("other"), &set(&"y".repeat(3_000)), NOW));
    }
    drop(bucket);
    assert!(found.iter().all(|item| item.value() == value.as_bytes()));
}

#[test]
fn an_expired_document_is_left_to_a_read_that_removes_it() {
    let bucket = in_memory();
    let short = StoreRequest { expiry: 10, ..set("v") };
    done(bucket.store(VB, key("k"), &short, NOW));
    assert_eq!(shared(&bucket, key("k"), NOW).as_deref(), Some("v"));
    let later = Timestamp::from_unix_s(NOW.unix_s() + 11);
    assert_eq!(shared(&bucket, key("k"), later), None);
    assert!(matches!(bucket.get(VB, key("k"), later), GetOutcome::Miss));
}

#[test]
fn while_a_client_has_a_lock_reads_ask_for_it() {
    let bucket = in_memory();
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    let locked = bucket.get_and_lock(VB, key("k"), 10, NOW);
    assert!(matches!(locked, LockOutcome::Done { .. }));
    assert_eq!(shared(&bucket, key("k"), NOW), None);
    assert!(matches!(bucket.get(VB, key("k"), NOW), GetOutcome::HitLocked(_)));
    let later = Timestamp::from_unix_s(NOW.unix_s() + 11);
    assert_eq!(shared(&bucket, key("k"), later).as_deref(), Some("v"));
}

#[test]
fn a_value_that_was_evicted_is_left_to_a_fetch() {
    let bucket = in_memory();
    // Eviction of a short value would free nothing.
    done(bucket.store(VB, key("k"), &set(&"v".repeat(500)), NOW));
    flush(&bucket);
    assert!(bucket.evict(VB, key("k")));
    assert_eq!(shared(&bucket, key("k"), NOW), None);
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
    assert_eq!(shared(&bucket, name, NOW).as_deref(), Some("v"));
    let drop = ManifestChange::DropCollection { scope: "_default".into(), name: "c".into() };
    bucket.update_manifest(&drop).expect("it exists");
    assert_eq!(shared(&bucket, name, NOW), None);
}

#[test]
fn a_vbucket_that_was_given_up_shows_nothing() {
    let store: Arc<dyn KvStore> = Arc::new(SharedMemoryStore::on(Arc::default()));
    let bucket = node(store);
    bucket.take_over(&[VB]).expect("nobody has it");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    assert_eq!(shared(&bucket, key("k"), NOW).as_deref(), Some("v"));
    // What is queued is still in the table until it is flushed.
    bucket.stop_serving(VB);
    assert_eq!(shared(&bucket, key("k"), NOW), None);
    bucket.deactivate(VB);
    assert_eq!(shared(&bucket, key("k"), NOW), None);
    assert!(bucket.hash(Vbid(9), key("k")).is_none());
}
