//! The embedded store: conformance, its directory, its layout, damage.

use std::path::PathBuf;

use tempfile::TempDir;

use super::{FjallOptions, FjallStore};
use crate::{KvStore, Medium, StoreError, conformance};

struct DirectoryMedium {
    directory: TempDir,
    options: FjallOptions,
}

impl DirectoryMedium {
    fn new(options: FjallOptions) -> DirectoryMedium {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        DirectoryMedium { directory, options }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store")
    }
}

impl Medium for DirectoryMedium {
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError> {
        Ok(Box::new(FjallStore::open(&self.path(), self.options.clone())?))
    }
}

#[test]
fn passes_the_conformance_suite() {
    conformance::run(&|| Box::new(DirectoryMedium::new(FjallOptions::default())));
}

/// A memtable of next to nothing, so that every commit makes a table and merges run all the time.
#[test]
fn passes_the_conformance_suite_from_tables() {
    let options = FjallOptions { memtable_bytes: 1, ..FjallOptions::default() };
    conformance::run(&|| Box::new(DirectoryMedium::new(options.clone())));
}
