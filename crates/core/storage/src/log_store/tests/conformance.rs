//! The conformance suite on real files.

use tempfile::TempDir;

use super::super::{LogOptions, LogStore};
use super::driver::CROWDED;
use crate::{KvStore, Medium, StoreError, conformance};

struct DirectoryMedium {
    directory: TempDir,
    options: LogOptions,
}

impl Medium for DirectoryMedium {
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError> {
        let path = self.directory.path().join("store");
        Ok(Box::new(LogStore::open(&path, self.options.clone())?))
    }
}

fn run(options: &LogOptions) {
    conformance::run(&|| {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Box::new(DirectoryMedium { directory, options: options.clone() })
    });
}

// Invariant: A scan by seqno shows one moment and reports high seqno and purge seqno before the
// first record.
#[test]
fn passes_the_conformance_suite() {
    run(&LogOptions::default());
}

/// More logs than some tests have vbuckets, and fewer than others have.
#[test]
fn passes_the_conformance_suite_with_several_logs() {
    run(&LogOptions { logs: 3, ..LogOptions::default() });
}

#[test]
fn several_logs_pass_the_conformance_suite() {
    run(&LogOptions {
        logs: 2,
        segment_bytes: 2048,
        garbage_percent: 10,
        packing: Some(CROWDED),
        ..LogOptions::default()
    });
}

/// Segments of next to nothing, so that they are sealed and compacted all the time.
#[test]
fn passes_the_conformance_suite_with_small_segments() {
    run(&LogOptions { segment_bytes: 2048, garbage_percent: 10, ..LogOptions::default() });
}

#[test]
fn passes_the_conformance_suite_without_index_files() {
    run(&LogOptions { segment_bytes: 2048, reads_hints: false, ..LogOptions::default() });
}

// Invariant: The index has one entry for each key, also where packed entries collide.
#[test]
fn passes_the_conformance_suite_with_a_packed_index() {
    run(&LogOptions {
        segment_bytes: 2048,
        garbage_percent: 10,
        packing: Some(CROWDED),
        ..LogOptions::default()
    });
}
