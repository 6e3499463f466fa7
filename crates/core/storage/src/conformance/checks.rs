//! The named checks. Each starts on an empty medium and checks one rule of the trait.

use std::ops::ControlFlow;

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use super::Medium;
use super::fixture::{
    OwnedFields, batch, commit, get, open, scan_keys, scan_seqnos, state, states,
};
use super::{commits, key_scans, lookups, seqno_scans};
use crate::{SeqnoRange, VbucketPhase, VbucketState, unlimited};

/// A check and what it is called in a failure.
pub(super) type Check = (&'static str, fn(&dyn Medium));

/// Every check, in the order in which they are easiest to understand when they fail.
pub(super) const CHECKS: &[Check] = &[
    ("an empty store answers", empty_store),
    ("every field survives a restart", fields_survive),
    ("a later version replaces an earlier one", overwrite),
    ("tombstones are kept and visited", tombstones),
    ("a tombstone of expiry is told from one of a deletion", expired_tombstones),
    ("many look-ups at once answer as one by one", lookups::get_many),
    ("what may not be contained is not there", lookups::may_contain),
    ("vbuckets do not see each other", vbuckets_are_apart),
    ("scan_keys is in order of collection and key", key_order),
    ("scan_collection has one collection from a key on", key_scans::bounds),
    ("scan_keys_from shows one moment", key_scans::one_moment),
    ("scan_seqnos is in order and honours its bounds", seqno_scans::order_and_bounds),
    ("scan_seqnos knows the highest seqnos", seqno_scans::highest_seqnos),
    ("a scan by seqno can be paused", seqno_scans::pauses),
    ("a scan by seqno shows one moment", seqno_scans::one_moment),
    ("a scan by seqno says which moment it shows", seqno_scans::moments),
    ("a scan by seqno sees no part of a commit", seqno_scans::beside_commits),
    ("a scan of a collection has all of it", seqno_scans::one_collection),
    ("a later state takes no purge back", seqno_scans::purges_last),
    ("a visitor can end a scan", scans_end_early),
    ("a load visits every record once", load),
    ("states are what the last commit said", states_follow_commits),
    ("a batch without records still stores its state", state_only_batch),
    ("one commit takes many vbuckets", commits::group_commit),
    ("one commit takes a vbucket more than once, in order", commits::same_vbucket_again),
    ("local documents are kept apart from data", locals),
    ("purging a collection leaves the others", purge_collection),
    ("dropping a vbucket leaves the others", drop_vbucket),
    ("compaction purges old tombstones only", compact),
    ("large values come back whole", large_values),
    ("keys and values of odd bytes and lengths", odd_bytes),
    ("several threads commit and read", threads),
    ("statistics count", stats_count),
];

const VB: Vbid = Vbid(3);

fn empty_store(medium: &dyn Medium) {
    let store = open(medium);
    assert_eq!(states(&*store), vec![]);
    assert_eq!(scan_keys(&*store, VB), vec![]);
    assert_eq!(scan_seqnos(&*store, VB, 0, u64::MAX), vec![]);
    assert_eq!(get(&*store, VB, OwnedFields::document(1, b"k", b"").doc_key()), None);
    assert_eq!(store.get_local("manifest").expect("answers"), None);
    store.purge_collection(VB, CollectionId(8)).expect("nothing to purge is fine");
    store.drop_vbucket(VB, None).expect("nothing to drop is fine");
    assert_eq!(store.compact(VB, u32::MAX).expect("nothing to compact is fine"), None);
    store.commit(&[]).expect("an empty group is fine");
}

fn fields_survive(medium: &dyn Medium) {
    let mut kept = OwnedFields::document(u64::MAX - 1, b"key", b"{\"a\":1}");
    kept.expiry = u32::MAX;
    let store = open(medium);
    commit(&*store, VB, std::slice::from_ref(&kept));
    assert_eq!(get(&*store, VB, kept.doc_key()), Some(kept.clone()));
    drop(store);
    let store = open(medium);
    assert_eq!(get(&*store, VB, kept.doc_key()), Some(kept.clone()));
    assert_eq!(scan_keys(&*store, VB), vec![kept]);
}

fn overwrite(medium: &dyn Medium) {
    let store = open(medium);
    commit(
        &*store,
        VB,
        &[OwnedFields::document(1, b"k", b"one"), OwnedFields::document(2, b"l", b"x")],
    );
    let second = OwnedFields::document(3, b"k", b"two");
    commit(&*store, VB, std::slice::from_ref(&second));
    assert_eq!(get(&*store, VB, second.doc_key()), Some(second.clone()));
    drop(store);
    let seen = scan_seqnos(&*open(medium), VB, 0, u64::MAX);
    assert_eq!(seen, vec![OwnedFields::document(2, b"l", b"x"), second], "one version per key");
}

fn tombstones(medium: &dyn Medium) {
    let store = open(medium);
    commit(&*store, VB, &[OwnedFields::document(1, b"k", b"value")]);
    let tombstone = OwnedFields::tombstone(2, b"k", 1_700_000_000);
    commit(&*store, VB, std::slice::from_ref(&tombstone));
    drop(store);
    let store = open(medium);
    assert_eq!(get(&*store, VB, tombstone.doc_key()), Some(tombstone.clone()));
    assert_eq!(scan_keys(&*store, VB), vec![tombstone.clone()]);
    assert_eq!(scan_seqnos(&*store, VB, 1, 2), vec![tombstone]);
}

fn expired_tombstones(medium: &dyn Medium) {
    let store = open(medium);
    let (expired, deleted) = (OwnedFields::expired(1, b"k", 7), OwnedFields::tombstone(2, b"l", 7));
    let mut with_value = OwnedFields::expired(3, b"m", 7);
    with_value.value = vec![b'v'; 300];
    let kept = [expired, deleted, with_value];
    commit(&*store, VB, &kept);
    drop(store);
    let store = open(medium);
    assert_eq!(scan_seqnos(&*store, VB, 0, u64::MAX), kept);
    assert_eq!(scan_keys(&*store, VB), kept);
    for kept in &kept {
        assert_eq!(get(&*store, VB, kept.doc_key()).as_ref(), Some(kept));
    }
    let again = OwnedFields::tombstone(4, b"k", 7);
    commit(&*store, VB, std::slice::from_ref(&again));
    assert_eq!(get(&*store, VB, again.doc_key()), Some(again), "the later version counts");
}

fn vbuckets_are_apart(medium: &dyn Medium) {
    let store = open(medium);
    for vbid in [0, 1, 255, 256, 1023] {
        commit(&*store, Vbid(vbid), &[OwnedFields::document(u64::from(vbid) + 1, b"same", b"v")]);
    }
    for vbid in [0, 1, 255, 256, 1023] {
        let seen = scan_keys(&*store, Vbid(vbid));
        assert_eq!(seen, vec![OwnedFields::document(u64::from(vbid) + 1, b"same", b"v")]);
    }
    assert_eq!(scan_keys(&*store, Vbid(2)), vec![]);
}

fn key_order(medium: &dyn Medium) {
    let store = open(medium);
    let ordered = [
        OwnedFields::document(9, b"a", b""),
        OwnedFields::document(3, b"a\0", b""),
        OwnedFields::document(8, b"b", b""),
        OwnedFields::document(1, b"\xff\xff", b""),
        OwnedFields::document(7, b"a", b"").in_collection(8),
        OwnedFields::document(2, b"a", b"").in_collection(0x0100),
        OwnedFields::document(4, b"a", b"").in_collection(u32::MAX),
    ];
    let mut by_seqno = ordered.to_vec();
    by_seqno.sort_by_key(|kept| kept.seqno);
    commit(&*store, VB, &by_seqno);
    assert_eq!(scan_keys(&*store, VB), ordered);
}

fn scans_end_early(medium: &dyn Medium) {
    let store = open(medium);
    let kept: Vec<OwnedFields> =
        (1..=10).map(|seqno| OwnedFields::document(seqno, &[seqno as u8], b"")).collect();
    commit(&*store, VB, &kept);
    let mut visits = 0;
    let mut third = |_: crate::Record<'_>| {
        visits += 1;
        if visits % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.scan_keys(VB, &mut third).expect("an early end is no error");
    let mut scan = store.begin_scan(VB, SeqnoRange::ALL).expect("the scan begins");
    scan.resume(&mut unlimited, &mut third).expect("an early end is no error");
    assert_eq!(visits, 6);
}

fn load(medium: &dyn Medium) {
    let store = open(medium);
    let mut expected = Vec::new();
    for vbid in [2, 5] {
        let first =
            [OwnedFields::document(1, b"a", b"old"), OwnedFields::document(2, b"b", b"kept")];
        commit(&*store, Vbid(vbid), &first);
        let second = [OwnedFields::document(3, b"a", b"new"), OwnedFields::tombstone(4, b"c", 9)];
        commit(&*store, Vbid(vbid), &second);
        let kept = [&first[1], &second[0], &second[1]];
        expected.extend(kept.map(|kept| (Vbid(vbid), kept.clone())));
    }
    let mut seen = Vec::new();
    let mut visit = |vbid: Vbid, record: crate::Record<'_>| {
        seen.push((vbid, OwnedFields::of(record)));
        ControlFlow::Continue(())
    };
    crate::load_all(&*store, &mut visit).expect("the store loads");
    seen.sort_by_key(|(vbid, kept)| (*vbid, kept.seqno));
    assert_eq!(seen, expected);
    let mut visits = 0;
    let mut second = |_: Vbid, _: crate::Record<'_>| {
        visits += 1;
        if visits == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    crate::load_all(&*store, &mut second).expect("an early end is no error");
    assert_eq!(visits, 2);
}

