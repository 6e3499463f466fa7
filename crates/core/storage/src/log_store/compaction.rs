//! Gives space back: moves live records out of the segments with most garbage, a slice at a time.
//!
//! Owns: which segment is next, and the moving. Invariants:
//! - a record is moved only while the index points at it, under the lock of commits, so a copy
//!   never stands after a newer version;
//! - the index points at a copy only after the copy was synced;
//! - a segment is removed only after everything that was moved out of it is durable.
//!
//! The parent module argues why no old version ever comes back. Callers: the store's thread, tests,
//! and commits when garbage piles up. Reading takes no lock; the writer's lock is held for one
//! slice of writing, and never for a sync except the one at the end of a segment.

use std::sync::atomic::Ordering;

use super::catalog::{Catalog, Segment, TableKey};
use super::hint::HintVersion;
use super::index::{Entry, Fingerprint, Mark, RecordPlace, Size};
use super::layout::{Kind, RECORD_CHECKSUM_AT, StoredRecord, UNIT_BYTES, decode_record};
use super::log::Log;
use super::planted::Bug;
use super::read::{damaged, read_error};
use super::reader::{ReadFault, SegmentReader, Step};
use super::spans::Span;
use super::victim::{Compaction, Victim};
use super::writer::{
    LogWriter, MovedCopy, UNSYNCED_MOVES_MAX, hint_name, segment_name, write_error,
};
use crate::StoreError;
use crate::state_layout::take;
use oribi_types::{Seqno, Vbid};

/// Bytes that one step reads at most, give or take a record. Bounds how long commits wait.
pub(super) const SLICE_BYTES: u64 = 1 << 20;

/// How far below its limit garbage is, in percent of the log, when compaction begins: so much is
/// made while it works.
pub(super) const EARLY_PERCENT: u64 = 15;

/// Space that compaction leaves to commits: a copy that finds no space would end all writing, while
/// the originals are safe without it. Enough for what one step writes, with a new segment's
/// beginning. A store of several logs leaves so much for each of them, because all may see the same
/// free space and write a step at once.
pub(super) const RESERVE_BYTES: u64 = 16 << 20;
const _: () = assert!(2 * SLICE_BYTES <= RESERVE_BYTES);
const _: () = assert!(EARLY_PERCENT < 100);

/// Purged tombstones are useless, but stay until every older segment is gone.
/// When they are more than this share of all entries, the oldest segments are rewritten.
const PURGED_SHARE: u64 = 8;
const _: () = assert!(PURGED_SHARE > 1 && PURGED_MIN > 0);
/// Up to so many purged tombstones are tolerated. Few in tests, which have
/// few keys.
const PURGED_MIN: u64 = if cfg!(test) { 3 } else { 4096 };

/// Result of one step of compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactionStep {
    /// There is too little garbage to compact.
    Idle,
    /// A reader must not miss records that move; try again later.
    Waiting,
    /// There is not enough space to move anything.
    NoSpace,
    /// Read a part of a segment and moved what counts.
    Moved { bytes: u64 },
    /// A segment is gone.
    Removed {
        /// Bytes of its file.
        bytes: u64,
    },
}

/// A record that is about to move.
struct Move {
    table: TableKey,
    fingerprint: Fingerprint,
    from: RecordPlace,
    /// Where it is in [`Slice::bytes`]; empty for one that is dropped instead.
    begin: usize,
    end: usize,
    kind: Kind,
    expiry: u32,
    seqno: Seqno,
}

/// Whether it was noted that a segment is gone.
enum RemovalNote {
    Gone,
    /// Copies were cut off by a recovery, so records are still in the segment.
    Cut,
    /// The index has records in the segment that reading it did not find.
    NotAllFound,
}

/// Bytes that one step takes out of a segment.
#[derive(Default)]
struct Slice {
    bytes: Vec<u8>,
    moves: Vec<Move>,
    is_last: bool,
}

impl Log {
    /// Does a bounded piece of work. An error is logged once, until a step is a success.
    pub(super) fn compaction_step(&self) -> Result<CompactionStep, StoreError> {
        let step = self.step().map_err(|error| self.member.named(error));
        let has_failed = self.compaction_fails.swap(step.is_err(), Ordering::Relaxed);
        if has_failed != step.is_err() {
            match &step {
                Ok(_) => tracing::warn!("compaction of the log works again"),
                Err(error) => {
                    tracing::error!(%error, "cannot compact the log; will retry")
                }
            }
        }
        step
    }

