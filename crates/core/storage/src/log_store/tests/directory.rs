//! Whose directory it is, and what is never overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oribi_types::Vbid;

use super::super::{LogOptions, LogStore, STORE_KIND};
use crate::conformance::fixture::{OwnedFields, commit, scan_keys};
use crate::directory::{
    Directory, LOGS_MAX, MARKER_BYTES, MARKER_BYTES_OF_SEVERAL, MARKER_NEW, MARKER_READY,
    MARKER_STATE_AT,
};
use crate::{KvStore, StoreError};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/storage-format.md"));

/// A place for a store that does not exist yet.
fn place() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let path = scratch.path().join("store");
    (scratch, path)
}

fn open(path: &Path) -> Result<LogStore, StoreError> {
    LogStore::open(path, LogOptions::default())
}

/// A closed, empty store.
fn closed_store() -> (tempfile::TempDir, PathBuf) {
    let (scratch, path) = place();
    drop(open(&path).expect("a new store"));
    (scratch, path)
}

/// Every file of the directory with its content.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(path).expect("the directory is readable");
    let paths = entries.map(|entry| entry.expect("the directory is readable").path());
    paths.map(|path| (path.clone(), fs::read(path).expect("the file is readable"))).collect()
}

/// Opens, expects the refusal `is_expected`, and checks that no file changed.
fn assert_refused(path: &Path, is_expected: fn(&StoreError) -> bool) {
    let before = contents(path);
    let error = open(path).err().expect("the directory must be refused");
    assert!(is_expected(&error), "{error}");
    assert!(contents(path) == before, "a refused directory was changed: {error}");
}

fn is_foreign(error: &StoreError) -> bool {
    matches!(error, StoreError::Foreign(_))
}

fn is_corrupt(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt(_))
}

#[test]
fn the_document_says_what_the_marker_is() {
    let rows = [
        format!("| `MARKER_STATE_AT` | {MARKER_STATE_AT} |"),
        format!("| `MARKER_BYTES` | {MARKER_BYTES} |"),
        format!("| `MARKER_NEW` | `{}` |", char::from(MARKER_NEW)),
        format!("| `MARKER_READY` | `{}` |", char::from(MARKER_READY)),
        "| `MARKER_TEXT` | `oribi-store 2 ` |".to_owned(),
        "| `MARKER_TEXT` of several logs | `oribi-store 3 ` |".to_owned(),
        format!("| `MARKER_BYTES_OF_SEVERAL` | {MARKER_BYTES_OF_SEVERAL} |"),
        format!("| `LOGS_MAX` | {LOGS_MAX} |"),
    ];
    for row in rows {
        assert!(DOCUMENT.contains(&row), "{row}");
    }
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let (_scratch, path) = place();
    fs::create_dir(&path).expect("made");
    fs::write(path.join("thesis.txt"), "years of work").expect("written");
    assert_refused(&path, is_foreign);
}

#[test]
fn a_log_without_the_marker_is_left_alone() {
    let (_scratch, path) = closed_store();
    fs::remove_file(path.join("oribi-store")).expect("removed");
    assert_refused(&path, is_foreign);
}

/// Version 1 is that of the sorted tables of early builds.
#[test]
fn another_format_is_left_alone() {
    let (_scratch, path) = closed_store();
    for marker in ["oribi-store 1 r\n", "oribi-store 4 r\n"] {
        fs::write(path.join("oribi-store"), marker).expect("written");
        assert_refused(&path, is_foreign);
    }
}

#[test]
fn a_damaged_marker_is_left_alone() {
    let (_scratch, path) = closed_store();
    for marker in ["oribi-store 2 x\n", "oribi-store 2 r", "oribi-store 2 r\nmore", "garbage"] {
        fs::write(path.join("oribi-store"), marker).expect("written");
        assert_refused(&path, is_corrupt);
    }
    for line in ["", "00", "01", "1", "2", "002", "65", "99", "-3", "+3", " 3", "3x", "0x"] {
        for end in [" logs\n", " logs", "\n", " logs\n\n"] {
            fs::write(path.join("oribi-store"), format!("oribi-store 3 r\n{line}{end}"))
                .expect("written");
            assert_refused(&path, is_corrupt);
        }
    }
    for marker in ["oribi-store 3 r\n", "oribi-store 3 r", "oribi-store 2 r\n02 logs\n"] {
        fs::write(path.join("oribi-store"), marker).expect("written");
        assert_refused(&path, is_corrupt);
    }
}

