//! A store in memory, whose files tests damage, and which fails when they want it to.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use super::{ArchiveStore, FileEntry, too_long};

/// Clones share the files, so they outlive a writer that is "killed".
#[derive(Clone, Default)]
pub struct MemoryArchiveStore {
    pub files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Changes until every further one fails; `None` for never.
    pub changes_left: Arc<Mutex<Option<usize>>>,
}

impl MemoryArchiveStore {
    fn change(&self) -> io::Result<()> {
        match &mut *self.changes_left.lock().unwrap() {
            Some(0) => Err(io::Error::other("the store is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl ArchiveStore for MemoryArchiveStore {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.change()?;
        let mut files = self.files.lock().unwrap();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn get_into(
        &self,
        name: &str,
        bytes_max: usize,
        _memory: Vec<u8>,
    ) -> io::Result<Option<Vec<u8>>> {
        let file = self.files.lock().unwrap().get(name).cloned();
        match file {
            Some(bytes) if bytes.len() > bytes_max => Err(too_long(bytes.len() as u64, bytes_max)),
            file => Ok(file),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<FileEntry>> {
        let files = self.files.lock().unwrap();
        let matching = files.iter().filter(|(name, _)| name.starts_with(prefix));
        let entry = |(name, bytes): (&String, &Vec<u8>)| FileEntry {
            name: name.clone(),
            bytes: bytes.len() as u64,
        };
        Ok(matching.map(entry).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change()?;
        self.files.lock().unwrap().remove(name);
        Ok(())
    }
}