    fn step(&self) -> Result<CompactionStep, StoreError> {
        let mut compaction = self.compaction.lock();
        let Some(_moving) = self.moves.try_write() else { return Ok(CompactionStep::Waiting) };
        if compaction.victim.is_none() {
            compaction.victim = self.pick(compaction.asked_below);
        }
        let Compaction { victim: Some(victim), .. } = &mut *compaction else {
            compaction.asked_below = 0;
            return Ok(CompactionStep::Idle);
        };
        let is_empty = self.catalog.read().segment(victim.slot).live == 0;
        debug_assert_ne!(
            victim.slot,
            self.catalog.read().active,
            "the active segment is not compacted"
        );
        let reserve = RESERVE_BYTES * self.member.logs() as u64;
        if !is_empty && self.directory.free_bytes().is_some_and(|free| free < reserve) {
            return Ok(CompactionStep::NoSpace);
        }
        let step = self.work_on(victim);
        if !matches!(step, Ok(CompactionStep::Moved { .. })) {
            compaction.victim = None;
        }
        step
    }

    /// From now on every segment with some garbage is due, until there is none that has any.
    pub(super) fn request_compaction(&self) -> Result<(), StoreError> {
        let is_worth_sealing = {
            let catalog = self.catalog.read();
            worth(catalog.segment(catalog.active), 0) > 0.0
        };
        if is_worth_sealing {
            self.seal()?;
        }
        let active = {
            let catalog = self.catalog.read();
            catalog.segment(catalog.active).id
        };
        self.compaction.lock().asked_below = active;
        Ok(())
    }

    /// Moves what can be read out of a segment that opening found damaged, and removes it.
    pub(super) fn evacuate(&self, id: u32) -> Result<(), StoreError> {
        let found = self.catalog.read().segments_by_age();
        let Some((slot, segment)) = found.into_iter().find(|(_, segment)| segment.id == id) else {
            return Ok(());
        };
        let mut victim = self.victim(slot, &segment);
        victim.skips_damage = true;
        while matches!(self.work_on(&mut victim)?, CompactionStep::Moved { .. }) {}
        Ok(())
    }

    fn victim(&self, slot: u16, segment: &Segment) -> Victim {
        debug_assert_ne!(slot, self.catalog.read().active, "the active segment is not compacted");
        let (id, seed, file) = (segment.id, self.catalog.read().seed, segment.file.clone());
        let reader = SegmentReader::new(file, id, seed, segment.bytes, self.planted);
        let reader = reader.lazy();
        let cuts = self.writer.lock().cuts;
        Victim { slot, id, reader, cuts, skips_damage: false }
    }

    fn work_on(&self, victim: &mut Victim) -> Result<CompactionStep, StoreError> {
        if self.catalog.read().segment(victim.slot).live == 0 {
            return self.remove_victim(victim);
        }
        let slice = match self.take_slice(victim) {
            Ok(slice) => slice,
            Err(error) => {
                // Records that can still be read are readable where they are.
                self.catalog.write().segment_mut(victim.slot).is_damaged = true;
                return Err(error);
            }
        };
        debug_assert!(
            slice.moves.last().is_none_or(|last| last.end == slice.bytes.len()),
            "a slice ends with its last record"
        );
        let bytes = self.exclusive(|writer| self.write_moves(writer, &slice))?;
        if slice.is_last { self.remove_victim(victim) } else { Ok(CompactionStep::Moved { bytes }) }
    }

    /// The segment that gives back most for what moving costs.
    fn pick(&self, asked_below: u32) -> Option<Victim> {
        let is_full = self.garbage_percent() + EARLY_PERCENT >= self.options.garbage_percent;
        let catalog = self.catalog.read();
        let (entries, purged) = catalog.entries();
        debug_assert!(purged <= entries, "a purged tombstone has an entry");
        // Tombstones that a damaged segment pins would be swept for again and again.
        let is_swept = purged > PURGED_MIN.max(entries / PURGED_SHARE)
            && !catalog.segments.iter().flatten().any(|segment| segment.is_damaged);
        let sealed = catalog.segments_by_age();
        let newest = sealed.last().map_or(0, |(_, segment)| segment.id);
        let mut sealed = sealed
            .into_iter()
            .filter(|(slot, segment)| *slot != catalog.active && !segment.is_damaged);
        let chosen = if is_swept {
            sealed.next()
        } else {
            let worth = |segment: &Segment| worth(segment, newest);
            sealed
                .filter(|(_, segment)| {
                    let is_due = is_full || segment.id < asked_below;
                    segment.live == 0 || is_due && worth(segment) > 0.0
                })
                .max_by(|(_, left), (_, right)| worth(left).total_cmp(&worth(right)))
        };
        drop(catalog);
        chosen.map(|(slot, segment)| self.victim(slot, &segment))
    }