fn states_follow_commits(medium: &dyn Medium) {
    let store = open(medium);
    commit(&*store, Vbid(1), &[OwnedFields::document(1, b"k", b"")]);
    commit(&*store, Vbid(7), &[OwnedFields::document(5, b"k", b"")]);
    commit(&*store, Vbid(1), &[OwnedFields::document(6, b"k", b"")]);
    let expected = vec![(Vbid(1), state(6)), (Vbid(7), state(5))];
    assert_eq!(states(&*store), expected);
    drop(store);
    assert_eq!(states(&*open(medium)), expected);
}

fn state_only_batch(medium: &dyn Medium) {
    let phases =
        [VbucketPhase::Active, VbucketPhase::Replica, VbucketPhase::Pending, VbucketPhase::Dead];
    let store = open(medium);
    let mut expected = Vec::new();
    for (number, phase) in phases.into_iter().enumerate() {
        let entry = state(9).failover_table[0];
        let failover_table = vec![entry; if number == 0 { 25 } else { number - 1 }];
        let state = VbucketState { phase, failover_table, ..state(u64::MAX - number as u64) };
        expected.push((Vbid(number as u16), state));
    }
    let batches = expected.iter().map(|(vbid, state)| batch(*vbid, &[], state.clone()));
    store.commit(&batches.collect::<Vec<_>>()).expect("the store commits");
    drop(store);
    assert_eq!(states(&*open(medium)), expected);
}

