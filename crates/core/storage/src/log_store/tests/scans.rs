//! Scans by seqno and what they remember of segments; scans by key and what they keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use oribi_testkit::StopOnDrop;
use oribi_types::{CollectionId, Vbid};

use super::super::planted::Bug;
use super::super::scan_memory::{SHARED_BYTES_MAX, ScanMemory};
use super::super::sim_files::SimDirectory;
use super::super::{LogOptions, LogStore};
use super::driver::{CROWDED, options};
use crate::conformance::fixture::{OwnedFields, commit, scan_keys, scan_seqnos};
use crate::{CompactionStep, KvStore, Packing, SeqnoRange, StoreError, unlimited};

const VB: Vbid = Vbid(1);

fn open(files: &SimDirectory, is_made: bool, options: &LogOptions) -> LogStore {
    LogStore::open_simulated(files, is_made, options, Bug::None).expect("the store opens")
}

fn document(seqno: u64, key: u64) -> OwnedFields {
    OwnedFields::document(seqno, format!("key-{key}").as_bytes(), &[b'v'; 700])
}

/// The scan told what it had seen of a segment that was written on after its moment.
#[test]
fn a_scan_does_not_index_an_active_segment() {
    let (files, options) = (SimDirectory::new(1), options());
    let store = open(&files, false, &options);
    commit(&store, VB, &[document(1, 1)]);
    drop(store);
    let store = open(&files, true, &options);
    let mut kept = vec![document(1, 1)];
    let mut scan =
        store.begin_scan(VB, SeqnoRange::seqnos(kept[0].seqno, kept[0].seqno)).expect("it begins");
    for seqno in 2..20 {
        kept.push(document(seqno, seqno));
        commit(&store, VB, &kept[kept.len() - 1..]);
    }
    assert!(store.sizes().segments > 2, "{:?}", store.sizes());
    scan.resume(&mut unlimited, &mut |_| std::ops::ControlFlow::Continue(())).expect("it goes on");
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
        let mut all: Vec<OwnedFields> = newest.values().cloned().collect();
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

/// A read ended in the middle of a record, and from there on each record was its own read. The
/// first scan after a restart read every segment twice.
#[test]
fn scans_read_each_segment_once_and_in_large_pieces() {
    let files = SimDirectory::new(8);
    let options = LogOptions { segment_bytes: 1 << 20, ..options() };
    let store = open(&files, false, &options);
    let kept: Vec<OwnedFields> = (1..=6000).map(|seqno| document(seqno, seqno)).collect();
    for some in kept.chunks(500) {
        commit(&store, VB, some);
    }
    drop(store);
    let store = open(&files, true, &options);
    let (segments, bytes) = (store.sizes().segments, store.sizes().log_bytes);
    assert!(segments > 4, "{segments}");
    let scans: [&dyn Fn() -> usize; 3] = [
        &|| scan_seqnos(&store, VB, 0, u64::MAX).len(),
        &|| scan_seqnos(&store, VB, 0, u64::MAX).len(),
        &|| scan_keys(&store, VB).len(),
    ];
    for (number, scan) in scans.iter().enumerate() {
        let before = files.reads();
        assert_eq!(scan(), kept.len());
        let after = files.reads();
        let (reads, read_bytes) = (after.0 - before.0, after.1 - before.1);
        let reads_max = bytes / (64 << 10) + 2 * segments;
        assert!(reads <= reads_max, "scan {number}: {reads} reads of {bytes} bytes");
        assert!(read_bytes <= bytes / 8 * 9, "scan {number}: {read_bytes} of {bytes} bytes");
    }
}

/// A scan of one collection does not mark a segment as completely read.
#[test]
fn a_collection_scan_reveals_nothing_of_others() {
    let (files, options) = (SimDirectory::new(7), options());
    let of = |seqno: u64| match seqno % 10 {
        5 => document(seqno, seqno).in_collection(8),
        _ => document(seqno, seqno),
    };
    let store = open(&files, false, &options);
    let kept: Vec<OwnedFields> = (1..100).map(of).collect();
    kept.iter().for_each(|one| commit(&store, VB, std::slice::from_ref(one)));
    drop(store);
    // Opening forgets what is known of segments.
    let store = open(&files, true, &options);
    let mut scan =
        store.begin_scan(VB, SeqnoRange::collection(CollectionId(8))).expect("it begins");
    let mut seen = 0;
    let mut count = |_: crate::Record<'_>| {
        seen += 1;
        std::ops::ControlFlow::Continue(())
    };
    scan.resume(&mut unlimited, &mut count).expect("it goes on");
    assert_eq!(seen, 10);
    for from in 1..100 {
        let found = scan_seqnos(&store, VB, from, from + 1);
        assert_eq!(found, kept[from as usize - 1..(from as usize + 1).min(99)], "from {from}");
    }
}