    /// Reads on in the victim and keeps what the index points at.
    fn take_slice(&self, victim: &mut Victim) -> Result<Slice, StoreError> {
        let mut slice = Slice::default();
        let begun = victim.reader.offset();
        let (slot, id) = (victim.slot, victim.id);
        while victim.reader.offset() - begun < SLICE_BYTES {
            match victim.reader.next() {
                Ok(Step::Record { at, raw, stored }) if stored.kind.is_version() => {
                    self.consider(&mut slice, RecordPlace::at(slot, at), raw, &stored)
                        .map_err(|what| damaged(id, at, what))?;
                }
                Ok(Step::End) => {
                    slice.is_last = true;
                    break;
                }
                Ok(_) => {}
                Err(ReadFault::Bad { offset, .. }) if victim.skips_damage => {
                    match victim.reader.find_frame(offset + 1) {
                        Ok(Some(next)) => victim.reader.jump(next),
                        Ok(None) => victim.reader.jump(u64::MAX),
                        Err(error) => return Err(read_error(id, &ReadFault::Io(error))),
                    }
                }
                Err(fault) => return Err(read_error(id, &fault)),
            }
        }
        Ok(slice)
    }

    /// Takes the record over when it counts. Only then is its checksum compared.
    fn consider(
        &self,
        slice: &mut Slice,
        from: RecordPlace,
        raw: &[u8],
        stored: &StoredRecord<'_>,
    ) -> Result<(), &'static str> {
        let key = stored.record.key;
        let catalog = self.catalog.read();
        let fingerprint = Catalog::fingerprint(catalog.seed, key.key);
        let table = (stored.vbid, key.collection);
        let entry = catalog.points_at(table, fingerprint, from);
        let entry = match entry {
            None if self.planted.has(Bug::MovesWithoutLooking) => None,
            None => return Ok(()),
            some => some,
        };
        decode_record(raw)?;
        let mark = entry.map_or(Mark::Document, Entry::mark);
        let begin = slice.bytes.len();
        let mut kind = stored.kind;
        match mark {
            Mark::Purged if self.is_droppable(&catalog, from.slot, stored.origin) => {}
            Mark::Tombstone if self.planted.has(Bug::ForgetsTombstones) => {}
            Mark::Purged => {
                kind = Kind::PurgedTombstone;
                push(&mut slice.bytes, &StoredRecord { kind, ..*stored });
            }
            Mark::Document | Mark::Tombstone => slice.bytes.extend_from_slice(raw),
        }
        let (end, expiry, seqno) = (slice.bytes.len(), stored.record.expiry, stored.record.seqno);
        debug_assert!((end as u64).is_multiple_of(UNIT_BYTES), "a record is whole units long");
        slice.moves.push(Move { table, fingerprint, from, begin, end, kind, expiry, seqno });
        Ok(())
    }

    /// True when no segment but the one in `slot` can have a version that is older than a tombstone
    /// that was first written to segment `origin`.
    fn is_droppable(&self, catalog: &Catalog, slot: u16, origin: u32) -> bool {
        self.planted.has(Bug::DropsTombstonesEarly)
            || catalog.oldest_but(slot).is_none_or(|oldest| oldest > origin)
    }

    /// Writes what still counts as one frame, without a sync, and points the index at the copies.
    fn write_moves(&self, writer: &mut LogWriter, slice: &Slice) -> Result<u64, StoreError> {
        let is_current = |one: &&Move| {
            let catalog = self.catalog.read();
            self.planted.has(Bug::MovesWithoutLooking)
                || catalog.points_at(one.table, one.fingerprint, one.from).is_some()
        };
        let current: Vec<&Move> = slice.moves.iter().filter(is_current).collect();
        let (dropped, moved): (Vec<&Move>, Vec<&Move>) =
            current.into_iter().partition(|one| one.begin == one.end);
        debug_assert!(
            moved.iter().all(|one| one.end <= slice.bytes.len()),
            "a record that moves is in its slice"
        );
        let payload_bytes = moved.iter().map(|one| (one.end - one.begin) as u64).sum();
        if !moved.is_empty() {
            self.begin_segment_if_full(writer, payload_bytes)?;
            let slot = writer.active.slot;
            let mut copies = Vec::with_capacity(moved.len());
            let mut copy = || {
                let mut frame = writer.frame(payload_bytes, moved.len() as u32)?;
                for one in &moved {
                    let raw = &slice.bytes[one.begin..one.end];
                    let checksum = u32::from_le_bytes(take(raw, RECORD_CHECKSUM_AT));
                    let offset = frame.push_raw(raw, checksum)?;
                    let version = one.version(offset);
                    frame.note(&version);
                    let place = RecordPlace::at(slot, offset);
                    let entry = Entry::new(one.fingerprint, version.size, one.mark(), place);
                    copies.push(MovedCopy { table: one.table, from: one.from, entry });
                }
                frame.finish()
            };
            copy().map_err(|error| write_error(writer, &error))?;
            assert_eq!(copies.len(), moved.len(), "every record that moves has its copy");
            writer.unsynced_moves.append(&mut copies);
            if writer.unsynced_moves.len() >= UNSYNCED_MOVES_MAX {
                writer.sync().map_err(|error| write_error(writer, &error))?;
            }
            assert!(
                writer.unsynced_moves.len() < UNSYNCED_MOVES_MAX,
                "copies that wait are bounded"
            );
        }
        let mut catalog = self.catalog.write();
        catalog.segment_mut(writer.active.slot).bytes = writer.active.end;
        if !self.planted.has(Bug::ForgetsWhereCopiesBelong) {
            for one in moved {
                catalog.wrote(writer.active.slot, one.table.0, Span::of(one.seqno));
            }
        }
        for one in dropped {
            catalog.remove_at(one.table, one.fingerprint, one.from);
        }
        Ok(payload_bytes)
    }

    /// Makes the moved records durable, notes durably that the segment is gone, and removes its
    /// files.
    fn remove_victim(&self, victim: &Victim) -> Result<CompactionStep, StoreError> {
        let bytes = self.catalog.read().segment(victim.slot).bytes;
        let mut gone = StoredRecord::control(Kind::RemoveSegment, Vbid(0), b"", b"");
        gone.record.seqno = Seqno(u64::from(victim.id));
        let noted = self.exclusive(|writer| {
            self.begin_segment_if_full(writer, gone.stored_bytes())?;
            if self.planted.has(Bug::RemovesBeforeTheSync) {
                writer.synced_moves.append(&mut writer.unsynced_moves);
            } else if !writer.unsynced_moves.is_empty() {
                writer.sync().map_err(|error| write_error(writer, &error))?;
            }
            self.show_moves(writer);
            if self.catalog.read().segment(victim.slot).live > 0 {
                return Ok(if writer.cuts == victim.cuts {
                    RemovalNote::NotAllFound
                } else {
                    RemovalNote::Cut
                });
            }
            if self.planted.has(Bug::RemovesBeforeTheSync) {
                writer.write_controls(&[gone]).map_err(|error| write_error(writer, &error))?;
                self.catalog.write().segment_mut(writer.active.slot).bytes = writer.active.end;
            } else {
                self.write_and_sync(writer, &[gone])?;
            }
            assert_ne!(victim.slot, writer.active.slot, "the segment that is written to stays");
            self.catalog.write().remove_segment(victim.slot);
            Ok(RemovalNote::Gone)
        })?;
        match noted {
            RemovalNote::Gone => {
                self.remove_files(victim.id);
                Ok(CompactionStep::Removed { bytes })
            }
            // The next step begins anew with it, or with another one.
            RemovalNote::Cut => Ok(CompactionStep::Waiting),
            RemovalNote::NotAllFound => {
                self.catalog.write().segment_mut(victim.slot).is_damaged = true;
                Err(damaged(victim.id, 0, "the index has records that are not there, seen"))
            }
        }
    }

    /// Removes a segment's files. Files that stay are removed by the next opening.
    fn remove_files(&self, id: u32) {
        if let Err(error) = self.directory.remove(&segment_name(id)) {
            tracing::warn!(%error, segment = id, "a segment's file could not be removed");
        }
        // Often there is none.
        let _ = self.directory.remove(&hint_name(id));
    }
}

