//! Opening: reads what the log says, repairs what a crash left, and builds the catalog.
//!
//! Owns: the order of an opening. The newest segment comes first, because it lists the segments and
//! the bounds; the others follow in the order in which they were written, by index file where there
//! is a good one. Invariants:
//! - nothing is changed on disk before everything was read and found sound;
//! - a torn tail is removed durably before anything is written behind it;
//! - frames that are not known to be synced are written once more and synced before they are relied
//!   on, because pages that a failed sync left in memory look sound and may never reach the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oribi_types::Seqno;
use parking_lot::{Mutex, RwLock};

use super::blocks::BLOCK_BYTES_MAX;
use super::bounds::Bounds;
use super::catalog::{Catalog, Segment};
use super::files::{LogDirectory, LogFile};
use super::hint::{self, HINT_ENTRY_BYTES, Hint, Version};
use super::intake::{Intake, Part};
use super::layout::{
    RECORD_HEADER_BYTES, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, decode_segment_header,
};
use super::log::Log;
use super::member::Member;
use super::newest::{Newest, NewestFault, read_newest};
use super::options::LogOptions;
use super::planted::{Bug, Planted};
use super::read::{damaged, read_error};
use super::reader::{ReadFault, SegmentReader, Step};
use super::scan_memory;
use super::spans::{Span, Spans};
use super::staging::Staging;
use super::writer::{Active, Writer, hint_name, segment_name};
use crate::StoreError;
use crate::directory::Found;

/// Parts of the vbuckets of a store that packs its index. Until a part is packed, its entries take
/// more than twice the memory; each part reads the index files again.
const PARTS: u16 = 4;

/// Bytes that are written again at a time.
const REWRITE_BYTES: usize = 1 << 20;

/// One opening.
struct Opening<'o> {
    directory: Arc<dyn LogDirectory>,
    options: &'o LogOptions,
    planted: Planted,
    member: Member,
    /// Numbers of the segment files that are there, ascending.
    ids: Vec<u32>,
    names: Vec<String>,
}

/// Opens the log in a directory that is the caller's alone.
pub(super) fn open(
    directory: Arc<dyn LogDirectory>,
    found: Found,
    options: &LogOptions,
    planted: Planted,
    member: Member,
) -> Result<Log, StoreError> {
    let name = member.clone();
    open_member(directory, found, options, planted, member).map_err(|error| name.named(error))
}

fn open_member(
    directory: Arc<dyn LogDirectory>,
    found: Found,
    options: &LogOptions,
    planted: Planted,
    member: Member,
) -> Result<Log, StoreError> {
    let names = directory.list().map_err(|error| system_error(&error))?;
    let mut ids: Vec<u32> = names.iter().filter_map(|name| id_of(name)).collect();
    ids.sort_unstable();
    let opening = Opening { directory, options, planted, member, ids, names };
    match found {
        Found::New => opening.create(),
        Found::Ready => opening.recover(),
    }
}

/// The number of a segment file, by its name.
fn id_of(name: &str) -> Option<u32> {
    let id = name.strip_suffix(".log")?.parse().ok()?;
    (segment_name(id) == name).then_some(id)
}

fn system_error(error: &io::Error) -> StoreError {
    StoreError::Io(error.to_string())
}

