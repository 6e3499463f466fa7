//! The directory of a store: whose it is, whether it is complete, and who has it open.
//!
//! Owns: the marker file `oribi-store`. It is written before a store makes its first file and says
//! `new`; once the store's files are complete and synced it says `ready`. So a directory without
//! the marker belongs to someone else and is left alone, one that is `new` holds nothing that was
//! ever acknowledged and is made again, and one that is `ready` must be complete or is corrupt. The
//! marker also says which kind of store it is, so that neither kind opens the other's files.
//! Invariant: while a store is open, its process holds an exclusive lock on the marker. Callers:
//! the stores that keep files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Name of the marker file.
pub(crate) const MARKER_NAME: &str = "oribi-store";
/// What every marker begins with; the number of the format follows.
const MARKER_NAME_TEXT: &[u8; 12] = b"oribi-store ";
/// Offset of the state byte.
pub(crate) const MARKER_STATE_AT: usize = 14;
/// State byte while the store is being made.
pub(crate) const MARKER_NEW: u8 = b'n';
/// State byte of a complete store.
pub(crate) const MARKER_READY: u8 = b'r';
/// Length of the marker: text, state and a newline.
pub(crate) const MARKER_BYTES: usize = 16;

/// What one kind of store calls its files.
pub(crate) struct StoreKind {
    /// What the marker begins with: name and number of the format.
    pub(crate) marker_text: &'static [u8; MARKER_STATE_AT],
    /// Says whether a file of this name may be the remains of an unfinished creation.
    pub(crate) is_own_file: fn(&str) -> bool,
    /// A file without which a complete store cannot be.
    pub(crate) required_file: Option<&'static str>,
}

/// What stood in the directory when it was claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing, or the remains of a creation that never finished.
    New,
    /// A complete store.
    Ready,
}

/// A claimed directory. Dropping it releases the lock.
pub(crate) struct Directory {
    marker: File,
    found: Found,
}

impl Directory {
    /// Makes sure that the directory is a store's and that no other process has it open.
    pub(crate) fn claim(path: &Path, kind: &StoreKind) -> Result<Directory, StoreError> {
        fs::create_dir_all(path).map_err(|error| io_error(&error))?;
        let (marker, is_created) = open_marker(path)?;
        match marker.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Foreign(format!("{} is in use", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(io_error(&error)),
        }
        let found = if is_created { Found::New } else { read_state(path, &marker, kind)? };
        match found {
            Found::New => {
                remove_remains(path, kind)?;
                write_marker(&marker, kind)?;
                sync_parent(path)?;
            }
            Found::Ready if kind.required_file.is_some_and(|name| !path.join(name).is_file()) => {
                return Err(StoreError::Corrupt(format!("{}: files are missing", path.display())));
            }
            Found::Ready => {}
        }
        Ok(Directory { marker, found })
    }

    /// The same open file, as a process has it that was forked from this one.
    #[cfg(test)]
    pub(crate) fn copy_of_marker(&self) -> File {
        self.marker.try_clone().expect("there are descriptors left")
    }

    pub(crate) fn found(&self) -> Found {
        self.found
    }

    /// Says durably that the store is complete. Must come before the first commit.
    pub(crate) fn mark_ready(&self) -> Result<(), StoreError> {
        if self.found == Found::Ready {
            return Ok(());
        }
        let written = self.marker.write_all_at(&[MARKER_READY], MARKER_STATE_AT as u64);
        written.and_then(|()| self.marker.sync_data()).map_err(|error| io_error(&error))
    }
}

impl Drop for Directory {
    /// Closing alone would not release the lock while a process that is being started still has a
    /// copy of the descriptor: between fork and exec it has all of them.
    fn drop(&mut self) {
        let _ = self.marker.unlock();
    }
}

/// Opens the marker, or makes an empty one when the directory is empty.
fn open_marker(path: &Path) -> Result<(File, bool), StoreError> {
    let name: PathBuf = path.join(MARKER_NAME);
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(&name) {
        Ok(marker) => return Ok((marker, false)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(&error)),
    }
    let mut entries = fs::read_dir(path).map_err(|error| io_error(&error))?;
    if entries.next().is_some() {
        let text = format!("{} holds something else than an oribi store", path.display());
        return Err(StoreError::Foreign(text));
    }
    let marker = options.create_new(true).open(&name).map_err(|error| io_error(&error))?;
    Ok((marker, true))
}

/// Reads the marker. An empty one is what a creation leaves that was cut off at its very beginning.
fn read_state(path: &Path, marker: &File, kind: &StoreKind) -> Result<Found, StoreError> {
    let mut content = Vec::new();
    let read = marker.take(MARKER_BYTES as u64 + 1).read_to_end(&mut content);
    read.map_err(|error| io_error(&error))?;
    let version_ends = kind.marker_text.len();
    match (content.get(..version_ends), content.get(version_ends..)) {
        _ if content.is_empty() => Ok(Found::New),
        (Some(text), Some([MARKER_NEW, b'\n'])) if text == kind.marker_text => Ok(Found::New),
        (Some(text), Some([MARKER_READY, b'\n'])) if text == kind.marker_text => Ok(Found::Ready),
        _ if content.starts_with(MARKER_NAME_TEXT) && !content.starts_with(kind.marker_text) => {
            let text = format!("{} has a format that this version does not read", path.display());
            Err(StoreError::Foreign(text))
        }
        _ => Err(StoreError::Corrupt(format!("{}: the marker is damaged", path.display()))),
    }
}

fn write_marker(marker: &File, kind: &StoreKind) -> Result<(), StoreError> {
    let mut content = [b'\n'; MARKER_BYTES];
    content[..MARKER_STATE_AT].copy_from_slice(kind.marker_text);
    content[MARKER_STATE_AT] = MARKER_NEW;
    // The store syncs the directory when it makes its first file, which makes this name durable
    // too.
    let written = marker.write_all_at(&content, 0).and_then(|()| marker.sync_data());
    written.map_err(|error| io_error(&error))
}

/// Makes the store's own name durable, which no sync inside of it does.
fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| io_error(&error))
}

/// Removes what an unfinished creation left. Only names that the store uses are touched.
fn remove_remains(path: &Path, kind: &StoreKind) -> Result<(), StoreError> {
    let entries = fs::read_dir(path).map_err(|error| io_error(&error))?;
    for entry in entries {
        let entry = entry.map_err(|error| io_error(&error))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(kind.is_own_file)(&name) {
            continue;
        }
        let is_directory = entry.file_type().map_err(|error| io_error(&error))?.is_dir();
        let removed = match is_directory {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        removed.map_err(|error| io_error(&error))?;
    }
    Ok(())
}

/// A file that ends early or has impossible content is damage; the rest is the system's refusal.
pub(crate) fn io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            StoreError::Corrupt(error.to_string())
        }
        _ => StoreError::Io(error.to_string()),
    }
}
