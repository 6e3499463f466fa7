//! A store that refuses: nothing is acknowledged, nothing is lost, and everything continues when it
//! recovers.

use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    EvictionPolicy, MutationOutcome, OperationRejection, PersistOutcome, StoreOperation,
};
use oribi_storage::StoreFault;
use oribi_types::{Cas, Timestamp};

use crate::faults::{Fixture, NOW, QUOTA_BYTES, key, place, value};
use crate::operations_by_vbid::OperationsByVbid;

const FAULTS: [StoreFault; 4] = [
    StoreFault::BeforeCommit,
    StoreFault::AfterCommit,
    StoreFault::NoSpace,
    StoreFault::Torn { dropped: 1 },
];

// Invariant: A storage error acknowledges nothing, and only a success of the failed operation ends
// the refusal of writes.
#[test]
fn a_failed_commit_is_repeated_whole_by_the_next() {
    for fault in FAULTS {
        let fixture = Fixture::new(EvictionPolicy::Value);
        for number in 0..20 {
            let mutation = fixture.write_next().expect("there is room");
            assert!(!fixture.wait_for(number, &mutation), "nothing is durable yet");
        }
        fixture.plan.fail_commit(fixture.plan.commits() + 1, fault);
        fixture.bucket.flush_step().expect_err("the commit fails");
        let told = fixture.told();
        assert_eq!(told.len(), 20, "{fault:?}: everyone who waits is told");
        assert!(told.iter().all(|(_, outcome)| *outcome == PersistOutcome::Failed));
        assert!(fixture.bucket.vbuckets().iter().all(|vbucket| vbucket.persisted_seqno().0 == 0));
        assert!((0..20).all(|number| fixture.read(number).is_some()), "reads go on");
        assert_eq!(
            fixture.write_next(),
            Err(OperationRejection::TemporaryFailure),
            "writes do not"
        );

        let report = fixture.bucket.flush_step().expect("the store works again");
        assert_eq!(report.items, 20, "{fault:?}: the same documents are written again");
        fixture.bucket.review_pressure();
        let mutation = fixture.write_next().expect("writes are taken again");
        assert!(!fixture.wait_for(20, &mutation));
        fixture.bucket.flush_step().expect("the store works");
        assert_eq!(fixture.told(), [(20, PersistOutcome::Persisted)]);
    }
}

#[test]
fn a_flush_that_the_store_refuses_keeps_documents() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let fixture = Fixture::new(eviction);
        for _ in 0..40 {
            fixture.write_next().expect("there is room");
        }
        fixture.bucket.flush_step().expect("the store works");
        let histories = || fixture.bucket.vbuckets().iter().map(|it| it.uuid()).collect::<Vec<_>>();
        let before = histories();
        fixture.plan.fail_other_writes(true);
        fixture.bucket.flush_all().expect_err("the store fails");
        assert!((0..40).all(|number| fixture.read_fetching(number).is_some()), "{eviction:?}");
        assert_eq!(histories(), before, "the histories continue");
        fixture.plan.fail_other_writes(false);
        fixture.bucket.flush_all().expect("the store works again");
        assert!((0..40).all(|number| fixture.read_fetching(number).is_none()), "{eviction:?}");
        assert!(histories().iter().zip(&before).all(|(now, before)| now != before));
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let fixture = Fixture::new(EvictionPolicy::Full);
    for _ in 0..1000 {
        fixture.write_next().expect("there is room");
    }
    fixture.bucket.flush_step().expect("the disk has space");
    fixture.plan.fail_from(fixture.plan.commits() + 1, StoreFault::NoSpace);
    fixture.write_next().expect("there is room in memory");
    let mut taken = 0;
    for _ in 0..5000 {
        fixture.upkeep();
        taken += u64::from(fixture.write_next().is_ok());
    }
    assert_eq!(taken, 0, "no write is taken while nothing can be made durable");
    let used = fixture.bucket.stats().mem_used_bytes();
    assert!(used <= QUOTA_BYTES, "{used} bytes");
    assert!((0..1001).all(|number| fixture.read_fetching(number) == Some(value(number, 1000))));

    fixture.plan.heal();
    fixture.upkeep();
    fixture.write_next().expect("writes are taken when space returns");
    fixture.bucket.flush_step().expect("and made durable");
    let count = fixture.written.load(std::sync::atomic::Ordering::Relaxed);
    assert!((0..count).all(|number| fixture.read_fetching(number).is_some()));
}

