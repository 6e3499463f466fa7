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
//! Of several logs each is copied by itself, since no vbucket is in two. Log 0 is the last, because
//! it has the collections manifest: a collection is in the manifest durably before a document is in
//! the collection, so the copy knows every collection of which it has documents.
//!
//! The end of a copy may be half of a frame. Opening cuts it off. The caller is a program beside
//! the server, or without one; it takes no lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::STORE_KIND;
use super::writer::{hint_name, segment_name};
use crate::directory::{MARKER_NAME, log_directory_name, parse_marker};

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

impl SnapshotSizes {
    fn add(&mut self, other: SnapshotSizes) {
        self.linked += other.linked;
        self.linked_bytes += other.linked_bytes;
        self.copied_bytes += other.copied_bytes;
    }
}

/// Copies the log store in `from`, which may be in use, to `to`, which must not exist. Both are on
/// one file system. The copy is durable but for the name `to` itself.
///
/// # Errors
/// When the file system refuses, the marker is damaged, or the log changes too quickly. `to` may be
/// there in part then.
pub fn snapshot_log(from: &Path, to: &Path) -> io::Result<SnapshotSizes> {
    match logs_of(from)? {
        Logs::InDirectory => snapshot_one(from, to, &[MARKER_NAME]),
        Logs::InSubdirectories(logs) => {
            fs::create_dir(to)?;
            let mut sizes = SnapshotSizes::default();
            for name in (0..logs).rev().map(log_directory_name) {
                sizes.add(snapshot_one(&from.join(&name), &to.join(&name), &[])?);
            }
            sizes.copied_bytes += copy(&from.join(MARKER_NAME), &to.join(MARKER_NAME))?;
            File::open(to)?.sync_all()?;
            Ok(sizes)
        }
        Logs::Unfinished => {
            fs::create_dir(to)?;
            // Empty: whatever is in it by now, there was nothing when this began.
            create(&to.join(MARKER_NAME))?.sync_all()?;
            File::open(to)?.sync_all()?;
            Ok(SnapshotSizes::default())
        }
    }
}

/// Where a store has its logs.
enum Logs {
    /// One, beside the marker, or nothing that is known.
    InDirectory,
    /// So many in subdirectories.
    InSubdirectories(usize),
    /// Several that are still being made.
    Unfinished,
}

fn logs_of(from: &Path) -> io::Result<Logs> {
    let content = match fs::read(from.join(MARKER_NAME)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Logs::InDirectory),
        content => content?,
    };
    match parse_marker(&content, &STORE_KIND) {
        Ok(Some(logs)) if logs > 1 => Ok(Logs::InSubdirectories(logs)),
        Ok(None) if content.starts_with(STORE_KIND.marker_text_of_several) => Ok(Logs::Unfinished),
        Err(_) if content.starts_with(STORE_KIND.marker_text_of_several) => {
            Err(io::Error::new(ErrorKind::InvalidData, "the marker of the store is damaged"))
        }
        _ => Ok(Logs::InDirectory),
    }
}

/// Copies one log, and these other files beside it.
fn snapshot_one(from: &Path, to: &Path, others: &[&str]) -> io::Result<SnapshotSizes> {
    for _ in 0..ATTEMPTS {
        fs::create_dir(to)?;
        if let Some(sizes) = try_snapshot(from, to, others)? {
            return Ok(sizes);
        }
        fs::remove_dir_all(to)?;
    }
    Err(io::Error::other("segments come and go too quickly: try again"))
}

/// `None` when it has to begin again.
fn try_snapshot(from: &Path, to: &Path, others: &[&str]) -> io::Result<Option<SnapshotSizes>> {
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
    for name in names.chain(others.iter().map(|&name| name.to_owned())) {
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

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// Copies a file as long as it is now; what is appended meanwhile is left out.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let source = File::open(from)?;
    let bytes = source.metadata()?.len();
    let mut target = create(to)?;
    let copied = io::copy(&mut source.take(bytes), &mut target)?;
    target.sync_all()?;
    Ok(copied)
}
