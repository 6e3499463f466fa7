//! The log at work: commits and removals, each one frame, one sync, and then the catalog.
//!
//! Owns: the order of these three, and the lock under which one thread writes. Invariants: the
//! catalog learns of a frame only after its sync, so readers never see what may be lost; after a
//! failed write or sync nothing is written before `recovery.rs` has cut it off. Callers:
//! [`super::LogStore`] and the tests, which open a log on simulated files.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oribi_types::Vbid;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::batches::Batches;
use super::bounds::{LogBounds, LogPosition};
use super::catalog::{Catalog, SupersededEntry, TableKey};
use super::files::LogDirectory;
use super::hint::HintVersion;
use super::index::{Entry, Fingerprint, Mark, RecordPlace};
use super::layout::{Kind, SEGMENT_BYTES_MAX, StoredRecord};
use super::member::LogMember;
use super::options::LogOptions;
use super::planted::{Bug, PlantedBug};
use super::salvage::LogLosses;
use super::scan_memory::ScanMemory;
use super::spans::Span;
use super::victim::Compaction;
use super::writer::{LogWriter, WriteFailure, frame_bytes, write_error};
use crate::counters::ReadCount;
use crate::prefetch::{load_line, load_lines};
use crate::state_layout::{assert_fits, encode_state};
use crate::{StoreError, VbBatch, VbucketState};

pub(super) struct Log {
    pub(super) options: LogOptions,
    pub(super) directory: Arc<dyn LogDirectory>,
    pub(super) writer: Mutex<LogWriter>,
    pub(super) catalog: RwLock<Catalog>,
    /// Held for reading by a purge of tombstones, which none may move until then.
    pub(super) moves: RwLock<()>,
    pub(super) compaction: Mutex<Compaction>,
    pub(super) member: LogMember,
    /// The last step of compaction failed.
    pub(super) compaction_fails: AtomicBool,
    /// Bytes that scans by key may keep.
    pub(super) scan_memory: &'static ScanMemory,
    /// Opening found the end record that closing writes, and nothing after it.
    pub(super) ended_in_order: bool,
    /// Data that opening gave up.
    pub(super) losses: LogLosses,
    pub(super) planted: PlantedBug,
}

/// Memory and disk of a log store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogSizes {
    /// Keys in the index, tombstones included.
    pub keys: u64,
    /// Of these, purged tombstones.
    pub purged_tombstones: u64,
    /// Bytes allocated for the index.
    pub index_bytes: u64,
    pub segments: u64,
    /// Bytes of all segments.
    pub log_bytes: u64,
    /// Of these, garbage, estimated from the number of records.
    pub garbage_bytes: u64,
}

/// Segments into which the live part of a log is divided at least, as long as they are not shorter
/// than the minimum; shorter ones cost more files and syncs than they save.
const SEGMENTS_MIN: u64 = 16;
const SEGMENT_BYTES_MIN: u64 = 4 << 20;
const _: () = assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_MAX);

/// How many records after the one that is written the value starts loading: by the time it is
/// copied it is there, and no more are on their way than a core loads side by side.
const RECORDS_AHEAD: usize = 2;
/// The same for keys, before anything is written.
const KEYS_AHEAD: usize = 8;
/// Bytes of a value that are loaded ahead; the processor follows a longer one by itself.
const BYTES_AHEAD_MAX: usize = 1024;
const _: () = assert!(RECORDS_AHEAD > 0 && RECORDS_AHEAD <= KEYS_AHEAD);

/// Entries of one table in one commit, as a range of all entries.
struct Group {
    table: TableKey,
    begin: usize,
}

/// The keys of a commit, in the form of the index.
struct Keys {
    /// In the order of the records.
    fingerprints: Vec<Fingerprint>,
    superseded: Vec<SupersededEntry>,
}

impl Log {
    /// Writes all batches as one frame and syncs it: all of them are durable, or none is.
    pub(super) fn commit(&self, batches: Batches<'_, '_>) -> Result<(), StoreError> {
        batches.iter().for_each(assert_fits);
        if batches.is_empty() {
            return Ok(());
        }
        let (payload_bytes, records) = payload_of(batches)?;
        self.exclusive(|writer| {
            let fingerprints = fingerprints_of(batches, writer.seed);
            let superseded = self.superseded(batches, &fingerprints)?;
            let keys = Keys { fingerprints, superseded };
            self.begin_segment_if_full(writer, payload_bytes)?;
            self.write_batches(writer, batches, &keys, payload_bytes, records)
                .map_err(|error| write_error(writer, &error))
        })
    }

