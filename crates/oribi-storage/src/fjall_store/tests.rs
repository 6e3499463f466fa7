//! The embedded store: conformance, its directory, its layout, damage, its limits.

mod damage;
mod directory;
mod layout;
mod limits;

use std::ops::ControlFlow;
use std::path::PathBuf;

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};
use tempfile::TempDir;

use super::{FjallOptions, FjallStore};
use crate::{KvStore, Medium, Record, StoreError, VbBatch, VbucketState, conformance};

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

    fn open_store(&self) -> FjallStore {
        FjallStore::open(&self.path(), self.options.clone()).expect("the store opens")
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

/// A memtable of next to nothing, so that tables are written and merged all the time.
#[test]
fn passes_the_conformance_suite_from_tables() {
    let options = FjallOptions { memtable_bytes: 4096, ..FjallOptions::default() };
    conformance::run(&|| Box::new(DirectoryMedium::new(options.clone())));
}

/// A record in the default collection.
fn record<'a>(seqno: u64, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    Record {
        key: DocKey { collection: CollectionId::DEFAULT, key },
        value,
        cas: Cas(seqno + 1),
        seqno: Seqno(seqno),
        rev_seqno: RevSeqno(seqno + 2),
        flags: 3,
        expiry: 0,
        datatype: Datatype::RAW,
        deleted: false,
    }
}

fn state(high_seqno: u64) -> VbucketState {
    VbucketState {
        high_seqno: Seqno(high_seqno),
        max_cas: Cas(high_seqno + 1),
        ..VbucketState::empty()
    }
}

/// Commits records with consecutive seqnos, one per value, all under different keys.
fn commit_values(store: &dyn KvStore, vbid: Vbid, first_seqno: u64, values: &[Vec<u8>]) {
    let keys: Vec<Vec<u8>> =
        (first_seqno..).take(values.len()).map(|seqno| format!("key-{seqno}").into()).collect();
    let numbered = keys.iter().zip(values).zip(first_seqno..);
    let records = numbered.map(|((key, value), seqno)| record(seqno, key, value)).collect();
    let high_seqno = first_seqno + values.len() as u64 - 1;
    let batch = VbBatch { vbid, records, state: state(high_seqno) };
    store.commit(&[batch]).expect("the store commits");
}

/// How many records a scan shows, or why it failed.
fn count(store: &dyn KvStore, vbid: Vbid) -> Result<u64, StoreError> {
    let mut records = 0;
    store.scan_keys(vbid, &mut |_| {
        records += 1;
        ControlFlow::Continue(())
    })?;
    Ok(records)
}
