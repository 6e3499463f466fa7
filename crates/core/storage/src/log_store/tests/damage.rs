//! Damaged files: refused with file and offset, never a panic, never a wrong document; a tail that
//! a crash left is cut off; bad index files are as good as none.

use super::super::planted::Bug;
use super::super::sim_files::SimDirectory;
use super::super::{LogOptions, LogStore};
use super::driver::{options, passes};
use crate::conformance::fixture::{OwnedFields, commit, get, scan_keys};
use crate::directory::DirectoryState;
use crate::{KvStore, SeededRandom, StoreError, load_all, unlimited};
use oribi_types::Vbid;

pub(super) const VB: Vbid = Vbid(1);
pub(super) const COMMITS: u64 = 30;
/// Seed of simulated files that are written in blocks.
const IN_BLOCKS: u64 = 2;

fn open_with(
    files: &SimDirectory,
    found: DirectoryState,
    options: &LogOptions,
    bug: Bug,
) -> Result<LogStore, StoreError> {
    LogStore::open_simulated(files, found == DirectoryState::Ready, options, bug)
}

pub(super) fn reopen(files: &SimDirectory, options: &LogOptions) -> Result<LogStore, StoreError> {
    open_with(files, DirectoryState::Ready, options, Bug::None)
}

pub(super) fn kept(seqno: u64) -> OwnedFields {
    OwnedFields::document(seqno, format!("key-{seqno}").as_bytes(), &[seqno as u8; 300])
}

/// Thirty documents, a commit each, over several segments.
pub(super) fn filled() -> SimDirectory {
    filled_in(SimDirectory::new(1))
}

fn filled_in(files: SimDirectory) -> SimDirectory {
    let store = open_with(&files, DirectoryState::New, &options(), Bug::None).expect("a new store");
    for seqno in 1..=COMMITS {
        commit(&store, VB, &[kept(seqno)]);
    }
    drop(store);
    files
}

pub(super) fn logs(files: &SimDirectory) -> Vec<String> {
    files.names().into_iter().filter(|name| name.ends_with(".log")).collect()
}

pub(super) fn unhinted() -> LogOptions {
    LogOptions { reads_hints: false, ..options() }
}

/// Whatever is shown must be what was written.
pub(super) fn shown(store: &LogStore) -> usize {
    let seen = scan_keys(store, VB);
    for found in &seen {
        assert_eq!(*found, kept(found.seqno.0), "a wrong document is shown");
    }
    seen.len()
}

/// The store was closed, so everything in it was synced and says so: no byte may be wrong.
fn damage_is_refused(original: &SimDirectory, bug: Bug) {
    let mut random = SeededRandom::new(0xda3a);
    for round in 0..300 {
        let files = original.copy();
        let names = logs(&files);
        let name = &names[round % names.len()];
        let mut content = files.content(name);
        // The closing note itself is behind everything that it vouches for.
        let reach =
            content.len() as u64 - if round % names.len() + 1 == names.len() { 60 } else { 0 };
        let at = random.below(reach) as usize;
        content[at] ^= 1 << random.below(8);
        files.replace(name, &content);
        let before = files.contents();
        let error = match open_with(&files, DirectoryState::Ready, &unhinted(), bug) {
            Ok(_) => panic!("damage of {name} at {at} was not noticed"),
            Err(error) => error,
        };
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(name.as_str()) && text.contains("offset"), "{text}");
        assert!(files.contents() == before, "a refused store was changed");
    }
}

#[test]
fn damage_anywhere_is_refused_with_file_and_offset() {
    damage_is_refused(&filled(), Bug::None);
    damage_is_refused(&filled_in(SimDirectory::new(IN_BLOCKS)), Bug::None);
}

#[test]
fn the_suite_finds_an_opening_that_does_not_look() {
    for bug in [Bug::IgnoresChecksums, Bug::TakesDamageForATail] {
        assert!(!passes(|| damage_is_refused(&filled(), bug)), "not noticed: {bug:?}");
    }
}