    /// Counts a read or scan that has seen `count`, and passes its result on.
    pub(super) fn has_read<T>(
        &self,
        count: &ReadCount,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.member.counters.read(count, result).map_err(|error| self.member.named(error))
    }

    fn write_batches(
        &self,
        writer: &mut LogWriter,
        batches: Batches<'_, '_>,
        Keys { fingerprints, superseded }: &Keys,
        payload_bytes: u64,
        records: u32,
    ) -> io::Result<()> {
        let states = self.states_after(batches);
        let versions = batches.iter().map(|batch| batch.records.len()).sum();
        let mut entries: Vec<Entry> = Vec::with_capacity(versions);
        let mut groups: Vec<Group> = Vec::with_capacity(batches.len_max());
        let mut spans: Vec<(Vbid, Span)> = Vec::with_capacity(batches.len_max());
        let (slot, origin) = (writer.active.slot, writer.active.id);
        let mut frame = writer.frame(payload_bytes, records)?;
        for (batch, state) in batches.iter().zip(&states) {
            let mut span: Option<Span> = None;
            for (index, record) in batch.records.iter().enumerate() {
                if let Some(ahead) = batch.records.get(index + RECORDS_AHEAD) {
                    load_lines(ahead.value.as_ptr(), ahead.value.len().min(BYTES_AHEAD_MAX));
                }
                span = Some(span.map_or(Span::of(record.seqno), |span| span.and(record.seqno)));
                let table = (batch.vbid, record.key.collection);
                if groups.last().is_none_or(|group| group.table != table) {
                    groups.push(Group { table, begin: entries.len() });
                }
                let stored = StoredRecord::version(batch.vbid, origin, *record);
                let offset = frame.push(&stored)?;
                let fingerprint = fingerprints[entries.len()];
                let version = HintVersion::of(&stored, fingerprint, offset);
                frame.note(&version);
                let mark = if record.deleted { Mark::Tombstone } else { Mark::Document };
                entries.push(Entry::new(
                    fingerprint,
                    version.size,
                    mark,
                    RecordPlace::at(slot, offset),
                ));
            }
            spans.extend(span.map(|span| (batch.vbid, span)));
            frame.push(&StoredRecord::control(
                Kind::State,
                batch.vbid,
                b"",
                &encode_state(state),
            ))?;
        }
        frame.finish()?;
        assert_eq!(entries.len(), fingerprints.len(), "every version of a commit has its entry");
        assert_eq!(entries.len(), versions, "every version of a commit has its entry");
        if self.planted.has(Bug::ShowsBeforeTheSync) {
            self.apply(writer, &entries, &groups, superseded);
        }
        writer.sync()?;
        assert_eq!(
            writer.active.durable_end, writer.active.end,
            "a commit is shown after its sync"
        );
        {
            // Before the index points at them: a span may cover more than that, never less.
            let mut catalog = self.catalog.write();
            spans.into_iter().for_each(|(vbid, span)| catalog.wrote(slot, vbid, span));
        }
        self.apply(writer, &entries, &groups, superseded);
        {
            let mut catalog = self.catalog.write();
            for (batch, state) in batches.iter().zip(states) {
                catalog.states.insert(batch.vbid, state);
            }
        }
        self.pack(groups.iter().map(|group| group.table));
        Ok(())
    }

