//! After a failed write: how the log returns to its certainly durable state, while it stays open.
//!
//! Owns: the recovery, and when readers are shown the copies of compaction. Invariants: after a
//! failure everything after the last successful sync is cut off durably before the next write; a
//! file whose sync failed is never written again; an unfinished segment is durably gone before the
//! one before it continues; the catalog points at synced bytes only. Callers: [`Log::exclusive`],
//! before the next write after a failure.
//!
//! # Why this is safe without reading the log again
//!
//! 1. Nothing after the last successful sync was acknowledged, and the catalog does not point at
//!    it: commits are shown after their sync, and copies of compaction as well (`unsynced_moves`).
//!    So nothing is lost with it, and no reader has a place in it.
//! 2. What stands before the last successful sync is on disk. A later failed sync says nothing
//!    about it, because the log only appends.
//! 3. After a failed sync, pages that were not written can still be read and look sound, and no
//!    later sync writes them. All of them come after the last successful sync, so they are cut off
//!    with the rest, and the cut is synced. Then the segment is sealed: if the device has lost its
//!    place there, nothing new depends on it.
//! 4. Only after the cut is durable is the next frame written, with the number of the first one
//!    that was cut off. So no crash can leave two frames of one number, nor a frame after a hole.
//! 5. A segment that was begun and not finished may have a whole root on disk, which lists the
//!    length of the segment before it. If that one continued, an opening would find it too long. So
//!    the unfinished one is removed first, and the removal is made durable.
//!
//! A panic is different: it may have left the catalog half-changed, and only opening builds a new
//! one.

use std::io;

use super::log::Log;
use super::planted::Bug;
use super::writer::{LogWriter, MovedCopy, WriteFailure, segment_name};
use crate::StoreError;

/// Copies that readers are shown under one hold of the catalog's lock.
const MOVES_PER_HOLD: usize = 256;

impl Log {
    /// Cuts off the remains of a failed write, if there was one. An error leaves everything for the
    /// next attempt.
    pub(super) fn recover(&self, writer: &mut LogWriter) -> Result<(), StoreError> {
        let why = match &writer.failure {
            None => return Ok(()),
            Some(WriteFailure::Panicked) => {
                return Err(StoreError::Poisoned("a write panicked".into()));
            }
            Some(WriteFailure::Io(why)) => why.clone(),
        };
        match self.cut_off(writer) {
            Ok(()) => {
                writer.failure = None;
                tracing::warn!(
                    why,
                    "the store has cut off the write that failed, and writes again"
                );
                Ok(())
            }
            Err(error) => {
                let now = if error.kind() == io::ErrorKind::StorageFull {
                    "there is no space left on the disk".to_owned()
                } else {
                    error.to_string()
                };
                Err(StoreError::Io(format!("{why}; not recovered from that: {now}")))
            }
        }
    }

    fn cut_off(&self, writer: &mut LogWriter) -> io::Result<()> {
        if let Some(id) = writer.unfinished
            && !self.planted.has(Bug::KeepsUnfinishedSegments)
        {
            match writer.directory.remove(&segment_name(id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => writer.directory.sync()?,
            }
        }
        writer.unfinished = None;
        if self.planted.has(Bug::TrustsAFailedSync) {
            writer.active.durable_end = writer.active.end;
            writer.synced = writer.next_number - 1;
        }
        // Readers have no place in it, so nothing is cut off under them.
        writer.unsynced_moves.clear();
        writer.cuts += 1;
        writer.staging.forget();
        let end = writer.active.durable_end;
        assert!(end <= writer.active.end, "the durable end is at most the written end");
        assert!(writer.synced < writer.next_number, "a frame is synced after it was written");
        writer.active.file.truncate(end)?;
        if let Err(error) = writer.active.file.sync() {
            writer.active.sync_failed = true;
            return Err(error);
        }
        writer.active.end = end;
        writer.active.hint.cut_off(end);
        writer.next_number = writer.synced + 1;
        assert!(writer.unsynced_moves.is_empty(), "no copy is shown that was cut off");
        self.catalog.write().segment_mut(writer.active.slot).bytes = end;
        if writer.active.sync_failed && !self.planted.has(Bug::TrustsAFailedSync) {
            writer.roll(&self.catalog)?;
        }
        Ok(())
    }

    /// Shows readers the copies that were synced, instead of the originals.
    pub(super) fn show_moves(&self, writer: &mut LogWriter) {
        if self.planted.has(Bug::ShowsCopiesBeforeTheSync) {
            writer.synced_moves.append(&mut writer.unsynced_moves);
        }
        for some in writer.synced_moves.chunks(MOVES_PER_HOLD) {
            let mut catalog = self.catalog.write();
            for MovedCopy { table, from, entry } in some {
                // Written in any case, so that its segment has it as garbage if nothing else.
                catalog.segment_mut(entry.place().slot).wrote(entry.size());
                match catalog.points_at(*table, entry.fingerprint(), *from) {
                    // Concurrently it may have become a purged tombstone, by a bound that covers
                    // the copy.
                    Some(current) => {
                        let entry = entry.marked(current.mark());
                        catalog.repoint(*table, entry.fingerprint(), *from, entry);
                    }
                    None if self.planted.has(Bug::MovesWithoutLooking) => {
                        catalog.put(*table, *entry);
                    }
                    None => {}
                }
            }
        }
        writer.synced_moves.clear();
    }
}
