//! What copies know of epochs over restarts, and the two steps of becoming active.

use std::sync::Arc;

use oribi_engine::dcp::{StreamEndReason, StreamFilter, StreamRequest, StreamStep};
use oribi_engine::{Bucket, CopyRoleError, GetOutcome, OperationRejection, histories};
use oribi_storage::{MemoryMedium, MemoryStore, VbucketPhase};
use oribi_types::{CopiesEpoch, Seqno};

use super::world::{Link, NoSink, assert_same, replica_request};
use super::{over_a_store, pair};
use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, set};

fn open(disk: &Arc<MemoryMedium>, is_clean: bool) -> Arc<Bucket> {
    let store = Arc::new(MemoryStore::on(Arc::clone(disk)));
    Bucket::open_copies(config(), store, entropy(), is_clean).expect("it opens")
}

fn begin(bucket: &Bucket, epoch: u64) {
    let epoch = CopiesEpoch(epoch);
    let prepared = bucket.prepare_promotion(VB, epoch).expect("a replica");
    assert_ne!(bucket.vbucket(VB).expect("it exists").phase(), VbucketPhase::Active);
    assert!(bucket.complete_promotion(VB, &prepared));
    bucket.record_epoch(VB, epoch).expect("it is stored");
}

#[test]
fn epochs_survive_a_restart_but_not_being_active() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(&disk, true);
    assert!(bucket.vbuckets().iter().all(|vbucket| vbucket.phase() == VbucketPhase::Dead));
    bucket.become_replica(VB).expect("an empty copy");
    begin(&bucket, 3);
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    bucket.flush_step().expect("the store is sound");
    bucket.promise_epoch(VB, CopiesEpoch(4)).expect("it is stored");
    bucket.promise_epoch(VB, CopiesEpoch(2)).expect("promises never go back");
    let standing = |bucket: &Bucket| bucket.vbucket(VB).expect("it exists").copy_standing();
    let before = standing(&bucket);
    assert_eq!((before.promised, before.recorded), (CopiesEpoch(4), CopiesEpoch(3)));
    assert!(before.is_intact && before.complete_end == Seqno(1));
    let histories = bucket.vbucket(VB).expect("it exists").failover_table();
    for (is_clean, is_intact) in [(true, true), (false, false), (true, false)] {
        let bucket = open(&disk, is_clean);
        while !bucket.stats().warmup.done {
            bucket.warmup_step();
        }
        let now = standing(&bucket);
        assert_eq!((now.promised, now.recorded), (before.promised, before.recorded));
        assert_eq!((now.is_intact, now.complete_end), (is_intact, Seqno(1)), "{is_clean}");
        let vbucket = bucket.vbucket(VB).expect("it exists");
        assert_eq!(vbucket.phase(), VbucketPhase::Replica);
        assert_eq!(vbucket.failover_table(), histories, "no history begins by itself");
    }
}

#[test]
fn a_copy_serves_only_after_the_second_step() {
    let bucket = open(&Arc::default(), true);
    assert!(matches!(bucket.prepare_promotion(VB, CopiesEpoch(1)), Err(CopyRoleError::NotReplica)));
    bucket.become_replica(VB).expect("an empty copy");
    let prepared = bucket.prepare_promotion(VB, CopiesEpoch(1)).expect("a replica");
    let refused = GetOutcome::Refused(OperationRejection::NotMyVbucket);
    let get = |bucket: &Bucket| format!("{:?}", bucket.get(VB, key("a"), NOW));
    assert_eq!(get(&bucket), format!("{refused:?}"));
    assert!(bucket.complete_promotion(VB, &prepared));
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    // The active copy continues where it is.
    let first = bucket.vbucket(VB).expect("it exists").failover_table();
    bucket.continue_in_epoch(VB, CopiesEpoch(2)).expect("it is active");
    bucket.continue_in_epoch(VB, CopiesEpoch(2)).expect("it is active");
    let table = bucket.vbucket(VB).expect("it exists").failover_table();
    assert_eq!(
        (table[0].epoch, table[0].seqno, &table[1..]),
        (CopiesEpoch(2), Seqno(1), &first[..])
    );
    bucket.step_down(VB);
    bucket.step_down(VB);
    assert_eq!(get(&bucket), format!("{refused:?}"));
    assert!(!bucket.complete_promotion(VB, &prepared), "the copy has changed since");
    let prepared = bucket.prepare_promotion(VB, CopiesEpoch(1)).expect("a replica");
    assert!(bucket.complete_promotion(VB, &prepared));
    assert!(matches!(bucket.get(VB, key("a"), NOW), GetOutcome::Hit(_)), "its documents stay");
}

