//! The data directory: its format, and its lock.
//!
//! Owns: the format marker `oribi.json` and the lock file `oribi.lock`. Invariants: a directory
//! with foreign content is refused and nothing is created in it; a marker that cannot be parsed is
//! refused and left unchanged; one server at a time. Callers: `Server::start` ([`DataDir::open`]),
//! reading offline ([`DataDir::open_existing`]), the `oribi user` command ([`DataDir::prepare`],
//! without the lock).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data_file::{DataFileError, TEMPORARY_SUFFIX, write_atomically};

pub const MARKER_NAME: &str = "oribi.json";
/// The file whose lock the running server holds.
pub const LOCK_NAME: &str = "oribi.lock";
const FORMAT: &str = "oribi-data";
const VERSION: u32 = 1;

/// An open data directory. The lock is held until this value is dropped or the process ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another server holds the lock.
    #[error("data directory {path} is in use by {holder}; stop it first or use another --data-dir")]
    Locked {
        path: PathBuf,
        /// "process 123", or a vaguer text when the lock file has no pid.
        holder: String,
    },
    /// There is no data directory.
    #[error("{path} has no {MARKER_NAME}, so it is not a data directory of Oribi")]
    Absent { path: PathBuf },
    /// The directory has foreign content.
    #[error(
        "{path} is not empty and has no {MARKER_NAME}, so it is not a data directory of Oribi; nothing was changed"
    )]
    Foreign { path: PathBuf },
    /// The marker or the lock file failed.
    #[error(transparent)]
    File(#[from] DataFileError),
}

#[derive(Serialize, Deserialize)]
struct Marker {
    format: String,
    version: u32,
}

enum Content {
    Empty,
    Marked,
}

impl Drop for DataDir {
    /// Closing the file would not release the lock while a process that is being started has a copy
    /// of the descriptor.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

impl DataDir {
    /// Opens a data directory for a server, creating it when it does not exist, and locks it.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let content = inspect_or_create(path)?;
        let lock = take_lock(path)?;
        if let Content::Empty = content {
            write_marker(path)?;
        }
        Ok(DataDir { path: path.to_owned(), lock })
    }

    /// Opens and locks an existing data directory, for a command that reads it while no server
    /// runs. Creates nothing.
    pub fn open_existing(path: &Path) -> Result<DataDir, DataDirError> {
        DataDir::check_existing(path)?;
        DataDir::open(path)
    }

    /// An error unless there is a data directory, which is neither read nor locked.
    pub fn check_existing(path: &Path) -> Result<(), DataDirError> {
        match path.join(MARKER_NAME).is_file() {
            true => Ok(()),
            false => Err(DataDirError::Absent { path: path.to_owned() }),
        }
    }

    /// Checks or creates a data directory without locking it, for a command that may run next to a
    /// server.
    pub fn prepare(path: &Path) -> Result<(), DataDirError> {
        match inspect_or_create(path)? {
            Content::Empty => write_marker(path),
            Content::Marked => Ok(()),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn inspect_or_create(path: &Path) -> Result<Content, DataDirError> {
    let failed = |action, source| DataFileError::io(action, path, source);
    // Only its owner may read the documents.
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|source| failed("create", source))?;
    let marker_path = path.join(MARKER_NAME);
    match fs::read(&marker_path) {
        Ok(bytes) => {
            return match check_marker(&bytes) {
                Ok(()) => Ok(Content::Marked),
                Err(detail) => Err(DataFileError::corrupt(&marker_path, detail).into()),
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(DataFileError::io("read", &marker_path, error).into()),
    }
    // Leftovers of a start that crashed before writing the marker, and those of mkfs, are not
    // foreign.
    let marker_temporary = format!("{MARKER_NAME}{TEMPORARY_SUFFIX}");
    let expected = [LOCK_NAME, &marker_temporary, "lost+found"];
    for entry in fs::read_dir(path).map_err(|source| failed("list", source))? {
        let name = entry.map_err(|source| failed("list", source))?.file_name();
        if !expected.iter().any(|known| name == *known) {
            return Err(DataDirError::Foreign { path: path.to_owned() });
        }
    }
    Ok(Content::Empty)
}

fn check_marker(bytes: &[u8]) -> Result<(), String> {
    let marker: Marker = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if marker.format != FORMAT {
        return Err(format!("format is {:?}, not {FORMAT:?}", marker.format));
    }
    if marker.version != VERSION {
        return Err(format!("version is {}, this program reads {VERSION}", marker.version));
    }
    Ok(())
}

fn write_marker(path: &Path) -> Result<(), DataDirError> {
    let marker = Marker { format: FORMAT.to_owned(), version: VERSION };
    let text = serde_json::to_string(&marker).expect("a string and a number have a JSON form");
    let path = path.join(MARKER_NAME);
    let written = write_atomically(&path, format!("{text}\n").as_bytes(), 0o644);
    Ok(written.map_err(|error| DataFileError::io("write", &path, error))?)
}

/// The lock belongs to the open file, so it ends with the process, even after a crash. The pid in
/// the file is only for the message.
fn take_lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join(LOCK_NAME);
    let failed = |error| DataFileError::io("lock", &path, error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let holder = match file.read_to_string(&mut text) {
                Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
                _ => "another process".to_owned(),
            };
            return Err(DataDirError::Locked { path: directory.to_owned(), holder });
        }
        Err(fs::TryLockError::Error(source)) => return Err(failed(source).into()),
    }
    let write_pid = |file: &mut File| -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write_pid(&mut file).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_is_created_and_opened_again() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a/b");
        drop(DataDir::open(&path).unwrap());
        fs::write(path.join("users.json"), "{}").unwrap();
        assert_eq!(DataDir::open(&path).unwrap().path(), path);
        DataDir::prepare(&path).unwrap();
    }

    #[test]
    fn a_second_open_is_refused_and_names_the_holder() {
        let scratch = tempfile::tempdir().unwrap();
        let _first = DataDir::open(scratch.path()).unwrap();
        let error = DataDir::open(scratch.path()).unwrap_err();
        assert!(matches!(error, DataDirError::Locked { .. }), "{error}");
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        // A command that runs while the server does needs no lock.
        DataDir::prepare(scratch.path()).unwrap();
    }

    #[test]
    fn a_foreign_directory_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("thesis.tex"), "x").unwrap();
        let error = DataDir::open(scratch.path()).unwrap_err();
        assert!(matches!(error, DataDirError::Foreign { .. }), "{error}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_crash_before_the_marker_is_not_foreign() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("oribi.lock"), "1\n").unwrap();
        fs::write(scratch.path().join("oribi.json.tmp"), "{\"for").unwrap();
        DataDir::open(scratch.path()).unwrap();
    }

    #[test]
    fn an_unreadable_marker_is_corrupt_and_stays() {
        for text in [
            "",
            "{",
            "[]",
            "{\"format\":\"x\",\"version\":1}",
            "{\"format\":\"oribi-data\",\"version\":2}",
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let marker = scratch.path().join("oribi.json");
            fs::write(&marker, text).unwrap();
            let error = DataDir::open(scratch.path()).unwrap_err();
            assert!(
                matches!(error, DataDirError::File(DataFileError::Corrupt { .. })),
                "{text:?}: {error}"
            );
            assert_eq!(fs::read_to_string(&marker).unwrap(), text);
        }
    }
}
