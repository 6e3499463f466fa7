//! Several logs in one store: which commits meet in one, and what each keeps to itself.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use oribi_types::Vbid;

use super::super::planted::Bug;
use super::super::sim_files::{SimDirectory, Trouble};
use super::super::{LogOptions, LogStore, Packing};
use super::driver::options;
use crate::conformance::fixture::{OwnedFields, batch, commit, get, scan_keys, state};
use crate::{KvStore, LoadValues, LookupResult, StoreError, StoreMaintenance};

const LOGS: usize = 3;
const VBUCKETS: u16 = 7;

fn several() -> LogOptions {
    LogOptions { logs: LOGS, ..options() }
}

fn open(files: &SimDirectory, is_made: bool) -> Result<LogStore, StoreError> {
    LogStore::open_simulated(files, is_made, &several(), Bug::None)
}

fn kept(vbid: u16, seqno: u64) -> OwnedFields {
    OwnedFields::document(seqno, format!("{vbid}-{seqno}").as_bytes(), b"value")
}

/// One document in each vbucket, in one commit.
fn commit_to_all(store: &LogStore, seqno: u64) -> Result<(), StoreError> {
    let kept: Vec<OwnedFields> = (0..VBUCKETS).map(|vbid| kept(vbid, seqno)).collect();
    let batches = (0..)
        .zip(&kept)
        .map(|(vbid, one)| batch(Vbid(vbid), std::slice::from_ref(one), state(seqno)));
    store.commit(&batches.collect::<Vec<_>>())
}

#[test]
fn a_commit_of_several_groups_is_a_frame_in_each_log() {
    let files = SimDirectory::new(1);
    let store = open(&files, false).expect("a new store");
    assert_eq!(store.properties().commit_groups, LOGS);
    let before = files.steps();
    commit(&store, Vbid(0), &[kept(0, 1)]);
    let of_one = files.steps() - before;
    commit_to_all(&store, 2).expect("committed");
    assert_eq!(files.steps() - before, of_one * (1 + LOGS as u64), "a write and a sync each");
    let stats = store.stats();
    assert_eq!((stats.commits, stats.records_committed, stats.last_commit_records), (2, 8, 7));
    store.commit(&[]).expect("nothing to do");
    drop(store);

    for log in 0..LOGS {
        let name = format!("log-{log:02}/0000000001.log");
        let content = files.content(&name);
        for vbid in 0..VBUCKETS {
            let is_in = content.windows(3).any(|bytes| bytes == format!("{vbid}-2").as_bytes());
            assert_eq!(is_in, usize::from(vbid) % LOGS == log, "{vbid} in {name}");
        }
    }
    let store = open(&files, true).expect("it opens");
    assert!(store.properties().ended_in_order);
    assert_eq!(store.vbucket_states().expect("read").len(), usize::from(VBUCKETS));
    for vbid in 1..VBUCKETS {
        assert_eq!(scan_keys(&store, Vbid(vbid)), [kept(vbid, 2)]);
    }
}

// Invariant: In a store of several logs a vbucket stays in one log, and each log fails and recovers
// by itself.
/// The commit stops at the log that fails: those before it have their parts, those behind have not.
#[test]
fn a_log_that_fails_keeps_no_other_from_working() {
    let files = SimDirectory::new(1);
    let store = open(&files, false).expect("a new store");
    commit_to_all(&store, 1).expect("committed");
    files.plan(4, Trouble::Failure);
    let error = commit_to_all(&store, 2).expect_err("the sync of the second log fails");
    assert!(matches!(error, StoreError::Io(_)), "{error}");
    assert!(error.to_string().contains("log-01: 0000000001.log"), "{error}");
    for vbid in 0..VBUCKETS {
        let is_there = usize::from(vbid) % LOGS == 0;
        assert_eq!(get(&store, Vbid(vbid), kept(vbid, 2).doc_key()).is_some(), is_there, "{vbid}");
    }
    commit_to_all(&store, 3).expect("the log that failed recovers");
    let stats = store.stats();
    assert_eq!((stats.commits, stats.commit_failures), (2, 1));
    drop(store);
    let store = open(&files, true).expect("it opens");
    for vbid in 0..VBUCKETS {
        let there = scan_keys(&store, Vbid(vbid)).len();
        assert_eq!(there, if usize::from(vbid) % LOGS == 0 { 3 } else { 2 });
    }
}

