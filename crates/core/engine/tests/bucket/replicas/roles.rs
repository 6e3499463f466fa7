//! Changes of role over a store that fails, is killed or cannot be read, and what a change does to
//! durable writes that wait. Each test is a finding of a review.

use std::sync::Arc;

use oribi_engine::{
    ApplyError, Bucket, CopyRoleError, GetOutcome, PersistOutcome, PersistenceSink,
    ReplicatedDocument, ReplicatedVersion, SnapshotChanges, WriteVisibility,
};
use oribi_storage::{
    FaultPlan, FaultStore, KvStore, MemoryMedium, MemoryStore, VbBatch, VbucketPhase, VbucketState,
};
use oribi_types::{Cas, CopiesEpoch, RevSeqno, Seqno};
use parking_lot::Mutex;

use super::world::{document, get_replica};
use super::{over_a_store, pair};
use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, key, open, set};

#[derive(Default)]
struct WaitResults(Mutex<Vec<(u64, PersistOutcome)>>);

impl PersistenceSink for WaitResults {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.0.lock().push((token, outcome));
    }
}

fn phase(bucket: &Bucket) -> VbucketPhase {
    bucket.vbucket(VB).expect("it exists").phase()
}

fn high(bucket: &Bucket) -> Seqno {
    bucket.vbucket(VB).expect("it exists").stats().high_seqno
}

/// A copy over a disk that fails by plan, with what two complete snapshots brought.
fn copy_on_a_bad_disk() -> (Arc<Bucket>, Arc<MemoryMedium>, Arc<FaultPlan>) {
    let (disk, plan) = (Arc::new(MemoryMedium::default()), FaultPlan::none());
    let store = FaultStore::new(MemoryStore::on(Arc::clone(&disk)), Arc::clone(&plan));
    let bucket = open(Arc::new(store));
    bucket.drop_copy(VB).expect("it is dropped");
    bucket.become_replica(VB).expect("it is a copy now");
    for seqno in [1, 2] {
        apply(&bucket, &[&document(&format!("k{seqno}"), seqno)], (seqno, true)).expect("applied");
    }
    bucket.flush_step().expect("the store is sound");
    (bucket, disk, plan)
}

