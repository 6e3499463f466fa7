//! An archive in a directory of this machine.
//!
//! A put writes a temporary file, syncs it, renames it, and syncs the directories that it is in.
//! [`Lock`] keeps two programs from writing one archive.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{ArchiveStore, FileEntry};

/// What the name of a temporary file begins with.
const TEMPORARY: &str = ".tmp-";

/// The file whose lock a writer holds.
const LOCK: &str = ".lock";

/// Directories inside directories that are listed; an archive has fewer.
const DEPTH_MAX: usize = 8;

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
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
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
        // Nobody comes in between: writers hold the lock.
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
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    }

    fn get(&self, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.root.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::with_capacity(file.metadata()?.len().min(bytes_max as u64) as usize);
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        match bytes.len() > bytes_max {
            true => {
                Err(io::Error::new(ErrorKind::InvalidData, "it is longer than such a file may be"))
            }
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
