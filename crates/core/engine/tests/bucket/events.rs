//! System events: the creation and the end of collections in the history of each vbucket.

use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_engine::collections::{BucketManifest, ManifestChange};
use oribi_engine::{
    Bucket, GetOutcome, ManifestEvent, ManifestEventKind, MutationOutcome, OperationRejection,
    Storage,
};
use oribi_storage::{KvStore, MemoryMedium, MemoryStore, OwnedRecord, SharedMedium};
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use super::ownership::node;
use super::{NOW, VB, config, done, entropy, key, open, set};
use crate::operations_by_vbid::OperationsByVbid;

const FIRST: DocKey<'static> = DocKey { collection: CollectionId::SYSTEM, key: b"c" };

fn create_scope(name: &str) -> ManifestChange {
    ManifestChange::CreateScope { name: name.into() }
}

fn create(name: &str) -> ManifestChange {
    ManifestChange::CreateCollection { scope: "s".into(), name: name.into(), max_ttl_s: None }
}

fn drop_collection(name: &str) -> ManifestChange {
    ManifestChange::DropCollection { scope: "s".into(), name: name.into() }
}

fn flush(bucket: &Bucket) {
    while bucket.flush_step().expect("the store is sound").more {}
}

/// The events that the store has of a vbucket: seqno, kind, collection or scope, and manifest uid.
fn stored(bucket: &Bucket, vbid: Vbid) -> Vec<(u64, ManifestEventKind, u32, u64)> {
    flush(bucket);
    let mut records = Vec::new();
    let scanned = bucket.scan_persisted(vbid, FIRST, &mut |record| {
        records.push(OwnedRecord::of(&record));
        ControlFlow::Continue(())
    });
    scanned.expect("the store is sound");
    let mut events: Vec<_> = records
        .iter()
        .map(|record| {
            let record = record.borrow();
            let event = ManifestEvent::decode(record.seqno, record.value).expect("an event");
            assert_eq!((event.kind.is_end(), &event.key()[..]), (record.deleted, record.key.key));
            let id = event.collection.map_or(event.scope.0, |collection| collection.0);
            (record.seqno.0, event.kind, id, event.manifest_uid.0)
        })
        .collect();
    events.sort_unstable();
    events
}

fn high(bucket: &Bucket, vbid: Vbid) -> Seqno {
    bucket.vbucket(vbid).expect("it is in the map").stats().high_seqno
}

use ManifestEventKind::{CollectionBegin, CollectionChanged, CollectionEnd, ScopeBegin, ScopeEnd};

// Compat (Change streams): Seqnos
#[test]
fn a_change_takes_a_seqno_in_every_vbucket() {
    let bucket = open(Arc::new(MemoryStore::new()));
    bucket.update_manifest(&create_scope("s")).unwrap();
    let manifest = bucket.update_manifest(&create("c")).unwrap();
    let id = manifest.collection_id("s", "c").unwrap();
    let name = DocKey { collection: id, key: b"k" };
    let mutation = done(bucket.store(VB, name, &set("v"), NOW));
    assert_eq!(mutation.seqno, Seqno(3), "behind the event of its collection");
    for vbid in (0..4).map(Vbid) {
        let events = [(1, ScopeBegin, 8, 1), (2, CollectionBegin, 8, 2)];
        assert_eq!(stored(&bucket, vbid), events);
    }
    let ttl = ManifestChange::SetMaxTtl { scope: "s".into(), name: "c".into(), max_ttl_s: Some(9) };
    bucket.update_manifest(&ttl).unwrap();
    assert_eq!(stored(&bucket, VB), [(1, ScopeBegin, 8, 1), (4, CollectionChanged, 8, 3)]);
    bucket.update_manifest(&ManifestChange::DropScope { name: "s".into() }).unwrap();
    assert_eq!(stored(&bucket, VB), [(5, CollectionEnd, 8, 3), (6, ScopeEnd, 8, 4)]);
    assert_eq!(high(&bucket, Vbid(0)), Seqno(5), "no document there");
}

/// Changes of one collection between two commits are one record; another collection has its own.
#[test]
fn a_commit_has_the_last_event_of_each_collection() {
    let bucket = open(Arc::new(MemoryStore::new()));
    bucket.update_manifest(&create_scope("s")).unwrap();
    for change in [create("c"), drop_collection("c"), create("c")] {
        bucket.update_manifest(&change).unwrap();
    }
    let events = [(1, ScopeBegin, 8, 1), (3, CollectionEnd, 8, 3), (4, CollectionBegin, 9, 4)];
    assert_eq!(stored(&bucket, VB), events);
}

