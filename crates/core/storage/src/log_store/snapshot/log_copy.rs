//! One log on its way into a snapshot: links to sealed segments, notes of those still being
//! written.
//!
//! Owns: which files of a log are linked, which are copied, and in which order. Why:
//!
//! 1. Only the newest segment is written to, and it is made after the one before was sealed. A
//!    newest segment that has no whole beginning yet may be given up, and then the one before is
//!    written again. So the two newest ones are copied, and links are to segments that never
//!    change.
//! 2. Segments are linked before the newest one is noted. So whatever the note of the newest one
//!    lists is linked, or its removal is noted in it, because a segment is removed only after the
//!    note of its removal is durable.
//! 3. A removal that is noted in a still newer segment would be missing. So when a newer segment
//!    is there afterwards, the copy begins again. The links stay; the copied files do not.
//!
//! The end of a copy may be half of a frame. Opening cuts it off. Caller: the parent module, which
//! says when the notes of several logs are of one moment.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::super::STORE_KIND;
use super::super::blocks::BLOCK_BYTES_MAX;
use super::super::files::read_up_to;
use super::super::writer::{hint_name, segment_name};

/// Newest segments that are copied.
const COPIED_SEGMENTS: usize = 2;
const _: () = assert!(COPIED_SEGMENTS > 0, "the segment that is written to is copied");

/// Blocks in which segments are written.
const BLOCK_BYTES: u64 = BLOCK_BYTES_MAX as u64;

/// Permission of copied files.
const MODE: u32 = 0o600;

/// Sizes of a store's snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotSizes {
    /// Files that are shared with the store.
    pub linked: u64,
    pub linked_bytes: u64,
    /// Bytes of files that were copied.
    pub copied_bytes: u64,
}

/// See the module text.
pub(super) struct LogCopy {
    from: PathBuf,
    to: PathBuf,
    /// Links to segments, by number.
    linked: Vec<u32>,
    /// The newest segments, oldest first.
    newest: Vec<CopiedSegment>,
    /// Number of the newest segment when the directory was listed.
    newest_id: Option<u32>,
}

/// A segment that is copied.
struct CopiedSegment {
    id: u32,
    /// Open from the first note to the copy, so a name that is gone takes nothing away.
    file: File,
    note: Note,
}

/// State of a segment at a moment.
#[derive(PartialEq, Eq)]
pub(super) struct Note {
    /// Where the last block begins.
    last_block_at: u64,
    /// As much of it as there is; empty only for an empty file.
    last_block: Vec<u8>,
}

impl Note {
    fn of(file: &File) -> io::Result<Note> {
        let bytes = file.metadata()?.len();
        let last_block_at = bytes.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        assert!(bytes - last_block_at <= BLOCK_BYTES, "the rest is at most a block");
        let mut last_block = vec![0; (bytes - last_block_at) as usize];
        // Shorter where the file has been cut off just now.
        let read = read_up_to(file, &mut last_block, last_block_at, 1)?;
        last_block.truncate(read);
        Ok(Note { last_block_at, last_block })
    }

    /// True when the file still has the noted bytes. Only zeros may have been cut off.
    fn holds_for(&self, file: &File) -> io::Result<bool> {
        let zeros = self.last_block.iter().rev().take_while(|byte| **byte == 0).count();
        let noted = &self.last_block[..self.last_block.len() - zeros];
        let mut found = vec![0; noted.len()];
        let read = read_up_to(file, &mut found, self.last_block_at, 1)?;
        Ok(read == noted.len() && found == noted)
    }
}

impl LogCopy {
    /// Of the log in `from`, into the directory `to`.
    pub(super) fn new(from: &Path, to: &Path) -> LogCopy {
        let (from, to) = (from.to_owned(), to.to_owned());
        LogCopy { from, to, linked: Vec::new(), newest: Vec::new(), newest_id: None }
    }