impl Move {
    fn mark(&self) -> Mark {
        match self.kind {
            Kind::PurgedTombstone => Mark::Purged,
            Kind::Tombstone => Mark::Tombstone,
            _ => Mark::Document,
        }
    }

    fn version(&self, offset: u64) -> HintVersion {
        debug_assert!(self.begin < self.end, "a record that moves has bytes");
        let (vbid, collection) = self.table;
        let (fingerprint, kind, expiry) = (self.fingerprint, self.kind, self.expiry);
        let size = Size::of((self.end - self.begin) as u64);
        HintVersion { vbid, collection, fingerprint, kind, expiry, size, offset }
    }
}

/// Space gained for work done, and more for segments in which nothing has changed for long (the
/// cost-benefit rule of Rosenblum and Ousterhout, 1991, with a gentler weight for age).
fn worth(segment: &Segment, newest: u32) -> f64 {
    let live = segment.live_share();
    debug_assert!((0.0..=1.0).contains(&live), "a share is a part of the whole");
    let age = f64::from(newest.saturating_sub(segment.id));
    if live > 0.9 { 0.0 } else { (1.0 - live) / (1.0 + live) * (1.0 + (1.0 + age).log2()) }
}

/// Appends a whole record.
fn push(out: &mut Vec<u8>, stored: &StoredRecord<'_>) {
    let begin = out.len();
    stored.push_head(out);
    out.extend_from_slice(stored.record.value);
    out.resize(begin + stored.stored_bytes() as usize, 0);
    debug_assert!((out.len() as u64).is_multiple_of(UNIT_BYTES), "a record is whole units long");
}
