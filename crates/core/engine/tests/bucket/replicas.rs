//! A vbucket on two nodes: an active and its copy, fed by the active's stream. `roles` has changes
//! of role in bad conditions, `world` random lives with cuts, restarts, rollbacks and promotions.

mod durable;
mod epochs;
mod evicted;
mod full;
mod node;
mod roles;
mod world;

use std::sync::Arc;

use oribi_engine::dcp::{StreamFilter, StreamOpenError, StreamRequest};
use oribi_engine::{
    ApplyError, Bucket, BucketConfig, CopyRoleError, EvictionPolicy, FetchSink, GetOutcome,
    OperationRejection, SnapshotChanges, Storage, StoreRequest,
};
use oribi_storage::{MemoryMedium, MemoryStore, VbucketPhase};
use oribi_types::{Cas, CopiesEpoch, Seqno, Timestamp, VbUuid};

use crate::eviction::RecordingSink;
use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, open, set};
pub(crate) use world::NoSink;
use world::{Link, World, replica_request};

fn over_a_store() -> Arc<Bucket> {
    open(Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default()))))
}

/// An active and an empty copy of it, with the stream between them.
fn pair() -> (Arc<Bucket>, Arc<Bucket>, Link) {
    let (active, replica) = (over_a_store(), over_a_store());
    replica.drop_copy(VB).expect("it is dropped");
    replica.become_replica(VB).expect("it is a copy now");
    let link = Link::open(&active, &replica).expect("a stream from the beginning");
    (active, replica, link)
}

#[test]
fn a_replica_answers_only_replica_reads() {
    let (active, replica, mut link) = pair();
    done(active.store(VB, key("a"), &set("1"), NOW));
    done(active.store(VB, key("b"), &set("2"), NOW));
    done(active.delete(VB, key("b"), Cas(0), NOW));
    link.run(&active, &replica);
    let refused = GetOutcome::Refused(OperationRejection::NotMyVbucket);
    assert_eq!(format!("{:?}", replica.get(VB, key("a"), NOW)), format!("{refused:?}"));
    assert_eq!(format!("{:?}", world::get_replica(&active, key("a"), NOW)), format!("{refused:?}"));
    let GetOutcome::Hit(item) = world::get_replica(&replica, key("a"), NOW) else {
        panic!("a hit")
    };
    let GetOutcome::Hit(original) = active.get(VB, key("a"), NOW) else { panic!("a hit") };
    assert_eq!((item.value(), item.cas(), item.seqno()), (&b"1"[..], original.cas(), Seqno(1)));
    assert!(matches!(world::get_replica(&replica, key("b"), NOW), GetOutcome::Miss));
    let vbucket = replica.vbucket(VB).expect("it exists");
    assert_eq!((vbucket.phase(), vbucket.stats().high_seqno), (VbucketPhase::Replica, Seqno(3)));
    let request = StreamRequest { filter: StreamFilter::All, ..replica_request(&active) };
    let sink = Arc::new(world::NoSink);
    let refused = replica.open_stream(&request, sink, 1).err();
    assert_eq!(refused, Some(StreamOpenError::NotMyVbucket));
}

// Expiry is the active's business.
#[test]
fn a_replica_expires_and_purges_nothing() {
    let (active, replica, mut link) = pair();
    let expires = StoreRequest { expiry: NOW.unix_s() + 5, ..set("short") };
    done(active.store(VB, key("a"), &expires, NOW));
    link.run(&active, &replica);
    replica.flush_step().expect("the store is sound");
    let later = Timestamp::from_unix_s(NOW.unix_s() + 10_000_000);
    let clock = || later;
    while replica.expiry_pager_step(&clock).more {}
    assert!(matches!(world::get_replica(&replica, key("a"), later), GetOutcome::Miss));
    let high = |bucket: &Bucket| bucket.vbucket(VB).expect("it exists").stats().high_seqno;
    assert_eq!(high(&replica), Seqno(1), "no tombstone of its own");
    assert!(matches!(active.get(VB, key("a"), later), GetOutcome::Miss));
    link.run(&active, &replica);
    assert_eq!((high(&active), high(&replica)), (Seqno(2), Seqno(2)), "the active's expiration");
    world::assert_same(&active, &replica);
}

