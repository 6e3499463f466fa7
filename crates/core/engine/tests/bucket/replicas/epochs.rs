//! What copies know of epochs over restarts, and the two steps of becoming active.

use std::sync::Arc;

use oribi_engine::{Bucket, CopyRoleError, GetOutcome, OperationRejection};
use oribi_storage::{MemoryMedium, MemoryStore, VbucketPhase};
use oribi_types::{CopiesEpoch, Seqno};

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
