//! A copy of a log that takes no time and no space: hard links, while the log is written.
//!
//! Owns: which files are linked, which are copied, and in which order. The copy is what a crash at
//! that moment would leave, so it opens like after one. Why:
//!
//! 1. Only the newest segment is written to, and it is made after the one before was sealed. A
//!    newest segment that has no whole beginning yet may be given up, and then the one before is
//!    written again. So the two newest ones are copied, and links are to segments that never
//!    change.
//! 2. Segments are linked before the newest one is copied. So whatever the copy of the newest one
//!    lists is linked, or its removal is noted in it, because a segment is removed only after the
//!    note is durable.
//! 3. A removal that is noted in a still newer segment would be missing. So when a file has
//!    vanished and a newer segment is there afterwards, the copy begins again.
//!
//! The end of a copy may be half of a frame. Opening cuts it off. The caller is a program beside
//! the server, or without one; it takes no lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::STORE_KIND;
use super::writer::{hint_name, segment_name};
use crate::directory::MARKER_NAME;

/// Times that the copy begins again. Each time, 4 MiB at least were written meanwhile.
const ATTEMPTS: usize = 100;

/// Newest segments that are copied.
const COPIED_SEGMENTS: usize = 2;

/// Permission of copied files.
const MODE: u32 = 0o600;

/// What a snapshot of a store took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotSizes {
    /// Files that are shared with the store.
    pub linked: u64,
    /// Bytes of these.
    pub linked_bytes: u64,
    /// Bytes of files that were copied.
    pub copied_bytes: u64,
}

/// Copies the log store in `from`, which may be in use, to `to`, which must not exist. Both are on
/// one file system. The copy is durable but for the name `to` itself.
///
/// # Errors
/// When the file system refuses, or the log changes too quickly. `to` may be there in part then.
pub fn snapshot_log(from: &Path, to: &Path) -> io::Result<SnapshotSizes> {
    for _ in 0..ATTEMPTS {
        fs::create_dir(to)?;
        if let Some(sizes) = try_snapshot(from, to)? {
            return Ok(sizes);
        }
        fs::remove_dir_all(to)?;
    }
    Err(io::Error::other("segments come and go too quickly: try again"))
}

/// `None` when it has to begin again.
fn try_snapshot(from: &Path, to: &Path) -> io::Result<Option<SnapshotSizes>> {
    let mut sizes = SnapshotSizes::default();
    let segments = segments(from)?;
    let newest = segments.last().copied();
    let (linked, copied) = segments.split_at(segments.len().saturating_sub(COPIED_SEGMENTS));
    let mut is_whole = true;
    for &id in linked {
        match fs::hard_link(from.join(segment_name(id)), to.join(segment_name(id))) {
            Err(error) if error.kind() == ErrorKind::NotFound => is_whole = false,
            outcome => outcome?,
        }
        // An index file may be missing.
        match fs::hard_link(from.join(hint_name(id)), to.join(hint_name(id))) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            outcome => outcome?,
        }
    }
    let names = copied.iter().map(|&id| segment_name(id));
    for name in names.chain([MARKER_NAME.to_owned()]) {
        match copy(&from.join(&name), &to.join(&name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => is_whole = false,
            bytes => sizes.copied_bytes += bytes?,
        }
    }
    if !is_whole && self::segments(from)?.last().copied() != newest {
        return Ok(None);
    }
    for &id in linked {
        if let Ok(metadata) = fs::metadata(to.join(segment_name(id))) {
            sizes.linked += 1;
            sizes.linked_bytes += metadata.len();
        }
    }
    File::open(to)?.sync_all()?;
    Ok(Some(sizes))
}

/// Numbers of the segments, oldest first.
fn segments(directory: &Path) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| (STORE_KIND.is_own_file)(name)) else {
            continue;
        };
        ids.extend(name.strip_suffix(".log").and_then(|number| number.parse::<u32>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Copies a file as long as it is now; what is appended meanwhile is left out.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let source = File::open(from)?;
    let bytes = source.metadata()?.len();
    let mut target = OpenOptions::new().write(true).create_new(true).mode(MODE).open(to)?;
    let copied = io::copy(&mut source.take(bytes), &mut target)?;
    target.sync_all()?;
    Ok(copied)
}