fn locals(medium: &dyn Medium) {
    let store = open(medium);
    store.put_local("manifest", b"one").expect("written");
    store.put_local("manifest", b"two").expect("written");
    store.put_local("manifest-2", b"").expect("written");
    store.drop_vbucket(VB, None).expect("dropped");
    drop(store);
    let store = open(medium);
    assert_eq!(store.get_local("manifest").expect("read"), Some(b"two".to_vec()));
    assert_eq!(store.get_local("manifest-2").expect("read"), Some(Vec::new()));
    assert_eq!(store.get_local("manifest-3").expect("read"), None);
    assert_eq!(states(&*store), vec![]);
}

fn purge_collection(medium: &dyn Medium) {
    let store = open(medium);
    let kept = [
        OwnedFields::document(1, b"k", b"default"),
        OwnedFields::document(2, b"k", b"eight").in_collection(8),
        OwnedFields::tombstone(3, b"l", 5).in_collection(8),
        OwnedFields::document(4, b"k", b"nine").in_collection(9),
    ];
    commit(&*store, VB, &kept);
    commit(&*store, Vbid(4), &kept[1..2]);
    for _ in 0..2 {
        store.purge_collection(VB, CollectionId(8)).expect("purged, also when repeated");
    }
    drop(store);
    let store = open(medium);
    assert_eq!(scan_keys(&*store, VB), vec![kept[0].clone(), kept[3].clone()]);
    assert_eq!(scan_keys(&*store, Vbid(4)), kept[1..2], "the other vbucket keeps its records");
    assert_eq!(states(&*store), vec![(VB, state(4)), (Vbid(4), state(2))]);
    let last = CollectionId(u32::MAX);
    commit(&*store, VB, &[OwnedFields::document(5, b"\xff", b"").in_collection(last.0)]);
    store.purge_collection(VB, last).expect("the highest id is purged too");
    assert_eq!(scan_keys(&*store, VB).len(), 2);
}

