//! A snapshot of a data directory by hard links, with or without a running server.
//!
//! Owns: which files of the directory are in it. Stores are linked ([`snapshot_log`]), all other
//! files are small and copied. Invariants: the snapshot has its final name only when it is whole
//! and durable; it never shares a file with the server that is still written to. The copy opens as
//! after a crash and begins its own histories, because the snapshot omits the marker of a clean
//! stop. Called by `oribi backup snapshot`.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use oribi_storage::{SnapshotSizes, snapshot_log};
use oribi_system::data_dir::{LOCK_NAME, MARKER_NAME};
use oribi_system::data_file::TEMPORARY_SUFFIX;

use crate::buckets::{BUCKETS_DIR, CLEAN_SHUTDOWN_FILE, STORE_DIR, storage_in};

/// Suffix of a snapshot that is not whole.
const PARTIAL_SUFFIX: &str = ".partial";

/// Directories within directories of a data directory; it has fewer.
const DEPTH_MAX: usize = 8;

/// Contents of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Buckets whose documents are in it.
    pub buckets: Vec<String>,
    /// Buckets whose documents are elsewhere, with the place.
    pub remote: Vec<(String, String)>,
    /// Sizes of their stores.
    pub sizes: SnapshotSizes,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The path is no data directory.
    #[error("{0} has no {MARKER_NAME}, so it is not a data directory of Oribi")]
    NoDataDir(PathBuf),
    /// The target exists already.
    #[error("{0} exists; a snapshot needs a new name")]
    Exists(PathBuf),
    /// Hard links need one file system.
    #[error(
        "{target} is not on the file system of {data_dir}, and hard links cannot leave it: choose a place next to the data directory"
    )]
    OtherFileSystem { target: PathBuf, data_dir: PathBuf },
    /// A snapshot would be a part of itself.
    #[error("{0} is inside the data directory")]
    Inside(PathBuf),
    /// The file system refused.
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// Makes the snapshot `target` of a data directory, and removes the remains of an interrupted one.
///
/// # Errors
/// See [`SnapshotError`]; there is no `target` then.
pub fn snapshot(data_dir: &Path, target: &Path) -> Result<Snapshot, SnapshotError> {
    if !data_dir.join(MARKER_NAME).is_file() {
        return Err(SnapshotError::NoDataDir(data_dir.to_owned()));
    }
    if target.symlink_metadata().is_ok() {
        return Err(SnapshotError::Exists(target.to_owned()));
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let place = parent.canonicalize().map_err(at(parent))?;
    if place.starts_with(data_dir.canonicalize().map_err(at(data_dir))?) {
        return Err(SnapshotError::Inside(target.to_owned()));
    }
    let mut name = target.as_os_str().to_owned();
    name.push(PARTIAL_SUFFIX);
    let partial = PathBuf::from(name);
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed.map_err(at(&partial))?,
    }
    let mut found = Snapshot::default();
    copy_directory(data_dir, &partial, 0, &mut found).map_err(|error| match error {
        SnapshotError::Io { error, .. } if error.kind() == ErrorKind::CrossesDevices => {
            SnapshotError::OtherFileSystem {
                target: target.to_owned(),
                data_dir: data_dir.to_owned(),
            }
        }
        error => error,
    })?;
    fs::rename(&partial, target).map_err(at(target))?;
    File::open(parent).and_then(|file| file.sync_all()).map_err(at(parent))?;
    Ok(found)
}

fn copy_directory(
    from: &Path,
    to: &Path,
    depth: usize,
    found: &mut Snapshot,
) -> Result<(), SnapshotError> {
    assert!(depth <= DEPTH_MAX, "a walk has a bounded depth");
    DirBuilder::new().mode(0o700).create(to).map_err(at(to))?;
    let entries = match fs::read_dir(from) {
        // The bucket has just been removed.
        Err(error) if error.kind() == ErrorKind::NotFound && depth > 0 => return Ok(()),
        entries => entries.map_err(at(from))?,
    };
    for entry in entries {
        let entry = entry.map_err(at(from))?;
        let (name, path) = (entry.file_name(), entry.path());
        let target = to.join(&name);
        let name = name.to_string_lossy();
        let kind = entry.file_type().map_err(at(&path))?;
        if kind.is_dir() && depth < DEPTH_MAX {
            if name == STORE_DIR && is_in_bucket(from) {
                copy_store(from, &path, &target, found)?;
            } else {
                copy_directory(&path, &target, depth + 1, found)?;
            }
        } else if kind.is_file() && !is_left_out(&name) {
            match copy_file(&path, &target) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => copied.map_err(at(&path))?,
            }
        }
    }
    File::open(to).and_then(|file| file.sync_all()).map_err(at(to))
}

fn is_in_bucket(directory: &Path) -> bool {
    directory.parent().and_then(Path::file_name).is_some_and(|name| name == BUCKETS_DIR)
}

fn copy_store(
    bucket: &Path,
    from: &Path,
    to: &Path,
    found: &mut Snapshot,
) -> Result<(), SnapshotError> {
    let name = bucket.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match snapshot_log(from, to) {
        Ok(sizes) => {
            found.sizes.linked += sizes.linked;
            found.sizes.linked_bytes += sizes.linked_bytes;
            found.sizes.copied_bytes += sizes.copied_bytes;
            match storage_in(bucket).remote() {
                Some(url) => found.remote.push((name, url.to_string())),
                None => found.buckets.push(name),
            }
            Ok(())
        }
        // The bucket has just been removed.
        Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => Ok(()),
        Err(error) => Err(at(from)(error)),
    }
}

/// True for locks, partial files and the marker of a clean stop, which holds for one store only.
fn is_left_out(name: &str) -> bool {
    name == LOCK_NAME || name == CLEAN_SHUTDOWN_FILE || name.ends_with(TEMPORARY_SUFFIX)
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    // With its permission: users' files are for their owner only.
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError + use<> {
    let path = path.to_owned();
    move |error| SnapshotError::Io { path, error }
}
