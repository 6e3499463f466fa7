//! Checks of the content of one commit. Each starts on an empty medium and checks one rule of the
//! trait.

use oribi_types::Vbid;

use super::Medium;
use super::fixture::{OwnedFields, batch, get, open, scan_keys, state, states};
use crate::VbBatch;

pub(super) fn group_commit(medium: &dyn Medium) {
    let store = open(medium);
    let kept: Vec<OwnedFields> =
        (1..=64).map(|seqno| OwnedFields::document(seqno, b"key", &[seqno as u8; 100])).collect();
    let batches: Vec<VbBatch<'_>> = kept
        .iter()
        .zip(0..)
        .map(|(kept, vbid)| {
            batch(Vbid(vbid), std::slice::from_ref(kept), state(u64::from(vbid) + 1))
        })
        .collect();
    store.commit(&batches).expect("the store commits");
    drop(store);
    let store = open(medium);
    assert_eq!(states(&*store).len(), 64);
    for vbid in 0..64 {
        assert_eq!(scan_keys(&*store, Vbid(vbid)), vec![kept[usize::from(vbid)].clone()]);
    }
}

/// A key may be in several batches of one vbucket, as in several checkpoints of its queue: the last
/// one counts.
pub(super) fn same_vbucket_again(medium: &dyn Medium) {
    const VB: Vbid = Vbid(3);
    let older = [OwnedFields::document(1, b"a", b"old"), OwnedFields::document(2, b"b", b"kept")];
    let newer = [OwnedFields::document(3, b"c", b"new"), OwnedFields::document(4, b"a", b"new")];
    let store = open(medium);
    let batches = [batch(VB, &older, state(2)), batch(VB, &newer, state(4))];
    store.commit(&batches).expect("the store commits");
    let check = |store: &dyn crate::KvStore| {
        assert_eq!(get(store, VB, newer[1].doc_key()).as_ref(), Some(&newer[1]));
        let found = scan_keys(store, VB);
        assert_eq!(found, [newer[1].clone(), older[1].clone(), newer[0].clone()]);
        assert_eq!(states(store), [(VB, state(4))]);
    };
    check(&*store);
    drop(store);
    check(&*open(medium));
}
