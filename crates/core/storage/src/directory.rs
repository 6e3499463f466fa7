//! The directory of a store: its owner, whether it is complete, its number of logs, and the process
//! that has it open.
//!
//! Owns: the marker file `oribi-store`, and the names of the logs' subdirectories. The marker is
//! written before a store makes its first file and says `new`; once the store's files are complete
//! and synced it says `ready`. So a directory without the marker belongs to someone else and is
//! left alone, one that is `new` holds nothing that was ever acknowledged and is made again, and
//! one that is `ready` must be complete or is corrupt. The marker also says which kind of store it
//! is, so that neither kind opens the other's files. The marker of a store of several logs has its
//! own version, which programs that know one log only refuse, and a second line with their number.
//! Invariants: while a store is open, its process holds an exclusive lock on the marker; the number
//! of logs never changes once the store is ready. Callers: the stores that keep files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Name of the marker file.
pub(crate) const MARKER_NAME: &str = "oribi-store";
/// Beginning of every marker; the number of the format follows.
const MARKER_NAME_TEXT: &[u8; 12] = b"oribi-store ";
/// Offset of the state byte.
pub(crate) const MARKER_STATE_AT: usize = 14;
/// State byte while the store is being made.
pub(crate) const MARKER_NEW: u8 = b'n';
/// State byte of a complete store.
pub(crate) const MARKER_READY: u8 = b'r';
/// Length of the marker of a store of one log: text, state and a newline.
pub(crate) const MARKER_BYTES: usize = 16;
/// Second line of the marker of a store of several logs, after two digits.
pub(crate) const MARKER_LOGS_TEXT: &[u8; 6] = b" logs\n";
/// Length of that marker.
pub(crate) const MARKER_BYTES_OF_SEVERAL: usize = MARKER_BYTES + 2 + MARKER_LOGS_TEXT.len();
/// Most logs of a store.
pub const LOGS_MAX: usize = 64;
const _: () = assert!(LOGS_MAX < 100, "a log's number has two digits");
const _: () = assert!(MARKER_STATE_AT == MARKER_NAME_TEXT.len() + 2);
const _: () = assert!(MARKER_STATE_AT + 2 == MARKER_BYTES);

/// Name of the subdirectory of a log in a store of several.
pub(crate) fn log_directory_name(number: usize) -> String {
    assert!(number < LOGS_MAX, "a store has at most {LOGS_MAX} logs");
    format!("log-{number:02}")
}

/// True for a name that [`log_directory_name`] may give.
pub(crate) fn is_log_directory_name(name: &str) -> bool {
    let digits = name.strip_prefix("log-").map(str::as_bytes);
    digits.is_some_and(|digits| digits.len() == 2 && digits.iter().all(u8::is_ascii_digit))
}

/// File names of one kind of store.
pub(crate) struct StoreKind {
    /// Beginning of the marker: name and number of the format.
    pub(crate) marker_text: &'static [u8; MARKER_STATE_AT],
    /// The same for a store of several logs.
    pub(crate) marker_text_of_several: &'static [u8; MARKER_STATE_AT],
    /// Says whether a file of this name may be the remains of an unfinished creation.
    pub(crate) is_own_file: fn(&str) -> bool,
    /// A file without which a complete store cannot be.
    pub(crate) required_file: Option<&'static str>,
}

/// Content of the directory when it was claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirectoryState {
    /// Nothing, or the remains of a creation that never finished.
    New,
    Ready,
}

/// A claimed directory. Dropping it releases the lock.
pub(crate) struct Directory {
    path: PathBuf,
    marker: File,
    found: DirectoryState,
    logs: usize,
}

