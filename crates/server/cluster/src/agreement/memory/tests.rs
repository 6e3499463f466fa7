//! The faults of the agreement in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::{
    Agreement, AgreementError, RecordChange, RecordComparison, Sessions, WatchAnswer, WatchEvent,
};
use super::{LostAnswer, MemoryAgreement};

const LIMIT: Duration = Duration::from_secs(1);

fn agreement() -> (Arc<MemoryAgreement>, Arc<AtomicU64>) {
    let now_s = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_s);
    let clock = move || Duration::from_secs(clock.load(Ordering::Relaxed));
    (MemoryAgreement::new(Box::new(clock)), now_s)
}

async fn put(agreement: &MemoryAgreement, key: &str) -> Result<Option<i64>, AgreementError> {
    let absent = [RecordComparison::Absent(key.to_owned())];
    agreement.transact(&absent, &[RecordChange::put(key, "1")], LIMIT).await
}

async fn exists(agreement: &MemoryAgreement, key: &str) -> bool {
    agreement.get(key, LIMIT).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_outcome_open() {
    let (agreement, _) = agreement();
    for (lost, key, is_applied) in [
        (LostAnswer::Applied, "a", true),
        (LostAnswer::NotApplied, "b", false),
        (LostAnswer::AppliedLater, "c", false),
    ] {
        agreement.lose_answer(lost);
        let error = put(&agreement, key).await.unwrap_err();
        assert!(matches!(error, AgreementError::Unreachable { .. }), "{error}");
        assert_eq!(exists(&agreement, key).await, is_applied, "{lost:?}");
    }
    agreement.deliver_late();
    assert!(exists(&agreement, "c").await);
    // A late transaction compares when it arrives.
    agreement.lose_answer(LostAnswer::AppliedLater);
    put(&agreement, "d").await.unwrap_err();
    let first = put(&agreement, "d").await.unwrap();
    agreement.deliver_late();
    let found = agreement.get("d", LIMIT).await.unwrap().unwrap();
    assert_eq!(Some(found.mod_revision), first);
}

#[tokio::test(start_paused = true)]
async fn slow_and_absent_agreements_answer_no_request() {
    let (agreement, _) = agreement();
    agreement.set_delay(LIMIT / 2);
    assert!(put(&agreement, "a").await.unwrap().is_some());
    agreement.set_delay(LIMIT);
    put(&agreement, "b").await.unwrap_err();
    agreement.set_delay(Duration::ZERO);
    assert!(!exists(&agreement, "b").await);
    agreement.set_away(true);
    put(&agreement, "b").await.unwrap_err();
    agreement.watch("", 1, LIMIT).await.unwrap_err();
    agreement.set_away(false);
    assert!(put(&agreement, "b").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lagging_watch_reports_in_order_and_later() {
    let (agreement, _) = agreement();
    let begun = agreement.list("", LIMIT).await.unwrap().revision;
    agreement.set_watch_lag(1);
    put(&agreement, "a").await.unwrap();
    assert_eq!(agreement.watch("", begun, LIMIT).await.unwrap(), WatchAnswer::Quiet);
    put(&agreement, "b").await.unwrap();
    let seen = agreement.watch("", begun, LIMIT).await.unwrap();
    let WatchAnswer::Changes(events) = seen else { panic!("{seen:?}") };
    assert!(matches!(&events[..], [WatchEvent::Put(record)] if record.key == "a"), "{events:?}");
    agreement.set_watch_lag(0);
    let seen = agreement.watch("", events[0].revision(), LIMIT).await.unwrap();
    assert!(matches!(&seen, WatchAnswer::Changes(events) if events.len() == 1), "{seen:?}");
    agreement.compact(begun + 1);
    assert_eq!(agreement.watch("", begun, LIMIT).await.unwrap(), WatchAnswer::Compacted);
    assert!(matches!(
        agreement.watch("", begun + 1, LIMIT).await.unwrap(),
        WatchAnswer::Changes(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn sessions_end_by_the_given_clock() {
    let (agreement, now_s) = agreement();
    let session = agreement.begin_session(10, LIMIT).await.unwrap();
    let put = [RecordChange::put_in(session.id, "s", "1")];
    agreement.transact(&[], &put, LIMIT).await.unwrap().unwrap();
    now_s.store(9, Ordering::Relaxed);
    assert_eq!(agreement.renew_session(session.id, LIMIT).await.unwrap(), Some(session.ttl));
    now_s.store(18, Ordering::Relaxed);
    agreement.restart();
    now_s.store(27, Ordering::Relaxed);
    assert!(exists(&agreement, "s").await, "a restart begins the time again");
    let before = agreement.list("", LIMIT).await.unwrap().revision;
    now_s.store(28, Ordering::Relaxed);
    assert!(!exists(&agreement, "s").await);
    let seen = agreement.watch("", before, LIMIT).await.unwrap();
    let WatchAnswer::Changes(events) = seen else { panic!("{seen:?}") };
    assert!(matches!(&events[..], [WatchEvent::Deleted { key, .. }] if key == "s"));
    assert_eq!(agreement.renew_session(session.id, LIMIT).await.unwrap(), None);
    let error = agreement.transact(&[], &put, LIMIT).await.unwrap_err();
    assert!(matches!(error, AgreementError::Refused { .. }), "{error}");
}
