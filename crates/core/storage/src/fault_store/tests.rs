//! Faults do what their names say, and a caller that ignores them is found out.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

use super::{FaultPlan, FaultStore, StoreFault};
use crate::{
    KvStore, Medium, MemoryMedium, MemoryStore, Record, SeededRandom, StoreError, StoreMaintenance,
    VbBatch, VbucketState, conformance,
};

struct FaultMedium {
    medium: Arc<MemoryMedium>,
    plan: Arc<FaultPlan>,
}

impl Medium for FaultMedium {
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError> {
        let inner = MemoryStore::on(Arc::clone(&self.medium));
        Ok(Box::new(FaultStore::new(inner, Arc::clone(&self.plan))))
    }
}

#[test]
fn without_faults_it_passes_the_conformance_suite() {
    conformance::run(&|| Box::new(FaultMedium { medium: Arc::default(), plan: FaultPlan::none() }));
}

/// One record in each of the vbuckets 0, 1 and 2, at the given seqno.
fn group(seqno: u64) -> Vec<VbBatch<'static>> {
    let record = Record {
        key: DocKey { collection: CollectionId::DEFAULT, key: b"key" },
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
    let batch = |vbid| VbBatch { vbid: Vbid(vbid), records: vec![record], state: state.clone() };
    (0..3).map(batch).collect()
}

/// Seqno of the record in each vbucket that has one.
fn stored(store: &dyn KvStore) -> BTreeMap<u16, u64> {
    let mut seqnos = BTreeMap::new();
    for vbid in 0..3 {
        let scanned = store.scan_keys(Vbid(vbid), &mut |record| {
            seqnos.insert(vbid, record.seqno.0);
            ControlFlow::Continue(())
        });
        scanned.expect("the store in memory scans");
    }
    seqnos
}

#[test]
fn each_fault_leaves_what_it_says() {
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), Arc::clone(&plan));
    plan.fail_commit(2, StoreFault::BeforeCommit);
    plan.fail_commit(3, StoreFault::Torn { dropped: 2 });
    plan.fail_commit(4, StoreFault::AfterCommit);
    plan.fail_from(5, StoreFault::NoSpace);
    store.commit(&group(1)).expect("the first commit is not in the plan");
    assert!(store.commit(&group(2)).is_err());
    assert_eq!(stored(&store), BTreeMap::from([(0, 1), (1, 1), (2, 1)]));
    assert!(store.commit(&group(3)).is_err());
    assert_eq!(stored(&store), BTreeMap::from([(0, 3), (1, 1), (2, 1)]));
    assert!(store.commit(&group(4)).is_err());
    assert_eq!(stored(&store), BTreeMap::from([(0, 4), (1, 4), (2, 4)]));
    for seqno in 5..8 {
        assert!(store.commit(&group(seqno)).is_err());
    }
    assert_eq!(stored(store.inner()), BTreeMap::from([(0, 4), (1, 4), (2, 4)]));
    assert_eq!(store.stats().commit_failures, 6);
    plan.heal();
    store.commit(&group(9)).expect("a healed plan has no faults");
    assert_eq!(plan.commits(), 8);
}

#[test]
fn other_writes_fail_on_request() {
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), Arc::clone(&plan));
    plan.fail_other_writes(true);
    assert!(store.put_local("manifest", b"x").is_err());
    assert!(store.drop_vbucket(Vbid(0), None).is_err());
    assert!(store.purge_collection(Vbid(0), CollectionId(8)).is_err());
    assert!(store.compact(Vbid(0), 1).is_err());
    plan.fail_other_writes(false);
    store.put_local("manifest", b"x").expect("allowed again");
}

#[test]
fn the_hook_sees_each_commit_and_may_heal() {
    let plan = FaultPlan::none();
    plan.fail_from(1, StoreFault::BeforeCommit);
    let seen = Arc::new(AtomicU64::new(0));
    let (hook_plan, hook_seen) = (Arc::clone(&plan), Arc::clone(&seen));
    plan.before_commits(move |number| {
        hook_seen.store(number, Ordering::Relaxed);
        hook_plan.heal();
    });
    let store = FaultStore::new(MemoryStore::new(), plan);
    store.commit(&group(1)).expect("healed before its fate was decided");
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

/// A writer as the flusher has to be, or one that takes a failure for a success. Returns whether
/// the oracle (every acknowledged seqno is in the store) is content in the end.
fn writer_is_sound(seed: u64, ignores_errors: bool) -> bool {
    let medium = Arc::<MemoryMedium>::default();
    let inner = MemoryStore::on(Arc::clone(&medium));
    let store = FaultStore::new(inner, FaultPlan::seeded(seed, 300));
    let mut random = SeededRandom::new(seed);
    let mut acknowledged = 0;
    let commits = 20 + random.below(20);
    for seqno in 1..=commits {
        if store.commit(&group(seqno)).is_ok() || ignores_errors {
            acknowledged = seqno;
        }
    }
    let survivors = stored(&MemoryStore::on(medium));
    survivors.len() == 3 && survivors.values().all(|seqno| *seqno >= acknowledged)
}

#[test]
fn the_oracle_finds_a_writer_that_ignores_errors() {
    let found = (0..50).filter(|seed| !writer_is_sound(*seed, true)).count();
    assert!(found > 0, "no seed of 50 found the planted bug");
    for seed in 0..50 {
        assert!(writer_is_sound(seed, false), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let faults = |seed| {
        let plan = FaultPlan::seeded(seed, 500);
        (0..100).map(|_| plan.next_commit(None).1).collect::<Vec<_>>()
    };
    assert_eq!(faults(7), faults(7));
    assert_ne!(faults(7), faults(8));
}

#[test]
fn failed_commits_are_counted_by_kind() {
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), Arc::clone(&plan));
    let mut batches = group(1);
    batches[2].records[0].deleted = true;
    store.commit(&batches).expect("nothing is planned");
    for fault in [StoreFault::BeforeCommit, StoreFault::Torn { dropped: 3 }] {
        plan.fail_commit(plan.commits() + 1, fault);
        store.commit(&batches).expect_err("this commit is planned to fail");
    }
    plan.fail_other_writes(true);
    store.compact(Vbid(0), 1).expect_err("other writes are planned to fail");
    let stats = store.stats();
    assert_eq!((stats.commit_failures, stats.set_failures, stats.delete_failures), (2, 4, 2));
    assert_eq!((stats.vbucket_state_failures, stats.compact_failures), (6, 1));
    assert_eq!((stats.records_committed, stats.deletions_committed), (3, 1));
}