/// Issue 18, item 8: a failed purge of a dropped collection refused writes until a restart, because
/// only a commit ended that, and there was nothing to commit.
#[test]
fn a_failed_purge_without_writes_lets_writes_resume() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    let scope = "s".to_owned();
    let name = "c".to_owned();
    let (max_ttl_s, create) = (None, ManifestChange::CreateScope { name: scope.clone() });
    let collection =
        ManifestChange::CreateCollection { scope: scope.clone(), name: name.clone(), max_ttl_s };
    let drop = ManifestChange::DropCollection { scope, name };
    for change in [create, collection, drop] {
        fixture.bucket.update_manifest(&change).expect("the store is sound");
    }
    fixture.plan.fail_other_writes(true);
    for _ in 0..3 {
        fixture.bucket.flush_step().expect_err("the purge fails");
        assert_eq!(
            fixture.write_next(),
            Err(OperationRejection::TemporaryFailure),
            "writes are refused"
        );
    }
    let failed = fixture.bucket.stats().failed;
    assert_eq!(failed.iter().collect::<Vec<_>>(), [StoreOperation::CollectionPurge]);

    fixture.plan.heal();
    fixture.bucket.flush_step().expect("the store is sound again");
    assert_eq!(fixture.bucket.stats().failed.iter().count(), 0);
    fixture.write_next().expect("writes are taken again");
}

/// The purge can end while commits still fail, and the other way round.
#[test]
fn each_operation_ends_its_own_failure() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    fixture.write_next().expect("there is room");
    fixture.plan.fail_from(fixture.plan.commits() + 1, StoreFault::NoSpace);
    fixture.bucket.flush_step().expect_err("the commit fails");
    let change = ManifestChange::CreateScope { name: "s".to_owned() };
    fixture.bucket.update_manifest(&change).expect("only commits fail");
    fixture.bucket.flush_step().expect_err("the commit fails");
    assert_eq!(
        fixture.write_next(),
        Err(OperationRejection::TemporaryFailure),
        "writes are refused"
    );
    fixture.plan.heal();
    fixture.upkeep();
    fixture.write_next().expect("writes are taken again");
}

#[test]
fn a_commit_ends_a_failed_change_of_the_manifest() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    fixture.plan.fail_other_writes(true);
    let change = ManifestChange::CreateScope { name: "s".to_owned() };
    fixture.bucket.update_manifest(&change).expect_err("the store fails");
    assert!(fixture.bucket.stats().failed.has(StoreOperation::Manifest));
    fixture.write_next().expect("the failure of a change refuses no writes");
    fixture.bucket.flush_step().expect("commits are taken");
    assert_eq!(fixture.bucket.stats().failed.iter().count(), 0, "the store takes writes");

    fixture.bucket.update_manifest(&change).expect_err("the store fails");
    let commits = fixture.plan.commits();
    fixture.bucket.flush_step().expect("with nothing to write");
    assert_eq!(fixture.plan.commits(), commits + 1, "the flusher has tried");
    assert_eq!(fixture.bucket.stats().failed.iter().count(), 0);
}

#[test]
fn a_failed_tombstone_purge_is_retried() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    let age_s = u64::from(fixture.bucket.config().upkeep.tombstone_purge_age_s);
    for number in 0..4 {
        fixture.write(number, 10).expect("there is room");
        let (vbid, name) = place(number);
        let removed = fixture.bucket.delete(vbid, key(&name), Cas(0), NOW);
        assert!(matches!(removed, MutationOutcome::Done(_)), "{removed:?}");
    }
    fixture.bucket.flush_step().expect("the store is sound");
    let after = |seconds: u64| Timestamp { unix_ns: NOW.unix_ns + seconds * 1_000_000_000 };
    // One step for each vbucket.
    let pass = |now: Timestamp| {
        (0..4).filter(|_| fixture.bucket.purge_tombstones_step(&|| now).is_err()).count()
    };
    assert_eq!(pass(NOW), 0, "it is not time yet");
    fixture.plan.fail_other_writes(true);
    assert_eq!(pass(after(2 * age_s)), 4);
    assert!(fixture.bucket.stats().failed.has(StoreOperation::TombstonePurge));
    fixture.write_next().expect("writes are taken");
    fixture.plan.heal();
    assert_eq!(pass(after(2 * age_s + 61)), 0);
    assert_eq!(fixture.bucket.stats().failed.iter().count(), 0, "a minute later all is well");
}