/// The last block of a store that was not closed ends with zeros. They are cut off, and are no
/// unfinished commit; neither a sealed segment nor a closed store has any.
#[test]
fn zeros_of_the_last_block_are_no_unfinished_commit() {
    let files = SimDirectory::new(IN_BLOCKS);
    let store = open_with(&files, DirectoryState::New, &options(), Bug::None).expect("a new store");
    for seqno in 1..=COMMITS {
        commit(&store, VB, &[kept(seqno)]);
    }
    files.power_off();
    drop(store);
    files.resume();
    let newest = logs(&files).pop().expect("a segment");
    let killed = files.content(&newest);
    let store = reopen(&files, &unhinted()).expect("nothing is missing");
    assert_eq!(shown(&store) as u64, COMMITS);
    let cut = files.content(&newest);
    assert!(killed.len().is_multiple_of(1024) && cut.len() < killed.len());
    assert!(killed.starts_with(&cut) && killed[cut.len()..].iter().all(|byte| *byte == 0));
    assert!(!store.properties().ended_in_order, "it was killed");
    drop(store);
    let closed = files.content(&newest);
    let store = reopen(&files, &unhinted()).expect("it was closed");
    assert!(store.properties().ended_in_order, "it was closed");
    assert_eq!(files.content(&newest), closed, "nothing had to be cut off");
}

/// With index files an opening does not read documents: damage shows when they are read.
#[test]
fn damage_behind_an_index_file_shows_when_it_is_read() {
    let files = filled();
    let name = &logs(&files)[0];
    let mut content = files.content(name);
    let at = content.windows(3).position(|bytes| bytes == [2, 2, 2]).expect("document 2");
    content[at + 1] ^= 1;
    files.replace(name, &content);
    let store = reopen(&files, &options()).expect("the index file is good");
    let error = store
        .get(VB, kept(2).doc_key(), &mut unlimited, &mut |_| panic!("a wrong document is shown"));
    let text = error.expect_err("the document is damaged").to_string();
    assert!(text.contains(name.as_str()) && text.contains("offset"), "{text}");
    assert_eq!(get(&store, VB, kept(3).doc_key()), Some(kept(3)), "its neighbour is not");
    assert!(load_all(&store, &mut |_, _| std::ops::ControlFlow::Continue(())).is_err());
}

#[test]
fn a_missing_segment_is_refused() {
    let files = filled();
    let name = logs(&files)[1].clone();
    files.lose(&name);
    let error = reopen(&files, &options()).err().expect("a segment is missing").to_string();
    assert!(error.contains(&name), "{error}");
}

/// A segment that ends early is damaged even when it ends with a whole frame.
#[test]
fn a_shortened_segment_is_refused() {
    let original = filled();
    let name = logs(&original)[0].clone();
    let sound = original.content(&name);
    for length in 0..sound.len() {
        let files = original.copy();
        files.replace(&name, &sound[..length]);
        for options in [options(), unhinted()] {
            let error = reopen(&files, &options).err().expect("the segment is too short");
            assert!(error.to_string().contains(&name), "{error}");
        }
    }
}

/// The operator may take what is left. It is moved out of the damaged files at once.
#[test]
fn damage_is_accepted_when_the_operator_says_so() {
    let mut random = SeededRandom::new(0xacc);
    let told = LogOptions { accepts_damage: true, ..options() };
    for round in 0..60 {
        let files = filled();
        let names = logs(&files);
        let name = &names[round % names.len()];
        let mut content = files.content(name);
        let at = 40 + random.below(content.len() as u64 - 40) as usize;
        let end = (at + 100).min(content.len());
        content[at..end].fill(0xa5);
        files.replace(name, &content);
        let store = reopen(&files, &told).expect("what is whole is salvaged");
        let left = shown(&store);
        assert!(left >= COMMITS as usize - 4, "one or two frames are lost and not more: {left}");
        drop(store);
        let again = reopen(&files, &unhinted()).expect("the damage is gone");
        assert_eq!(shown(&again), left);
    }
}

#[test]
fn a_lost_segment_is_dropped_on_operator_request() {
    let files = filled();
    let name = logs(&files)[1].clone();
    files.lose(&name);
    let told = LogOptions { accepts_damage: true, ..options() };
    let left = shown(&reopen(&files, &told).expect("opens as told"));
    assert!((10..COMMITS as usize).contains(&left), "{left} documents are left");
    assert_eq!(shown(&reopen(&files, &unhinted()).expect("the gap is gone")), left);
}

/// The remains of a crash are not damage: the newest segment ends anywhere in its last commit.
/// Wherever a log is cut off after it was closed, it opens as after a crash or not at all, and
/// never says that it ends as it was left.
#[test]
fn a_truncated_closed_log_is_detected() {
    let original = filled();
    let newest = logs(&original).last().expect("there are segments").clone();
    let whole = original.content(&newest);
    for cut in 0..=whole.len() {
        let files = original.copy();
        files.replace(&newest, &whole[..cut]);
        if let Ok(store) = reopen(&files, &unhinted()) {
            assert_eq!(store.properties().ended_in_order, cut == whole.len(), "cut off at {cut}");
        }
    }
    let crashed = original.copy();
    let store = reopen(&crashed, &unhinted()).expect("a closed store");
    assert!(store.properties().ended_in_order);
    commit(&store, VB, &[kept(COMMITS + 1)]);
    crashed.power_off();
    drop(store);
    crashed.resume();
    assert!(
        !reopen(&crashed, &unhinted()).expect("a crash is not damage").properties().ended_in_order
    );
}

