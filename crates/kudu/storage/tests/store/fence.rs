//! An owner that was taken over writes nothing any more, except what it still owns.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_kudu::ClientBuilder;
use oribi_storage::conformance::take_over;
use oribi_storage::{
    KvStore, Ownership, Record, SharedStore, StoreError, StoreMaintenance, VbBatch, VbucketState,
};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};
use parking_lot::Mutex;

use crate::{CLUSTER, Place};

pub(super) fn batch<'a>(vbid: u16, key: &'a [u8], seqno: u64) -> VbBatch<'a> {
    let record = Record {
        key: DocKey { collection: CollectionId(0), key },
        value: b"value",
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        rev_seqno: RevSeqno(1),
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        deleted: false,
        expired: false,
    };
    let state =
        VbucketState { high_seqno: Seqno(seqno), max_cas: Cas(seqno), ..VbucketState::empty() };
    VbBatch { vbid: Vbid(vbid), records: vec![record], state }
}

fn keys(store: &dyn KvStore, vbid: u16) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let scanned = store.scan_keys(Vbid(vbid), &mut |record| {
        keys.push(record.key.key.to_vec());
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    keys
}

/// Owns what a test says.
#[derive(Default)]
struct Leases(Mutex<BTreeSet<u16>>);

impl Ownership for Leases {
    fn owns(&self, vbid: Vbid) -> bool {
        self.0.lock().contains(&vbid.0)
    }
}

#[test]
fn writes_need_a_takeover() {
    let Some(cluster) = CLUSTER.get() else { return };
    let store = Place::new(cluster).open().unwrap();
    assert!(store.shared().is_some());
    assert!(matches!(store.commit(&[batch(1, b"k", 1)]), Err(StoreError::Fenced(_))));
    assert!(matches!(store.put_local("manifest", b"m"), Err(StoreError::Fenced(_))));
    assert_eq!(keys(&store, 1), Vec::<Vec<u8>>::new());
}

// Invariant: Writes of a former owner fail as a whole, however late they arrive.
/// Without leases the newest process owns everything, and a forgotten one nothing.
#[test]
fn a_forgotten_owner_writes_nothing() {
    let Some(cluster) = CLUSTER.get() else { return };
    let place = Place::new(cluster);
    let old = place.open_owned().unwrap();
    old.commit(&[batch(1, b"a", 1), batch(900, b"a", 1)]).unwrap();
    let new = place.open().unwrap();
    let states = take_over(&new, &[Vbid(1), Vbid(2)]).unwrap();
    assert_eq!(states, [(Vbid(1), batch(1, b"a", 1).state)], "the second was never committed");
    for _ in 0..2 {
        let refused = old.commit(&[batch(1, b"b", 2), batch(900, b"b", 2)]);
        assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
        assert!(matches!(old.put_local("manifest", b"m"), Err(StoreError::Fenced(_))));
        assert!(matches!(old.drop_vbucket(Vbid(1), None), Err(StoreError::Fenced(_))));
    }
    assert_eq!((keys(&new, 1), keys(&new, 900)), (vec![b"a".to_vec()], vec![b"a".to_vec()]));
    new.commit(&[batch(1, b"c", 3)]).unwrap();
    assert_eq!(keys(&new, 1), [b"a", b"c"]);
    let beyond = new.commit(&[batch(900, b"c", 3)]);
    assert!(matches!(beyond, Err(StoreError::Fenced(_))), "it was not taken over: {beyond:?}");
}

/// With leases an owner continues with what it still owns when others take over theirs, and with
/// that only.
#[test]
fn an_owner_keeps_what_its_leases_say() {
    let Some(cluster) = CLUSTER.get() else { return };
    let place = Place::new(cluster);
    let (one, other) = (place.open().unwrap(), place.open().unwrap());
    let (leases_of_one, leases_of_other) = (Arc::<Leases>::default(), Arc::<Leases>::default());
    one.set_ownership(leases_of_one.clone());
    other.set_ownership(leases_of_other.clone());
    leases_of_one.0.lock().extend([1, 2]);
    take_over(&one, &[Vbid(1), Vbid(2)]).unwrap();
    one.commit(&[batch(1, b"a", 1), batch(2, b"a", 1)]).unwrap();

    leases_of_one.0.lock().remove(&2);
    leases_of_other.0.lock().insert(2);
    assert_eq!(take_over(&other, &[Vbid(2)]).unwrap().len(), 1);
    // Both vbuckets are in one tablet, and so in one Write that is refused; what is owned is sent
    // again.
    let refused = one.commit(&[batch(1, b"b", 2), batch(2, b"b", 2)]);
    assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
    assert_eq!(
        (keys(&other, 1), keys(&other, 2)),
        (vec![b"a".to_vec(), b"b".to_vec()], vec![b"a".to_vec()])
    );
    one.commit(&[batch(1, b"c", 3)]).unwrap();
    other.commit(&[batch(2, b"c", 3)]).unwrap();
    assert_eq!((keys(&one, 1).len(), keys(&one, 2).len()), (3, 2));

    // A vbucket that is lost and taken again is written in the newer epoch.
    leases_of_other.0.lock().remove(&2);
    leases_of_one.0.lock().insert(2);
    take_over(&one, &[Vbid(2)]).unwrap();
    assert!(matches!(other.commit(&[batch(2, b"d", 4)]), Err(StoreError::Fenced(_))));
    one.commit(&[batch(2, b"e", 5), batch(1, b"e", 5)]).unwrap();
    assert_eq!(keys(&other, 2), [b"a", b"c", b"e"]);
}

#[test]
fn a_foreign_table_is_rejected_and_untouched() {
    let Some(cluster) = CLUSTER.get() else { return };
    let place = Place::new(cluster);
    drop(place.open().unwrap());
    let refused = oribi_storage_kudu::KuduStore::open(&place.url, &place.bucket, 64, &|| true);
    let refused = refused.err().expect("the table says 1024 vbuckets").to_string();
    assert!(refused.contains("1024") && refused.contains("64"), "{refused}");

    let other = Place::new(cluster);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let masters = cluster.master_addresses();
        let client = ClientBuilder::from_addresses(&masters).unwrap().build().await.unwrap();
        let schema = oribi_kudu::Schema::builder()
            .column(oribi_kudu::ColumnSchema::builder("id", oribi_kudu::DataType::Int64).key())
            .build()
            .unwrap();
        let creator = oribi_kudu::TableCreator::new(other.url.table_of(&other.bucket), schema)
            .num_replicas(1);
        client.create_table(creator).await.unwrap();
    });
    assert!(matches!(other.open(), Err(StoreError::Foreign(_))));
}