    /// The batches' states, with the purges that their senders missed. The caller is the only
    /// writer, so none comes concurrently.
    fn states_after(&self, batches: Batches<'_, '_>) -> Vec<VbucketState> {
        let catalog = self.catalog.read();
        let known = |batch: &VbBatch<'_>| match self.planted.has(Bug::TakesPurgesBack) {
            true => batch.state.clone(),
            false => batch.state.knowing_purges_of(catalog.states.get(&batch.vbid)),
        };
        batches.iter().map(known).collect()
    }

    /// Publishes the synced versions to readers, group by group, so that none of them waits for
    /// all.
    fn apply(
        &self,
        writer: &LogWriter,
        entries: &[Entry],
        groups: &[Group],
        superseded: &[SupersededEntry],
    ) {
        debug_assert!(superseded.is_sorted_by_key(|one| one.index), "they have the commit's order");
        {
            let mut catalog = self.catalog.write();
            let segment = catalog.segment_mut(writer.active.slot);
            assert!(segment.bytes <= writer.active.end, "the log only grows");
            entries.iter().for_each(|entry| segment.wrote(entry.size()));
            segment.bytes = writer.active.end;
        }
        let ends = groups.iter().skip(1).map(|group| group.begin).chain([entries.len()]);
        for (group, end) in groups.iter().zip(ends) {
            let number = |index| superseded.partition_point(|one| one.index < index);
            let superseded = &superseded[number(group.begin)..number(end)];
            debug_assert!(group.begin < end, "a group has an entry");
            self.catalog.write().put_all(group.table, &entries[group.begin..end], superseded);
        }
    }

    /// Begins a new segment when the frame would make the active one too long.
    pub(super) fn begin_segment_if_full(
        &self,
        writer: &mut LogWriter,
        payload_bytes: u64,
    ) -> Result<(), StoreError> {
        let end = writer.active.end + frame_bytes(payload_bytes);
        let is_fresh = writer.active.end == writer.active.root_end;
        // A frame that is longer than its own segment gets one.
        if (end > self.segment_limit() && !is_fresh) || end > SEGMENT_BYTES_MAX {
            writer.roll(&self.catalog).map_err(|error| write_error(writer, &error))?;
            debug_assert_eq!(
                writer.active.end, writer.active.root_end,
                "a new segment has its root"
            );
        }
        Ok(())
    }

    /// Runs `work` as the only writer, after a recovery if the last one failed.
    pub(super) fn exclusive<T>(
        &self,
        work: impl FnOnce(&mut LogWriter) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer.lock();
        if !self.planted.has(Bug::WritesAfterAFailure) {
            self.recover(&mut writer).map_err(|error| self.member.named(error))?;
            assert!(
                writer.failure.is_none(),
                "nothing is written before a failure is recovered from"
            );
        }
        // Stays when `work` panics half-way through a frame.
        writer.failure = Some(WriteFailure::Panicked);
        let outcome = work(&mut writer).map_err(|error| self.member.named(error));
        writer.failure = match &outcome {
            Ok(_) => None,
            Err(error) => {
                tracing::error!(%error, "a write failed; the store cuts it off before the next write");
                Some(WriteFailure::Io(error.to_string()))
            }
        };
        self.show_moves(&mut writer);
        // Compaction takes the lock again and again; a waiting writer gets it first.
        MutexGuard::unlock_fair(writer);
        outcome
    }

    /// Writes records that are no versions as one frame of at most `room` bytes and syncs it. Both
    /// `make` and `apply`, which runs after the sync, get the position of the frame.
    pub(super) fn control<'a>(
        &self,
        room: u64,
        make: impl FnOnce(LogPosition) -> Vec<StoredRecord<'a>>,
        apply: impl FnOnce(LogPosition, &mut LogBounds, &mut Catalog),
    ) -> Result<(), StoreError> {
        self.exclusive(|writer| {
            self.begin_segment_if_full(writer, room)?;
            let position = writer.position();
            self.write_and_sync(writer, &make(position))?;
            debug_assert!(writer.position() > position, "a frame moves the end of the log");
            apply(position, &mut writer.bounds, &mut self.catalog.write());
            Ok(())
        })
    }

    /// Writes one frame of records that are no versions, and syncs it.
    pub(super) fn write_and_sync(
        &self,
        writer: &mut LogWriter,
        records: &[StoredRecord<'_>],
    ) -> Result<(), StoreError> {
        let written = writer.write_controls(records).and_then(|()| writer.sync());
        written.map_err(|error| write_error(writer, &error))?;
        debug_assert!(writer.active.durable_end >= writer.active.root_end, "a root is durable");
        self.catalog.write().segment_mut(writer.active.slot).bytes = writer.active.end;
        Ok(())
    }

    /// Length at which a segment is sealed: less in a small store, where a whole segment of garbage
    /// would be more than everything that counts.
    fn segment_limit(&self) -> u64 {
        let (bytes, garbage) = self.catalog.read().log_bytes();
        self.segment_limit_for(bytes - garbage)
    }

    fn segment_limit_for(&self, live_bytes: u64) -> u64 {
        let most = self.options.segment_bytes;
        (live_bytes / SEGMENTS_MIN).clamp(SEGMENT_BYTES_MIN.min(most), most)
    }

    /// Share of the log that compaction would give back.
    pub(super) fn garbage_percent(&self) -> u64 {
        let (bytes, garbage) = self.catalog.read().log_bytes();
        debug_assert!(garbage <= bytes, "garbage is a part of the log");
        // The active segment cannot be compacted, and compacting a log of few segments gains too
        // little.
        let is_small = bytes < self.segment_limit_for(bytes - garbage) * 2;
        if is_small { 0 } else { garbage * 100 / bytes.max(1) }
    }

    /// Sizes of index and log. The index has memory in addition to that, which all logs share.
    pub(super) fn sizes(&self) -> LogSizes {
        let catalog = self.catalog.read();
        let (keys, purged_tombstones) = catalog.entries();
        let (log_bytes, garbage_bytes) = catalog.log_bytes();
        debug_assert!(purged_tombstones <= keys, "a purged tombstone has an entry");
        let segments = catalog.segments.iter().flatten().count() as u64;
        let index_bytes = catalog.own_index_bytes();
        LogSizes { keys, purged_tombstones, index_bytes, segments, log_bytes, garbage_bytes }
    }

    /// Continues in a new segment.
    pub(super) fn seal(&self) -> Result<(), StoreError> {
        self.exclusive(|writer| {
            writer.roll(&self.catalog).map_err(|error| write_error(writer, &error))
        })
    }

    /// Says durably that the last commit was synced, so that opening distinguishes later damage to
    /// it from a commit that was cut off. A store that was not closed lacks this.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        let is_needed = {
            let writer = self.writer.lock();
            // A log that ends with an empty frame was closed or just opened.
            writer.failure.is_some() || !writer.is_closed
        };
        if is_needed {
            self.control(0, |_| Vec::new(), |_, _, _| {})?;
            self.exclusive(|writer| writer.trim().map_err(|error| write_error(writer, &error)))?;
            debug_assert!(
                self.writer.lock().is_closed,
                "a log that was closed ends with an empty frame"
            );
        }
        Ok(())
    }
}