impl Opening<'_> {
    /// Makes an empty log in place of whatever an unfinished creation left.
    fn create(self) -> Result<Log, StoreError> {
        for name in &self.names {
            if name.ends_with(".log") || name.ends_with(".idx") {
                self.directory.remove(name).map_err(|error| system_error(&error))?;
            }
        }
        let active = Active::create(&*self.directory, 1).map_err(|error| system_error(&error))?;
        let mut writer = self.writer(self.directory.new_seed(), active, Bounds::default(), 0);
        let catalog = RwLock::new(Catalog::new(writer.seed, &self.member.index_memory));
        writer.begin_segment(&catalog).map_err(|error| system_error(&error))?;
        Ok(self.log(writer, catalog, true))
    }

    fn recover(self) -> Result<Log, StoreError> {
        let newest = self.newest()?;
        // Whatever is not listed is removed, so a list without the segment that it is in is no
        // list.
        if !newest.segments.contains_key(&newest.id) {
            return Err(damaged(newest.id, SEGMENT_HEADER_BYTES as u64, "an impossible root"));
        }
        let mut catalog = Catalog::new(newest.seed, &self.member.index_memory);
        if let Some(vbid) = newest.states.keys().find(|vbid| !self.member.has(**vbid)) {
            let text = format!("has {vbid}, which is of another log: were directories exchanged?");
            return Err(StoreError::Corrupt(text));
        }
        catalog.states = newest.states.clone();
        catalog.locals = newest.locals.clone();
        let mut to_evacuate = Vec::new();
        let parts = if self.is_packed(&newest) { PARTS } else { 1 };
        for part in Part::split(parts) {
            let damaged = self.take_part(part, &newest, &mut catalog)?;
            if part.is_first() {
                to_evacuate = damaged;
            }
        }
        let slot = catalog.active;
        let mut hint = Hint::default();
        newest.versions.iter().for_each(|version| hint.push(version));
        catalog.has_spans(slot, newest.spans.clone());
        let has_tail = self.mend(&newest).map_err(|error| system_error(&error))?;
        let file = Arc::clone(&newest.file);
        let (id, end) = (newest.id, newest.end);
        let active = Active::found(id, slot, file, end, hint);
        let mut writer =
            self.writer(newest.seed, active, newest.bounds.clone(), newest.last_number);
        writer.is_closed = newest.is_closed;
        let log = self.log(writer, RwLock::new(catalog), newest.is_closed && !has_tail);
        if !newest.skipped.is_empty() {
            to_evacuate.push(newest.id);
        }
        if !to_evacuate.is_empty() {
            // A new root lists what is there, and nothing is moved into a damaged segment.
            log.seal()?;
        }
        to_evacuate.into_iter().try_for_each(|id| log.evacuate(id))?;
        Ok(log)
    }

    /// Reads the newest segment, or the one before when the newest was still being made.
    fn newest(&self) -> Result<Newest, StoreError> {
        let Some((last, earlier)) = self.ids.split_last() else {
            return Err(StoreError::Corrupt("there is no segment".into()));
        };
        let seed = earlier.last().and_then(|id| self.seed_of(*id));
        let read = |id: u32, seed| {
            let file = self.directory.open(&segment_name(id))?;
            read_newest(file, id, seed, self.options.accepts_damage, self.planted)
        };
        let fault = match (read(*last, seed), earlier.last()) {
            (Ok(newest), _) => return Ok(newest),
            (Err(NewestFault::Unfinished), Some(before)) => match read(*before, seed) {
                Ok(newest) => {
                    tracing::warn!(segment = last, "a segment was still being made at the end");
                    self.directory
                        .remove(&segment_name(*last))
                        .map_err(|error| system_error(&error))?;
                    self.directory.sync().map_err(|error| system_error(&error))?;
                    return Ok(newest);
                }
                Err(fault) => (*before, fault),
            },
            (Err(fault), _) => (*last, fault),
        };
        Err(match fault {
            (id, NewestFault::Fault(fault)) => read_error(id, &fault),
            (id, NewestFault::Unfinished) => damaged(id, SEGMENT_HEADER_BYTES as u64, "no root"),
        })
    }

    /// The store's seed, as a segment says it.
    fn seed_of(&self, id: u32) -> Option<u64> {
        let file = self.directory.open(&segment_name(id)).ok()?;
        let mut header = [0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut header, 0).ok()?;
        decode_segment_header(&header, id).ok()
    }

    /// True when there may be so many keys that the index is packed.
    fn is_packed(&self, newest: &Newest) -> bool {
        let versions = newest.segments.iter().map(|(id, bytes)| {
            let hint = self.directory.open(&hint_name(*id)).and_then(|file| file.bytes());
            hint.map_or(bytes / RECORD_HEADER_BYTES as u64, |hint| hint / HINT_ENTRY_BYTES as u64)
        });
        self.options.packing.is_some_and(|packing| versions.sum::<u64>() > packing.exact_keys)
    }

    /// Takes up a part of the vbuckets from all segments. Returns the segments that are damaged or
    /// missing, which is accepted.
    fn take_part(
        &self,
        part: Part,
        newest: &Newest,
        catalog: &mut Catalog,
    ) -> Result<Vec<u32>, StoreError> {
        let mut damaged = Vec::new();
        for (id, bytes) in newest.segments.iter().filter(|(id, _)| **id != newest.id) {
            if self.take_older(part, *id, *bytes, newest, catalog)? {
                damaged.push(*id);
            }
        }
        let segment = Segment::new(newest.id, Arc::clone(&newest.file), newest.end);
        catalog.active = slot_of(part, catalog, segment)?;
        let slot = catalog.active;
        let mut intake = Intake::new(part, catalog, &newest.bounds, newest.id, slot);
        newest.versions.iter().for_each(|version| intake.take(version));
        intake.finish();
        if let Some(packing) = self.options.packing {
            let Some(old) = catalog.packed_slots(packing) else { return Ok(damaged) };
            for table in catalog.tables.values_mut().filter(|table| table.is_due(packing)) {
                let packed = table.packed(packing, &old);
                table.take_packed(packed, packing, &old);
            }
        }
        Ok(damaged)
    }

    /// Takes up a segment that is not the newest. True when it is damaged or missing and that is
    /// accepted.
    fn take_older(
        &self,
        part: Part,
        id: u32,
        listed_bytes: u64,
        newest: &Newest,
        catalog: &mut Catalog,
    ) -> Result<bool, StoreError> {
        let name = segment_name(id);
        if !self.ids.contains(&id) {
            if !self.options.accepts_damage {
                return Err(StoreError::Corrupt(format!("{name} is missing")));
            }
            tracing::warn!(
                name,
                "a segment is missing; opened without it, because damage is accepted"
            );
            return Ok(true);
        }
        let file = self.directory.open(&name).map_err(|error| system_error(&error))?;
        let bytes = file.bytes().map_err(|error| system_error(&error))?;
        let mut header = [0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(|error| system_error(&error))?;
        let is_of_store = decode_segment_header(&header, id).is_ok_and(|seed| seed == newest.seed);
        let is_whole = is_of_store && bytes == listed_bytes && bytes <= SEGMENT_BYTES_MAX;
        if !is_whole && !self.options.accepts_damage {
            return Err(match is_of_store {
                true => {
                    damaged(id, bytes.min(listed_bytes), "another length than it had, from here")
                }
                false => damaged(id, 0, "no segment header of this store"),
            });
        }
        let bytes = bytes.min(SEGMENT_BYTES_MAX);
        let slot = slot_of(part, catalog, Segment::new(id, Arc::clone(&file), bytes))?;
        let mut intake = Intake::new(part, catalog, &newest.bounds, id, slot);
        if let Some(hint) = self.hint_of(id) {
            let listed = hint::read(&hint, id, bytes, newest.seed);
            if let Some(listed) = listed {
                listed.versions.for_each(|version| intake.take(&version));
                intake.finish();
                catalog.has_spans(slot, listed.spans);
                return Ok(false);
            }
            tracing::warn!(segment = id, "a bad index file; the segment is read instead");
        }
        let mut spans = Spans::complete();
        let take = &mut |version: &Version, seqno| {
            spans.wrote(version.vbid, Span::of(seqno));
            intake.take(version);
        };
        let is_damaged = self.scan_older(&file, id, bytes, newest, take)?;
        intake.finish();
        catalog.has_spans(slot, spans);
        Ok(is_damaged || !is_whole)
    }

    /// The content of a segment's index file, when index files are used.
    fn hint_of(&self, id: u32) -> Option<Vec<u8>> {
        let name = hint_name(id);
        let is_used = self.options.reads_hints && !self.options.accepts_damage;
        if !is_used || !self.names.contains(&name) {
            return None;
        }
        let file = self.directory.open(&name).ok()?;
        let bytes = usize::try_from(file.bytes().ok()?).ok()?;
        let mut content = vec![0; bytes];
        let read = file.read_at(&mut content, 0).ok()?;
        content.truncate(read);
        Some(content)
    }

    /// Reads a segment that has no index file. It was sealed, so whatever is wrong is damage.
    fn scan_older(
        &self,
        file: &Arc<dyn LogFile>,
        id: u32,
        bytes: u64,
        newest: &Newest,
        take: &mut dyn FnMut(&Version, Seqno),
    ) -> Result<bool, StoreError> {
        let seed = newest.seed;
        let mut reader = SegmentReader::new(Arc::clone(file), id, seed, bytes, self.planted);
        let mut versions = Vec::new();
        let mut is_damaged = false;
        loop {
            match reader.next() {
                Ok(Step::End) => return Ok(is_damaged),
                Ok(Step::FrameEnd { .. }) => {
                    versions.drain(..).for_each(|(version, seqno)| take(&version, seqno));
                }
                Ok(Step::Frame { .. }) => versions.clear(),
                Ok(Step::Record { at, stored, .. }) => {
                    if stored.kind.is_version() {
                        let fingerprint = Catalog::fingerprint(seed, stored.record.key.key);
                        let version = Version::of(&stored, fingerprint, at);
                        versions.push((version, stored.record.seqno));
                    }
                }
                Err(ReadFault::Bad { offset, what }) if self.options.accepts_damage => {
                    tracing::warn!(
                        segment = id,
                        offset,
                        what,
                        "damaged bytes; opened without them, because damage is accepted"
                    );
                    is_damaged = true;
                    versions.clear();
                    let next = reader.find_frame(offset + 1);
                    match next.map_err(|error| system_error(&error))? {
                        Some(next) => reader.jump(next),
                        None => return Ok(true),
                    }
                }
                Err(fault) => return Err(read_error(id, &fault)),
            }
        }
    }

    /// Makes the disk say what was read: no tail, nothing uncertain, no files that are gone. True
    /// when there was a tail.
    fn mend(&self, newest: &Newest) -> io::Result<bool> {
        let file = &newest.file;
        let behind = file.bytes()?.saturating_sub(newest.end);
        let has_tail = behind > 0 && !is_padding(&**file, newest.end, behind)?;
        if has_tail {
            tracing::warn!(
                segment = newest.id,
                cut = behind,
                "bytes of an unfinished commit were cut off"
            );
        }
        if behind > 0 {
            file.truncate(newest.end)?;
        }
        let mut buffer = vec![0; REWRITE_BYTES];
        let mut at = newest.uncertain;
        while at < newest.end && !self.planted.has(Bug::TrustsTheTail) {
            let length = (newest.end - at).min(REWRITE_BYTES as u64) as usize;
            let read = file.read_at(&mut buffer[..length], at)?;
            if read < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_at(&buffer[..length], at)?;
            at += length as u64;
        }
        file.sync()?;
        for id in self.ids.iter().filter(|id| **id < newest.id) {
            if !newest.segments.contains_key(id) {
                self.directory.remove(&segment_name(*id))?;
            }
        }
        // An index file of the newest segment was written just before a crash and ends too early.
        let kept = newest.segments.keys().filter(|id| **id != newest.id);
        let kept: Vec<String> = kept.map(|id| hint_name(*id)).collect();
        for name in self.names.iter().filter(|name| name.ends_with(".idx")) {
            if !kept.contains(name) {
                self.directory.remove(name)?;
            }
        }
        self.directory.sync()?;
        Ok(has_tail)
    }

    fn writer(&self, seed: u64, active: Active, bounds: Bounds, last_number: u64) -> Writer {
        Writer {
            directory: Arc::clone(&self.directory),
            seed,
            active,
            next_number: last_number + 1,
            synced: last_number,
            bounds,
            is_closed: true,
            failure: None,
            unfinished: None,
            cuts: 0,
            unsynced_moves: Vec::new(),
            synced_moves: Vec::new(),
            staging: Staging::default(),
            head: Vec::new(),
            planted: self.planted,
        }
    }

    fn log(self, writer: Writer, catalog: RwLock<Catalog>, ended_in_order: bool) -> Log {
        Log {
            options: self.options.clone(),
            directory: self.directory,
            writer: Mutex::new(writer),
            catalog,
            moves: RwLock::new(()),
            compaction: Mutex::default(),
            member: self.member,
            compaction_fails: AtomicBool::new(false),
            scan_memory: &scan_memory::OF_PROCESS,
            ended_in_order,
            planted: self.planted,
        }
    }
}

/// True when the bytes behind `end` are what the last block of a store has that was not closed.
fn is_padding(file: &dyn LogFile, end: u64, behind: u64) -> io::Result<bool> {
    let mut rest = [0; BLOCK_BYTES_MAX];
    if behind >= rest.len() as u64 {
        return Ok(false);
    }
    let read = file.read_at(&mut rest, end)?;
    Ok(rest[..read].iter().all(|byte| *byte == 0))
}

/// Slot of a segment, which the first part takes up.
fn slot_of(part: Part, catalog: &mut Catalog, segment: Segment) -> Result<u16, StoreError> {
    let slot = match part.is_first() {
        true => catalog.add_segment(segment),
        false => catalog.slot_of(segment.id),
    };
    slot.ok_or_else(|| StoreError::Corrupt("there are more segments than there can be".into()))
}