/// A store of three logs with a document in each of five vbuckets, closed.
fn closed_store_of_three() -> (tempfile::TempDir, PathBuf, Vec<OwnedFields>) {
    let (scratch, path) = place();
    let store = open_with(&path, 3).expect("a new store");
    let kept: Vec<OwnedFields> =
        (1..=5).map(|seqno| OwnedFields::document(seqno, &[seqno as u8], b"value")).collect();
    for (vbid, kept) in (0..).zip(&kept) {
        commit(&store, Vbid(vbid), std::slice::from_ref(kept));
    }
    drop(store);
    (scratch, path, kept)
}

fn open_with(path: &Path, logs: usize) -> Result<LogStore, StoreError> {
    LogStore::open(path, LogOptions { logs, ..LogOptions::default() })
}

/// Every file of the directory, and the names of its subdirectories.
fn names_in(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("the directory is readable");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("the directory is readable").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_store_keeps_its_number_of_logs() {
    let (_scratch, path, kept) = closed_store_of_three();
    assert_eq!(names_in(&path), ["log-00", "log-01", "log-02", "oribi-store"]);
    let marker = fs::read(path.join("oribi-store")).expect("read");
    assert_eq!(marker, b"oribi-store 3 r\n03 logs\n");
    for logs in [1, 2, 3, 64] {
        let store = open_with(&path, logs).expect("it opens");
        assert!(store.properties().ended_in_order && store.properties().commit_groups == 3);
        for (vbid, kept) in (0..).zip(&kept) {
            assert_eq!(scan_keys(&store, Vbid(vbid)), std::slice::from_ref(kept));
        }
    }
    let (_scratch, path) = closed_store();
    assert_eq!(names_in(&path), ["0000000001.log", "oribi-store"]);
    let marker = fs::read(path.join("oribi-store")).expect("read");
    assert_eq!(marker, b"oribi-store 2 r\n");
    assert_eq!(open_with(&path, 3).expect("it opens").properties().commit_groups, 1);
}

#[test]
fn an_impossible_log_count_becomes_the_nearest() {
    for (asked, made) in [(0, 1), (64, 64), (usize::MAX, 64)] {
        let (_scratch, path) = place();
        assert_eq!(open_with(&path, asked).expect("a new store").properties().commit_groups, made);
        assert_eq!(open_with(&path, 1).expect("it opens").properties().commit_groups, made);
    }
}

#[test]
fn a_missing_log_is_damage_and_so_are_exchanged_ones() {
    let (_scratch, path, kept) = closed_store_of_three();
    let (first, second) = (path.join("log-00"), path.join("log-01"));
    let aside = path.join("aside");
    fs::rename(&second, &aside).expect("moved");
    let error = open(&path).err().expect("a log is missing");
    assert!(is_corrupt(&error) && error.to_string().contains("log-01 is missing"), "{error}");
    fs::write(&second, "a file").expect("written");
    assert!(is_corrupt(&open(&path).err().expect("a log is a file")));
    fs::remove_file(&second).expect("removed");

    fs::rename(&first, &second).expect("moved");
    fs::rename(&aside, &first).expect("moved");
    let error = open(&path).err().expect("each vbucket has a log of its own");
    assert!(is_corrupt(&error) && error.to_string().contains("log-00: has vb"), "{error}");
    fs::rename(&first, &aside).expect("moved");
    fs::rename(&second, &first).expect("moved");
    fs::rename(&aside, &second).expect("moved");
    let store = open(&path).expect("everything is there again");
    assert_eq!(scan_keys(&store, Vbid(4)), &kept[4..]);
}

/// Damage is told with the name of the log, because each has a segment of the same name.
#[test]
fn damage_is_told_with_its_log() {
    let (_scratch, path, _) = closed_store_of_three();
    let file = path.join("log-02/0000000001.log");
    let mut content = fs::read(&file).expect("read");
    content[100] ^= 1;
    fs::write(&file, content).expect("written");
    let error = open(&path).err().expect("damage is noticed");
    assert!(is_corrupt(&error), "{error}");
    assert!(error.to_string().contains("log-02: 0000000001.log: "), "{error}");
}

/// Whatever a creation left, with any number of logs, the next one makes what it is asked for.
#[test]
fn an_interrupted_creation_of_logs_starts_over() {
    for marker in ["", "oribi-store 2 n\n", "oribi-store 3 n\n04 logs\n"] {
        for (left, asked) in [(0, 1), (0, 3), (4, 1), (4, 3), (2, 4)] {
            let (_scratch, path) = place();
            fs::create_dir(&path).expect("made");
            fs::write(path.join("oribi-store"), marker).expect("written");
            fs::write(path.join("0000000001.log"), "half a").expect("written");
            for number in 0..left {
                let directory = path.join(format!("log-{number:02}"));
                fs::create_dir(&directory).expect("made");
                fs::write(directory.join("0000000001.log"), "half a").expect("written");
            }
            let store = open_with(&path, asked).expect("the creation starts over");
            let kept = OwnedFields::document(1, b"key", b"value");
            commit(&store, Vbid(2), std::slice::from_ref(&kept));
            drop(store);
            let names = names_in(&path);
            assert_eq!(names.len(), if asked == 1 { 2 } else { 1 + asked }, "{names:?}");
            let store = open_with(&path, 9).expect("it opens");
            assert_eq!(store.properties().commit_groups, asked);
            assert_eq!(scan_keys(&store, Vbid(2)), [kept]);
        }
    }
}

#[test]
fn a_second_opening_is_refused_while_the_first_lasts() {
    let (_scratch, path) = place();
    let first = open(&path).expect("a new store");
    assert!(is_foreign(&open(&path).err().expect("the store is in use")));
    drop(first);
    open(&path).expect("the lock is gone with the store");
}

/// Another thread that starts a process has copies of all descriptors for a moment: the lock of a
/// closed store stayed with one of them, and the store was "in use".
#[test]
fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
    let (_scratch, path) = place();
    let directory = Directory::claim(&path, &STORE_KIND, 1).expect("a new store");
    let copy = directory.copy_of_marker();
    drop(directory);
    drop(Directory::claim(&path, &STORE_KIND, 1).expect("the lock is gone with the store"));
    drop(copy);
}