fn store(bucket: &Bucket, name: &str) {
    done(bucket.store(VB, key(name), &set("1"), NOW));
}

// Invariant: An active that continues in another epoch keeps its history, so no copy begins afresh.
// A stream of an epoch that has ended brought changes of the next one, in which they had another
// history: the copy had to forget them, and was copied afresh.
#[test]
fn a_copy_keeps_what_it_has_in_the_next_epoch() {
    let (active, replica, mut link) = pair();
    active.continue_in_epoch(VB, CopiesEpoch(1)).expect("it is active");
    let before = active.vbucket(VB).expect("it exists").failover_table();
    for epoch in 2..30 {
        store(&active, "a");
        link.run(&active, &replica);
        active.continue_in_epoch(VB, CopiesEpoch(epoch)).expect("it is active");
        store(&active, "b");
        link.run(&active, &replica);
        drop(link);
        link = Link::open(&active, &replica).expect("the copy has nothing else");
        link.run(&active, &replica);
        assert_same(&active, &replica);
        let table = replica.vbucket(VB).expect("it exists").failover_table();
        assert_eq!((table[0].epoch, table[0].uuid), (CopiesEpoch(epoch), before[0].uuid));
        assert_eq!(table.len(), 2, "only the newest epoch is kept");
        assert_eq!(histories(&table).collect::<Vec<_>>(), [before.last().expect("a history")]);
    }
    // A copy that is promoted begins another history, and keeps none of the epochs before.
    let end = replica.vbucket(VB).expect("it exists").copy_standing().complete_end;
    active.step_down(VB);
    replica.promote(VB, CopiesEpoch(30)).expect("a replica");
    let table = replica.vbucket(VB).expect("it exists").failover_table();
    assert_eq!((table[0].epoch, table[0].seqno), (CopiesEpoch(30), end));
    assert_eq!(&table[1..], [*before.last().expect("a history")]);
    Link::open(&replica, &active).expect("it has what the new active has");
}

// Invariant: A stream that a change of role or content ends never continues.
// The reader was slow to take the end, and the stream continued in a history that its reader did
// not know of.
#[test]
fn a_stream_that_was_ended_does_not_continue() {
    for is_behind in [false, true] {
        let bucket = over_a_store();
        store(&bucket, "a");
        let request = StreamRequest { filter: StreamFilter::All, ..replica_request(&bucket) };
        let mut stream = bucket.open_stream(&request, Arc::new(NoSink), 1).expect("it is active");
        while !is_behind && !matches!(stream.next(), StreamStep::Idle) {}
        bucket.step_down(VB);
        bucket.promote(VB, CopiesEpoch(2)).expect("a replica");
        store(&bucket, "b");
        let step = stream.next();
        assert!(matches!(step, StreamStep::End(StreamEndReason::StateChanged)), "{step:?}");
    }
}

// A flush of a bucket whose vbuckets are all active here took its promises back.
#[test]
fn a_flush_keeps_what_was_promised() {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(&disk, true);
    for vbid in bucket.vbuckets().iter().map(|vbucket| vbucket.id()) {
        bucket.become_replica(vbid).expect("an empty copy");
        bucket.promote(vbid, CopiesEpoch(3)).expect("a replica");
        bucket.record_epoch(vbid, CopiesEpoch(3)).expect("it is stored");
    }
    store(&bucket, "a");
    bucket.flush_all().expect("all vbuckets are active here");
    let newest = bucket.vbucket(VB).expect("it exists").failover_table()[0];
    assert_eq!((newest.epoch, newest.seqno), (CopiesEpoch(3), Seqno(1)), "copies follow by it");
    let standing = open(&disk, true).vbucket(VB).expect("it exists").copy_standing();
    assert_eq!((standing.promised, standing.recorded), (CopiesEpoch(3), CopiesEpoch(3)));
}