fn drop_vbucket(medium: &dyn Medium) {
    let store = open(medium);
    for vbid in [2, 3, 4] {
        let kept: Vec<OwnedFields> =
            (1..=50).map(|seqno| OwnedFields::document(seqno, &[seqno as u8], b"v")).collect();
        commit(&*store, Vbid(vbid), &kept);
    }
    store.drop_vbucket(Vbid(3), None).expect("dropped");
    drop(store);
    let store = open(medium);
    assert_eq!(states(&*store), vec![(Vbid(2), state(50)), (Vbid(4), state(50))]);
    assert_eq!(scan_keys(&*store, Vbid(3)), vec![]);
    assert_eq!(scan_keys(&*store, Vbid(2)).len(), 50);
    assert_eq!(scan_keys(&*store, Vbid(4)).len(), 50);
    let again = OwnedFields::document(1, b"new", b"v");
    commit(&*store, Vbid(3), std::slice::from_ref(&again));
    assert_eq!(scan_keys(&*store, Vbid(3)), vec![again], "nothing of the old vbucket returns");
    let next = VbucketState { phase: VbucketPhase::Replica, ..VbucketState::empty() };
    for vbid in [3, 6] {
        store.drop_vbucket(Vbid(vbid), Some(&next)).expect("dropped");
    }
    drop(store);
    let store = open(medium);
    assert_eq!(scan_keys(&*store, Vbid(3)), vec![]);
    let stored: Vec<_> = states(&*store).into_iter().filter(|(vbid, _)| vbid.0 % 3 == 0).collect();
    assert_eq!(stored, vec![(Vbid(3), next.clone()), (Vbid(6), next)]);
}

fn compact(medium: &dyn Medium) {
    let store = open(medium);
    let kept = [
        OwnedFields::document(1, b"document", b"v"),
        OwnedFields::tombstone(2, b"old", 999),
        OwnedFields::tombstone(5, b"older", 1),
        OwnedFields::tombstone(6, b"young", 1000),
    ];
    commit(&*store, VB, &kept);
    commit(&*store, Vbid(4), &kept[1..2]);
    assert_eq!(store.compact(VB, 1000).expect("compacted"), Some(Seqno(5)));
    assert_eq!(store.compact(VB, 1000).expect("compacted"), None, "nothing is left to purge");
    drop(store);
    let store = open(medium);
    assert_eq!(scan_keys(&*store, VB), vec![kept[0].clone(), kept[3].clone()]);
    assert_eq!(scan_keys(&*store, Vbid(4)), kept[1..2], "the other vbucket keeps its tombstone");
    let expected = VbucketState { purge_seqno: Seqno(5), ..state(6) };
    assert_eq!(states(&*store), vec![(VB, expected), (Vbid(4), state(2))]);
}

fn large_values(medium: &dyn Medium) {
    let store = open(medium);
    let sizes = [4095, 16 * 1024 - 37, 16 * 1024, 1 << 20, 20 << 20];
    let mut kept = Vec::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let value: Vec<u8> = (0..size).map(|at| (at * 31 / 7 + number) as u8).collect();
        kept.push(OwnedFields::document(number as u64 + 1, &[b'k', number as u8], &value));
    }
    commit(&*store, VB, &kept);
    // Not assert_eq!, which would print 20 MiB of difference.
    assert!(scan_keys(&*store, VB) == kept, "a large value changed");
    drop(store);
    let store = open(medium);
    for kept in &kept {
        assert!(get(&*store, VB, kept.doc_key()).as_ref() == Some(kept), "a large value changed");
    }
}