#[test]
fn look_ups_and_loads_reach_every_log() {
    let files = SimDirectory::new(1);
    let store = open(&files, false).expect("a new store");
    (1..=20).for_each(|seqno| commit_to_all(&store, seqno).expect("committed"));
    let wanted: Vec<OwnedFields> =
        (0..40).map(|number| kept(number % VBUCKETS, 1 + u64::from(number) / 2)).collect();
    let keys: Vec<_> = (0u16..)
        .zip(&wanted)
        .map(|(number, one)| (Vbid(number % VBUCKETS), one.doc_key()))
        .collect();
    let mut answers = vec![None; keys.len()];
    let visit = &mut |index: usize, answer: LookupResult<'_>| {
        let LookupResult::Record(record) = answer else { panic!("{answer:?}") };
        assert!(answers[index].replace(OwnedFields::of(record)).is_none(), "answered once");
        ControlFlow::Continue(())
    };
    store.get_many(&keys, usize::MAX, visit).expect("read");
    for (answer, wanted) in answers.iter().zip(&wanted) {
        assert_eq!(answer.as_ref(), Some(wanted), "each is answered");
    }
    for most in [1, 15, 30] {
        let mut seen = 0;
        let visit = &mut |_, _: LookupResult<'_>| {
            seen += 1;
            if seen == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        store.get_many(&keys, usize::MAX, visit).expect("read");
        assert_eq!(seen, most, "nothing comes after the end");
    }

    let plan = store.plan_load().expect("a plan");
    assert_eq!((plan.records.len(), plan.records_estimate), (usize::from(VBUCKETS), 140));
    let mut loaded = BTreeSet::new();
    for part in plan.parts {
        let visit = &mut |vbid, record: crate::Record<'_>, _| {
            assert!(loaded.insert((vbid, OwnedFields::of(record).key)), "loaded once");
            ControlFlow::Continue(())
        };
        store.load_part(part, LoadValues::Read, visit).expect("loaded");
    }
    assert_eq!(loaded.len(), 140);
    let lone = LogStore::open_simulated(&SimDirectory::new(1), false, &options(), Bug::None);
    // Of the second log, which the other store does not have.
    let foreign = store.plan_load().expect("a plan").parts.swap_remove(1);
    let lone = lone.expect("a new store");
    assert!(
        lone.load_part(foreign, LoadValues::Read, &mut |_, _, _| ControlFlow::Continue(()))
            .is_err()
    );
}

#[test]
fn logs_compact_in_turn() {
    let files = SimDirectory::new(1);
    let store = open(&files, false).expect("a new store");
    for seqno in 1..=400 {
        // The same key each time.
        let one = OwnedFields::document(seqno, b"key", &[7; 200]);
        let of = |vbid| batch(Vbid(vbid), std::slice::from_ref(&one), state(seqno));
        store.commit(&[of(0), of(1), of(2)]).expect("committed");
    }
    let before: Vec<u64> = store.shards.iter().map(|shard| shard.log.sizes().log_bytes).collect();
    let mut removed = BTreeSet::new();
    for _ in 0..LOGS {
        store.compaction_step().expect("a step");
        for (log, before) in before.iter().enumerate() {
            if store.shards[log].log.sizes().log_bytes < *before {
                removed.insert(log);
            }
        }
    }
    assert_eq!(removed.len(), LOGS, "no log waits for the others");
}

/// Threads that commit to different logs are in their logs at the same time: while one log's writer
/// is held, commits to the others continue.
#[test]
fn commits_to_different_logs_run_concurrently() {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let options = LogOptions { logs: LOGS, ..LogOptions::default() };
    let store = LogStore::open(&scratch.path().join("store"), options).expect("a new store");
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        let held = store.shards[1].log.writer.lock();
        let of_held = scope.spawn(|| {
            barrier.wait();
            commit(&store, Vbid(1), &[kept(1, 1)]);
        });
        let others = [0, 2, 3].map(|vbid| {
            let (store, barrier) = (&store, &barrier);
            scope.spawn(move || {
                barrier.wait();
                (1..=20).for_each(|seqno| commit(store, Vbid(vbid), &[kept(vbid, seqno)]));
            })
        });
        for other in others {
            other.join().expect("it does not wait for the log that is held");
        }
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            assert!(!of_held.is_finished(), "it waits for its own log");
            std::thread::yield_now();
        }
        drop(held);
    });
    assert_eq!(scan_keys(&store, Vbid(1)).len(), 1);
    assert_eq!(scan_keys(&store, Vbid(3)).len(), 20);
}

#[test]
fn several_logs_share_what_one_may_keep() {
    let packing = Packing { exact_keys: 900, recent_bytes: 3000, exact_min: 5, prefix_bits: 9 };
    let options =
        LogOptions { segment_bytes: 64 << 20, packing: Some(packing), ..LogOptions::default() };
    assert_eq!(options.of_each(1), options);
    let third = options.of_each(3);
    assert_eq!(third.packing, Some(Packing { exact_keys: 300, recent_bytes: 1000, ..packing }));
    assert_eq!(third.segment_bytes, (64 << 20) / 3);
    assert_eq!(options.of_each(64).segment_bytes, 8 << 20);
    let small = LogOptions { segment_bytes: 2048, ..options };
    assert_eq!(small.of_each(3).segment_bytes, 2048);
}