fn fingerprints_of(batches: Batches<'_, '_>, seed: u64) -> Vec<Fingerprint> {
    let mut found = Vec::with_capacity(batches.iter().map(|batch| batch.records.len()).sum());
    for batch in batches.iter() {
        for (index, record) in batch.records.iter().enumerate() {
            if let Some(ahead) = batch.records.get(index + KEYS_AHEAD) {
                load_line(ahead.key.key.as_ptr());
            }
            found.push(Catalog::fingerprint(seed, record.key.key));
        }
    }
    found
}

/// Length of the frame's content and number of its records, when the layout can hold them.
fn payload_of(batches: Batches<'_, '_>) -> Result<(u64, u32), StoreError> {
    let (mut payload_bytes, mut records) = (0, 0);
    for batch in batches.iter() {
        for record in &batch.records {
            check_lengths(record.key.key, record.value)?;
            payload_bytes += StoredRecord::version(batch.vbid, 0, *record).stored_bytes();
        }
        let state = encode_state(&batch.state);
        payload_bytes += StoredRecord::control(Kind::State, batch.vbid, b"", &state).stored_bytes();
        records += batch.records.len() + 1;
    }
    let records = u32::try_from(records).ok();
    let fits = payload_bytes < SEGMENT_BYTES_MAX / 2;
    records.filter(|_| fits).map(|records| (payload_bytes, records)).ok_or_else(|| {
        StoreError::Io(format!("a commit of {payload_bytes} bytes is more than a segment holds"))
    })
}

/// Refuses what the lengths of a record cannot say.
pub(super) fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if u16::try_from(key.len()).is_ok() && u32::try_from(value.len()).is_ok() {
        return Ok(());
    }
    let text = format!("a record of {} and {} bytes is too long", key.len(), value.len());
    Err(StoreError::Io(text))
}
