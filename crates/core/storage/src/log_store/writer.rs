//! The one way to write: frames at the end of the active segment, and new segments.
//!
//! Owns: the active segment, frame numbers, the synced position, the bounds, and the failure after
//! which a recovery is due. Invariants:
//! - a frame is within one segment;
//! - a segment is synced before the next one is made, and the next one is synced with its name
//!   before anything is written after its root;
//! - after a failed write or sync nothing is written before `recovery.rs` has cut it off (the
//!   caller sees to that).
//!
//! Values are copied once, into the staging buffer, from which the disk reads them. Callers:
//! commits, removals, compaction, and the end of opening.

use std::io;
use std::sync::Arc;

use oribi_types::{Cas, Seqno, Vbid};
use parking_lot::RwLock;

use super::bounds::{LogBounds, LogPosition};
use super::catalog::{Catalog, Segment, TableKey};
use super::files::{LogDirectory, LogFile};
use super::hint::{Hint, HintVersion};
use super::index::{Entry, RecordPlace};
use super::layout::{
    FRAME_HEADER_BYTES, FRAME_TRAILER_BYTES, FrameChecksum, FrameHeader, Kind,
    LISTED_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, StoredRecord, UNIT_BYTES, encode_segment_header,
};
use super::planted::{Bug, PlantedBug};
use super::spans::Spans;
use super::staging::Staging;
use crate::StoreError;
use crate::state_layout::encode_state;

/// Copies that may wait for their sync. Each takes 32 bytes of memory.
pub(super) const UNSYNCED_MOVES_MAX: usize = 1 << 15;

/// Name of a segment's file.
pub(super) fn segment_name(id: u32) -> String {
    format!("{id:010}.log")
}

/// Name of a segment's index file.
pub(super) fn hint_name(id: u32) -> String {
    format!("{id:010}.idx")
}

/// The segment that is written to.
pub(super) struct ActiveSegment {
    pub(super) id: u32,
    pub(super) slot: u16,
    pub(super) file: Arc<dyn LogFile>,
    /// Where the next frame begins.
    pub(super) end: u64,
    /// Where its root ends: nothing follows yet when that is where the next frame begins.
    pub(super) root_end: u64,
    /// Everything before it is durable.
    pub(super) durable_end: u64,
    /// A sync of it failed, so it is not written again.
    pub(super) sync_failed: bool,
    /// The versions in it.
    pub(super) hint: Hint,
}

impl ActiveSegment {
    /// Makes the file of a new segment. Its first frame will stand after a header.
    pub(super) fn create(directory: &dyn LogDirectory, id: u32) -> io::Result<ActiveSegment> {
        let file = directory.create(&segment_name(id))?;
        let end = SEGMENT_HEADER_BYTES as u64;
        Ok(ActiveSegment {
            root_end: end,
            ..ActiveSegment::found(id, 0, file, end, Hint::default())
        })
    }

    /// A segment that is there, durable up to `end`.
    pub(super) fn found(
        id: u32,
        slot: u16,
        file: Arc<dyn LogFile>,
        end: u64,
        hint: Hint,
    ) -> ActiveSegment {
        debug_assert!(end >= SEGMENT_HEADER_BYTES as u64, "a segment has a header");
        ActiveSegment {
            id,
            slot,
            file,
            end,
            root_end: 0,
            durable_end: end,
            sync_failed: false,
            hint,
        }
    }
}

/// Why a writer may not write.
pub(super) enum WriteFailure {
    /// A write or a sync failed. Recovery ends it.
    Io(String),
    /// Something panicked while it wrote. Reopening ends it.
    Panicked,
}

/// A copy that compaction has written. Readers see it only after its sync.
pub(super) struct MovedCopy {
    pub(super) table: TableKey,
    /// Where the original is.
    pub(super) from: RecordPlace,
    /// The copy. Its mark is that of the original when it was written.
    pub(super) entry: Entry,
}

