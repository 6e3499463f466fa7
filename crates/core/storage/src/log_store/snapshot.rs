//! A copy of a store that takes no time and no space: hard links, while the store is written.
//!
//! Owns: the moment of the copy, and its files besides the logs. `log_copy.rs` has the files of one
//! log. The copy equals the state of all logs after a crash at one moment, so it opens like after
//! one. The caller is a program that runs concurrently with the server, or without one; it takes no
//! lock.
//!
//! # One moment of several logs
//!
//! A document may be durable in one log before another one is written in the next log. So the copy
//! needs the states that the logs had together. It finds such states, and stops no writer:
//!
//! 1. A *note* of a log has its two newest segments, the length of each, and the bytes of its last
//!    block ([`Note`](log_copy::Note)).
//! 2. The logs are noted in turn, until as many notes as there are logs, one after the other, are
//!    equal to the notes before. All of those were taken before the first of these. The moment of
//!    the copy is between them.
//! 3. Bytes in a note were written before that moment, because the first of the two equal notes has
//!    them. Writes acknowledged before that moment are in the note, because the second one has
//!    them: a write ends before its sync, and an ended write can be read.
//! 4. Then the directories are listed once more. If a newer segment is there, the copy begins
//!    again. The newest number never falls, except that of a segment without acknowledged frames.
//! 5. Later the files are copied as they are in the notes. A copied file has what is in front of
//!    its last block, and the block as noted.
//!
//! Equal notes mean equal files, because a frame changes the length or the last block of its file:
//!
//! - Frames are written in whole blocks, zeros after them (`staging.rs`). So the next frame begins
//!   at the end of the file or in its last block, where its header replaces zeros.
//! - Sealing and closing cut off zeros (`LogWriter::trim`). That changes the length and no frame.
//! - A failed write may leave a part of a frame, until the recovery cuts that off. No acknowledged
//!   frame is cut off. A frame that is written instead ends in its own trailer. Where that is equal
//!   too, it is the same frame. If the cut comes after the notes, the noted block is gone from its
//!   place, and the copy begins again.
//! - An opening writes frames again only with the bytes that they have.
//!
//! One log needs one note: a note alone is a state that the log had.

mod log_copy;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use self::log_copy::{LogCopy, create};
use super::STORE_KIND;
use crate::directory::{MARKER_NAME, log_directory_name, parse_marker};

pub use self::log_copy::SnapshotSizes;

/// Times that the copy begins again. Each time, a segment was begun concurrently, or a write
/// failed.
const ATTEMPTS: usize = 100;

/// Notes of all logs together. One takes some microseconds, and a read of one block where the log
/// was written concurrently.
const NOTES_MAX: usize = 200_000;
const _: () = assert!(ATTEMPTS < NOTES_MAX);

/// Copies the log store in `from`, which may be in use, to `to`, which must not exist. Both are on
/// one file system. The copy is durable but for the name `to` itself.
///
/// # Errors
/// When the file system refuses, the marker is damaged, or the logs change too quickly. `to` may be
/// there in part then.
pub fn snapshot_log(from: &Path, to: &Path) -> io::Result<SnapshotSizes> {
    // Read before anything else: a store that says it is ready has its first segments.
    let marker = match fs::read(from.join(MARKER_NAME)) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        content => Some(content?),
    };
    let logs = logs_of(marker.as_deref().unwrap_or_default())?;
    fs::create_dir(to)?;
    let mut copies = match logs {
        Logs::InDirectory => vec![LogCopy::new(from, to)],
        Logs::InSubdirectories(logs) => {
            let names = (0..logs).map(log_directory_name);
            let copy = |name: String| {
                fs::create_dir(to.join(&name))?;
                Ok(LogCopy::new(&from.join(&name), &to.join(&name)))
            };
            names.map(copy).collect::<io::Result<Vec<_>>>()?
        }
        Logs::Unfinished => Vec::new(),
    };
    let mut sizes = copy_logs(&mut copies)?;
    if let Some(content) = marker {
        // Empty for several logs that are still being made: whatever is there by now, there was
        // nothing when this began.
        let content = if copies.is_empty() { &[] } else { content.as_slice() };
        let mut file = create(&to.join(MARKER_NAME))?;
        file.write_all(content)?;
        file.sync_all()?;
        sizes.copied_bytes += content.len() as u64;
    }
    File::open(to)?.sync_all()?;
    Ok(sizes)
}

/// Where a store has its logs.
enum Logs {
    /// One, next to the marker, or nothing that is known.
    InDirectory,
    /// So many in subdirectories.
    InSubdirectories(usize),
    /// Several that are still being made.
    Unfinished,
}

fn logs_of(marker: &[u8]) -> io::Result<Logs> {
    match parse_marker(marker, &STORE_KIND) {
        Ok(Some(logs)) if logs > 1 => Ok(Logs::InSubdirectories(logs)),
        Ok(None) if marker.starts_with(STORE_KIND.marker_text_of_several) => Ok(Logs::Unfinished),
        Err(_) if marker.starts_with(STORE_KIND.marker_text_of_several) => {
            Err(io::Error::new(ErrorKind::InvalidData, "the marker of the store is damaged"))
        }
        _ => Ok(Logs::InDirectory),
    }
}

fn copy_logs(logs: &mut [LogCopy]) -> io::Result<SnapshotSizes> {
    let mut notes_left = NOTES_MAX;
    for _ in 0..ATTEMPTS {
        for log in &mut *logs {
            log.begin()?;
        }
        find_moment(logs, &mut notes_left)?;
        if all(logs, |log| log.is_newest())? && all(logs, LogCopy::copy)? {
            return sizes_of(logs);
        }
        logs.iter_mut().try_for_each(LogCopy::take_back)?;
    }
    Err(io::Error::other("segments come and go too quickly: try again"))
}

/// Notes the logs in turn, until the notes are of one moment.
fn find_moment(logs: &mut [LogCopy], notes_left: &mut usize) -> io::Result<()> {
    let count = logs.len();
    if count < 2 {
        return Ok(());
    }
    let (mut number, mut unchanged) = (0, 0);
    while unchanged < count {
        if *notes_left == 0 {
            return Err(io::Error::other("the logs change too quickly: try again"));
        }
        *notes_left -= 1;
        unchanged = if logs[number].note_again()? { 0 } else { unchanged + 1 };
        number = (number + 1) % count;
        debug_assert!(unchanged <= count, "every log is noted in turn");
    }
    Ok(())
}

/// Whether it is true of all logs; ends at the first of which it is not.
fn all(
    logs: &mut [LogCopy],
    mut is_so: impl FnMut(&mut LogCopy) -> io::Result<bool>,
) -> io::Result<bool> {
    for log in logs {
        if !is_so(log)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sizes_of(logs: &[LogCopy]) -> io::Result<SnapshotSizes> {
    let mut sizes = SnapshotSizes::default();
    for log in logs {
        let of_log = log.finish()?;
        sizes.linked += of_log.linked;
        sizes.linked_bytes += of_log.linked_bytes;
        sizes.copied_bytes += of_log.copied_bytes;
    }
    Ok(sizes)
}
