//! Work that no client waits for: expired documents, old tombstones, and queues that take too much.

use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::{Bucket, GetOutcome, MutationOutcome, OperationRejection, StoreRequest, Upkeep};
use oribi_storage::{KvStore, MemoryStore, VbucketState, unlimited};
use oribi_types::{Cas, DocKey, Seqno, Timestamp, Vbid};

use super::{NOW, VB, config, done, entropy, key, set};
use crate::operations_by_vbid::OperationsByVbid;

const MINUTE_S: u32 = 60;

fn at(seconds_later: u32) -> Timestamp {
    Timestamp::from_unix_s(NOW.unix_s() + seconds_later)
}

fn open_with(store: &Arc<MemoryStore>, upkeep: Upkeep, quota: u64) -> Arc<Bucket> {
    let config = oribi_engine::BucketConfig { upkeep, memory_quota_bytes: quota, ..config() };
    let store: Arc<dyn KvStore> = Arc::clone(store) as Arc<dyn KvStore>;
    Bucket::open(config, store, entropy(), false).expect("a fresh bucket opens")
}

fn stored_state(store: &MemoryStore) -> VbucketState {
    let states = store.vbucket_states().expect("it is in memory");
    states.into_iter().find(|(vbid, _)| *vbid == VB).expect("it was committed").1
}

/// Runs the expiry pager until it has nothing to do; documents deleted.
fn expire(bucket: &Bucket, now: Timestamp) -> usize {
    let mut expired = 0;
    loop {
        let report = bucket.expiry_pager_step(&|| now);
        expired += report.expired;
        if !report.more {
            return expired;
        }
    }
}

// Compat (Differences): Expired documents
#[test]
fn unread_documents_expire() {
    let store = Arc::new(MemoryStore::new());
    let bucket = open_with(&store, Upkeep::default(), 1 << 30);
    assert_eq!(expire(&bucket, NOW), 0, "the first look begins the first interval");
    for n in 0..5000 {
        let expiry = if n % 2 == 0 { 30 } else { 0 };
        let request = StoreRequest { expiry, ..set("1") };
        done(bucket.store(Vbid(n % 4), key(&format!("k{n}")), &request, NOW));
    }
    assert_eq!(expire(&bucket, at(9 * MINUTE_S)), 0, "it is not time");
    assert_eq!(expire(&bucket, at(10 * MINUTE_S)), 2500);
    assert_eq!(expire(&bucket, at(10 * MINUTE_S)), 0, "the pass is over");
    let (stats, vbucket) = (bucket.stats(), bucket.vbucket(Vbid(0)).unwrap().stats());
    assert_eq!((stats.items, stats.tombstones), (2500, 2500));
    assert_eq!((vbucket.expired, vbucket.ops_delete), (1250, 0));
    bucket.flush_step().unwrap();
    assert_eq!(bucket.stats().tombstones, 0, "the store has them");
    assert!(matches!(bucket.get(Vbid(1), key("k1"), at(0)), GetOutcome::Hit(_)));
    let again = StoreRequest { expiry: 30, ..set("1") };
    done(bucket.store(VB, key("again"), &again, at(10 * MINUTE_S)));
    assert_eq!(expire(&bucket, at(20 * MINUTE_S)), 1, "the next pass");
}

/// The pass stood still for ever at documents that could not be deleted, here of a dropped
/// collection: those of all later vbuckets stayed.
#[test]
fn a_failed_deletion_does_not_end_the_pass() {
    let store = Arc::new(MemoryStore::new());
    let bucket = open_with(&store, Upkeep::default(), 1 << 30);
    expire(&bucket, NOW);
    let expiring = StoreRequest { expiry: 30, ..set("1") };
    let scope = || "_default".to_owned();
    let name = || "c".to_owned();
    let create = ManifestChange::CreateCollection { scope: scope(), name: name(), max_ttl_s: None };
    let manifest = bucket.update_manifest(&create).unwrap();
    let collection = manifest.collection_id("_default", "c").unwrap();
    done(bucket.store(Vbid(0), DocKey { collection, key: b"a" }, &expiring, NOW));
    done(bucket.store(Vbid(3), key("b"), &expiring, NOW));
    let drop = ManifestChange::DropCollection { scope: scope(), name: name() };
    bucket.update_manifest(&drop).unwrap();
    assert_eq!(expire(&bucket, at(10 * MINUTE_S)), 1, "that of the last vbucket");
    assert_eq!(expire(&bucket, at(20 * MINUTE_S)), 0, "a pass of its own");
}

