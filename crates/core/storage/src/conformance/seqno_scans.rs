//! Checks of scans by seqno: their order and bounds, that they can be paused, and that they show
//! one moment.

use std::ops::ControlFlow;

use oribi_types::{CollectionId, Seqno, Vbid};

use super::Medium;
use super::fixture::{OwnedFields, batch, commit, open, scan_seqnos, state};
use crate::{
    KvStore, ScanProgress, SeqnoRange, SeqnoScan, SnapshotSeqnos, VbucketState, unlimited,
};

const VB: Vbid = Vbid(3);

fn begin(store: &dyn KvStore, from: u64, to: u64) -> Box<dyn SeqnoScan> {
    store.begin_scan(VB, SeqnoRange::seqnos(Seqno(from), Seqno(to))).expect("the scan begins")
}

/// The next `most` records of a scan, or all that are left.
fn read(scan: &mut dyn SeqnoScan, most: usize) -> Vec<OwnedFields> {
    let mut seen = Vec::new();
    let progress = scan.resume(&mut unlimited, &mut |record| {
        seen.push(OwnedFields::of(record));
        if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let expected = if seen.len() == most { ScanProgress::Paused } else { ScanProgress::Ended };
    assert_eq!(progress.expect("the scan goes on"), expected);
    seen
}

fn rest(scan: &mut dyn SeqnoScan) -> Vec<OwnedFields> {
    read(scan, usize::MAX)
}

fn seqnos(high_seqno: u64, purge_seqno: u64) -> SnapshotSeqnos {
    SnapshotSeqnos { high_seqno: Seqno(high_seqno), purge_seqno: Seqno(purge_seqno) }
}

pub(super) fn order_and_bounds(medium: &dyn Medium) {
    let store = open(medium);
    let keys: [&[u8]; 5] = [b"e", b"a", b"d", b"b", b"c"];
    let numbered = keys.iter().zip([2, 4, 300, 70_000, 5_000_000_000]);
    let kept: Vec<OwnedFields> =
        numbered.map(|(key, seqno)| OwnedFields::document(seqno, key, b"value")).collect();
    commit(&*store, VB, &kept);
    assert_eq!(scan_seqnos(&*store, VB, 0, u64::MAX), kept);
    assert_eq!(scan_seqnos(&*store, VB, 4, 300), kept[1..3], "both bounds belong to the range");
    assert_eq!(scan_seqnos(&*store, VB, 5, 299), vec![]);
    assert_eq!(scan_seqnos(&*store, VB, 301, u64::MAX), kept[3..]);
    assert_eq!(scan_seqnos(&*store, VB, 300, 4), vec![], "an empty range is no error");
}

/// A scan of a collection shows all of it at one moment, and others' records at most in addition.
/// Scans of everything that follow are none the worse.
pub(super) fn one_collection(medium: &dyn Medium) {
    let store = open(medium);
    let in_one = |seqno: u64| seqno % 3 == 1;
    let kept = |seqno: u64| {
        let kept =
            OwnedFields::document(seqno, format!("k{}", seqno * 7 % 40).as_bytes(), b"value");
        if in_one(seqno) { kept.in_collection(8) } else { kept }
    };
    let all: Vec<OwnedFields> = (1..=30).map(kept).collect();
    commit(&*store, VB, &all);
    commit(&*store, Vbid(4), &[kept(1)]);
    let of = |collection| {
        store
            .begin_scan(VB, SeqnoRange::collection(CollectionId(collection)))
            .expect("the scan begins")
    };
    let mut scan = of(8);
    commit(&*store, VB, &[kept(31)]);
    let mut found = rest(&mut *scan);
    found.retain(|kept| kept.collection == CollectionId(8));
    let expected = |last: u64| (1..=last).filter(|seqno| in_one(*seqno)).map(kept);
    assert_eq!(found, expected(30).collect::<Vec<_>>());
    assert!(rest(&mut *of(9)).iter().all(|kept| kept.collection != CollectionId(9)));
    let everything: Vec<OwnedFields> = (1..=31).map(kept).collect();
    assert_eq!(scan_seqnos(&*store, VB, 0, u64::MAX), everything);
    assert_eq!(scan_seqnos(&*store, VB, 2, 3), everything[1..3]);
}

/// Seqnos beyond 63 bits, which some stores keep as negative numbers.
pub(super) fn highest_seqnos(medium: &dyn Medium) {
    let store = open(medium);
    let seqnos = [1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX];
    let kept: Vec<OwnedFields> = seqnos
        .iter()
        .map(|seqno| OwnedFields::document(*seqno, &seqno.to_be_bytes(), b"v"))
        .collect();
    commit(&*store, VB, &kept);
    assert_eq!(scan_seqnos(&*store, VB, 0, u64::MAX), kept);
    assert_eq!(scan_seqnos(&*store, VB, 2, u64::MAX - 1), kept[1..4]);
    assert_eq!(scan_seqnos(&*store, VB, u64::MAX, u64::MAX), kept[4..]);
    assert_eq!(begin(&*store, 0, 0).snapshot().high_seqno, Seqno(u64::MAX));
}

pub(super) fn pauses(medium: &dyn Medium) {
    let store = open(medium);
    let kept: Vec<OwnedFields> = (1..=30)
        .map(|seqno| {
            OwnedFields::document(seqno, &[seqno as u8], &vec![b'v'; seqno as usize * 100])
        })
        .collect();
    for part in kept.chunks(7) {
        commit(&*store, VB, part);
    }
    for most in [1, 4, 30] {
        let mut scan = begin(&*store, 3, 29);
        let mut seen = Vec::new();
        // A bound, because a scan that repeats itself would not end.
        while seen.len() < 2 * kept.len() {
            let some = read(&mut *scan, most);
            seen.extend_from_slice(&some);
            if some.len() < most {
                break;
            }
        }
        assert_eq!(seen, kept[2..29], "{most} at a time");
        assert_eq!(rest(&mut *scan), vec![], "a scan that ended has nothing more");
    }
}

/// Whatever happens while a scan is under way, or between its beginning and its first record.
pub(super) fn one_moment(medium: &dyn Medium) {
    let store = open(medium);
    let value = vec![b'v'; 2000];
    let mut kept: Vec<OwnedFields> = (1..=40)
        .map(|seqno| OwnedFields::document(seqno, format!("key-{seqno}").as_bytes(), &value))
        .collect();
    kept.push(OwnedFields::tombstone(41, b"gone", 7));
    kept.push(OwnedFields::document(42, b"k", &value).in_collection(8));
    commit(&*store, VB, &kept);
    let mut early = begin(&*store, 1, u64::MAX);
    let mut late = begin(&*store, 1, u64::MAX);
    assert_eq!(read(&mut *late, 5), kept[..5]);
    let newer = [
        OwnedFields::document(43, b"key-3", b"changed"),
        OwnedFields::tombstone(44, b"key-20", 9),
        OwnedFields::document(45, b"key-405", b"new"),
    ];
    commit(&*store, VB, &newer);
    assert_eq!(read(&mut *late, 5), kept[5..10]);
    store.purge_collection(VB, CollectionId(8)).expect("purged");
    assert_eq!(store.compact(VB, 8).expect("compacted"), Some(Seqno(41)));
    let mut after = begin(&*store, 1, u64::MAX);
    store.drop_vbucket(VB, None).expect("dropped");
    commit(&*store, VB, &[OwnedFields::document(1, b"another", b"life")]);
    for scan in [&early, &late] {
        assert_eq!(scan.snapshot(), seqnos(42, 0), "the moment of the beginning");
    }
    assert_eq!(rest(&mut *early), kept);
    assert_eq!(rest(&mut *late), kept[10..]);
    let mut expected: Vec<OwnedFields> = kept[..40].to_vec();
    expected.retain(|kept| ![3, 20].contains(&kept.seqno.0));
    expected.extend(newer);
    assert_eq!(after.snapshot(), seqnos(45, 41));
    assert_eq!(rest(&mut *after), expected);
    assert_eq!(begin(&*store, 1, u64::MAX).snapshot(), seqnos(1, 0));
}

pub(super) fn moments(medium: &dyn Medium) {
    let store = open(medium);
    assert_eq!(begin(&*store, 0, u64::MAX).snapshot(), SnapshotSeqnos::default());
    commit(&*store, Vbid(4), &[OwnedFields::document(9, b"k", b"")]);
    assert_eq!(begin(&*store, 0, u64::MAX).snapshot(), SnapshotSeqnos::default());
    commit(&*store, VB, &[OwnedFields::document(5, b"k", b""), OwnedFields::tombstone(6, b"l", 1)]);
    assert_eq!(begin(&*store, 0, 0).snapshot(), seqnos(6, 0), "whatever the range");
    store.compact(VB, 2).expect("compacted");
    store.commit(&[batch(VB, &[], state(8))]).expect("a state without records");
    drop(store);
    assert_eq!(begin(&*open(medium), 0, u64::MAX).snapshot(), seqnos(8, 6));
}

/// Each commit writes all keys anew, in two collections and in two batches, so a scan that mixes
/// two commits is found out.
pub(super) fn beside_commits(medium: &dyn Medium) {
    const COMMITS: u64 = 25;
    let store = open(medium);
    let store = &*store;
    let of_commit = |number: u64| {
        let key = |seqno: u64| format!("key-{}", seqno % 8).into_bytes();
        let all = number * 8..number * 8 + 8;
        let kept = all.map(|seqno| {
            OwnedFields::document(seqno, &key(seqno), &[b'v'; 60])
                .in_collection(seqno as u32 % 2 * 8)
        });
        kept.collect::<Vec<OwnedFields>>()
    };
    commit(store, VB, &of_commit(1));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 2..=COMMITS {
                let kept = of_commit(number);
                let (first, second) = kept.split_at(3);
                let batches = [(first, number * 8 + 2), (second, number * 8 + 7)];
                let batches = batches.map(|(kept, high)| batch(VB, kept, state(high)));
                store.commit(&batches).expect("the store commits");
            }
        });
        loop {
            let was_over = writer.is_finished();
            let mut scan = begin(store, 0, u64::MAX);
            let high_seqno = scan.snapshot().high_seqno.0;
            assert_eq!(high_seqno % 8, 7, "a commit is seen as a whole");
            assert_eq!(rest(&mut *scan), of_commit(high_seqno / 8));
            if was_over {
                assert_eq!(high_seqno / 8, COMMITS);
                break;
            }
        }
    });
}

