//! The seam between the log and the file system, and the real side of it.
//!
//! Owns: [`LogDirectory`] and [`LogFile`], everything that the log requires of a file system, and
//! their implementation on real files. Invariant: nothing else in the log store touches a file, so
//! that the simulated side (tests only) sees every step and can lose, tear and refuse each of them.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::blocks::BLOCK_BYTES_MAX;

/// One directory with files of the log.
pub(super) trait LogDirectory: Send + Sync {
    /// Names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a new empty file. An error when there is one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Removes a name; readers that have the file open can continue reading it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations and removals of names durable.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that can still be written to the file system; `None` when it does not say.
    fn free_bytes(&self) -> Option<u64>;

    /// A seed for the hashes of a new store: no two stores share it, and it is secret from clients.
    fn new_seed(&self) -> u64;
}

/// One file of the log.
pub(super) trait LogFile: Send + Sync {
    fn bytes(&self) -> io::Result<u64>;

    /// Fills the buffer from `offset` on, as far as the file goes, and returns how far that is.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`LogFile::read_at`] for whole blocks: offset, length and address are multiples of the
    /// block. Past the page cache where the file system can.
    fn read_blocks(&self, blocks: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of the bytes or answers an error. One thread writes at a time.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Unit of whole blocks, a power of two up to [`BLOCK_BYTES_MAX`].
    fn block_bytes(&self) -> usize;

    /// As [`LogFile::write_at`] for whole blocks: offset, length and address are multiples of the
    /// block. Past the page cache where the file system can.
    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the content and the length durable. After an error, neither is certain.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file off at `bytes`; the sync that follows makes it durable.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// No blocks will be written for now: releases the resources of writing.
    fn rest(&self);
}

/// A directory of the file system.
pub(super) struct RealDirectory {
    path: PathBuf,
    /// The file system has refused to write past the page cache.
    refuses_direct: Arc<AtomicBool>,
}

impl RealDirectory {
    pub(super) fn new(path: &Path) -> RealDirectory {
        RealDirectory { path: path.to_owned(), refuses_direct: Arc::default() }
    }

    fn file(&self, options: &OpenOptions, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let path = self.path.join(name);
        let file = options.open(&path)?;
        let refuses_direct = Arc::clone(&self.refuses_direct);
        Ok(Arc::new(RealFile { file, path, writer: Mutex::new(None), refuses_direct }))
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
        self.file(options.read(true).write(true).create_new(true), name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut options = OpenOptions::new();
        self.file(options.read(true).write(true), name)
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

    fn new_seed(&self) -> u64 {
        RandomState::new().hash_one(0)
    }
}

struct RealFile {
    file: File,
    path: PathBuf,
    /// The same file for writes past the page cache, while there are any.
    writer: Mutex<Option<File>>,
    refuses_direct: Arc<AtomicBool>,
}

impl RealFile {
    /// Transfers blocks past the page cache; `None` when that cannot be.
    fn direct<T>(&self, transfer: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        if self.refuses_direct.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match transfer() {
            Ok(done) => Ok(Some(done)),
            // The answer of a file system without such transfers, or with larger blocks.
            Err(error)
                if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) =>
            {
                self.refuses_direct.store(true, Ordering::Relaxed);
                Ok(None)
            }
            // Compaction has removed the name of a segment that is still being read.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open_direct(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        options.open(&self.path)
    }
}

/// Fills the buffer from `offset` on, as far as the file goes; continues a read that ended early
/// only at a multiple of `unit`.
pub(super) fn read_up_to(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    unit: usize,
) -> io::Result<usize> {
    debug_assert!(unit > 0, "a read is continued at a unit");
    let mut filled = 0;
    while filled < buffer.len() && filled.is_multiple_of(unit) {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl LogFile for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_up_to(&self.file, buffer, offset, 1)
    }

    fn read_blocks(&self, blocks: &mut [u8], offset: u64) -> io::Result<usize> {
        // Opened each time, because segments are many and such reads are long.
        let mut read = || read_up_to(&self.open_direct()?, blocks, offset, BLOCK_BYTES_MAX);
        let read = self.direct(&mut read)?;
        read.map_or_else(|| self.read_at(blocks, offset), Ok)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn block_bytes(&self) -> usize {
        BLOCK_BYTES_MAX
    }

    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        let written = self.direct(|| {
            let mut writer = self.writer.lock();
            let file = match writer.take() {
                Some(file) => file,
                None => self.open_direct()?,
            };
            writer.insert(file).write_all_at(blocks, offset)
        })?;
        written.map_or_else(|| self.write_at(blocks, offset), Ok)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        // A shorter length is metadata, which `sync_data` need not write.
        self.file.sync_all()
    }

    fn rest(&self) {
        *self.writer.lock() = None;
    }
}
