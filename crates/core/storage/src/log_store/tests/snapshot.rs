//! Copies of a store by hard links, of one log and of several, while it is written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_testkit::StopOnDrop;
use oribi_types::Vbid;

use super::super::{LogOptions, LogStore, snapshot_log};
use crate::KvStore;
use crate::conformance::fixture::{OwnedFields, commit, scan_keys};

/// Vbuckets, more than there are logs.
const VBUCKETS: u16 = 5;

fn options(logs: usize) -> LogOptions {
    LogOptions { logs, segment_bytes: 16 << 10, ..LogOptions::default() }
}

fn open(path: &Path, logs: usize) -> LogStore {
    LogStore::open(path, options(logs)).expect("the store opens")
}

fn kept(vbid: u16, seqno: u64) -> OwnedFields {
    OwnedFields::document(seqno, format!("{vbid}-{}", seqno % 50).as_bytes(), &[seqno as u8; 700])
}

/// Files of a directory and its subdirectories.
fn files_in(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("the directory is readable");
    let paths = entries.map(|entry| entry.expect("the directory is readable").path());
    paths.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

fn snapshot_of(logs: usize) {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let (from, to) = (scratch.path().join("store"), scratch.path().join("copy"));
    let store = open(&from, logs);
    for seqno in 1..=100 {
        (0..VBUCKETS).for_each(|vbid| commit(&store, Vbid(vbid), &[kept(vbid, seqno)]));
    }
    store.put_local("manifest", b"early").expect("written");
    let expected: Vec<Vec<OwnedFields>> =
        (0..VBUCKETS).map(|vbid| scan_keys(&store, Vbid(vbid))).collect();
    let sizes = snapshot_log(&from, &to).expect("a copy");
    assert!(sizes.linked > 0 && sizes.copied_bytes > 0, "{sizes:?}");
    // What comes later is not in it, though files are shared.
    (0..VBUCKETS).for_each(|vbid| commit(&store, Vbid(vbid), &[kept(vbid, 101)]));
    store.put_local("manifest", b"late").expect("written");
    let copied = files_in(&to).into_iter();
    let shared = copied.filter(|file| file.metadata().expect("there").nlink() > 1);
    assert!(shared.count() as u64 >= sizes.linked);

    let copy = open(&to, 1);
    assert_eq!(copy.properties().commit_groups, logs);
    for (vbid, expected) in (0..).zip(&expected) {
        assert_eq!(scan_keys(&copy, Vbid(vbid)), *expected);
    }
    assert_eq!(copy.get_local("manifest").expect("read").as_deref(), Some(&b"early"[..]));
}

#[test]
fn a_copy_has_what_was_there() {
    snapshot_of(1);
    snapshot_of(3);
}

/// The manifest that is copied is never older than the documents that are: each document is written
/// after the local document that names it.
#[test]
fn a_copy_under_load_knows_all_that_is_in_it() {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let from = scratch.path().join("store");
    let store = open(&from, 3);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = StopOnDrop(&is_over);
        scope.spawn(|| {
            for seqno in 1.. {
                let manifest = format!("{seqno}");
                store.put_local("manifest", manifest.as_bytes()).expect("written");
                (0..VBUCKETS).for_each(|vbid| commit(&store, Vbid(vbid), &[kept(vbid, seqno)]));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for number in 0..10 {
            let to = scratch.path().join(format!("copy-{number}"));
            snapshot_log(&from, &to).expect("a copy");
            let copy = open(&to, 1);
            let manifest = copy.get_local("manifest").expect("read").unwrap_or_default();
            let known: u64 = String::from_utf8_lossy(&manifest).parse().unwrap_or(0);
            let states = copy.vbucket_states().expect("read");
            let highest = states.iter().map(|(_, state)| state.high_seqno.0).max().unwrap_or(0);
            assert!(highest <= known, "the copy has {highest} and knows of {known}");
        }
    });
}

/// A store of several logs that is still being made has nothing, and its copy neither.
#[test]
fn a_copy_of_an_unfinished_store_is_a_new_one() {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let (from, to) = (scratch.path().join("store"), scratch.path().join("copy"));
    fs::create_dir(&from).expect("made");
    fs::write(from.join("oribi-store"), "oribi-store 3 n\n03 logs\n").expect("written");
    snapshot_log(&from, &to).expect("a copy");
    assert_eq!(open(&to, 2).properties().commit_groups, 2);

    fs::write(from.join("oribi-store"), "oribi-store 3 r\n99 logs\n").expect("written");
    assert!(snapshot_log(&from, &scratch.path().join("bad")).is_err());
}

/// Vbuckets of the numbered documents: neighbours are in different logs of four.
const NUMBERED_VBUCKETS: u64 = 7;

/// The numbers of the documents that [`write_numbered`] wrote and the store has, in order.
fn numbers(store: &LogStore) -> Vec<u64> {
    let all = (0..NUMBERED_VBUCKETS as u16).flat_map(|vbid| scan_keys(store, Vbid(vbid)));
    let text = |kept: OwnedFields| String::from_utf8(kept.key).expect("the key is a number");
    let mut numbers: Vec<u64> =
        all.map(|kept| text(kept).parse().expect("the key is a number")).collect();
    numbers.sort_unstable();
    numbers
}

/// Writes one document after the other, each durable before the next, until it is told to end.
/// `durable` is the number of the last one that is.
fn write_numbered(store: &LogStore, durable: &AtomicU64, is_over: &AtomicBool) {
    for number in (1..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
        let vbid = Vbid((number % NUMBERED_VBUCKETS) as u16);
        let value = vec![number as u8; 100 + (number * 37 % 900) as usize];
        let seqno = number / NUMBERED_VBUCKETS + 1;
        commit(store, vbid, &[OwnedFields::document(seqno, number.to_string().as_bytes(), &value)]);
        durable.store(number, Ordering::Release);
    }
}

// Invariant: A snapshot by hard links has everything that was durable when it began, and never
// changes.
/// A copy of several logs is one moment of all of them: where a document is, all are that were
/// durable before it was written.
#[test]
fn a_copy_under_load_is_one_moment_of_all_logs() {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let from = scratch.path().join("store");
    let store = LogStore::open(&from, LogOptions { segment_bytes: 64 << 10, ..options(4) });
    let store = store.expect("the store opens");
    let (durable, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stopped = StopOnDrop(&is_over);
        scope.spawn(|| write_numbered(&store, &durable, &is_over));
        for round in 0..20 {
            let to = scratch.path().join(format!("copy-{round}"));
            let least = durable.load(Ordering::Acquire);
            snapshot_log(&from, &to).expect("a copy");
            let found = numbers(&open(&to, 1));
            let newest = found.last().copied().unwrap_or(0);
            assert!(newest >= least, "the copy ends at {newest}, and {least} was durable");
            assert!(found.iter().copied().eq(1..=newest), "round {round}: {newest} without some");
            fs::remove_dir_all(&to).expect("removed");
        }
    });
}