#[test]
fn an_interval_of_nothing_is_never() {
    let store = Arc::new(MemoryStore::new());
    let upkeep = Upkeep { expiry_pager_interval_s: 0, ..Upkeep::default() };
    let bucket = open_with(&store, upkeep, 1 << 30);
    done(bucket.store(VB, key("a"), &StoreRequest { expiry: 1, ..set("1") }, NOW));
    assert_eq!(expire(&bucket, NOW) + expire(&bucket, at(1 << 20)), 0);
}

/// Runs the purge until it has nothing to do; the highest seqno that was removed.
fn purge(bucket: &Bucket, now: Timestamp) -> Option<Seqno> {
    let mut purged = None;
    loop {
        let report = bucket.purge_tombstones_step(&|| now).expect("it is in memory");
        purged = purged.max(report.purged);
        if !report.more {
            return purged;
        }
    }
}

#[test]
fn old_tombstones_leave_the_store() {
    let store = Arc::new(MemoryStore::new());
    let upkeep = Upkeep { tombstone_purge_age_s: 1000, ..Upkeep::default() };
    let bucket = open_with(&store, upkeep, 1 << 30);
    assert_eq!(purge(&bucket, NOW), None, "the first look begins the first interval");
    for name in ["a", "b", "c"] {
        done(bucket.store(VB, key(name), &set("1"), NOW));
    }
    done(bucket.delete(VB, key("a"), Cas(0), NOW));
    done(bucket.delete(VB, key("b"), Cas(0), at(2000)));
    bucket.flush_step().unwrap();
    assert_eq!(purge(&bucket, at(900)), None, "the tombstones are too young");
    assert_eq!(bucket.vbucket(VB).unwrap().stats().purge_seqno, Seqno(0));
    assert_eq!(purge(&bucket, at(1500)), Some(Seqno(4)), "that of the first deletion");
    let stats = bucket.vbucket(VB).unwrap().stats();
    assert_eq!((stats.purge_seqno, stats.high_seqno), (Seqno(4), Seqno(5)));
    let state = stored_state(&store);
    assert_eq!((state.purge_seqno, state.high_seqno), (Seqno(4), Seqno(5)));
    assert!(!store.get(VB, key("a"), &mut unlimited, &mut |_| {}).unwrap());
    assert!(store.get(VB, key("b"), &mut unlimited, &mut |_| {}).unwrap());
    // What is flushed after that says so, too.
    done(bucket.store(VB, key("d"), &set("1"), at(1500)));
    bucket.flush_step().unwrap();
    assert_eq!(stored_state(&store).purge_seqno, Seqno(4));
    assert!(matches!(bucket.get(VB, key("a"), at(1500)), GetOutcome::Miss));
    let runs = bucket.task_stats().into_iter().find(|task| task.name == "tombstone_purge");
    assert_eq!(runs.unwrap().runs, 2, "vbuckets without deletions are not looked at");
}

#[test]
fn full_queues_refuse_writes_until_they_are_flushed() {
    let store = Arc::new(MemoryStore::new());
    let bucket = open_with(&store, Upkeep::default(), 4 << 20);
    assert_eq!(bucket.checkpoint_quota_bytes() / 1000, (4 << 20) / 5 / 1000);
    let value = "v".repeat(1000);
    let write = |n| bucket.store(VB, key(&format!("k{n}")), &set(&value), NOW);
    let refused = (0..1000).map(write).find(|outcome| !matches!(outcome, MutationOutcome::Done(_)));
    assert_eq!(refused, Some(MutationOutcome::Refused(OperationRejection::TemporaryFailure)));
    let queued = bucket.stats().queue_bytes as u64;
    let quota = bucket.checkpoint_quota_bytes();
    assert!((quota..quota + quota / 10).contains(&queued), "{queued} of {quota}: without a review");
    let report = bucket.recover_checkpoints_step();
    assert!(report.bytes_before == queued && report.bytes_after >= queued, "nothing was read yet");
    while bucket.flush_step().unwrap().more {}
    done(bucket.store(VB, key("more"), &set("1"), NOW));
    let report = bucket.recover_checkpoints_step();
    assert_eq!((report.bytes_before, report.cursors_dropped), (report.bytes_after, 0));
    assert!(report.bytes_after < 10_000, "{report:?}");
}