impl Directory {
    /// Makes sure that the directory is a store's and that no other process has it open. A new
    /// store gets `new_logs` logs, between one and [`LOGS_MAX`], and their subdirectories.
    pub(crate) fn claim(
        path: &Path,
        kind: &StoreKind,
        new_logs: usize,
    ) -> Result<Directory, StoreError> {
        fs::create_dir_all(path).map_err(|error| io_error(&error))?;
        let (marker, is_created) = open_marker(path)?;
        match marker.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Foreign(format!("{} is in use", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(io_error(&error)),
        }
        let made = if is_created { None } else { read_marker(path, &marker, kind)? };
        let found = if made.is_none() { DirectoryState::New } else { DirectoryState::Ready };
        let logs = made.unwrap_or(new_logs.clamp(1, LOGS_MAX));
        let directory = Directory { path: path.to_owned(), marker, found, logs };
        debug_assert_eq!(directory.log_paths().len(), logs, "a log has a directory");
        match found {
            DirectoryState::New => {
                remove_remains(path, kind)?;
                directory.write_marker(kind)?;
                directory.make_logs()?;
                sync_parent(path)?;
            }
            DirectoryState::Ready
                if kind.required_file.is_some_and(|name| !path.join(name).is_file()) =>
            {
                return Err(StoreError::Corrupt(format!("{}: files are missing", path.display())));
            }
            DirectoryState::Ready => directory.check_logs()?,
        }
        Ok(directory)
    }

    /// The same open file, as a process has it that was forked from this one.
    #[cfg(test)]
    pub(crate) fn copy_of_marker(&self) -> File {
        self.marker.try_clone().expect("there are descriptors left")
    }

    pub(crate) fn found(&self) -> DirectoryState {
        self.found
    }

    /// Directories of the logs by number, at least one.
    pub(crate) fn log_paths(&self) -> Vec<PathBuf> {
        debug_assert!((1..=LOGS_MAX).contains(&self.logs), "a store has 1 to {LOGS_MAX} logs");
        match self.logs {
            1 => vec![self.path.clone()],
            logs => (0..logs).map(|number| self.path.join(log_directory_name(number))).collect(),
        }
    }

    /// Says durably that the store is being made, in place of a marker that said so, too.
    fn write_marker(&self, kind: &StoreKind) -> Result<(), StoreError> {
        assert!(self.found == DirectoryState::New, "only a new store gets a marker");
        let several = self.logs > 1;
        let text = if several { kind.marker_text_of_several } else { kind.marker_text };
        let mut content = text.to_vec();
        content.extend([MARKER_NEW, b'\n']);
        if several {
            content.extend(format!("{:02}", self.logs).bytes());
            content.extend(MARKER_LOGS_TEXT);
        }
        let bytes = if several { MARKER_BYTES_OF_SEVERAL } else { MARKER_BYTES };
        assert_eq!(content.len(), bytes, "a marker has its format's length");
        assert_eq!(content[MARKER_STATE_AT], MARKER_NEW, "a store is new before it is ready");
        let write = || {
            // Empty in between, which is as good as new: a mixture of two markers would be damage.
            if self.marker.metadata()?.len() > 0 {
                self.marker.set_len(0)?;
                self.marker.sync_all()?;
            }
            // The store syncs the directory when it makes its first file or its subdirectories,
            // which makes this name durable too.
            self.marker.write_all_at(&content, 0)?;
            self.marker.sync_data()
        };
        write().map_err(|error| io_error(&error))
    }

    /// Makes the subdirectories of a new store and their names durable.
    fn make_logs(&self) -> Result<(), StoreError> {
        assert!(self.found == DirectoryState::New, "logs are made once");
        if self.logs == 1 {
            return Ok(());
        }
        let mut made = self.log_paths().into_iter().map(fs::create_dir);
        let synced =
            made.try_for_each(|made| made).and_then(|()| File::open(&self.path)?.sync_all());
        synced.map_err(|error| io_error(&error))
    }

    /// A complete store has all its logs.
    fn check_logs(&self) -> Result<(), StoreError> {
        assert!(self.found == DirectoryState::Ready, "a new store has no logs yet");
        match self.log_paths().into_iter().find(|path| !path.is_dir()) {
            None => Ok(()),
            Some(path) => Err(StoreError::Corrupt(format!(
                "{} is missing: the store has {} logs, and its documents are divided among them",
                path.display(),
                self.logs
            ))),
        }
    }

    /// Says durably that the store is complete. Must come before the first commit.
    pub(crate) fn mark_ready(&self) -> Result<(), StoreError> {
        if self.found == DirectoryState::Ready {
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

/// Reads the marker: the number of logs of a complete store.
fn read_marker(path: &Path, marker: &File, kind: &StoreKind) -> Result<Option<usize>, StoreError> {
    let mut content = Vec::new();
    let read = marker.take(MARKER_BYTES_OF_SEVERAL as u64 + 1).read_to_end(&mut content);
    read.map_err(|error| io_error(&error))?;
    parse_marker(&content, kind).map_err(|fault| match fault {
        MarkerFault::OtherFormat => StoreError::Foreign(format!(
            "{} has a format that this version does not read",
            path.display()
        )),
        MarkerFault::Damaged => {
            StoreError::Corrupt(format!("{}: the marker is damaged", path.display()))
        }
    })
}

/// Why a marker says nothing.
pub(crate) enum MarkerFault {
    /// It is another version's.
    OtherFormat,
    Damaged,
}

/// Contents of a marker: the number of logs of a complete store, `None` while it is made. An
/// empty one is what a creation leaves that was cut off at its very beginning.
pub(crate) fn parse_marker(content: &[u8], kind: &StoreKind) -> Result<Option<usize>, MarkerFault> {
    if content.is_empty() {
        return Ok(None);
    }
    let of_one = content.strip_prefix(kind.marker_text);
    let of_several = content.strip_prefix(kind.marker_text_of_several);
    let (state, logs) = match (of_one, of_several) {
        (Some([state, b'\n']), _) => (*state, 1),
        (_, Some([state, b'\n', line @ ..])) => {
            (*state, logs_in(line).ok_or(MarkerFault::Damaged)?)
        }
        (None, None) if content.starts_with(MARKER_NAME_TEXT) => {
            return Err(MarkerFault::OtherFormat);
        }
        _ => return Err(MarkerFault::Damaged),
    };
    match state {
        MARKER_NEW => Ok(None),
        MARKER_READY => Ok(Some(logs)),
        _ => Err(MarkerFault::Damaged),
    }
}

/// The number in the second line of a marker. A store of one log has no such line.
fn logs_in(line: &[u8]) -> Option<usize> {
    let [tens @ b'0'..=b'9', units @ b'0'..=b'9'] = line.strip_suffix(MARKER_LOGS_TEXT)? else {
        return None;
    };
    let logs = usize::from(tens - b'0') * 10 + usize::from(units - b'0');
    (2..=LOGS_MAX).contains(&logs).then_some(logs)
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

/// Removes the files of an unfinished creation. Only names that the store uses are touched.
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
