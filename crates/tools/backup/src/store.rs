//! Where an archive's files are.
//!
//! A store knows names with slashes and whole files. Invariant: after [`ArchiveStore::put`] the
//! file is there as a whole and survives a crash; a put that fails or is interrupted leaves the
//! whole file or none. [`DirectoryStore`] is here; object stores are the caller's.

mod directory;
#[cfg(test)]
mod memory;

use std::io;

pub use directory::{DirectoryStore, Lock};
#[cfg(test)]
pub use memory::MemoryArchiveStore;

use crate::error::ArchiveError;

/// A file of an archive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileEntry {
    pub name: String,
    /// Bytes as they are stored.
    pub bytes: u64,
}

/// See the module text. Names are relative and have no `..`.
pub trait ArchiveStore: Send + Sync {
    /// Writes a file that is not there. Files are never replaced.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one, which stays. When the store fails, the file may be there.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// When the store fails, or the file has more than `bytes_max`.
    fn get(&self, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        self.get_into(name, bytes_max, Vec::new())
    }

    /// Reads a file as [`ArchiveStore::get`], into memory that was used before where the store can:
    /// fresh memory costs a fault for each of its pages.
    ///
    /// # Errors
    /// As [`ArchiveStore::get`].
    fn get_into(
        &self,
        name: &str,
        bytes_max: usize,
        memory: Vec<u8>,
    ) -> io::Result<Option<Vec<u8>>>;

    /// All files whose names begin with `prefix`, sorted. Leftovers of interrupted puts are not
    /// among them.
    ///
    /// # Errors
    /// When the store fails.
    fn list(&self, prefix: &str) -> io::Result<Vec<FileEntry>>;

    /// Removes a file; that there is none is no error.
    ///
    /// # Errors
    /// When the store fails.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The same for callers, with errors that name the file.
pub(crate) trait Files {
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ArchiveError>;
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, ArchiveError> {
        self.read_into(name, bytes_max, Vec::new())
    }
    fn read_into(
        &self,
        name: &str,
        bytes_max: usize,
        memory: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, ArchiveError>;
    fn entries(&self, prefix: &str) -> Result<Vec<FileEntry>, ArchiveError>;
    fn delete(&self, name: &str) -> Result<(), ArchiveError>;
}

impl<S: ArchiveStore + ?Sized> Files for S {
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.put(name, bytes).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ArchiveError::Contended(name.to_owned()),
            _ => failed("write", name)(error),
        })
    }

    fn read_into(
        &self,
        name: &str,
        bytes_max: usize,
        memory: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, ArchiveError> {
        self.get_into(name, bytes_max, memory).map_err(|error| match error.kind() {
            // What a sealed store finds, and files that are too long.
            io::ErrorKind::InvalidData => ArchiveError::damaged(name, error.to_string()),
            _ => failed("read", name)(error),
        })
    }

    fn entries(&self, prefix: &str) -> Result<Vec<FileEntry>, ArchiveError> {
        self.list(prefix).map_err(failed("list", prefix))
    }

    fn delete(&self, name: &str) -> Result<(), ArchiveError> {
        self.remove(name).map_err(failed("remove", name))
    }
}

/// The error of a file that has more bytes than its reader takes.
pub fn too_long(bytes: u64, bytes_max: usize) -> io::Error {
    let reason = format!("it has {bytes} bytes, at most {bytes_max} were expected");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn failed(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> ArchiveError {
    move |reason| ArchiveError::Store { action, name: name.to_owned(), reason }
}
