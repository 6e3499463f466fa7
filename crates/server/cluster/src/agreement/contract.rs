//! Guarantees of every agreement, tested on each implementation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oribi_config::EtcdSettings;
use oribi_testkit::EtcdServer;

use super::memory::MemoryAgreement;
use super::{
    Agreement, AgreementError, Etcd, RecordChange, RecordComparison, SessionId, Sessions,
    WatchAnswer, WatchEvent,
};

const LIMIT: Duration = Duration::from_secs(20);
/// Time for a watch that reports nothing.
const QUIET: Duration = Duration::from_millis(50);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn put(agreement: &dyn Sessions, key: &str, value: &str) -> i64 {
    let put = [RecordChange::put(key, value)];
    agreement.transact(&[], &put, LIMIT).await.unwrap().expect("no comparison fails")
}

async fn next_events(agreement: &dyn Sessions, prefix: &str, revision: i64) -> Vec<WatchEvent> {
    match agreement.watch(prefix, revision, LIMIT).await.unwrap() {
        WatchAnswer::Changes(events) => events,
        other => panic!("{other:?}"),
    }
}

/// Events until there are as many, however the agreement divides them.
async fn events(agreement: &dyn Sessions, revision: i64, count: usize) -> Vec<WatchEvent> {
    let mut seen: Vec<WatchEvent> = Vec::new();
    while seen.len() < count {
        let after = seen.last().map_or(revision, WatchEvent::revision);
        seen.extend(next_events(agreement, "/c/", after).await);
    }
    seen
}

async fn transactions_compare_and_set(agreement: &dyn Sessions) {
    let key = || "/c/t".to_owned();
    let put = |value: &str| [RecordChange::put(key(), value)];
    let absent = [RecordComparison::Absent(key())];
    let created = agreement.transact(&absent, &put("1"), LIMIT).await.unwrap().unwrap();
    assert_eq!(agreement.transact(&absent, &put("2"), LIMIT).await.unwrap(), None);
    let at_creation =
        [RecordComparison::ModifiedAt(key(), created), RecordComparison::CreatedAt(key(), created)];
    let changed = agreement.transact(&at_creation, &put("3"), LIMIT).await.unwrap().unwrap();
    assert!(changed > created);
    assert_eq!(agreement.transact(&at_creation, &put("4"), LIMIT).await.unwrap(), None);
    let found = agreement.get("/c/t", LIMIT).await.unwrap().unwrap();
    assert_eq!((found.create_revision, found.mod_revision), (created, changed));
    assert_eq!((found.value.as_slice(), found.session), (&b"3"[..], None));
    for missing in [
        RecordComparison::HasValue(key(), b"1".to_vec()),
        RecordComparison::ModifiedAt("/c/none".to_owned(), changed),
        RecordComparison::HasValue("/c/none".to_owned(), Vec::new()),
    ] {
        assert_eq!(agreement.transact(&[missing], &put("5"), LIMIT).await.unwrap(), None);
    }
    // All or none.
    let both = [
        RecordComparison::HasValue(key(), b"3".to_vec()),
        RecordComparison::Absent("/c/u".to_owned()),
    ];
    let change = [RecordChange::delete(key()), RecordChange::put("/c/u", Vec::new())];
    agreement.transact(&both, &change, LIMIT).await.unwrap().unwrap();
    assert_eq!(agreement.get("/c/t", LIMIT).await.unwrap(), None);
    assert_eq!(agreement.transact(&both, &change, LIMIT).await.unwrap(), None);
    let again = [RecordChange::delete("/c/u"), RecordChange::delete("/c/none")];
    agreement.transact(&[], &again, LIMIT).await.unwrap().unwrap();
}

async fn lists_are_ordered_and_of_one_revision(agreement: &dyn Sessions) {
    put(agreement, "/c/l/b", "").await;
    put(agreement, "/c/l0", "outside").await;
    let last = put(agreement, "/c/l/a", "1").await;
    let list = agreement.list("/c/l/", LIMIT).await.unwrap();
    let keys: Vec<&str> = list.records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["/c/l/a", "/c/l/b"]);
    assert!(list.revision >= last);
    assert!(list.records.iter().all(|record| record.mod_revision <= list.revision));
}