/// The log with its own memory for scans, of which others keep so many bytes.
fn with_memory(store: &mut LogStore, kept: usize) -> &'static ScanMemory {
    let memory: &'static ScanMemory = Box::leak(Box::new(ScanMemory::new()));
    memory.set_kept(kept);
    Arc::get_mut(&mut store.shards[0].log).expect("nothing else has it").scan_memory = memory;
    memory
}

/// Of records that scans may not keep, the keys are enough; of keys, the smallest.
#[test]
fn scans_by_key_show_the_same_whatever_they_may_keep() {
    let files = SimDirectory::new(4);
    let options = LogOptions { segment_bytes: 128 << 10, ..options() };
    let mut random = crate::SeededRandom::new(5);
    let mut store = open(&files, false, &options);
    let mut newest = std::collections::BTreeMap::new();
    for seqno in 1..=300 {
        // Keys of up to 3 KB, so that a floor holds some of them.
        let mut key = random.below(100).to_string().into_bytes();
        key.resize(key.len() + random.below(3000) as usize % 3000 / 100 * 100, b'k');
        key.truncate(2000 + key.len() / 10);
        let value = vec![b'v'; random.below(3000) as usize];
        let kept = OwnedFields::document(seqno, &key, &value);
        commit(&store, VB, std::slice::from_ref(&kept));
        newest.insert(key, kept);
    }
    let expected: Vec<OwnedFields> = newest.into_values().collect();
    for round in 0..2 {
        for left in [0, 1000, 64 << 10, 128 << 10, 4 << 20, SHARED_BYTES_MAX] {
            let memory = with_memory(&mut store, SHARED_BYTES_MAX - left);
            assert_eq!(scan_keys(&store, VB), expected, "{left} bytes may be kept, {round}");
            assert_eq!(memory.kept(), SHARED_BYTES_MAX - left, "a scan gives back its share");
        }
        drop(store);
        store = open(&files, true, &options);
    }
}

/// Between two lots of places, keys are written, moved and packed. Keys that are alike in the index
/// are in one lot, so each key that stays is shown once.
#[test]
fn a_packed_index_lists_each_key_once() {
    for (round, prefix_bits) in [(0, 32), (1, 9), (2, 9), (3, 9), (4, 9), (5, 9)] {
        let packing = Packing { prefix_bits, recent_bytes: 64 << 10, ..CROWDED };
        let segment_bytes = 256 << 10;
        let options = LogOptions { segment_bytes, packing: Some(packing), ..options() };
        let files = SimDirectory::new(8);
        let mut store = open(&files, false, &options);
        let key = |number: u64| format!("{round}-{number:04}").into_bytes();
        let of = |seqno, number| OwnedFields::document(seqno, &key(number), b"v");
        let kept: Vec<OwnedFields> = (0..6_000).map(|number| of(number + 1, number)).collect();
        kept.chunks(1000).for_each(|some| commit(&store, VB, some));
        with_memory(&mut store, SHARED_BYTES_MAX);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stopped = StopOnDrop(&is_over);
            scope.spawn(|| {
                for seqno in (6_001..).take_while(|_| !is_over.load(Relaxed)) {
                    commit(&store, VB, &[of(seqno, seqno * 7919 % 6_000)]);
                    while store.compaction_step().expect("it compacts") != CompactionStep::Idle {}
                }
            });
            let shown = keys_of(&store);
            drop(stopped);
            let expected: Vec<Vec<u8>> = (0..6_000).map(key).collect();
            assert!(shown.expect("it scans") == expected, "{prefix_bits} bits, {round}");
        });
    }
}

/// Result of a scan by key.
fn keys_of(store: &LogStore) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut shown = Vec::new();
    store.scan_keys(VB, &mut |record| {
        shown.push(record.key.key.to_vec());
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(shown)
}

/// While a scan that has no space passes over its records again, others are written, moved and
/// removed. Each key that stays is shown once, in order.
#[test]
fn repeated_scans_list_lasting_keys_once() {
    let (files, options) = (SimDirectory::new(6), options());
    let mut store = open(&files, false, &options);
    let key = |number: u64| format!("{number:04}{}", "k".repeat(800)).into_bytes();
    let of = |seqno, number| OwnedFields::document(seqno, &key(number), b"v");
    let kept: Vec<OwnedFields> = (0..300).map(|number| of(number + 1, number)).collect();
    commit(&store, VB, &kept);
    with_memory(&mut store, SHARED_BYTES_MAX);
    let (mut shown, mut seqno) = (Vec::new(), 300);
    let scanned = store.scan_keys(VB, &mut |record| {
        shown.push(record.key.key.to_vec());
        seqno += 1;
        commit(&store, VB, &[of(seqno, seqno * 7 % 300)]);
        while store.compaction_step().expect("it compacts") != CompactionStep::Idle {}
        std::ops::ControlFlow::Continue(())
    });
    scanned.expect("it scans");
    assert_eq!(shown, (0..300).map(key).collect::<Vec<_>>());
}
