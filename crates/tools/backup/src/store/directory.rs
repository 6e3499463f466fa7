//! An archive in a directory of this machine.
//!
//! A put writes a temporary file, syncs it, renames it, and syncs the directories that it is in.
//! Segments go past the page cache where the file system can do that: nothing reads them soon, and
//! new pages of the cache cost more than compressing what is in them. [`Lock`] keeps two programs
//! from writing one archive.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{ArchiveStore, FileEntry, too_long};

/// Prefix of a temporary file's name.
const TEMPORARY: &str = ".tmp-";

/// The file whose lock a writer holds.
const LOCK: &str = ".lock";

/// Directories inside directories that are listed; an archive has fewer.
const DEPTH_MAX: usize = 8;

/// Files of this size and more are written past the page cache.
const DIRECT_BYTES_MIN: usize = 256 * 1024;

/// Bytes that one direct write has at most: a copy of them is made, because memory, length and
/// offset have to be multiples of a block.
const DIRECT_BYTES: usize = 1024 * 1024;

/// Largest block of usual devices.
const DEVICE_BLOCK_BYTES: usize = 4096;

/// See the module text.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    root: PathBuf,
}

/// Held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(File);

impl DirectoryStore {
    /// The archive in `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> DirectoryStore {
        DirectoryStore { root: root.into() }
    }

    /// Keeps other writers away; `None` when there is one.
    ///
    /// # Errors
    /// When the directory cannot be made or the lock file not opened.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        self.make(&self.root)?;
        let path = self.root.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(without_waiting()).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory below the root, durable.
    fn make(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.make(parent)?;
        }
        // Only its owner may read the documents.
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn list_into(
        &self,
        directory: &Path,
        name: &str,
        prefix: &str,
        depth: usize,
        found: &mut Vec<FileEntry>,
    ) -> io::Result<()> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let file_name = entry.file_name();
            let file_name = file_name.to_string_lossy();
            if file_name.starts_with(TEMPORARY) || (name.is_empty() && file_name == LOCK) {
                continue;
            }
            let name = format!("{name}{file_name}");
            let metadata = match entry.metadata() {
                // Another program has just removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_dir() {
                let name = format!("{name}/");
                let may_match = name.starts_with(prefix) || prefix.starts_with(&name);
                if may_match && depth < DEPTH_MAX {
                    self.list_into(&entry.path(), &name, prefix, depth + 1, found)?;
                }
            } else if name.starts_with(prefix) {
                found.push(FileEntry { name, bytes: metadata.len() });
            }
        }
        Ok(())
    }
}

impl ArchiveStore for DirectoryStore {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.root.join(name);
        // No write comes in between: writers hold the lock.
        if path.try_exists()? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let directory = path.parent().unwrap_or(&self.root);
        self.make(directory)?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = directory.join(format!("{TEMPORARY}{file_name}"));
        // A leftover file could have other permissions.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        if bytes.len() < DIRECT_BYTES_MIN || !write_direct(&temporary, bytes)? {
            file.write_all(bytes)?;
        }
        // Cuts off what fills the last block of a direct write.
        file.set_len(bytes.len() as u64)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    }

    fn get_into(
        &self,
        name: &str,
        bytes_max: usize,
        mut bytes: Vec<u8>,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some((file, length)) = open_regular(&self.root.join(name))? else { return Ok(None) };
        if length > bytes_max as u64 {
            return Err(too_long(length, bytes_max));
        }
        bytes.clear();
        bytes.reserve_exact(length as usize);
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        match bytes.len() > bytes_max {
            // It has grown.
            true => Err(too_long(bytes.len() as u64, bytes_max)),
            false => Ok(Some(bytes)),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<FileEntry>> {
        let mut found = Vec::new();
        self.list_into(&self.root, "", prefix, 0, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.root.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        }
        let Some(directory) = path.parent() else { return Ok(()) };
        File::open(directory)?.sync_all()?;
        if directory != self.root && is_without_files(directory)? {
            // Leftovers of interrupted puts go with it.
            fs::remove_dir_all(directory)?;
        }
        Ok(())
    }
}

/// Opens a file to read it, with its length; `None` if there is none. A stranger's archive may have
/// pipes, which block, and devices, which have no end. Opening some devices has effects.
fn open_regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    let irregular = || Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"));
    let opened = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return irregular(),
        Ok(_) => OpenOptions::new().read(true).custom_flags(without_waiting()).open(path),
        Err(error) => Err(error),
    };
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Another file may have taken its name.
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok(Some((file, metadata.len()))),
        false => irregular(),
    }
}