async fn watches_report_every_change_in_order(agreement: &dyn Sessions) {
    let begun = agreement.list("/c/", LIMIT).await.unwrap().revision;
    assert_eq!(agreement.watch("/c/", begun, QUIET).await.unwrap(), WatchAnswer::Quiet);
    let first = put(agreement, "/c/w", "1").await;
    put(agreement, "/d/other", "1").await;
    let second = put(agreement, "/c/w", "2").await;
    let delete = [RecordChange::delete("/c/w")];
    let third = agreement.transact(&[], &delete, LIMIT).await.unwrap().unwrap();
    let seen = events(agreement, begun, 3).await;
    let revisions: Vec<i64> = seen.iter().map(WatchEvent::revision).collect();
    assert_eq!(revisions, [first, second, third]);
    assert!(matches!(&seen[1], WatchEvent::Put(record) if record.value == b"2"), "{seen:?}");
    assert!(matches!(&seen[2], WatchEvent::Deleted { key, .. } if key == "/c/w"), "{seen:?}");
    // A watch that waits is woken.
    let waiting = next_events(agreement, "/c/", third);
    let (seen, _) = tokio::join!(waiting, put(agreement, "/c/w", "3"));
    assert!(matches!(&seen[..], [WatchEvent::Put(record)] if record.value == b"3"), "{seen:?}");
}

async fn keys_end_with_their_session(agreement: &dyn Sessions) {
    let grant = agreement.begin_session(60, LIMIT).await.unwrap();
    assert_eq!(agreement.renew_session(grant.id, LIMIT).await.unwrap(), Some(grant.ttl));
    let change = [RecordChange::put_in(grant.id, "/c/s", "1"), RecordChange::put("/c/kept", "1")];
    agreement.transact(&[], &change, LIMIT).await.unwrap().unwrap();
    let found = agreement.get("/c/s", LIMIT).await.unwrap().unwrap();
    assert_eq!(found.session, Some(grant.id));
    agreement.end_session(grant.id, LIMIT).await.unwrap();
    assert_eq!(agreement.get("/c/s", LIMIT).await.unwrap(), None);
    assert!(agreement.get("/c/kept", LIMIT).await.unwrap().is_some());
    assert_eq!(agreement.renew_session(grant.id, LIMIT).await.unwrap(), None);
    agreement.end_session(grant.id, LIMIT).await.unwrap();
    agreement.end_session(SessionId(4711), LIMIT).await.unwrap();
    let late = agreement.transact(&[], &change, LIMIT).await.unwrap_err();
    assert!(matches!(late, AgreementError::Refused { .. }), "{late}");
}

async fn check(agreement: &dyn Sessions) {
    transactions_compare_and_set(agreement).await;
    lists_are_ordered_and_of_one_revision(agreement).await;
    watches_report_every_change_in_order(agreement).await;
    keys_end_with_their_session(agreement).await;
}

#[test]
fn the_agreement_in_memory_keeps_the_contract() {
    let now_s = Arc::new(AtomicU64::new(0));
    let agreement =
        MemoryAgreement::new(Box::new(move || Duration::from_secs(now_s.load(Ordering::Relaxed))));
    runtime().block_on(check(&*agreement));
    let revision = runtime().block_on(agreement.list("", LIMIT)).unwrap().revision;
    agreement.compact(revision);
    let watched = runtime().block_on(agreement.watch("", 1, LIMIT)).unwrap();
    assert_eq!(watched, WatchAnswer::Compacted);
}

#[test]
fn etcd_keeps_the_contract() {
    let Some(server) = EtcdServer::start_for_test() else { return };
    let settings = EtcdSettings { urls: vec![server.url()], ..EtcdSettings::default() };
    let etcd = Etcd::new(&settings).unwrap();
    runtime().block_on(check(&etcd));
    let revision = runtime().block_on(etcd.list("/", LIMIT)).unwrap().revision;
    runtime().block_on(etcd.compact(revision, LIMIT)).unwrap();
    let watched = runtime().block_on(etcd.watch("/c/", 1, LIMIT)).unwrap();
    assert_eq!(watched, WatchAnswer::Compacted);
}
