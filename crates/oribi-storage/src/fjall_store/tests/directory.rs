//! Whose directory it is, and what is never overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use oribi_types::Vbid;

use super::{DirectoryMedium, commit_values, count};
use crate::{FjallOptions, FjallStore, Medium, StoreError};

/// Every file below `path` with its content.
fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).expect("the directory is readable") {
        let entry = entry.expect("the directory is readable").path();
        if entry.is_dir() {
            found.extend(contents(&entry));
        } else {
            let content = fs::read(&entry).expect("the file is readable");
            found.insert(entry.display().to_string(), content);
        }
    }
    found
}

/// Opens, expects the refusal `is_expected`, and checks that no file changed.
fn assert_refused(medium: &DirectoryMedium, is_expected: fn(&StoreError) -> bool) {
    let before = contents(&medium.path());
    let error = medium.open().err().expect("the directory must be refused");
    assert!(is_expected(&error), "{error}");
    assert!(contents(&medium.path()) == before, "a refused directory was changed: {error}");
}

fn is_foreign(error: &StoreError) -> bool {
    matches!(error, StoreError::Foreign(_))
}

fn is_corrupt(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt(_))
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    fs::create_dir(medium.path()).expect("made");
    fs::write(medium.path().join("thesis.txt"), "years of work").expect("written");
    assert_refused(&medium, is_foreign);
}

#[test]
fn a_database_without_the_marker_is_left_alone() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    drop(medium.open().expect("a new store"));
    fs::remove_file(medium.path().join("oribi-store")).expect("removed");
    assert_refused(&medium, is_foreign);
}

#[test]
fn another_format_version_is_left_alone() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    drop(medium.open().expect("a new store"));
    fs::write(medium.path().join("oribi-store"), "oribi-store 2 r\n").expect("written");
    assert_refused(&medium, is_foreign);
}

#[test]
fn a_damaged_marker_is_left_alone() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    drop(medium.open().expect("a new store"));
    for marker in ["oribi-store 1 x\n", "oribi-store 1 r", "oribi-store 1 r\nmore", "garbage"] {
        fs::write(medium.path().join("oribi-store"), marker).expect("written");
        assert_refused(&medium, is_corrupt);
    }
}

#[test]
fn a_ready_store_with_missing_files_is_left_alone() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    drop(medium.open().expect("a new store"));
    fs::remove_file(medium.path().join("version")).expect("removed");
    assert_refused(&medium, is_corrupt);
}

#[test]
fn a_second_opening_is_refused_while_the_first_lasts() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    let first = medium.open().expect("a new store");
    assert!(is_foreign(&medium.open().err().expect("the store is in use")));
    drop(first);
    medium.open().expect("the lock is gone with the store");
}

#[test]
fn a_path_that_is_a_file_is_an_error() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    fs::write(medium.path(), "a file").expect("written");
    assert!(medium.open().is_err());
    assert_eq!(fs::read(medium.path()).expect("still there"), b"a file");
}

/// Cuts a creation off after each of its files in turn: the next open makes the store again.
#[test]
fn an_interrupted_creation_starts_over() {
    let whole = DirectoryMedium::new(FjallOptions::default());
    drop(whole.open().expect("a new store"));
    let names: Vec<String> = contents(&whole.path()).into_keys().collect();
    for kept in 0..=names.len() {
        let medium = DirectoryMedium::new(FjallOptions::default());
        fs::create_dir(medium.path()).expect("made");
        fs::write(medium.path().join("oribi-store"), "oribi-store 1 n\n").expect("written");
        for name in names.iter().take(kept).filter(|name| !name.ends_with("oribi-store")) {
            let relative = Path::new(name).strip_prefix(whole.path()).expect("a file of the store");
            let copy = medium.path().join(relative);
            fs::create_dir_all(copy.parent().expect("a file has a directory")).expect("made");
            fs::copy(name, copy).expect("copied");
        }
        let store = medium.open().expect("the creation starts over");
        commit_values(&*store, Vbid(0), 1, &[b"value".to_vec()]);
        drop(store);
        assert_eq!(count(&*medium.open().expect("reopens"), Vbid(0)).expect("scans"), 1);
    }
}

#[test]
fn an_empty_marker_is_an_interrupted_creation() {
    let medium = DirectoryMedium::new(FjallOptions::default());
    fs::create_dir(medium.path()).expect("made");
    fs::write(medium.path().join("oribi-store"), "").expect("written");
    drop(medium.open().expect("the creation starts over"));
    drop(FjallStore::open(&medium.path(), FjallOptions::default()).expect("and is complete"));
}