fn odd_bytes(medium: &dyn Medium) {
    let store = open(medium);
    let kept = [
        OwnedFields::document(1, b"\0", b"\0"),
        OwnedFields::document(2, &[0xff; 250], b""),
        OwnedFields::document(3, "schlüssel".as_bytes(), b"\xff\xfe"),
    ];
    commit(&*store, VB, &kept);
    drop(store);
    let store = open(medium);
    for kept in &kept {
        assert_eq!(get(&*store, VB, kept.doc_key()).as_ref(), Some(kept));
    }
    let prefix_of_a_key = DocKey { collection: CollectionId::DEFAULT, key: &[0xff; 249] };
    assert_eq!(get(&*store, VB, prefix_of_a_key), None);
}

/// Each thread has its own vbucket, as flusher threads have, while one more reads them all.
fn threads(medium: &dyn Medium) {
    const BATCHES: u64 = 20;
    let store = open(medium);
    std::thread::scope(|scope| {
        for vbid in 0..4 {
            let store = &*store;
            scope.spawn(move || {
                for number in 1..=BATCHES {
                    let kept = [
                        OwnedFields::document(2 * number - 1, b"same", &[number as u8; 50]),
                        OwnedFields::document(2 * number, format!("own-{number}").as_bytes(), b"v"),
                    ];
                    commit(store, Vbid(vbid), &kept);
                    assert_eq!(get(store, Vbid(vbid), kept[0].doc_key()), Some(kept[0].clone()));
                }
            });
        }
        for _ in 0..BATCHES {
            for vbid in 0..4 {
                let own = scan_keys(&*store, Vbid(vbid)).len().saturating_sub(1);
                assert!(own <= BATCHES as usize);
            }
        }
    });
    drop(store);
    let store = open(medium);
    for vbid in 0..4 {
        assert_eq!(scan_keys(&*store, Vbid(vbid)).len() as u64, BATCHES + 1);
    }
    assert_eq!(
        states(&*store),
        (0..4).map(|vb| (Vbid(vb), state(2 * BATCHES))).collect::<Vec<_>>()
    );
}

fn stats_count(medium: &dyn Medium) {
    let store = open(medium);
    let before = store.stats();
    commit(
        &*store,
        VB,
        &[OwnedFields::document(1, b"a", b"value"), OwnedFields::document(2, b"b", b"v")],
    );
    let gone = OwnedFields::tombstone(3, b"a", 7);
    commit(&*store, VB, std::slice::from_ref(&gone));
    let after = store.stats();
    assert_eq!(after.records_committed - before.records_committed, 3);
    assert_eq!(after.deletions_committed - before.deletions_committed, 1);
    assert_eq!(after.bytes_committed - before.bytes_committed, 3 + 6);
    assert_eq!(after.commits - before.commits, 2);
    assert_eq!(after.last_commit_records, 1);
    assert_eq!((after.commit_failures, after.set_failures, after.delete_failures), (0, 0, 0));
    assert!(after.disk_bytes > 0);
    assert_eq!(get(&*store, VB, gone.doc_key()), Some(gone));
    assert_eq!(get(&*store, VB, OwnedFields::document(1, b"missing", b"").doc_key()), None);
    assert_eq!(scan_keys(&*store, VB).len(), 2);
    assert_eq!(scan_seqnos(&*store, VB, 2, 2).len(), 1);
    store.compact(VB, 8).expect("the store compacts");
    let read = store.stats();
    assert_eq!(read.records_read - after.records_read, 1 + 2 + 1);
    assert_eq!(read.bytes_read - after.bytes_read, 1 + 3 + 2);
    assert_eq!((read.read_failures, read.compactions, read.compact_failures), (0, 1, 0));
}
