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

/// A store whose documents are all in its journal, as those of every small store are.
fn journalled() -> DirectoryMedium {
    let medium = DirectoryMedium::new(FjallOptions::default());
    let store = medium.open().expect("a new store");
    for round in 0..20 {
        commit_values(&*store, Vbid(0), round * 10 + 1, &values(round * 10 + 1));
    }
    medium
}

/// Length of the journal up to its last byte that is not zero.
fn written_bytes(journal: &[u8]) -> usize {
    journal.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Found while reading fjall: damage in a journal made it drop every batch behind the damage, and
/// cut them off the file. Whatever byte is damaged, nothing acknowledged may go missing unnoticed.
#[test]
fn damage_in_a_journal_never_drops_what_is_behind_it() {
    let original = journalled();
    let journal = original.path().join("0.jnl");
    let sound = fs::read(&journal).expect("readable");
    let written = written_bytes(&sound);
    let last_batch = 8_000;
    let mut random = SeededRandom::new(0x10a1);
    for _ in 0..300 {
        let mut content = sound[..written].to_vec();
        let at = random.below((written - last_batch) as u64) as usize;
        match random.below(3) {
            0 => content[at] ^= 1 << random.below(8),
            1 => content[at] = random.number() as u8,
            _ => {
                let end = (at + 4096).min(written - last_batch);
                content[at..end].iter_mut().for_each(|byte| *byte = random.number() as u8);
            }
        }
        fs::write(&journal, &content).expect("written");
        match original.open() {
            Ok(store) => {
                let shown = super::count(&*store, Vbid(0));
                assert!(!matches!(shown, Ok(records) if records < 200), "lost at {at}: {shown:?}");
            }
            Err(_) => {
                let after = fs::read(&journal).expect("readable");
                assert!(after == content, "a refused journal was changed, damage at {at}");
            }
        }
    }
}

/// What a crash leaves is not damage: the journal ends anywhere in its last batch.
#[test]
fn a_cut_off_last_batch_is_discarded() {
    let original = journalled();
    let journal = original.path().join("0.jnl");
    let sound = fs::read(&journal).expect("readable");
    let written = written_bytes(&sound);
    let mut random = SeededRandom::new(0xc07);
    for round in 0..60 {
        let cut = written - 1 - random.below(1_500) as usize;
        let mut content = sound[..cut].to_vec();
        if round % 2 == 0 {
            // The zeros that the file was made with.
            content.resize(written + 100_000, 0);
        }
        fs::write(&journal, &content).expect("written");
        let store = original.open().expect("a crash is not damage");
        let shown = super::count(&*store, Vbid(0)).expect("scans");
        assert_eq!(shown, 190, "the cut-off batch is gone as a whole, cut at {cut}");
    }
}

/// A power loss can leave a hole in the last group commit; the operator may say that it was one.
#[test]
fn damage_is_accepted_when_the_operator_says_so() {
    let original = journalled();
    let journal = original.path().join("0.jnl");
    let mut content = fs::read(&journal).expect("readable");
    let damage = written_bytes(&content) / 2;
    content[damage..damage + 4096].fill(0xa5);
    fs::write(&journal, &content).expect("written");
    assert!(matches!(original.open(), Err(crate::StoreError::Corrupt(_))));
    let told = FjallOptions { accepts_damaged_journal: true, ..FjallOptions::default() };
    let store = crate::FjallStore::open(&original.path(), told).expect("opens as told");
    let shown = super::count(&store, Vbid(0)).expect("scans");
    assert!((1..200).contains(&shown), "everything before the damage, nothing behind it: {shown}");
    drop(store);
    let again = original.open().expect("the damage is gone");
    assert_eq!(super::count(&*again, Vbid(0)).expect("scans"), shown);
}

#[test]
fn a_store_without_its_journal_is_refused() {
    let medium = journalled();
    fs::remove_file(medium.path().join("0.jnl")).expect("removed");
    assert!(matches!(medium.open(), Err(crate::StoreError::Corrupt(_))));
}

fn copy(from: &Path, to: &Path) {
    for name in files(from) {
        let copied = to.join(name.strip_prefix(from).expect("of the store"));
        fs::create_dir_all(copied.parent().expect("a file has a directory")).expect("made");
        fs::copy(&name, copied).expect("copied");
    }
}