#[test]
fn an_unfinished_commit_is_cut_off() {
    let files = SimDirectory::new(1);
    let large = LogOptions { segment_bytes: 1 << 20, ..options() };
    let store = open_with(&files, DirectoryState::New, &large, Bug::None).expect("a new store");
    commit(&store, VB, &[kept(1)]);
    let name = logs(&files)[0].clone();
    let synced = files.content(&name).len();
    commit(&store, VB, &[kept(2)]);
    files.power_off();
    drop(store);
    files.restart();
    let sound = files.content(&name);
    for cut in synced..sound.len() {
        for zeros in [0, 1000] {
            let mut content = sound[..cut].to_vec();
            content.resize(cut + zeros, 0);
            if content == sound {
                continue;
            }
            let files = files.copy();
            files.replace(&name, &content);
            let store = reopen(&files, &large).expect("a crash is not damage");
            let expected =
                if cut + zeros >= sound.len() && content.starts_with(&sound) { 2 } else { 1 };
            assert_eq!(shown(&store), expected, "cut at {cut}, {zeros} zeros");
            commit(&store, VB, &[kept(3)]);
            drop(store);
            let store = reopen(&files, &large).expect("opens again");
            assert_eq!(get(&store, VB, kept(3).doc_key()), Some(kept(3)));
        }
    }
}

/// Regression 1: power was lost between the header and the root of a new segment. The opening took
/// the segment for an empty log and removed all others.
#[test]
fn a_segment_that_was_still_being_made_is_removed() {
    let original = filled();
    let names = logs(&original);
    let last = names.last().expect("there are segments");
    let sound = original.content(last);
    // The root, up to its last byte; the list of segments is in it, so it is over a hundred long.
    for length in 0..150 {
        for zeros in [0, 500] {
            let files = original.copy();
            let mut content = sound[..length].to_vec();
            content.resize(length + zeros, 0);
            files.replace(last, &content);
            let store = reopen(&files, &options()).expect("the segment before it is the newest");
            assert!(shown(&store) >= 10, "all was removed, cut at {length}");
            assert!(!files.names().contains(last));
        }
    }
}

#[test]
fn bad_index_files_are_as_good_as_none() {
    let original = filled();
    let hints: Vec<String> =
        original.names().into_iter().filter(|name| name.ends_with(".idx")).collect();
    assert!(hints.len() >= 2, "sealed segments have index files: {hints:?}");
    let mut random = SeededRandom::new(0x1d);
    for round in 0..100 {
        let files = original.copy();
        let name = &hints[round % hints.len()];
        let mut content = files.content(name);
        let at = random.below(content.len() as u64) as usize;
        match round % 4 {
            0 => content.truncate(at),
            1 => files.lose(name),
            // The index file of another segment.
            2 => content = files.content(&hints[(round + 1) % hints.len()]),
            _ => content[at] ^= 1 << random.below(8),
        }
        if round % 4 != 1 {
            files.replace(name, &content);
        }
        assert_eq!(shown(&reopen(&files, &options()).expect("opens")), COMMITS as usize);
    }
}

// Invariant: Bytes from network or disk never cause a panic.
/// Random bytes in place of whole files, and of their parts.
#[test]
fn arbitrary_bytes_never_panic() {
    let original = filled();
    let mut random = SeededRandom::new(0xf0);
    let names = original.names();
    for round in 0..400 {
        let files = original.copy();
        let name = &names[round % names.len()];
        let mut content = files.content(name);
        for _ in 0..1 + random.below(8) {
            let at = random.below(content.len() as u64) as usize;
            content[at] = random.number() as u8;
        }
        if random.below(3) == 0 {
            content.truncate(random.below(content.len() as u64) as usize);
        }
        files.replace(name, &content);
        let told = LogOptions { accepts_damage: round % 2 == 0, ..options() };
        if let Ok(store) = reopen(&files, &told) {
            for seqno in 1..=COMMITS {
                // Failing is right here; showing wrong documents or panicking is not.
                let wanted = kept(seqno);
                let _ = store.get(VB, wanted.doc_key(), &mut unlimited, &mut |record| {
                    assert_eq!(OwnedFields::of(record), wanted);
                });
            }
        }
    }
}