/// Flags with which a pipe that has no other end opens at once, or not at all.
fn without_waiting() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

/// Writes the file's content past the page cache, with zeros up to the end of the last block; false
/// when the file system cannot do that.
fn write_direct(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
    let mut memory = vec![0; DIRECT_BYTES + DEVICE_BLOCK_BYTES];
    let address = memory.as_ptr().addr();
    let begin = address.next_multiple_of(DEVICE_BLOCK_BYTES) - address;
    let blocks = &mut memory[begin..begin + DIRECT_BYTES];
    let mut write = |file: &File| -> io::Result<()> {
        for (part, offset) in bytes.chunks(DIRECT_BYTES).zip((0..).step_by(DIRECT_BYTES)) {
            let end = part.len().next_multiple_of(DEVICE_BLOCK_BYTES);
            blocks[..part.len()].copy_from_slice(part);
            blocks[part.len()..end].fill(0);
            file.write_all_at(&blocks[..end], offset)?;
        }
        Ok(())
    };
    match file.and_then(|file| write(&file)) {
        Ok(()) => Ok(true),
        // What a file system answers that has no such writes, or wants larger blocks.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn is_without_files(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        if !entry?.file_name().to_string_lossy().starts_with(TEMPORARY) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would not release the lock while a child process has a copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    //! Files come back; leftovers are not among them.

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn files_are_put_listed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path().join("a/b"));
        assert_eq!(store.list("").unwrap(), []);
        assert_eq!(store.get("x/y", 10).unwrap(), None);
        store.put("x/y", b"two").unwrap();
        store.put("x/z", b"three").unwrap();
        let error = store.put("x/z", b"four").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        store.put("top", b"").unwrap();
        fs::write(directory.path().join("a/b/x/.tmp-w"), b"torn").unwrap();
        assert_eq!(store.get("x/y", 10).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(store.get("x/z", 4).unwrap_err().kind(), ErrorKind::InvalidData);
        let memory = b"that of a longer file".to_vec();
        let address = memory.as_ptr();
        let read = store.get_into("x/z", 10, memory).unwrap().unwrap();
        assert_eq!((&read[..], read.as_ptr()), (&b"three"[..], address));
        let names = |prefix: &str| -> Vec<String> {
            store.list(prefix).unwrap().into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(""), ["top", "x/y", "x/z"]);
        assert_eq!(names("x/"), ["x/y", "x/z"]);
        assert_eq!(names("x/y"), ["x/y"]);
        store.remove("x/y").unwrap();
        store.remove("x/y").unwrap();
        store.remove("x/z").unwrap();
        assert!(!directory.path().join("a/b/x").exists(), "nothing is left of an empty backup");
        assert_eq!(names(""), ["top"]);
    }

    #[test]
    fn files_of_any_length_come_back_whole() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path());
        let bytes: Vec<u8> = (0..2 * DIRECT_BYTES + 2).map(|at| (at % 251) as u8).collect();
        let (least, most) = (DIRECT_BYTES_MIN, DIRECT_BYTES);
        for length in [least - 1, least, least + 1, most - 1, most, most + 1, bytes.len()] {
            // Not aligned, as segments are.
            let content = &bytes[1..length];
            store.put(&length.to_string(), content).unwrap();
            let read = store.get(&length.to_string(), bytes.len()).unwrap().unwrap();
            assert!(read == content, "a file of {} bytes", content.len());
        }
    }

    /// Reading a pipe would wait for its writer, and a device has no end.
    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path());
        let pipe = |name: &str| {
            let (path, mode) = (directory.path().join(name), Mode::RUSR | Mode::WUSR);
            mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
        };
        pipe("pipe");
        std::os::unix::fs::symlink("/dev/zero", directory.path().join("device")).unwrap();
        fs::create_dir(directory.path().join("directory")).unwrap();
        for name in ["pipe", "device", "directory"] {
            let error = store.get(name, 10).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{name}");
            assert_eq!(error.to_string(), "it is not a regular file", "{name}");
        }
        pipe(LOCK);
        store.lock().expect_err("the lock is a pipe");
    }

    #[test]
    fn long_files_are_refused_by_their_size() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("sparse")).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = DirectoryStore::new(directory.path()).get("sparse", 10).unwrap_err();
        assert_eq!(error.to_string(), "it has 1099511627776 bytes, at most 10 were expected");
    }

    #[test]
    fn only_one_writer_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path());
        let lock = store.lock().unwrap().unwrap();
        assert!(store.lock().unwrap().is_none());
        drop(lock);
        assert!(store.lock().unwrap().is_some());
        assert_eq!(store.list("").unwrap(), []);
    }
}