#[test]
fn a_replica_fetches_evicted_values() {
    let (active, replica, mut link) = pair();
    let long = "x".repeat(3000);
    done(active.store(VB, key("a"), &set(&long), NOW));
    link.run(&active, &replica);
    assert!(!replica.evict(VB, key("a")), "what is not durable stays");
    replica.flush_step().expect("the store is sound");
    assert!(replica.evict(VB, key("a")));
    let read = world::get_replica(&replica, key("a"), NOW);
    assert!(matches!(read, GetOutcome::Refused(OperationRejection::NeedsFetch)), "{read:?}");
    let sink: Arc<dyn FetchSink> = Arc::new(RecordingSink::default());
    replica.fetch(VB, key("a"), &sink, 1);
    assert_eq!(replica.fetch_step(), 1);
    let GetOutcome::Hit(item) = world::get_replica(&replica, key("a"), NOW) else {
        panic!("a hit")
    };
    assert_eq!(item.value(), long.as_bytes());
    drop(item);
    // An overwrite of an evicted version.
    assert!(replica.evict(VB, key("a")));
    done(active.store(VB, key("a"), &set("short"), NOW));
    link.run(&active, &replica);
    world::assert_same(&active, &replica);
}

// Under full eviction the key itself may be in the store only, and the count depends on it.
#[test]
fn a_replica_fetches_before_it_overwrites() {
    let full = BucketConfig { eviction: EvictionPolicy::Full, ..config() };
    let store = || Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default())));
    let active = over_a_store();
    let replica = Bucket::open(full, store(), entropy(), false).expect("it opens");
    replica.drop_copy(VB).expect("it is dropped");
    replica.become_replica(VB).expect("it is a copy now");
    let mut link = Link::open(&active, &replica).expect("a stream from the beginning");
    done(active.store(VB, key("a"), &set("1"), NOW));
    link.run(&active, &replica);
    replica.flush_step().expect("the store is sound");
    assert!(replica.evict(VB, key("a")));
    done(active.store(VB, key("a"), &set("2"), NOW));
    link.receive(usize::MAX);
    let refused = link.apply(&replica);
    assert!(matches!(refused, Err(ApplyError::NeedsFetch(_))), "{refused:?}");
    let sink: Arc<dyn FetchSink> = Arc::new(RecordingSink::default());
    replica.fetch(VB, key("a"), &sink, 1);
    replica.fetch_step();
    link.apply(&replica).expect("the key is known now");
    world::assert_same(&active, &replica);
    assert_eq!(replica.vbucket(VB).expect("it exists").stats().items, 1);
}

#[test]
fn seqnos_that_do_not_ascend_are_rejected() {
    let (active, replica, mut link) = pair();
    done(active.store(VB, key("a"), &set("1"), NOW));
    link.run(&active, &replica);
    let vbucket = replica.vbucket(VB).expect("it exists");
    for (seqno, end) in [(1, 9), (0, 9), (10, 9)] {
        let mut changes = SnapshotChanges::default();
        vbucket.add_replicated(&mut changes, &world::document("b", seqno));
        let applied =
            vbucket.apply_snapshot(&replica.context(NOW), &mut changes, (Seqno(end), true));
        assert_eq!(applied, Err(ApplyError::SeqnoOrder(Seqno(seqno))));
        assert_eq!(changes.len(), 1, "nothing is lost");
    }
    assert_eq!(vbucket.stats().high_seqno, Seqno(1));
}

