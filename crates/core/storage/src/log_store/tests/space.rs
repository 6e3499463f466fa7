//! Space: whatever is overwritten, and however long it is, the log stays within its bound.

use super::super::compaction::RESERVE_BYTES;
use super::super::planted::Bug;
use super::super::sim_files::SimDirectory;
use super::super::{CompactionStep, LogOptions, LogStore};
use crate::conformance::fixture::{OwnedFields, batch, state};
use crate::{KvStore, SeededRandom, StoreMaintenance, VbucketState};
use oribi_types::{CollectionId, Seqno, Vbid};
use std::ops::ControlFlow;

/// Keys of which most are overwritten again and again, and of which hardly any is.
const KEYS: u64 = 600;
const MANY_KEYS: u64 = 60_000;
const COMMITS: u64 = 400;
const RECORDS_PER_COMMIT: usize = 20;
const SEGMENT_BYTES: u64 = 64 << 10;
/// Overhead of a record besides its key and value, with a share of frames and roots.
const OVERHEAD_BYTES: u64 = 64;

/// Overwrites documents as `choose` says, which gives a key and a length. Returns the largest log
/// beyond twice what counts, in segments.
fn overwrite(choose: fn(&mut SeededRandom) -> (u64, usize)) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    let options = LogOptions { segment_bytes: SEGMENT_BYTES, ..LogOptions::default() };
    let store = LogStore::open(directory.path(), options).expect("the store opens");
    let mut random = SeededRandom::new(3);
    let mut lengths = vec![0u64; MANY_KEYS as usize];
    let mut most = 0.0f64;
    for commit in 1..=COMMITS {
        let mut records: Vec<OwnedFields> = Vec::new();
        while records.len() < RECORDS_PER_COMMIT {
            let (number, length) = choose(&mut random);
            let key = format!("key-{number:06}").into_bytes();
            if records.iter().all(|kept| kept.key != key) {
                let seqno = commit * 1000 + records.len() as u64;
                records.push(OwnedFields::document(seqno, &key, &vec![commit as u8; length]));
                lengths[number as usize] = length as u64 + 10 + OVERHEAD_BYTES;
            }
        }
        let state = state(commit * 1000 + 999);
        store.commit(&[batch(Vbid(1), &records, state)]).expect("committed");
        let live: u64 = lengths.iter().sum();
        let beyond = store.sizes().log_bytes as f64 - 2.0 * live as f64;
        most = most.max(beyond / SEGMENT_BYTES as f64);
    }
    let written = COMMITS * RECORDS_PER_COMMIT as u64;
    assert_eq!(store.stats().records_committed, written);
    most
}

#[test]
fn overwrites_of_any_key_stay_within_the_bound() {
    let most = overwrite(|random| (random.below(KEYS), 600));
    assert!(most <= 2.0, "{most} segments beyond twice the data");
}

/// Nearly everything that is written is garbage soon, among data that never changes.
#[test]
fn overwrites_of_hot_keys_stay_within_the_bound() {
    let most = overwrite(|random| match random.below(20) {
        0 => (random.below(KEYS), 600),
        _ => (random.below(KEYS / 20), 600),
    });
    assert!(most <= 2.0, "{most} segments beyond twice the data");
}

/// The garbage is in few long records, which a count of records would not see.
#[test]
fn overwrites_of_mixed_lengths_stay_within_the_bound() {
    let most = overwrite(|random| match random.below(20) {
        0..18 => (20 + random.below(MANY_KEYS - 20), 20),
        _ => (random.below(20), 12_000),
    });
    assert!(most <= 2.0, "{most} segments beyond twice the data");
}

/// The rest of the disk belongs to commits.
#[test]
fn compaction_leaves_the_last_space_to_commits() {
    let files = SimDirectory::new(1);
    let options = LogOptions { segment_bytes: 4096, ..LogOptions::default() };
    let store = LogStore::open_simulated(&files, false, &options, Bug::None).expect("opened");
    let write = |seqno: u64| {
        // One key that stays and one that is overwritten, so that moving needs space.
        let kept = [
            OwnedFields::document(2 * seqno, format!("key-{seqno}").as_bytes(), b"stays"),
            OwnedFields::document(2 * seqno + 1, b"hot", &[seqno as u8; 500]),
        ];
        store.commit(&[batch(Vbid(0), &kept, state(2 * seqno + 1))]).expect("committed");
    };
    (1..100).for_each(write);
    files.say_free(Some(RESERVE_BYTES - 1));
    assert_eq!(store.compaction_step().expect("a step"), CompactionStep::NoSpace);
    (100..110).for_each(write);
    files.say_free(Some(RESERVE_BYTES));
    let step = store.compaction_step().expect("a step");
    assert!(
        matches!(step, CompactionStep::Moved { .. } | CompactionStep::Removed { .. }),
        "{step:?}"
    );
}

