//! When a store packs its index, and when it does not.

use oribi_types::Vbid;

use super::super::planted::Bug;
use super::super::sim_files::SimDirectory;
use super::super::{LogOptions, LogStore, Packing};
use super::driver::options;
use crate::conformance::fixture::{OwnedFields, commit};

const VB: Vbid = Vbid(1);
const EXACT_KEYS: u64 = 5000;

/// Bytes of index for each key of a store with so many, before and after a restart.
fn bytes_each(keys: u64, recent_bytes: u64) -> [u64; 2] {
    let packing = Packing { exact_keys: EXACT_KEYS, recent_bytes, ..Packing::default() };
    let options = LogOptions { packing: Some(packing), segment_bytes: 16 << 10, ..options() };
    let files = SimDirectory::new(keys);
    let open = |is_made| {
        LogStore::open_simulated(&files, is_made, &options, Bug::None).expect("the store opens")
    };
    let each = |store: &LogStore| {
        let sizes = store.sizes();
        assert_eq!(sizes.keys, keys);
        sizes.index_bytes / keys
    };
    let mut store = open(false);
    let numbers: Vec<u64> = (1..=keys).collect();
    for some in numbers.chunks(100) {
        let key =
            |seqno: &u64| OwnedFields::document(*seqno, format!("key-{seqno}").as_bytes(), b"v");
        commit(&store, VB, &some.iter().map(key).collect::<Vec<_>>());
    }
    let before = each(&store);
    drop(store);
    store = open(true);
    [before, each(&store)]
}

/// A bucket whose data fits pays nothing for the index of one whose data does not.
#[test]
fn only_old_entries_of_many_are_packed() {
    for (keys, recent_bytes, is_packed) in
        [(EXACT_KEYS, 0, false), (4 * EXACT_KEYS, 0, true), (4 * EXACT_KEYS, 1 << 20, false)]
    {
        for each in bytes_each(keys, recent_bytes) {
            assert_eq!(each < 11, is_packed, "{each} bytes each of {keys}, {recent_bytes} recent");
            assert!(each >= 5, "{each} bytes each of {keys}");
        }
    }
}
