//! A store that refuses: nothing is acknowledged, nothing is lost, and everything goes on when it recovers.

use oribi_engine::{EvictionPolicy, PersistOutcome, Refused};
use oribi_storage::Fault;

use crate::{Fixture, QUOTA_BYTES, value};

const FAULTS: [Fault; 4] =
    [Fault::BeforeCommit, Fault::AfterCommit, Fault::NoSpace, Fault::Torn { dropped: 1 }];

#[test]
fn a_failed_commit_acknowledges_nothing_and_the_next_one_has_everything() {
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
        assert_eq!(fixture.write_next(), Err(Refused::TemporaryFailure), "writes do not");

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
fn a_full_disk_refuses_writes_until_there_is_space() {
    let fixture = Fixture::new(EvictionPolicy::Full);
    for _ in 0..1000 {
        fixture.write_next().expect("there is room");
    }
    fixture.bucket.flush_step().expect("the disk has space");
    fixture.plan.fail_from(fixture.plan.commits() + 1, Fault::NoSpace);
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