#[test]
fn events_are_no_documents() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
    bucket.update_manifest(&create_scope("s")).unwrap();
    bucket.update_manifest(&create("c")).unwrap();
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    flush(&bucket);
    drop(bucket);
    let bucket = open(Arc::new(MemoryStore::on(disk)));
    let stats = bucket.stats();
    assert_eq!((stats.items, stats.tombstones, stats.warmup.items), (1, 0, 1));
    let mut figures = Vec::new();
    bucket.vbucket(VB).unwrap().collection_stats(&mut figures);
    assert!(figures.iter().all(|(id, _)| *id != CollectionId::SYSTEM), "{figures:?}");
    let event = DocKey { collection: CollectionId::SYSTEM, key: b"c00000008" };
    let read = bucket.get(VB, event, NOW);
    assert!(matches!(read, GetOutcome::Refused(OperationRejection::UnknownCollection)));
    let written = bucket.store(VB, event, &set("v"), NOW);
    assert_eq!(written, MutationOutcome::Refused(OperationRejection::UnknownCollection));
    let sampled = bucket.random_document(CollectionId::SYSTEM, NOW);
    assert_eq!(sampled.err(), Some(OperationRejection::UnknownCollection));
}

// Invariant: Between changes of the manifest, the history of each served vbucket says what the
// manifest says.
/// The manifest is durable when the change returns; the events only after the next commit.
#[test]
fn events_lost_in_a_crash_are_added_at_the_next_start() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
    bucket.update_manifest(&create_scope("s")).unwrap();
    bucket.update_manifest(&create("a")).unwrap();
    flush(&bucket);
    bucket.update_manifest(&create("b")).unwrap();
    bucket.update_manifest(&drop_collection("a")).unwrap();
    drop(bucket);
    for _ in 0..2 {
        let bucket = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
        let events = [(1, ScopeBegin, 8, 1), (3, CollectionEnd, 8, 2), (4, CollectionBegin, 9, 4)];
        assert_eq!(stored(&bucket, VB), events);
        assert_eq!(high(&bucket, VB), Seqno(4), "nothing is added twice");
    }
}

// Compat (Change streams): Data of earlier builds
#[test]
fn a_data_directory_without_events_gets_them() {
    let store = Arc::new(MemoryStore::new());
    let mut manifest = BucketManifest::initial();
    for change in [create_scope("s"), create("a"), create("b")] {
        manifest = manifest.apply(&change).unwrap();
    }
    store.put_local("manifest", manifest.to_stored_json().as_bytes()).unwrap();
    let bucket = open(store);
    let events = [(1, ScopeBegin, 8, 0), (2, CollectionBegin, 8, 0), (3, CollectionBegin, 9, 3)];
    assert_eq!(stored(&bucket, VB), events);
}

// Compat (Change streams): Flush
#[test]
fn an_emptied_bucket_begins_with_the_events() {
    let bucket = open(Arc::new(MemoryStore::new()));
    bucket.update_manifest(&create_scope("s")).unwrap();
    bucket.update_manifest(&create("c")).unwrap();
    done(bucket.store(VB, key("k"), &set("v"), NOW));
    flush(&bucket);
    bucket.flush_all().unwrap();
    assert_eq!(stored(&bucket, VB), [(4, ScopeBegin, 8, 0), (5, CollectionBegin, 8, 2)]);
    let vbucket = bucket.vbucket(VB).unwrap();
    let histories = vbucket.failover_table();
    assert_eq!(histories.len(), 1, "a reader of before begins anew: {histories:?}");
    assert_eq!((histories[0].uuid, histories[0].seqno), (vbucket.uuid(), Seqno(3)));
    assert_eq!(vbucket.stats().purge_seqno, Seqno(3));
}

#[test]
fn in_memory_only_a_history_has_its_events_too() {
    let config = oribi_engine::BucketConfig {
        storage: Storage::Memory,
        eviction: oribi_engine::EvictionPolicy::None,
        ..config()
    };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true).unwrap();
    bucket.update_manifest(&create_scope("s")).unwrap();
    bucket.update_manifest(&create("c")).unwrap();
    assert_eq!(done(bucket.store(VB, key("k"), &set("v"), NOW)).seqno, Seqno(3));
    bucket.flush_all().unwrap();
    assert_eq!(done(bucket.store(VB, key("k"), &set("v"), NOW)).seqno, Seqno(6));
}

#[test]
fn a_node_that_takes_over_adds_what_the_history_lacks() {
    let medium = Arc::new(SharedMedium::default());
    let new_node = || node(Arc::new(oribi_storage::SharedMemoryStore::on(Arc::clone(&medium))));
    let (before, after) = (new_node(), new_node());
    before.take_over(&[VB]).unwrap();
    before.update_manifest(&create_scope("s")).unwrap();
    assert_eq!(stored(&before, VB), [(1, ScopeBegin, 8, 1)]);
    let manifest = before.manifest().apply(&create("c")).unwrap();
    after.install_manifest(&manifest.to_stored_json()).unwrap();
    assert_eq!(high(&after, VB), Seqno(0), "it is not there");
    before.deactivate(VB);
    after.take_over(&[VB]).unwrap();
    assert_eq!(stored(&after, VB), [(1, ScopeBegin, 8, 1), (2, CollectionBegin, 8, 2)]);
}