fn apply(
    bucket: &Bucket,
    documents: &[&ReplicatedDocument<'_>],
    (end, is_complete): (u64, bool),
) -> Result<(), ApplyError> {
    let vbucket = bucket.vbucket(VB).expect("it exists");
    let mut changes = SnapshotChanges::default();
    documents.iter().for_each(|document| vbucket.add_replicated(&mut changes, document));
    vbucket.apply_snapshot(&bucket.context(NOW), &mut changes, (Seqno(end), is_complete))
}

fn reopened(disk: &Arc<MemoryMedium>) -> Arc<Bucket> {
    open(Arc::new(MemoryStore::on(Arc::clone(disk))))
}

fn fail(plan: &FaultPlan, fails: bool) {
    plan.fail_group(fails.then_some(0));
    plan.fail_other_writes(fails);
}

#[test]
fn a_failed_promotion_leaves_a_replica() {
    let (bucket, disk, plan) = copy_on_a_bad_disk();
    let before = bucket.vbucket(VB).map(|it| it.failover_table());
    plan.fail_group(Some(0));
    assert!(matches!(bucket.promote(VB, CopiesEpoch(2)), Err(CopyRoleError::Store(_))));
    assert_eq!(
        (phase(&bucket), phase(&reopened(&disk))),
        (VbucketPhase::Replica, VbucketPhase::Replica)
    );
    assert_eq!(bucket.vbucket(VB).map(|it| it.failover_table()), before);
    plan.fail_group(None);
    bucket.promote(VB, CopiesEpoch(2)).expect("it is promoted");
    assert_eq!(
        (phase(&bucket), phase(&reopened(&disk))),
        (VbucketPhase::Active, VbucketPhase::Active)
    );
}

#[test]
fn a_failed_demotion_leaves_an_active() {
    let (bucket, disk, plan) = copy_on_a_bad_disk();
    bucket.promote(VB, CopiesEpoch(2)).expect("it is promoted");
    plan.fail_group(Some(0));
    for _ in 0..2 {
        assert!(matches!(bucket.become_replica(VB), Err(CopyRoleError::Store(_))));
        assert_eq!(phase(&bucket), VbucketPhase::Active);
    }
    plan.fail_group(None);
    bucket.become_replica(VB).expect("it is a copy now");
    assert_eq!(
        (phase(&bucket), phase(&reopened(&disk))),
        (VbucketPhase::Replica, VbucketPhase::Replica)
    );
}

// Memory was empty and the store was not: the stream began anew above records of before.
#[test]
fn a_copy_that_is_not_emptied_is_dead() {
    let (bucket, disk, plan) = copy_on_a_bad_disk();
    fail(&plan, true);
    assert!(matches!(bucket.empty_replica(VB), Err(CopyRoleError::Store(_))));
    assert_eq!(phase(&bucket), VbucketPhase::Dead);
    assert_eq!(apply(&bucket, &[&document("k", 1)], (1, true)), Err(ApplyError::NotReplica));
    fail(&plan, false);
    bucket.flush_step().expect("the store is sound");
    assert_eq!(high(&reopened(&disk)), Seqno(2), "nothing of the dead one is flushed");
    bucket.become_replica(VB).expect("it is emptied");
    assert_eq!((phase(&bucket), high(&bucket)), (VbucketPhase::Replica, Seqno(0)));
    let reopened = reopened(&disk);
    assert_eq!((phase(&reopened), high(&reopened)), (VbucketPhase::Replica, Seqno(0)));
}

// The removal and the next state were two frames, and without a state a vbucket is active.
#[test]
fn an_emptied_copy_is_a_copy_in_one_step() {
    let (bucket, disk, plan) = copy_on_a_bad_disk();
    // As if the process were killed after the removal.
    plan.fail_group(Some(0));
    _ = bucket.empty_replica(VB);
    let reopened = reopened(&disk);
    assert_eq!((phase(&reopened), high(&reopened)), (VbucketPhase::Replica, Seqno(0)));
}

#[test]
fn a_copy_that_was_not_loaded_begins_anew() {
    let (_, disk, _) = copy_on_a_bad_disk();
    let plan = FaultPlan::none();
    plan.fail_loads(true);
    let store = FaultStore::new(MemoryStore::on(Arc::clone(&disk)), Arc::clone(&plan));
    let bucket = open(Arc::new(store));
    assert_eq!(phase(&bucket), VbucketPhase::Dead);
    assert!(matches!(bucket.promote(VB, CopiesEpoch(2)), Err(CopyRoleError::NotReplica)));
    bucket.become_replica(VB).expect("it is emptied");
    assert_eq!((phase(&bucket), high(&bucket)), (VbucketPhase::Replica, Seqno(0)));
    let reopened = reopened(&disk);
    assert_eq!((phase(&reopened), high(&reopened)), (VbucketPhase::Replica, Seqno(0)));
}

// A copy that forgot what it acknowledged could have decided an election.
#[test]
fn an_emptied_copy_keeps_only_its_promise() {
    let disk = Arc::new(MemoryMedium::default());
    let promised_epoch = CopiesEpoch(7);
    let phase = VbucketPhase::Replica;
    let state = VbucketState { phase, promised_epoch, ..VbucketState::empty() };
    let batch = VbBatch { vbid: VB, records: Vec::new(), state };
    MemoryStore::on(Arc::clone(&disk)).commit(&[batch]).expect("committed");
    let bucket = reopened(&disk);
    bucket.empty_replica(VB).expect("it is emptied");
    let standing = bucket.vbucket(VB).map(|it| (it.copy_standing().promised, it.copy_standing()));
    let is_intact = standing.map(|(promised, standing)| (promised, standing.is_intact));
    assert_eq!(is_intact, Some((promised_epoch, false)), "it lacks what it acknowledged");
    apply(&bucket, &[&document("a", 1)], (1, true)).expect("applied");
    bucket.flush_step().expect("the store is sound");
    let states = MemoryStore::on(disk).vbucket_states().expect("read");
    let stored = states.iter().find(|(vbid, _)| *vbid == VB).map(|(_, state)| state);
    assert_eq!(stored.map(|it| (it.promised_epoch, it.is_intact)), Some((promised_epoch, false)));
    bucket.record_epoch(VB, promised_epoch).expect("the store is sound");
    assert!(bucket.vbucket(VB).is_some_and(|it| it.copy_standing().is_intact), "it caught up");
}

// The copy's pending version was committed over the newer one of the stream.
#[test]
fn a_pending_write_of_a_former_active_is_superseded() {
    let former = over_a_store();
    let vbucket = former.vbucket(VB).expect("it exists");
    let pending = former.context(NOW).visible(WriteVisibility::WhenStored);
    done(former.store(VB, key("a"), &set("old"), NOW));
    done(vbucket.store(&pending, key("a"), &set("pending")));
    assert!(
        matches!(former.get(VB, key("a"), NOW), GetOutcome::Hit(item) if item.value() == b"old")
    );
    former.become_replica(VB).expect("it is a copy now");
    let newer = ReplicatedDocument { value: b"newer", ..document("a", 4) };
    let newer = ReplicatedDocument {
        version: oribi_engine::ReplicatedVersion { rev_seqno: RevSeqno(3), ..newer.version },
        ..newer
    };
    apply(&former, &[&newer], (4, true)).expect("applied");
    former.flush_step().expect("the store is sound");
    let GetOutcome::Hit(item) = get_replica(&former, key("a"), NOW) else { panic!("a hit") };
    assert_eq!((item.value(), item.seqno()), (&b"newer"[..], Seqno(4)));
}

#[test]
fn a_demotion_ends_waits_as_ambiguous() {
    let bucket = over_a_store();
    let vbucket = bucket.vbucket(VB).expect("it exists");
    let pending = bucket.context(NOW).visible(WriteVisibility::WhenStored);
    let waits = Arc::new(WaitResults::default());
    let sink: Arc<dyn PersistenceSink> = Arc::clone(&waits) as _;
    let write = |name, token| {
        let written = done(vbucket.store(&pending, key(name), &set("1")));
        (token, (written.seqno, Some(written.vb_uuid)))
    };
    let (before, after) = (write("a", 1), write("b", 2));
    assert!(!bucket.when_persisted(VB, before.1, &sink, before.0));
    bucket.become_replica(VB).expect("it is a copy now");
    // Done before the demotion, and only now it waits.
    assert!(!bucket.when_persisted(VB, after.1, &sink, after.0));
    let expected = [(1, PersistOutcome::Failed), (2, PersistOutcome::Failed)];
    assert_eq!(*waits.0.lock(), expected);
    bucket.flush_step().expect("the store is sound");
    assert_eq!(*waits.0.lock(), expected, "told once");
}

#[test]
fn versions_that_no_active_gives_out_are_rejected() {
    let (_, replica, _) = pair();
    let sound = document("a", 1);
    let with = |version| ReplicatedDocument { version, ..sound };
    let order = |seqno| Err(ApplyError::SeqnoOrder(Seqno(seqno)));
    let last = with(ReplicatedVersion { seqno: Seqno(u64::MAX), ..sound.version });
    assert_eq!(apply(&replica, &[&last], (u64::MAX, true)), order(u64::MAX));
    assert_eq!(apply(&replica, &[], (u64::MAX, true)), order(u64::MAX));
    for version in [
        ReplicatedVersion { cas: Cas(0), ..sound.version },
        ReplicatedVersion { cas: Cas(u64::MAX), ..sound.version },
        ReplicatedVersion { rev_seqno: RevSeqno(0), ..sound.version },
        ReplicatedVersion { rev_seqno: RevSeqno(u64::MAX), ..sound.version },
    ] {
        let applied = apply(&replica, &[&with(version)], (1, true));
        assert_eq!(applied, Err(ApplyError::InvalidVersion(Seqno(1))));
    }
    apply(&replica, &[&sound], (1, true)).expect("applied");
    assert_eq!(apply(&replica, &[], (0, true)), order(0), "a snapshot that ends before it begins");
    replica.promote(VB, CopiesEpoch(2)).expect("it is promoted");
    done(replica.store(VB, key("b"), &set("2"), NOW));
}

// An empty complete snapshot declared a part complete.
#[test]
fn a_part_is_complete_only_at_its_snapshots_end() {
    let (_, replica, _) = pair();
    let end = || {
        let position = replica.vbucket(VB).and_then(|it| it.replica_position());
        position.map(|it| (it.complete_end.0, it.snapshot_end.0)).expect("it is a copy")
    };
    apply(&replica, &[&document("a", 3)], (9, false)).expect("a part");
    assert_eq!(end(), (0, 9));
    apply(&replica, &[], (3, true)).expect("nothing");
    apply(&replica, &[&document("b", 5)], (5, true)).expect("still a part");
    assert_eq!(end(), (0, 9));
    apply(&replica, &[], (9, true)).expect("the end, which has no version");
    assert_eq!(end(), (9, 9));
    replica.flush_step().expect("the store is sound");
    assert_eq!(replica.vbucket(VB).map(|it| it.stats().persisted_seqno), Some(Seqno(9)));
}
