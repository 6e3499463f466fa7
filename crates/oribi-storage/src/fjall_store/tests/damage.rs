//! Damaged files: an error, never a panic, and never a wrong document.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use oribi_types::{Seqno, Vbid};

use super::{DirectoryMedium, commit_values};
use crate::{FjallOptions, KvStore, Medium, SeededRandom};

/// Largest of the values, so that blob files are there to be damaged too.
const LARGE_BYTES: usize = 20_000;

/// A store with tables, blobs and a journal that has something to replay.
fn filled() -> DirectoryMedium {
    let options = FjallOptions { memtable_bytes: 1, ..FjallOptions::default() };
    let medium = DirectoryMedium::new(options);
    let store = medium.open().expect("a new store");
    for round in 0..4 {
        commit_values(&*store, Vbid(0), round * 10 + 1, &values(round * 10 + 1));
    }
    drop(store);
    let quiet = FjallOptions::default();
    let store = crate::FjallStore::open(&medium.path(), quiet).expect("reopens");
    commit_values(&store, Vbid(0), 41, &values(41));
    medium
}

/// Values that tell their seqno.
fn values(first_seqno: u64) -> Vec<Vec<u8>> {
    let value = |seqno: u64| {
        let bytes = if seqno.is_multiple_of(5) { LARGE_BYTES } else { 100 };
        vec![seqno as u8; bytes]
    };
    (first_seqno..).take(10).map(value).collect()
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).expect("the directory is readable") {
        let entry = entry.expect("the directory is readable").path();
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

/// Reads everything; whatever is shown must be what was written.
fn read_all(store: &dyn KvStore) {
    let mut check = |record: crate::Record<'_>| {
        let seqno = record.seqno.0;
        assert_eq!(record.key.key, format!("key-{seqno}").as_bytes(), "a wrong key is shown");
        assert!(record.value.iter().all(|byte| *byte == seqno as u8), "a wrong value is shown");
        ControlFlow::Continue(())
    };
    // Failing is right here; showing wrong documents or panicking is not.
    _ = store.scan_keys(Vbid(0), &mut check);
    _ = store.scan_seqnos(Vbid(0), Seqno(0), Seqno(u64::MAX), &mut check);
    _ = store.vbucket_states();
    _ = store.get_local("manifest");
}

#[test]
fn flipped_bytes_are_errors_and_not_panics() {
    let mut random = SeededRandom::new(0xda3a);
    let original = filled();
    let names = files(&original.path());
    assert!(names.len() >= 8, "the store has files of each kind: {names:?}");
    let mut refused = 0;
    for round in 0..60 {
        let medium = DirectoryMedium::new(FjallOptions::default());
        copy(&original.path(), &medium.path());
        let name = &names[round % names.len()];
        let name = medium.path().join(name.strip_prefix(original.path()).expect("of the store"));
        let mut content = fs::read(&name).expect("readable");
        // Journals are 64 MiB of mostly nothing: aim at their beginning.
        let reach = (content.len() as u64).min(60_000);
        if reach == 0 {
            continue;
        }
        content[random.below(reach) as usize] ^= 1 << random.below(8);
        if random.below(4) == 0 {
            content.truncate(random.below(reach) as usize);
        }
        fs::write(&name, content).expect("written");
        match medium.open() {
            Ok(store) => read_all(&*store),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0, "no damage was ever noticed when opening");
}

fn copy(from: &Path, to: &Path) {
    for name in files(from) {
        let copied = to.join(name.strip_prefix(from).expect("of the store"));
        fs::create_dir_all(copied.parent().expect("a file has a directory")).expect("made");
        fs::copy(&name, copied).expect("copied");
    }
}
