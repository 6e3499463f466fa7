//! Scans by seqno and what they remember of segments; scans by key and what they keep.

use std::sync::atomic::Ordering::Relaxed;

use oribi_types::Vbid;

use super::super::kept_bytes::KEPT_BYTES_MAX;
use super::super::planted::Bug;
use super::super::sim_files::SimDirectory;
use super::super::{LogOptions, LogStore};
use super::driver::options;
use crate::conformance::fixture::{Kept, commit, scan_keys, scan_seqnos};
use crate::{CompactionStep, KvStore};

const VB: Vbid = Vbid(1);

fn open(files: &SimDirectory, is_made: bool, options: &LogOptions) -> LogStore {
    LogStore::open_simulated(files, is_made, options, Bug::None).expect("the store opens")
}

fn document(seqno: u64, key: u64) -> Kept {
    Kept::document(seqno, format!("key-{key}").as_bytes(), &[b'v'; 700])
}

/// The scan told what it had seen of a segment that was written on behind its moment.
#[test]
fn a_segment_that_was_active_when_a_scan_began_is_not_known_by_it() {
    let (files, options) = (SimDirectory::new(1), options());
    let store = open(&files, false, &options);
    commit(&store, VB, &[document(1, 1)]);
    drop(store);
    let store = open(&files, true, &options);
    let mut kept = vec![document(1, 1)];
    let mut scan = store.begin_scan(VB, kept[0].seqno, kept[0].seqno).expect("it begins");
    for seqno in 2..20 {
        kept.push(document(seqno, seqno));
        commit(&store, VB, &kept[kept.len() - 1..]);
    }
    assert!(store.sizes().segments > 2, "{:?}", store.sizes());
    scan.resume(&mut |_| std::ops::ControlFlow::Continue(())).expect("it goes on");
    for from in 0..20 {
        let found = scan_seqnos(&store, VB, from, u64::MAX);
        assert_eq!(found, kept[from.saturating_sub(1) as usize..], "from {from}");
    }
}

/// Overwrites and compaction mix runs in every segment; ranges are right before and after
/// restarts, which forget what is known of segments.
#[test]
fn ranges_are_right_however_runs_are_mixed() {
    let (files, options) = (SimDirectory::new(2), options());
    let mut random = crate::SeededRandom::new(3);
    let mut store = open(&files, false, &options);
    let mut newest = std::collections::BTreeMap::new();
    for seqno in 1..=600 {
        let key = random.below(60);
        let kept = document(seqno, key);
        commit(&store, VB, std::slice::from_ref(&kept));
        newest.insert(key, kept);
        while store.compaction_step().expect("it compacts") != CompactionStep::Idle {}
        if seqno % 100 != 0 {
            continue;
        }
        let mut all: Vec<Kept> = newest.values().cloned().collect();
        all.sort_by_key(|kept| kept.seqno);
        for round in 0..3 {
            if round == 1 {
                drop(store);
                store = open(&files, true, &options);
            }
            for from in (0..seqno).step_by(37) {
                let (to, mut expected) = (from + seqno / 2, all.clone());
                expected.retain(|kept| (from..=to).contains(&kept.seqno.0));
                assert_eq!(scan_seqnos(&store, VB, from, to), expected, "{from}..={to}");
            }
        }
    }
}

/// Of records that scans may not keep, the keys are enough.
#[test]
fn scans_by_key_show_the_same_whatever_they_may_keep() {
    let files = SimDirectory::new(4);
    let options = LogOptions { segment_bytes: 128 << 10, ..options() };
    let mut random = crate::SeededRandom::new(5);
    let mut store = open(&files, false, &options);
    let mut newest = std::collections::BTreeMap::new();
    for seqno in 1..=300 {
        let key = format!("key-{}", random.below(100)).into_bytes();
        let value = vec![b'v'; random.below(3000) as usize];
        let kept = Kept::document(seqno, &key, &value);
        commit(&store, VB, std::slice::from_ref(&kept));
        newest.insert(key, kept);
    }
    let expected: Vec<Kept> = newest.into_values().collect();
    for round in 0..2 {
        let kept_now = &store.log.kept_by_scans.0;
        for left in [0, 1000, 256 << 10, 512 << 10, KEPT_BYTES_MAX] {
            kept_now.store(KEPT_BYTES_MAX - left, Relaxed);
            assert_eq!(scan_keys(&store, VB), expected, "{left} bytes may be kept, {round}");
            assert_eq!(
                kept_now.load(Relaxed),
                KEPT_BYTES_MAX - left,
                "a scan gives back its share"
            );
        }
        drop(store);
        store = open(&files, true, &options);
    }
}