    /// Links sealed segments that are not linked yet, then notes the newest segments for the first
    /// time.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let linked_to = self.linked.last().copied();
        let mut segments = segments(&self.from)?;
        self.newest_id = segments.last().copied();
        if linked_to.is_some() && self.newest_id <= linked_to {
            return Err(io::Error::other("the store was made anew meanwhile: try again"));
        }
        segments.retain(|id| Some(*id) > linked_to);
        let (sealed, newest) = segments.split_at(segments.len().saturating_sub(COPIED_SEGMENTS));
        for &id in sealed {
            self.link(id)?;
        }
        self.newest.clear();
        for &id in newest {
            match File::open(self.from.join(segment_name(id))) {
                // Removed, which the newest one says.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                file => {
                    let file = file?;
                    let note = Note::of(&file)?;
                    self.newest.push(CopiedSegment { id, file, note });
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, id: u32) -> io::Result<()> {
        assert!(self.linked.last().is_none_or(|last| *last < id), "segments are linked in order");
        let link = |name: String| fs::hard_link(self.from.join(&name), self.to.join(&name));
        match link(segment_name(id)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            outcome => outcome?,
        }
        debug_assert!(
            self.newest_id.is_none_or(|newest| id < newest),
            "sealed segments are linked"
        );
        self.linked.push(id);
        // An index file may be missing.
        match link(hint_name(id)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Notes the newest segments once more. True when something has changed.
    pub(super) fn note_again(&mut self) -> io::Result<bool> {
        if self.has_next()? {
            self.begin()?;
            return Ok(true);
        }
        let mut has_changed = false;
        for noted in &mut self.newest {
            let note = Note::of(&noted.file)?;
            has_changed |= note != noted.note;
            noted.note = note;
        }
        Ok(has_changed)
    }

    /// Finds most newer segments, and early. [`LogCopy::is_newest`] finds all: compaction may have
    /// removed the next one when there are more.
    fn has_next(&self) -> io::Result<bool> {
        let next = self.newest_id.and_then(|id| id.checked_add(1));
        next.map_or(Ok(false), |id| fs::exists(self.from.join(segment_name(id))))
    }

    /// True when the newest segment that was noted still is the newest one.
    pub(super) fn is_newest(&self) -> io::Result<bool> {
        let newest_id = segments(&self.from)?.last().copied();
        if newest_id != self.newest_id {
            return Ok(false);
        }
        let Some(id) = newest_id else { return Ok(true) };
        let Some(noted) = self.newest.last().filter(|noted| noted.id == id) else {
            return Ok(false);
        };
        // One that was given up and made again is another file of the same name.
        match fs::metadata(self.from.join(segment_name(id))) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            named => Ok(named?.ino() == noted.file.metadata()?.ino()),
        }
    }

    /// Copies the newest segments as noted. False when a failed write was cut off concurrently.
    pub(super) fn copy(&mut self) -> io::Result<bool> {
        assert!(self.newest.len() <= COPIED_SEGMENTS, "only the newest segments are copied");
        for CopiedSegment { id, file, note } in &self.newest {
            let mut target = create(&self.to.join(segment_name(*id)))?;
            let copied = io::copy(&mut file.take(note.last_block_at), &mut target)?;
            if copied < note.last_block_at {
                return Ok(false);
            }
            target.write_all(&note.last_block)?;
            target.sync_all()?;
            if !note.holds_for(file)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the copied files.
    pub(super) fn take_back(&mut self) -> io::Result<()> {
        for noted in self.newest.drain(..) {
            match fs::remove_file(self.to.join(segment_name(noted.id))) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Makes the names durable.
    pub(super) fn finish(&self) -> io::Result<SnapshotSizes> {
        let mut sizes = SnapshotSizes::default();
        for id in &self.linked {
            sizes.linked += 1;
            sizes.linked_bytes += fs::metadata(self.to.join(segment_name(*id)))?.len();
        }
        for CopiedSegment { note, .. } in &self.newest {
            sizes.copied_bytes += note.last_block_at + note.last_block.len() as u64;
        }
        File::open(&self.to)?.sync_all()?;
        Ok(sizes)
    }
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

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}