pub(super) struct LogWriter {
    pub(super) directory: Arc<dyn LogDirectory>,
    pub(super) seed: u64,
    pub(super) active: ActiveSegment,
    pub(super) next_number: u64,
    /// Frames up to this number are durable.
    pub(super) synced: u64,
    pub(super) bounds: LogBounds,
    /// The last frame was an empty one, which says that everything before it was synced.
    pub(super) is_closed: bool,
    /// After it nothing is written before a recovery.
    pub(super) failure: Option<WriteFailure>,
    /// Number of a segment that was begun and could not be finished.
    pub(super) unfinished: Option<u32>,
    /// How often unsynced frames were cut off.
    pub(super) cuts: u64,
    /// Copies of compaction in the active segment that are not synced yet.
    pub(super) unsynced_moves: Vec<MovedCopy>,
    /// Copies that are, which readers are shown next.
    pub(super) synced_moves: Vec<MovedCopy>,
    pub(super) staging: Staging,
    /// Header and key of the record that is being written.
    pub(super) head: Vec<u8>,
    pub(super) planted: PlantedBug,
}

/// Room that a frame with this payload takes.
pub(super) fn frame_bytes(payload_bytes: u64) -> u64 {
    (FRAME_HEADER_BYTES + FRAME_TRAILER_BYTES) as u64 + payload_bytes
}

