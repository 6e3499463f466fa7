//! Whose directory it is, and what is never overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oribi_types::Vbid;

use super::super::{LogOptions, LogStore, STORE_KIND};
use crate::StoreError;
use crate::conformance::fixture::{Kept, commit, scan_keys};
use crate::directory::{Directory, MARKER_BYTES, MARKER_NEW, MARKER_READY, MARKER_STATE_AT};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/storage-format.md"));

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
    for marker in ["oribi-store 1 r\n", "oribi-store 3 r\n"] {
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
        let kept = Kept::document(1, b"key", b"value");
        commit(&store, Vbid(0), std::slice::from_ref(&kept));
        drop(store);
        let store = open(&path).expect("opens");
        assert_eq!(scan_keys(&store, Vbid(0)), [kept]);
        drop(store);
        fs::remove_file(path.join("0000000001.log")).expect("removed");
        assert_refused(&path, is_corrupt);
    }
}
