//! Steps of a copy one by one, with writes between them.

use std::fs;
use std::path::{Path, PathBuf};

use oribi_types::Vbid;

use super::super::super::{LogOptions, LogStore};
use super::LogCopy;
use crate::conformance::fixture::{OwnedFields, commit, scan_keys};
use crate::directory::MARKER_NAME;

const VBID: Vbid = Vbid(0);

/// A store of one log that has documents, and a copy of it that has begun.
struct Scene {
    scratch: tempfile::TempDir,
    store: LogStore,
    copy: LogCopy,
    seqno: u64,
}

impl Scene {
    fn new() -> Scene {
        let scratch = tempfile::tempdir().expect("a temporary directory can be made");
        let store = open(&scratch.path().join("store"));
        let to = scratch.path().join("copy");
        fs::create_dir(&to).expect("made");
        let copy = LogCopy::new(&scratch.path().join("store"), &to);
        let mut scene = Scene { scratch, store, copy, seqno: 0 };
        (0..60).for_each(|_| scene.write(700));
        scene.begin();
        scene
    }

    fn write(&mut self, value_bytes: usize) {
        self.seqno += 1;
        let value = vec![self.seqno as u8; value_bytes];
        let key = self.seqno.to_string();
        commit(&self.store, VBID, &[OwnedFields::document(self.seqno, key.as_bytes(), &value)]);
    }

    /// Writes until the newest segment that was noted is sealed.
    fn write_past_the_segment(&mut self) {
        while self.copy.is_newest().expect("listed") {
            self.write(700);
        }
    }

    fn begin(&mut self) {
        self.copy.begin().expect("begun");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Newest seqno of the copy, once it is made. It has all before that.
    fn newest_of_copy(&mut self) -> usize {
        assert!(self.copy.copy().expect("copied"));
        let sizes = self.copy.finish().expect("finished");
        assert!(sizes.linked > 0 && sizes.copied_bytes > 0, "{sizes:?}");
        let marker = fs::copy(self.path("store").join(MARKER_NAME), self.path("copy/oribi-store"));
        marker.expect("copied");
        let documents = scan_keys(&open(&self.path("copy")), VBID);
        let newest = documents.iter().map(|kept| kept.seqno.0).max();
        assert_eq!(newest, Some(documents.len() as u64));
        documents.len()
    }
}

fn open(path: &Path) -> LogStore {
    let options = LogOptions {
        segment_bytes: 16 << 10,
        compacts_in_background: false,
        ..LogOptions::default()
    };
    LogStore::open(path, options).expect("the store opens")
}

/// Frames of all lengths around that of a block: each changes the note, whether it fills a block or
/// ends in it.
#[test]
fn every_commit_changes_the_note() {
    let mut scene = Scene::new();
    assert!(!scene.copy.note_again().expect("noted"), "nothing was written");
    for value_bytes in (0..9000).step_by(97) {
        scene.write(value_bytes);
        match scene.copy.is_newest().expect("listed") {
            true => assert!(scene.copy.note_again().expect("noted"), "{value_bytes}"),
            false => scene.begin(),
        }
        assert!(!scene.copy.note_again().expect("noted"), "nothing was written");
    }
}

/// Writes after a note are not in the copy, be it in the last block or far behind it.
#[test]
fn a_copy_is_as_noted() {
    for more in [1, 4, 40] {
        let mut scene = Scene::new();
        let noted = scene.seqno as usize;
        (0..more).for_each(|_| scene.write(100));
        assert_eq!(scene.newest_of_copy(), noted, "{more} more");
    }
}

/// A segment that was begun after the note is found, and the copy continues with what there is.
#[test]
fn a_newer_segment_means_beginning_again() {
    let mut scene = Scene::new();
    scene.write_past_the_segment();
    assert!(scene.copy.copy().expect("copied"));
    scene.copy.take_back().expect("removed");
    scene.begin();
    assert!(scene.copy.is_newest().expect("listed"));
    assert_eq!(scene.newest_of_copy(), scene.seqno as usize);
}

/// A newest segment that is given up and made again has the same name, and is not what was noted.
#[test]
fn a_segment_of_the_same_name_is_another_one() {
    let scene = Scene::new();
    let newest = scene.copy.newest.last().expect("there is one").id;
    let path = scene.path("store").join(super::segment_name(newest));
    let again = scene.path("again");
    fs::copy(&path, &again).expect("copied");
    fs::rename(&again, &path).expect("replaced");
    assert!(!scene.copy.is_newest().expect("listed"));
}

/// A frame that was noted and then cut off is not joined with what is written in its place. The
/// zeros after a noted frame may be cut off.
#[test]
fn noted_files_must_still_exist() {
    for (cut, is_copied) in [(0, true), (8, false), (5000, false)] {
        let mut scene = Scene::new();
        scene.write(6000);
        scene.begin();
        let noted = scene.copy.newest.last().expect("there is one");
        let zeros = noted.note.last_block.iter().rev().take_while(|byte| **byte == 0).count();
        let bytes = noted.file.metadata().expect("there").len() - zeros as u64 - cut;
        let path = scene.path("store").join(super::segment_name(noted.id));
        let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
        file.set_len(bytes).expect("cut off");
        assert_eq!(scene.copy.copy().expect("copied"), is_copied, "{cut}");
    }
}