// A prepare stayed in the log until the next durable write of its key.
#[test]
fn space_of_completed_prepares_comes_back() {
    let files = SimDirectory::new(3);
    let options = LogOptions { segment_bytes: 4096, garbage_percent: 99, ..LogOptions::default() };
    let store = LogStore::open_simulated(&files, false, &options, Bug::None).expect("opened");
    let prepares = CollectionId::PREPARES.0;
    let up_to = |completed| VbucketState { high_completed_seqno: Seqno(completed), ..state(100) };
    for seqno in 1..=100 {
        let key = format!("key-{seqno}");
        let prepare =
            OwnedFields::document(seqno, key.as_bytes(), &[7; 500]).in_collection(prepares);
        store.commit(&[batch(Vbid(0), &[prepare], up_to(0))]).expect("committed");
    }
    let shrink = || {
        store.request_compaction();
        while store.compaction_step().expect("a step") != CompactionStep::Idle {}
        store.sizes()
    };
    assert_eq!(store.forget_prepares(Vbid(0)).expect("read"), 0, "all of them are open");
    let before = shrink();
    assert_eq!(before.keys, 100);
    let abort = OwnedFields::tombstone(90, b"key-90", 5).in_collection(prepares);
    store.commit(&[batch(Vbid(0), &[abort], up_to(95))]).expect("committed");
    let (reads, bytes) = files.reads();
    assert_eq!(store.forget_prepares(Vbid(0)).expect("read"), 94);
    let header_bytes = 56;
    let read = (files.reads().0 - reads, files.reads().1 - bytes);
    assert_eq!(read, (99, 99 * header_bytes), "no value is read");
    assert_eq!(store.forget_prepares(Vbid(0)).expect("read"), 0);
    let after = shrink();
    assert!(after.log_bytes * 5 < before.log_bytes, "{before:?} {after:?}");
    assert_eq!(after.keys, 6, "five open ones and the abort");
    drop(store);
    let store = LogStore::open_simulated(&files, true, &options, Bug::None).expect("opened");
    let mut open = Vec::new();
    let found = crate::load_all(&store, &mut |_, record| {
        open.push(record.seqno.0);
        ControlFlow::Continue(())
    });
    found.expect("it loads");
    open.retain(|seqno| *seqno > 95);
    open.sort_unstable();
    assert_eq!(open, [96, 97, 98, 99, 100], "open prepares stay");
}

/// Far below the limit of garbage nothing is compacted by itself; once a client asks, the log ends
/// close to what counts, and the next step has nothing to do.
#[test]
fn compaction_on_request_does_not_wait_for_the_limit() {
    let files = SimDirectory::new(2);
    let options = LogOptions { segment_bytes: 4096, garbage_percent: 99, ..LogOptions::default() };
    let store = LogStore::open_simulated(&files, false, &options, Bug::None).expect("opened");
    for seqno in 1..100 {
        // One in four stays, so that no segment is empty by itself.
        let key = if seqno % 4 == 0 { format!("key-{seqno}") } else { "hot".to_owned() };
        let kept = [OwnedFields::document(seqno, key.as_bytes(), &[7; 500])];
        store.commit(&[batch(Vbid(0), &kept, state(seqno))]).expect("committed");
    }
    // Segments of which nothing counts any more go at once.
    while store.compaction_step().expect("a step") != CompactionStep::Idle {}
    let before = store.sizes();
    assert!(before.garbage_bytes > 1000, "{before:?}");
    store.request_compaction();
    while store.compaction_step().expect("a step") != CompactionStep::Idle {}
    let after = store.sizes();
    assert!(after.garbage_bytes * 10 <= after.log_bytes * 2, "{after:?}");
    assert!(after.log_bytes < before.log_bytes, "{before:?} {after:?}");
    assert_eq!(after.keys, 25);
    assert_eq!(store.compaction_step().expect("a step"), CompactionStep::Idle);
}