impl LogWriter {
    /// Begins a frame of exactly `records` records that take `payload_bytes` together.
    pub(super) fn frame(&mut self, payload_bytes: u64, records: u32) -> io::Result<LogFrame<'_>> {
        assert!(self.synced < self.next_number, "a frame is synced after it was written");
        assert!(
            self.active.durable_end <= self.active.end,
            "the durable end is at most the written end"
        );
        let header = FrameHeader {
            segment: self.active.id,
            number: self.next_number,
            synced: self.synced,
            payload_bytes,
            records,
        };
        let at = self.active.end;
        let header = header.encode(self.seed, at);
        let file = &*self.active.file;
        self.staging.go_to(file, self.active.id, at)?;
        debug_assert!(at.is_multiple_of(UNIT_BYTES), "a frame begins at a unit");
        self.staging.push(file, &header)?;
        let checksum = FrameChecksum::begin(&header);
        let end = at + frame_bytes(payload_bytes);
        Ok(LogFrame { writer: self, end, records, checksum, is_empty: records == 0 })
    }

    /// Writes one frame of records that are no versions. Not synced.
    pub(super) fn write_controls(&mut self, controls: &[StoredRecord<'_>]) -> io::Result<()> {
        let payload_bytes = controls.iter().map(StoredRecord::stored_bytes).sum();
        let mut frame = self.frame(payload_bytes, controls.len() as u32)?;
        for control in controls {
            frame.push(control)?;
        }
        frame.finish()
    }

    /// Makes everything that was written durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !self.planted.has(Bug::SkipsTheSync) {
            let synced = self.active.file.sync();
            self.active.sync_failed |= synced.is_err();
            synced?;
        }
        self.synced = self.next_number - 1;
        self.active.durable_end = self.active.end;
        self.synced_moves.append(&mut self.unsynced_moves);
        debug_assert!(self.unsynced_moves.is_empty(), "a sync makes all copies durable");
        Ok(())
    }

    /// Cuts off durably what the last block has after the last frame, which is synced.
    pub(super) fn trim(&mut self) -> io::Result<()> {
        assert_eq!(self.active.durable_end, self.active.end, "only padding is cut off");
        let ActiveSegment { file, end, .. } = &self.active;
        file.rest();
        if !end.is_multiple_of(file.block_bytes() as u64) {
            self.staging.forget();
            file.truncate(*end)?;
            let synced = file.sync();
            self.active.sync_failed |= synced.is_err();
            synced?;
        }
        Ok(())
    }

    /// Where the next frame will stand: everything written so far is before it.
    pub(super) fn position(&self) -> LogPosition {
        debug_assert!(self.active.end.is_multiple_of(UNIT_BYTES), "a frame begins at a unit");
        LogPosition { segment: self.active.id, offset: self.active.end }
    }

    /// Seals the active segment and continues in a new one.
    pub(super) fn roll(&mut self, catalog: &RwLock<Catalog>) -> io::Result<()> {
        if !catalog.read().has_free_slot() {
            return Err(io::Error::other("the store has as many segments as it can have"));
        }
        if self.synced + 1 < self.next_number {
            self.sync()?;
        }
        // The length that the next segment's root lists.
        if !self.planted.has(Bug::KeepsThePadding) {
            self.trim()?;
        }
        let (number, slot, bytes) = (self.next_number, self.active.slot, self.active.end);
        assert_eq!(self.synced + 1, number, "a segment is synced before the next one is made");
        assert!(self.unsynced_moves.is_empty(), "a segment is sealed after its copies are durable");
        catalog.write().segment_mut(slot).bytes = bytes;
        let id = self.active.id.checked_add(1);
        let id = id.ok_or_else(|| io::Error::other("segment numbers are used up"))?;
        // Set before the file is made: a creation that fails may leave one.
        self.unfinished = Some(id);
        let fresh = ActiveSegment::create(&*self.directory, id)?;
        let sealed = std::mem::replace(&mut self.active, fresh);
        if let Err(error) = self.begin_segment(catalog) {
            self.active = sealed;
            (self.next_number, self.synced) = (number, number - 1);
            return Err(error);
        }
        self.unfinished = None;
        assert_eq!(self.active.id, sealed.id + 1, "segments are numbered in order");
        self.write_hint(sealed, catalog);
        Ok(())
    }

    /// Writes header and root of the active segment, which is empty, makes it durable with its
    /// name and takes it up into the catalog.
    pub(super) fn begin_segment(&mut self, catalog: &RwLock<Catalog>) -> io::Result<()> {
        let header = encode_segment_header(self.active.id, self.seed);
        self.staging.go_to(&*self.active.file, self.active.id, 0)?;
        self.staging.push(&*self.active.file, &header)?;
        self.write_root(&catalog.read())?;
        self.active.root_end = self.active.end;
        assert!(self.active.root_end > SEGMENT_HEADER_BYTES as u64, "a segment begins with a root");
        self.sync()?;
        self.directory.sync()?;
        assert_eq!(self.active.durable_end, self.active.root_end, "a root is durable first");
        let (id, file, bytes) = (self.active.id, Arc::clone(&self.active.file), self.active.end);
        let mut catalog = catalog.write();
        let slot = catalog.add_segment(Segment::new(id, file, bytes));
        self.active.slot = slot.ok_or_else(|| io::Error::other("no slot for a segment"))?;
        catalog.has_spans(self.active.slot, Spans::complete());
        catalog.active = self.active.slot;
        Ok(())
    }

    /// Writes everything that is not a document, as of now, so that earlier segments are needed for
    /// documents only.
    fn write_root(&mut self, catalog: &Catalog) -> io::Result<()> {
        let segments = catalog.segments_by_age();
        debug_assert!(
            segments.iter().all(|(_, one)| one.id < self.active.id),
            "the newest is not listed"
        );
        let oldest = segments.first().map_or(self.active.id, |(_, segment)| segment.id);
        self.bounds.forget_before(oldest);
        let mut list = Vec::with_capacity((segments.len() + 1) * LISTED_SEGMENT_BYTES);
        let listed = segments.iter().map(|(_, segment)| (segment.id, segment.bytes));
        for (id, bytes) in listed.chain([(self.active.id, 0)]) {
            list.extend_from_slice(&id.to_le_bytes());
            list.extend_from_slice(&bytes.to_le_bytes());
        }
        let states: Vec<(Vbid, Vec<u8>)> =
            catalog.states.iter().map(|(vbid, state)| (*vbid, encode_state(state))).collect();
        let bounds = self.bounds.clone();
        let mut root = vec![StoredRecord::control(Kind::Segments, Vbid(0), b"", &list)];
        root.extend(bound_records(&bounds));
        let states = states.iter();
        root.extend(
            states.map(|(vbid, state)| StoredRecord::control(Kind::State, *vbid, b"", state)),
        );
        let locals = catalog.locals.iter();
        root.extend(locals.map(|(name, value)| {
            StoredRecord::control(Kind::Local, Vbid(0), name.as_bytes(), value)
        }));
        self.write_controls(&root)
    }

    /// Writes the index file of a sealed segment. Without one the segment is read at the next
    /// opening, so a failure is only logged.
    fn write_hint(&mut self, mut sealed: ActiveSegment, catalog: &RwLock<Catalog>) {
        debug_assert_eq!(sealed.durable_end, sealed.end, "a sealed segment is durable");
        let name = hint_name(sealed.id);
        let spans = catalog.read().spans(sealed.slot).clone();
        let content = sealed.hint.content(sealed.id, sealed.end, self.seed, &spans);
        let file = self.directory.create(&name);
        let written = file.and_then(|file| self.staging.write_file(&*file, content));
        if let Err(error) = written {
            tracing::warn!(%error, name, "an index file could not be written");
        }
        self.active.hint = Hint::in_place_of(sealed.hint);
    }
}