#[test]
fn a_promotion_begins_a_history_where_all_is_complete() {
    let (active, replica, mut link) = pair();
    for name in ["a", "b", "c"] {
        done(active.store(VB, key(name), &set("1"), NOW));
    }
    link.run(&active, &replica);
    let vbucket = replica.vbucket(VB).expect("it exists");
    // A part of a snapshot that ends at 9.
    let mut changes = SnapshotChanges::default();
    vbucket.add_replicated(&mut changes, &world::document("d", 6));
    vbucket
        .apply_snapshot(&replica.context(NOW), &mut changes, (Seqno(9), false))
        .expect("it is applied");
    let position = vbucket.replica_position().expect("it is a copy");
    assert_eq!((position.complete_end, position.high_seqno), (Seqno(3), Seqno(6)));
    assert_eq!(position.snapshot_end, Seqno(9));
    let before = position.failover_table[0];
    replica.promote(VB, CopiesEpoch(4)).expect("it is promoted");
    let table = vbucket.failover_table();
    assert_eq!((table[0].seqno, table[0].epoch), (Seqno(3), CopiesEpoch(4)));
    assert_eq!(table[1], before);
    let written = done(replica.store(VB, key("e"), &set("2"), NOW));
    assert_eq!((written.seqno, written.vb_uuid), (Seqno(7), table[0].uuid));
    assert!(written.cas > Cas(1), "above what the active gave out");
    assert!(matches!(replica.promote(VB, CopiesEpoch(5)), Err(CopyRoleError::NotReplica)));
    assert!(matches!(replica.get(VB, key("d"), NOW), GetOutcome::Hit(_)), "it stays");
}

#[test]
fn buckets_in_memory_keep_no_copies() {
    let config =
        BucketConfig { storage: Storage::Memory, eviction: EvictionPolicy::None, ..config() };
    let store = MemoryStore::on(Arc::new(MemoryMedium::default()));
    let bucket = Bucket::open(config, Arc::new(store), entropy(), true).expect("it opens");
    assert!(matches!(bucket.become_replica(VB), Err(CopyRoleError::Unsupported)));
    assert!(bucket.serving_vbucket(VB).is_ok());
}

// The state of a part of a snapshot is durable with the part.
#[test]
fn a_restarted_replica_knows_its_incomplete_snapshot() {
    let disk = Arc::new(MemoryMedium::default());
    let replica = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
    replica.drop_copy(VB).expect("it is dropped");
    replica.become_replica(VB).expect("it is a copy now");
    let vbucket = replica.vbucket(VB).expect("it exists");
    let apply = |seqno, snapshot: (Seqno, bool)| {
        let mut changes = SnapshotChanges::default();
        vbucket.add_replicated(&mut changes, &world::document(&format!("k{seqno}"), seqno));
        vbucket
            .apply_snapshot(&replica.context(NOW), &mut changes, snapshot)
            .expect("it is applied");
    };
    apply(4, (Seqno(4), true));
    apply(20, (Seqno(50), false));
    replica.flush_step().expect("the store is sound");
    apply(30, (Seqno(50), false));
    let reopened = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
    let position = reopened.vbucket(VB).and_then(|it| it.replica_position());
    let position = position.expect("it is a copy still");
    assert_eq!((position.complete_end, position.high_seqno), (Seqno(4), Seqno(20)));
    assert_eq!(position.snapshot_end, Seqno(50));
    apply(50, (Seqno(50), true));
    replica.flush_step().expect("the store is sound");
    let reopened = open(Arc::new(MemoryStore::on(disk)));
    let position = reopened.vbucket(VB).and_then(|it| it.replica_position());
    assert_eq!(position.map(|it| (it.complete_end, it.high_seqno)), Some((Seqno(50), Seqno(50))));
    assert_eq!(reopened.vbucket(VB).map(|it| it.uuid()), Some(VbUuid(0)), "no history of its own");
}

// Invariant: Equal history and seqno mean equal content on every copy.
#[test]
fn copies_with_equal_history_and_seqno_are_equal() {
    for seed in 0..60 {
        World::new(seed).run(400);
    }
}
