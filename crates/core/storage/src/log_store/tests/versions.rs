//! Vbucket states of other releases: version 1 is read and written again as version 2, and a store
//! with a later version is neither opened nor changed.

use super::super::LogStore;
use super::super::layout::{Kind, StoredRecord};
use super::super::sim_files::SimDirectory;
use super::damage::{VB, filled, logs, reopen};
use super::driver::options;
use crate::conformance::fixture::states;
use crate::{KvStore, LogOptions, StoreError, VbBatch, VbucketState, encode_state};
use oribi_types::{RevSeqno, Seqno};

/// A state of version 1 with high seqno 77, in the bytes of earlier releases.
const VERSION_ONE: &[u8] = b"\x01\x01\x4d\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
                             \x04\0\0\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";

/// Appends a state as another release wrote it.
fn append_state(store: &LogStore, value: &[u8]) {
    let mut writer = store.shards[0].log.writer.lock();
    let record = StoredRecord::control(Kind::State, VB, b"", value);
    writer.write_controls(&[record]).expect("it is written");
    writer.sync().expect("it is synced");
}

#[test]
fn version_one_in_a_log_is_upgraded() {
    let files = filled();
    append_state(&reopen(&files, &options()).expect("a store"), VERSION_ONE);
    let store = reopen(&files, &options()).expect("version 1 is read");
    let (_, read) = states(&store).remove(0);
    assert_eq!((read.high_seqno, read.snapshot_end), (Seqno(77), Seqno(77)));
    assert_eq!((read.max_deleted_rev_seqno, read.is_intact), (RevSeqno(3), true));
    let state = VbucketState { high_seqno: Seqno(80), snapshot_end: Seqno(90), ..read };
    store
        .commit(&[VbBatch { vbid: VB, records: Vec::new(), state: state.clone() }])
        .expect("the store commits");
    drop(store);
    assert_eq!(states(&reopen(&files, &options()).expect("a store")), [(VB, state)]);
}

#[test]
fn a_log_of_a_later_release_is_not_changed() {
    let files = filled();
    let mut later = encode_state(&VbucketState::empty());
    later[0] = 3;
    append_state(&reopen(&files, &options()).expect("a store"), &later);
    let content = |files: &SimDirectory| {
        logs(files).iter().map(|name| files.content(name)).collect::<Vec<_>>()
    };
    let before = content(&files);
    for accepts_damage in [false, true] {
        let options = LogOptions { accepts_damage, ..options() };
        match reopen(&files, &options) {
            Err(StoreError::Foreign(text)) => {
                assert!(text.contains(".log") && text.contains("format version 3"), "{text}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("an unknown version was opened"),
        }
        assert_eq!(content(&files), before);
    }
}
