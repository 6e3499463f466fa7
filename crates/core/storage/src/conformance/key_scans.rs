//! Checks of scans that begin at a key: where they begin and end, and that they show one moment.

use std::ops::ControlFlow;

use oribi_types::{CollectionId, DocKey, Vbid};

use super::Medium;
use super::fixture::{OwnedFields, commit, open};
use crate::{KvStore, unlimited};

const VB: Vbid = Vbid(3);

fn scan_from(store: &dyn KvStore, collection: u32, key: &[u8]) -> Vec<OwnedFields> {
    let mut seen = Vec::new();
    let from = DocKey { collection: CollectionId(collection), key };
    let outcome = store.scan_collection(VB, from, &mut unlimited, &mut |record| {
        seen.push(OwnedFields::of(record));
        ControlFlow::Continue(())
    });
    outcome.expect("the store scans");
    seen
}

/// A scan has one collection, from its key on.
pub(super) fn bounds(medium: &dyn Medium) {
    let store = open(medium);
    let kept = [
        OwnedFields::document(1, b"z", b"0"),
        OwnedFields::document(2, b"a", b"1").in_collection(8),
        OwnedFields::document(3, b"a\0", b"2").in_collection(8),
        OwnedFields::tombstone(4, b"b", 1_700_000_000).in_collection(8),
        OwnedFields::document(5, b"\xff\xff", b"3").in_collection(8),
        OwnedFields::document(6, b"a", b"4").in_collection(9),
        OwnedFields::document(7, b"b", b"5").in_collection(u32::MAX),
    ];
    commit(&*store, VB, &kept);
    commit(&*store, Vbid(4), &[OwnedFields::document(1, b"a", b"").in_collection(8)]);
    assert_eq!(scan_from(&*store, 8, b""), kept[1..5]);
    assert_eq!(scan_from(&*store, 8, b"a"), kept[1..5], "the key belongs to the range");
    assert_eq!(scan_from(&*store, 8, b"aa"), kept[3..5]);
    assert_eq!(scan_from(&*store, 8, b"\xff\xff\0"), vec![]);
    assert_eq!(scan_from(&*store, 0, b""), kept[..1]);
    assert_eq!(scan_from(&*store, u32::MAX, b"b"), kept[6..]);
    assert_eq!(scan_from(&*store, 10, b""), vec![]);
}

/// Commits during a slow scan are not seen by it, and do not wait for it.
pub(super) fn one_moment(medium: &dyn Medium) {
    let store = open(medium);
    let value = vec![b'v'; 2000];
    let kept: Vec<OwnedFields> = (0..50)
        .map(|at| OwnedFields::document(at + 1, format!("key-{at:02}").as_bytes(), &value))
        .collect();
    commit(&*store, VB, &kept);
    let mut seen = Vec::new();
    let from = DocKey { collection: CollectionId(0), key: b"" };
    let outcome = store.scan_collection(VB, from, &mut unlimited, &mut |record| {
        if seen.is_empty() {
            let later = [
                OwnedFields::document(101, b"key-20", b"changed"),
                OwnedFields::tombstone(102, b"key-30", 1_700_000_000),
                OwnedFields::document(103, b"key-405", b"new"),
            ];
            commit(&*store, VB, &later);
        }
        seen.push(OwnedFields::of(record));
        ControlFlow::Continue(())
    });
    outcome.expect("the store scans");
    assert_eq!(seen, kept);
    assert_eq!(scan_from(&*store, 0, b"key-").len(), 51);
}
