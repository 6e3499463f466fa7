//! `copies.json`: the numbers of the copies that this node has of a bucket's vbuckets.
//!
//! Owns: the file. Invariants: a change is durable before it is visible; a file that cannot be
//! parsed is reported and never overwritten.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use oribi_system::data_file::{DataFileError, write_atomically};
use oribi_types::Vbid;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

const FILE_NAME: &str = "copies.json";
const FILE_MODE: u32 = 0o600;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiesFile {
    version: u32,
    copies: Vec<(u16, u64)>,
}

/// See the module text.
pub(in crate::buckets) struct CopyNumbers {
    /// `None` for a bucket of tests.
    path: Option<PathBuf>,
    numbers: Mutex<BTreeMap<Vbid, u64>>,
    /// Held by a change while it waits for the disk; readers do not wait with it.
    change: Mutex<()>,
}

impl CopyNumbers {
    pub(in crate::buckets) fn open(directory: Option<&Path>) -> Result<CopyNumbers, DataFileError> {
        let path = directory.map(|directory| directory.join(FILE_NAME));
        let mut numbers = BTreeMap::new();
        if let Some(path) = &path {
            match std::fs::read(path) {
                Ok(json) => {
                    numbers =
                        parse(&json).map_err(|detail| DataFileError::corrupt(path, detail))?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(DataFileError::io("read", path, error)),
            }
        }
        Ok(CopyNumbers { path, numbers: Mutex::new(numbers), change: Mutex::default() })
    }

    pub(super) fn of(&self, vbid: Vbid) -> Option<u64> {
        self.numbers.lock().get(&vbid).copied()
    }

    pub(super) fn all(&self) -> Vec<(Vbid, u64)> {
        self.numbers.lock().iter().map(|(vbid, copy)| (*vbid, *copy)).collect()
    }

    /// Notes copies that begin. Durable when it returns.
    pub(super) fn add(&self, copies: &[(Vbid, u64)]) -> Result<(), DataFileError> {
        self.change(|numbers| numbers.extend(copies.iter().copied()))
    }

    /// Forgets a copy. Durable when it returns.
    pub(super) fn remove(&self, vbid: Vbid) -> Result<(), DataFileError> {
        self.change(|numbers| numbers.retain(|known, _| *known != vbid))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Vbid, u64>)) -> Result<(), DataFileError> {
        let _one_at_a_time = self.change.lock();
        let before = self.numbers.lock().clone();
        let mut next = before.clone();
        change(&mut next);
        if next == before {
            return Ok(());
        }
        if let Some(path) = &self.path {
            let copies = next.iter().map(|(vbid, copy)| (vbid.0, *copy)).collect();
            let json = serde_json::to_vec(&CopiesFile { version: VERSION, copies });
            write_atomically(path, &json.expect("a plain struct"), FILE_MODE)
                .map_err(|error| DataFileError::io("write", path, error))?;
        }
        *self.numbers.lock() = next;
        Ok(())
    }
}

fn parse(json: &[u8]) -> Result<BTreeMap<Vbid, u64>, String> {
    let file: CopiesFile = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    match file.version {
        VERSION => Ok(file.copies.into_iter().map(|(vbid, copy)| (Vbid(vbid), copy)).collect()),
        other => Err(format!("version is {other}, this program reads {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::Vbid;

    use super::{CopyNumbers, FILE_NAME};

    #[test]
    fn numbers_of_copies_are_durable() {
        let scratch = tempfile::tempdir().unwrap();
        let numbers = CopyNumbers::open(Some(scratch.path())).unwrap();
        numbers.add(&[(Vbid(3), 7), (Vbid(1), 1)]).unwrap();
        numbers.remove(Vbid(1)).unwrap();
        let again = CopyNumbers::open(Some(scratch.path())).unwrap();
        assert_eq!((again.all(), again.of(Vbid(1))), (vec![(Vbid(3), 7)], None));
        for bad in ["", r#"{"version":2,"copies":[]}"#, r#"{"version":1,"copies":[[70000,1]]}"#] {
            let path = scratch.path().join(FILE_NAME);
            std::fs::write(&path, bad).unwrap();
            assert!(CopyNumbers::open(Some(scratch.path())).is_err(), "{bad}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
        }
    }
}