#[test]
fn a_path_that_is_a_file_is_an_error() {
    let (_scratch, path) = place();
    fs::write(&path, "a file").expect("written");
    assert!(open(&path).is_err());
    assert_eq!(fs::read(&path).expect("still there"), b"a file");
}

/// A creation that was cut off starts over, whatever it had made, and is complete afterwards; a
/// complete store without its files does not.
#[test]
fn an_interrupted_creation_starts_over() {
    for (marker, log) in
        [("", None), ("oribi-store 2 n\n", None), ("oribi-store 2 n\n", Some("half a"))]
    {
        let (_scratch, path) = place();
        fs::create_dir(&path).expect("made");
        fs::write(path.join("oribi-store"), marker).expect("written");
        if let Some(log) = log {
            fs::write(path.join("0000000001.log"), log).expect("written");
        }
        let store = open(&path).expect("the creation starts over");
        let kept = OwnedFields::document(1, b"key", b"value");
        commit(&store, Vbid(0), std::slice::from_ref(&kept));
        drop(store);
        let store = open(&path).expect("opens");
        assert_eq!(scan_keys(&store, Vbid(0)), [kept]);
        drop(store);
        fs::remove_file(path.join("0000000001.log")).expect("removed");
        assert_refused(&path, is_corrupt);
    }
}
