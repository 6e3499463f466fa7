//! A bucket whose documents live in memory only, announced keys, and values received in place.

use std::sync::Arc;

use oribi_engine::{
    Bucket, BucketConfig, EvictionPolicy, GetOutcome, KeyAhead, MetaOutcome, MutationOutcome,
    ReadSection, Storage, StoreCondition, StoreRequest,
};
use oribi_storage::{KvStore, MemoryMedium, MemoryStore};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, Seqno, Vbid};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, open, set};

fn in_memory(store: Arc<dyn KvStore>) -> Arc<Bucket> {
    let config =
        BucketConfig { storage: Storage::Memory, eviction: EvictionPolicy::None, ..config() };
    Bucket::open(config, store, entropy(), true).expect("the bucket opens")
}

fn request(mode: StoreCondition) -> StoreRequest<'static> {
    StoreRequest { mode, flags: 5, ..StoreRequest::set(b"") }
}

#[test]
fn memory_documents_are_neither_queued_nor_stored() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = in_memory(Arc::new(MemoryStore::on(Arc::clone(&disk))));
    for number in 0..1000 {
        let name = format!("k{number}");
        for value in ["value", "newer"] {
            done(bucket.store(VB, key(&name), &set(value), NOW));
        }
    }
    done(bucket.delete(VB, key("k7"), Cas(0), NOW));
    assert!(matches!(bucket.get(VB, key("k7"), NOW), GetOutcome::Miss));
    assert!(matches!(bucket.get_meta(VB, key("k7"), NOW), MetaOutcome::Miss));
    let stats = bucket.vbucket(VB).unwrap().stats();
    assert_eq!(
        (stats.items, stats.tombstones, stats.queue_items, stats.queue_bytes),
        (999, 0, 0, 0)
    );
    assert_eq!((stats.high_seqno, stats.persisted_seqno), (Seqno(2001), Seqno(0)));
    assert_eq!(bucket.flush_step().unwrap().items, 0);
    let uuid = bucket.vbucket(VB).unwrap().uuid();
    drop(bucket);
    // A restart begins empty and with another history, also after a clean shutdown.
    let again = in_memory(Arc::new(MemoryStore::on(disk)));
    assert_eq!(again.vbucket(VB).unwrap().stats().items, 0);
    assert!(!again.vbucket(VB).unwrap().stats().loading);
    assert_ne!(again.vbucket(VB).unwrap().uuid(), uuid);
}

#[test]
fn an_announced_key_is_the_same_key() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let (vbucket, context) = (bucket.vbucket(VB).unwrap(), bucket.context(NOW));
    let get = |ahead: KeyAhead, key: DocKey<'_>| vbucket.get_hashed(&context, ahead.hash(), key);
    for number in 0..3000 {
        let name = format!("k{number}");
        let ahead = bucket.announce(VB, key(&name)).expect("the vbucket is in the map");
        bucket.locate(&ReadSection::open(), &ahead, 3);
        assert!(matches!(get(ahead, key(&name)), GetOutcome::Miss));
        let request = StoreRequest { value: name.as_bytes(), ..request(StoreCondition::Add) };
        done(vbucket.store_hashed(&context, ahead.hash(), key(&name), &request));
        bucket.locate(&ReadSection::open(), &ahead, 3);
        let GetOutcome::Hit(item) = bucket.get(VB, key(&name), NOW) else { panic!("{name}") };
        assert_eq!(item.value(), name.as_bytes());
        assert!(matches!(get(ahead, key(&name)), GetOutcome::Hit(_)));
    }
    assert!(bucket.announce(Vbid(4), key("k1")).is_none());
}

#[test]
fn a_value_received_in_place_is_stored_like_any_other() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let name = DocKey { collection: CollectionId::DEFAULT, key: b"large" };
    let value = format!("[{}1]", "1,".repeat(100_000));
    let mut receiving =
        bucket.begin_store(name, &request(StoreCondition::Set), value.len(), NOW).expect("it fits");
    for piece in value.as_bytes().chunks(4096) {
        receiving.append(piece);
    }
    done(bucket.store_received(VB, &mut Some(receiving), &request(StoreCondition::Set), NOW));
    let GetOutcome::Hit(item) = bucket.get(VB, name, NOW) else { panic!("a miss") };
    assert_eq!((item.value(), item.flags()), (value.as_bytes(), 5));
    assert_eq!(item.datatype(), Datatype::JSON);
    let mut second =
        bucket.begin_store(name, &request(StoreCondition::Add), 1, NOW).expect("it fits");
    second.append(b"x");
    let refused = bucket.store_received(VB, &mut Some(second), &request(StoreCondition::Add), NOW);
    assert_eq!(refused, MutationOutcome::Exists);
    assert!(bucket.begin_store(name, &request(StoreCondition::Set), (1 << 20) + 1, NOW).is_none());
}
