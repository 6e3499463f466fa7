//! Writes past the page cache, and what happens where a file system has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::blocks::Blocks;
use super::super::staging::Staging;
use super::{LogDirectory, RealDirectory};

/// Frames of odd lengths one after the other, each flushed; what is read at any time is what was
/// written, and zeros up to the next block.
fn frames_are_read_back(refuses_direct: bool) {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = RealDirectory {
        refuses_direct: Arc::new(AtomicBool::new(refuses_direct)),
        ..RealDirectory::new(scratch.path())
    };
    let file = directory.create("0000000001.log").expect("a new file");
    let (mut staging, mut expected) = (Staging::default(), Vec::new());
    for (length, byte) in [32, 4000, 64, 70_000, 3 << 20, 8, 4096].into_iter().zip(1u8..) {
        if byte == 5 {
            staging.forget();
        }
        staging.go_to(&*file, 1, expected.len() as u64).expect("the last block is there");
        staging.push(&*file, &vec![byte; length]).expect("there is space");
        staging.flush(&*file, true).expect("there is space");
        file.sync().expect("it can be synced");
        expected.resize(expected.len() + length, byte);
        let mut found = vec![0xff; expected.len() + 8192];
        let read = file.read_at(&mut found, 0).expect("it can be read");
        assert_eq!(read, expected.len().next_multiple_of(4096));
        assert!(
            found[..expected.len()] == expected
                && found[expected.len()..read] == vec![0; read - expected.len()]
        );
    }
    for refuses in [false, true] {
        directory.refuses_direct.fetch_or(refuses, Ordering::Relaxed);
        let mut memory = Blocks::default();
        let (begin, length) = (1 << 20, 3 << 20);
        let read = file.read_blocks(memory.room(length), begin as u64).expect("it can be read");
        assert_eq!(read, expected.len().next_multiple_of(4096) - begin);
        assert!(memory.first(expected.len() - begin) == &expected[begin..]);
    }
    file.rest();
    file.truncate(expected.len() as u64).expect("it can be cut off");
    assert_eq!(file.bytes().ok(), Some(expected.len() as u64));
}

#[test]
fn blocks_are_read_back_with_and_without_direct_io() {
    frames_are_read_back(false);
    frames_are_read_back(true);
}

#[test]
fn a_failed_fadvise_is_kept_and_blocks_are_written() {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = RealDirectory::new(scratch.path());
    let file = directory.create("0000000001.log").expect("a new file");
    // Not aligned to any block: what a file system with larger ones would answer.
    file.write_blocks(&[7; 100], 0).expect("it is written through the page cache");
    assert!(directory.refuses_direct.load(Ordering::Relaxed));
    let mut found = [0; 200];
    assert_eq!(file.read_at(&mut found, 0).ok(), Some(100));
    assert_eq!(found[..100], [7; 100]);
}

#[test]
fn an_index_file_has_exactly_its_length() {
    let scratch = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = RealDirectory::new(scratch.path());
    for (number, length) in [1usize, 4096, 5000, 1 << 20, (1 << 20) + 4097].into_iter().enumerate()
    {
        let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let file = directory.create(&format!("{number}.idx")).expect("a new file");
        Staging::default().write_file(&*file, &content).expect("there is space");
        let mut found = vec![0; length + 1];
        assert_eq!(file.read_at(&mut found, 0).ok(), Some(length));
        assert!(found[..length] == content);
    }
}