/// A flush that was prepared before a purge brings a state without that purge.
pub(super) fn purges_last(medium: &dyn Medium) {
    let store = open(medium);
    let purge_seqno = |store: &dyn KvStore| begin(store, 0, 0).snapshot().purge_seqno.0;
    commit(
        &*store,
        VB,
        &[OwnedFields::tombstone(5, b"old", 1), OwnedFields::document(6, b"k", b"")],
    );
    assert_eq!(store.compact(VB, 2).expect("compacted"), Some(Seqno(5)));
    assert_eq!(purge_seqno(&*store), 5, "known at once");
    commit(&*store, VB, &[OwnedFields::document(7, b"l", b"")]);
    assert_eq!(purge_seqno(&*store), 5, "the batch said 0");
    let twice = [batch(VB, &[], state(8)), batch(VB, &[], state(9))];
    store.commit(&twice).expect("the store commits");
    drop(store);
    let store = open(medium);
    let known = VbucketState { purge_seqno: Seqno(5), ..state(9) };
    assert_eq!(super::fixture::states(&*store), [(VB, known)], "also in the next life");
    let later = VbucketState { purge_seqno: Seqno(9), ..state(9) };
    store.commit(&[batch(VB, &[], later)]).expect("the store commits");
    commit(&*store, VB, &[]);
    assert_eq!(purge_seqno(&*store), 9);
    store.drop_vbucket(VB, None).expect("dropped");
    commit(&*store, VB, &[OwnedFields::document(1, b"k", b"")]);
    assert_eq!(purge_seqno(&*store), 0, "it is another vbucket now");
}
