//! Loads and fetches that a change of owner, or of the collections, overtakes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oribi_engine::collections::ManifestChange;
use oribi_engine::{Bucket, FetchSink, GetOutcome};
use oribi_storage::{KvStore, SharedMedium, SharedMemoryStore, unlimited};
use oribi_types::{CollectionId, DocKey};
use parking_lot::Mutex;

use super::super::{NOW, VB, done, key, set};
use super::{ALL, FetchFlag, InterruptedStore, load_all, node, nodes, value};
use crate::operations_by_vbid::OperationsByVbid;

/// In the middle of the store's next call `one` loses the vbucket, `two` writes a new version of
/// `name`, and `one` gets the vbucket back.
fn interlude(store: &InterruptedStore, one: &Arc<Bucket>, two: Arc<Bucket>, name: &'static str) {
    let back = Arc::clone(one);
    store.next(move || {
        back.deactivate(VB);
        two.take_over(&[VB]).expect("nothing is in its way");
        load_all(&two);
        done(two.store(VB, key(name), &set("new"), NOW));
        two.flush_step().expect("no other node has taken over");
        two.deactivate(VB);
        back.take_over(&[VB]).expect("nothing is in its way");
    });
}

// Invariant: Work begun in one ownership of a vbucket counts in no other.
#[test]
fn a_load_that_is_overtaken_brings_nothing_stale() {
    let medium = Arc::<SharedMedium>::default();
    let store = InterruptedStore::on(&medium);
    let (one, two) = (node(store.clone()), node(Arc::new(SharedMemoryStore::on(medium))));
    one.take_over(&ALL).unwrap();
    for name in ["a", "b", "c"] {
        done(one.store(VB, key(name), &set("old"), NOW));
    }
    one.flush_step().unwrap();
    one.deactivate(VB);
    one.take_over(&[VB]).unwrap();
    interlude(&store, &one, two, "c");
    // The scan that began before continues over what it has seen then.
    load_all(&one);
    for (name, expected) in [("a", "old"), ("b", "old"), ("c", "new")] {
        assert_eq!(value(&one, VB, name).as_deref(), Some(expected), "{name}");
    }
}

// Invariant: A fetch is repeated when a newer version has left the table since it began.
#[test]
fn a_fetch_that_is_overtaken_installs_nothing_stale() {
    let medium = Arc::<SharedMedium>::default();
    let store = InterruptedStore::on(&medium);
    let (one, two) = (node(store.clone()), node(Arc::new(SharedMemoryStore::on(medium))));
    one.take_over(&ALL).unwrap();
    done(one.store(VB, key("k"), &set("old"), NOW));
    one.flush_step().unwrap();
    one.deactivate(VB);
    one.take_over(&[VB]).unwrap();
    interlude(&store, &one, two, "k");
    let fetched = Arc::new(FetchFlag::default());
    let sink: Arc<dyn FetchSink> = fetched.clone();
    one.fetch(VB, key("k"), &sink, 1);
    assert_eq!(one.fetch_step(), 1);
    assert!(fetched.0.load(Ordering::Acquire));
    load_all(&one);
    assert_eq!(value(&one, VB, "k").as_deref(), Some("new"));
}

fn create(bucket: &Bucket, name: &str) -> CollectionId {
    let change = ManifestChange::CreateCollection {
        scope: "_default".to_owned(),
        name: name.to_owned(),
        max_ttl_s: None,
    };
    let manifest = bucket.update_manifest(&change).expect("the name is free");
    manifest.collection_id("_default", name).expect("it was just made")
}

// Invariant: A collection id is used once, and only dropped ids are purged.
/// A scan that was interrupted continues over a newer state of the store than the one in which the
/// load began. Documents of a collection that was made in between were once purged, as if it had
/// been dropped.
#[test]
fn a_collection_created_during_a_load_keeps_documents() {
    let medium = Arc::<SharedMedium>::default();
    let store = InterruptedStore::on(&medium);
    let bucket = node(store.clone());
    bucket.take_over(&ALL).unwrap();
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    bucket.flush_step().unwrap();
    bucket.deactivate(VB);
    bucket.take_over(&[VB]).unwrap();
    let (made, writer) = (Arc::new(Mutex::new(None)), Arc::clone(&bucket));
    let made_meanwhile = Arc::clone(&made);
    *store.before_scan.lock() = Some(Box::new(move || {
        let collection = create(&writer, "new");
        *made_meanwhile.lock() = Some(collection);
        let new = DocKey { collection, key: b"k" };
        // For all that is known while it loads the document may be in the store.
        let sink: Arc<dyn FetchSink> = Arc::new(FetchFlag::default());
        writer.fetch(VB, new, &sink, 1);
        assert_eq!(writer.fetch_step(), 1);
        done(writer.store(VB, new, &set("kept"), NOW));
        writer.flush_step().unwrap();
    }));
    load_all(&bucket);
    let collection = made.lock().expect("there was a scan");
    // What is to be purged goes with the next step.
    bucket.flush_step().unwrap();
    let new = DocKey { collection, key: b"k" };
    assert!(matches!(bucket.get(VB, new, NOW), GetOutcome::Hit(_)), "it is in memory");
    assert!(store.get(VB, new, &mut unlimited, &mut |_| ()).unwrap(), "it is in the store");
}

/// The other way round: a collection that was dropped while no node could purge it goes with a
/// load.
#[test]
fn collections_dropped_elsewhere_are_purged_at_load() {
    let medium = Arc::<SharedMedium>::default();
    let (one, two) = nodes(&medium);
    one.take_over(&ALL).unwrap();
    let collection = create(&one, "old");
    let old = DocKey { collection, key: b"k" };
    done(one.store(VB, old, &set("1"), NOW));
    one.flush_step().unwrap();
    one.deactivate(VB);
    let dropped = ManifestChange::DropCollection { scope: "_default".into(), name: "old".into() };
    let manifest = one.update_manifest(&dropped).unwrap();
    // No node owns the vbucket when the purge comes.
    one.flush_step().unwrap();
    two.install_manifest(&manifest.to_stored_json()).unwrap();
    two.take_over(&[VB]).unwrap();
    load_all(&two);
    let is_stored =
        || SharedMemoryStore::on(Arc::clone(&medium)).get(VB, old, &mut unlimited, &mut |_| ());
    assert!(is_stored().unwrap(), "there is something to purge");
    two.flush_step().unwrap();
    assert!(!is_stored().unwrap());
}