/// Records for all bounds.
fn bound_records(bounds: &LogBounds) -> Vec<StoredRecord<'static>> {
    let mut records = Vec::new();
    for (vbid, position) in &bounds.vbuckets {
        records.push(bound_record(Kind::DropVbucket, *vbid, *position));
    }
    for ((vbid, collection), position) in &bounds.collections {
        let mut record = bound_record(Kind::PurgeCollection, *vbid, *position);
        record.record.key.collection = *collection;
        records.push(record);
    }
    for (vbid, purges) in &bounds.tombstones {
        for purge in purges {
            let mut record = bound_record(Kind::PurgeTombstones, *vbid, purge.position);
            record.record.expiry = purge.purge_before;
            records.push(record);
        }
    }
    records
}

/// A record that says that something before `position` is gone.
pub(super) fn bound_record(kind: Kind, vbid: Vbid, position: LogPosition) -> StoredRecord<'static> {
    debug_assert!(!kind.is_version(), "a bound is no version");
    let mut stored = StoredRecord::control(kind, vbid, b"", b"");
    stored.record.seqno = Seqno(u64::from(position.segment));
    stored.record.cas = Cas(position.offset);
    stored
}

/// A frame that is being written. It counts only when [`LogFrame::finish`] was a success.
pub(super) struct LogFrame<'w> {
    writer: &'w mut LogWriter,
    /// Where the frame has to end.
    end: u64,
    /// Records that are still to come.
    records: u32,
    checksum: FrameChecksum,
    is_empty: bool,
}

impl LogFrame<'_> {
    /// Appends a record and returns its offset in the segment.
    pub(super) fn push(&mut self, stored: &StoredRecord<'_>) -> io::Result<u64> {
        let at = self.writer.staging.end();
        let LogWriter { head, staging, active, .. } = &mut *self.writer;
        head.clear();
        let checksum = stored.push_head(head);
        let value = stored.record.value;
        let padding = stored.stored_bytes() as usize - head.len() - value.len();
        debug_assert!(padding < UNIT_BYTES as usize, "a record is padded to a unit");
        for part in [head.as_slice(), value, &[0; UNIT_BYTES as usize][..padding]] {
            staging.push(&*active.file, part)?;
        }
        self.pushed(checksum);
        debug_assert_eq!(self.writer.staging.end() - at, stored.stored_bytes(), "the whole record");
        Ok(at)
    }

    /// Appends the bytes of a record that was read from another segment and checked there.
    pub(super) fn push_raw(&mut self, raw: &[u8], checksum: u32) -> io::Result<u64> {
        debug_assert!(
            (raw.len() as u64).is_multiple_of(UNIT_BYTES),
            "a record is whole units long"
        );
        let at = self.writer.staging.end();
        self.writer.staging.push(&*self.writer.active.file, raw)?;
        self.pushed(checksum);
        Ok(at)
    }

    /// Notes a version for the segment's index file.
    pub(super) fn note(&mut self, version: &HintVersion) {
        self.writer.active.hint.push(version);
    }

    fn pushed(&mut self, checksum: u32) {
        assert!(self.records > 0, "a frame has the records that were announced");
        self.records -= 1;
        self.checksum.add(checksum);
    }

    /// Writes the rest. Not synced.
    pub(super) fn finish(self) -> io::Result<()> {
        let LogWriter { staging, active, planted, .. } = &mut *self.writer;
        staging.push(&*active.file, &self.checksum.trailer())?;
        let is_whole = self.records == 0 && staging.end() == self.end;
        assert!(is_whole, "a frame has the records that were announced");
        staging.flush(&*active.file, !planted.has(Bug::ForgetsTheTail))?;
        active.end = self.end;
        self.writer.is_closed = self.is_empty;
        self.writer.next_number += 1;
        Ok(())
    }
}

/// A write or sync of the active segment failed.
pub(super) fn write_error(writer: &LogWriter, error: &io::Error) -> StoreError {
    StoreError::Io(format!("{}: {error}", segment_name(writer.active.id)))
}
