//! The seam between the log and the file system, and the real side of it.
//!
//! Owns: [`LogDirectory`] and [`LogFile`], everything that the log asks of a file system, and their
//! implementation on real files. Invariant: nothing else in the log store touches a file, so that
//! the simulated side (tests only) sees every step and can lose, tear and refuse each of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory with files of the log.
pub(super) trait LogDirectory: Send + Sync {
    /// Names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a new empty file. An error when there is one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Removes a name; readers that have the file open can go on reading it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations and removals of names durable.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that can still be written to the file system; `None` when it does not say.
    fn free_bytes(&self) -> Option<u64>;
}

/// One file of the log.
pub(super) trait LogFile: Send + Sync {
    /// Length.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills the buffer from `offset` on, as far as the file goes, and returns how far that is.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes the parts one after the other, all of them or an error. One thread writes at a time.
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()>;

    /// Makes the content and the length durable. After an error it is unknown what is.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file off at `bytes`; the sync that follows makes it durable.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
}

/// A directory of the file system.
pub(super) struct RealDirectory {
    path: PathBuf,
}

impl RealDirectory {
    pub(super) fn new(path: &Path) -> RealDirectory {
        RealDirectory { path: path.to_owned() }
    }
}

impl LogDirectory for RealDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is no text is none of the log's.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        Ok(Arc::new(RealFile(options.open(self.path.join(name))?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        Ok(Arc::new(RealFile(options.open(self.path.join(name))?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.path).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

struct RealFile(File);

impl LogFile for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        if let [part] = parts {
            return self.0.write_all_at(part, offset);
        }
        // The standard library has no positioned gather write. Reads are all positioned, and one
        // thread writes at a time, so the file's own position belongs to this function.
        let mut file = &self.0;
        file.seek(SeekFrom::Start(offset))?;
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)?;
        // A shorter length is metadata, which `sync_data` need not write.
        self.0.sync_all()
    }
}
