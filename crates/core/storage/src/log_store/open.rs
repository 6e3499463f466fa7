//! Opening: reads the log, repairs the damage of a crash, and builds the catalog.
//!
//! Owns: the order of an opening. The newest segment comes first, because it lists the segments and
//! the bounds; the others follow in the order in which they were written, by index file where there
//! is a good one. Invariants:
//! - nothing is changed on disk before everything was read and found sound;
//! - a torn tail is removed durably before anything is written after it;
//! - frames that are not known to be synced are written once more and synced before they are relied
//!   on, because pages that a failed sync left in memory look sound and may never reach the disk.

mod find_newest;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use oribi_types::Seqno;
use parking_lot::{Mutex, RwLock};

use super::blocks::BLOCK_BYTES_MAX;
use super::bounds::LogBounds;
use super::catalog::{Catalog, Segment};
use super::files::{LogDirectory, LogFile};
use super::hint::{self, HINT_ENTRY_BYTES, Hint, HintVersion};
use super::intake::{Intake, Part};
use super::layout::{
    RECORD_HEADER_BYTES, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, decode_segment_header,
};
use super::log::Log;
use super::member::LogMember;
use super::newest::Newest;
use super::options::LogOptions;
use super::planted::{Bug, PlantedBug};
use super::read::{damaged, read_error};
use super::reader::{ReadFault, SegmentReader, Step};
use super::salvage::{Account, Damage, LogLosses, PassedFrame, SalvageItem, states_of_commit};
use super::scan_memory;
use super::spans::{Span, Spans};
use super::staging::Staging;
use super::writer::{ActiveSegment, LogWriter, hint_name, segment_name};
use crate::StoreError;
use crate::directory::DirectoryState;

/// Parts of the vbuckets of a store that packs its index. Until a part is packed, its entries take
/// more than twice the memory; each part reads the index files again.
const PARTS: u16 = 4;

/// Bytes that are written again at a time.
const REWRITE_BYTES: usize = 1 << 20;
const _: () = assert!(PARTS.is_power_of_two(), "a part is a range of fingerprints");

struct LogOpening<'o> {
    directory: Arc<dyn LogDirectory>,
    options: &'o LogOptions,
    planted: PlantedBug,
    member: LogMember,
    /// Numbers of the segment files that are there, ascending.
    ids: Vec<u32>,
    names: Vec<String>,
}

/// Opens the log in a directory that is the caller's alone.
pub(super) fn open(
    directory: Arc<dyn LogDirectory>,
    found: DirectoryState,
    options: &LogOptions,
    planted: PlantedBug,
    member: LogMember,
) -> Result<Log, StoreError> {
    let name = member.clone();
    open_member(directory, found, options, planted, member).map_err(|error| name.named(error))
}

fn open_member(
    directory: Arc<dyn LogDirectory>,
    found: DirectoryState,
    options: &LogOptions,
    planted: PlantedBug,
    member: LogMember,
) -> Result<Log, StoreError> {
    let names = directory.list().map_err(|error| system_error(&error))?;
    let mut ids: Vec<u32> = names.iter().filter_map(|name| id_of(name)).collect();
    ids.sort_unstable();
    let opening = LogOpening { directory, options, planted, member, ids, names };
    match found {
        DirectoryState::New => opening.create(),
        DirectoryState::Ready => opening.recover(),
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

impl LogOpening<'_> {
    /// Makes an empty log in place of whatever an unfinished creation left.
    fn create(self) -> Result<Log, StoreError> {
        for name in &self.names {
            if name.ends_with(".log") || name.ends_with(".idx") {
                self.directory.remove(name).map_err(|error| system_error(&error))?;
            }
        }
        let active =
            ActiveSegment::create(&*self.directory, 1).map_err(|error| system_error(&error))?;
        let mut writer = self.writer(self.directory.new_seed(), active, LogBounds::default(), 0);
        let catalog = RwLock::new(Catalog::new(writer.seed, &self.member.index_memory));
        writer.begin_segment(&catalog).map_err(|error| system_error(&error))?;
        Ok(self.log(writer, catalog, true, LogLosses::default()))
    }

    fn recover(self) -> Result<Log, StoreError> {
        let mut newest = self.newest()?;
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
        let mut account = Account::default();
        let parts = if self.is_packed(&newest) { PARTS } else { 1 };
        for part in Part::split(parts) {
            // All parts read the same.
            let account = part.is_first().then_some(&mut account);
            let damaged = self.take_part(part, &newest, &mut catalog, account)?;
            if part.is_first() {
                to_evacuate = damaged;
            }
        }
        for passed in std::mem::take(&mut newest.passed) {
            account.take(newest.id, passed, &newest.bounds);
        }
        if newest.is_damaged || !to_evacuate.is_empty() {
            let has_keys = catalog.vbuckets_with_keys();
            account.raise(&mut catalog.states, |vbid| has_keys.contains(&vbid));
        }
        let losses = account.finish();
        let slot = catalog.active;
        let mut hint = Hint::default();
        newest.versions.iter().for_each(|version| hint.push(version));
        catalog.has_spans(slot, newest.spans.clone());
        let has_tail = self.mend(&newest).map_err(|error| system_error(&error))?;
        let file = Arc::clone(&newest.file);
        let (id, end) = (newest.id, newest.end);
        let active = ActiveSegment::found(id, slot, file, end, hint);
        let mut writer =
            self.writer(newest.seed, active, newest.bounds.clone(), newest.last_number);
        writer.is_closed = newest.is_closed;
        if newest.is_damaged {
            to_evacuate.push(newest.id);
        }
        let ended_in_order = newest.is_closed && !has_tail && to_evacuate.is_empty();
        let log = self.log(writer, RwLock::new(catalog), ended_in_order, losses);
        if !to_evacuate.is_empty() {
            // A new root lists what is present, and nothing is moved into a damaged segment.
            log.seal()?;
        }
        to_evacuate.into_iter().try_for_each(|id| log.evacuate(id))?;
        Ok(log)
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
        mut account: Option<&mut Account>,
    ) -> Result<Vec<u32>, StoreError> {
        let mut damaged = Vec::new();
        for (id, bytes) in newest.segments.iter().filter(|(id, _)| **id != newest.id) {
            let account = account.as_deref_mut();
            if self.take_older(part, (*id, *bytes), newest, catalog, account)? {
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
        (id, listed_bytes): (u32, u64),
        newest: &Newest,
        catalog: &mut Catalog,
        mut account: Option<&mut Account>,
    ) -> Result<bool, StoreError> {
        let name = segment_name(id);
        if !self.ids.contains(&id) {
            if !self.options.accepts_damage {
                return Err(StoreError::Corrupt(format!("{name} is missing")));
            }
            if let Some(account) = account {
                account.take_damage(id, Damage::new(0, listed_bytes, "a missing segment"));
            }
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
        let take = &mut |version: &HintVersion, seqno| {
            spans.wrote(version.vbid, Span::of(seqno));
            intake.take(version);
        };
        let passed = &mut |passed| {
            if let Some(account) = &mut account {
                account.take(id, passed, &newest.bounds);
            }
        };
        if !is_of_store {
            let what = "no segment header of this store";
            passed(SalvageItem::Damage(Damage::of_header(SEGMENT_HEADER_BYTES, what)));
        }
        let is_damaged = self.scan_older(&file, (id, bytes), newest.seed, take, passed)?;
        if bytes < listed_bytes {
            let damage = Damage::new(bytes, listed_bytes - bytes, "the end of the file");
            passed(SalvageItem::Damage(damage));
        }
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
        (id, bytes): (u32, u64),
        seed: u64,
        take: &mut dyn FnMut(&HintVersion, Seqno),
        passed: &mut dyn FnMut(SalvageItem),
    ) -> Result<bool, StoreError> {
        let mut reader = SegmentReader::new(Arc::clone(file), id, seed, bytes, self.planted);
        let mut versions = Vec::new();
        let mut frame = self.options.accepts_damage.then(PassedFrame::default);
        let mut is_damaged = false;
        // Where the last whole frame ends.
        let mut end = SEGMENT_HEADER_BYTES as u64;
        loop {
            match reader.next() {
                Ok(Step::End) => return Ok(is_damaged),
                Ok(Step::FrameEnd { next }) => {
                    versions.drain(..).for_each(|(version, seqno)| take(&version, seqno));
                    frame
                        .iter_mut()
                        .for_each(|frame| passed(SalvageItem::Frame(std::mem::take(frame))));
                    end = next;
                }
                Ok(Step::Frame { header, at }) => {
                    versions.clear();
                    frame.iter_mut().for_each(|frame| *frame = PassedFrame::new(at, header.number));
                }
                Ok(Step::Record { at, stored, .. }) => {
                    frame.iter_mut().for_each(|frame| frame.add(&stored));
                    if stored.kind.is_version() {
                        let fingerprint = Catalog::fingerprint(seed, stored.record.key.key);
                        let version = HintVersion::of(&stored, fingerprint, at);
                        versions.push((version, stored.record.seqno));
                    }
                }
                Err(ReadFault::Bad { offset, what }) if self.options.accepts_damage => {
                    is_damaged = true;
                    versions.clear();
                    let next = reader.find_frame(offset + 1);
                    let next = next.map_err(|error| system_error(&error))?;
                    let lost_end = next.unwrap_or(bytes).max(end);
                    let states = states_of_commit(&**file, seed, (end, lost_end));
                    let states = states.map_err(|error| system_error(&error))?;
                    let damage = Damage { states, ..Damage::new(end, lost_end - end, what) };
                    passed(SalvageItem::Damage(damage));
                    let Some(next) = next else { return Ok(true) };
                    reader.jump(next);
                    end = next;
                }
                Err(fault) => return Err(read_error(id, &fault)),
            }
        }
    }

    /// Makes the disk match the state that was read: no tail, nothing uncertain, no removed files.
    /// True when there was a tail.
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

    fn writer(
        &self,
        seed: u64,
        active: ActiveSegment,
        bounds: LogBounds,
        last_number: u64,
    ) -> LogWriter {
        LogWriter {
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

    fn log(
        self,
        writer: LogWriter,
        catalog: RwLock<Catalog>,
        ended_in_order: bool,
        losses: LogLosses,
    ) -> Log {
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
            losses,
            planted: self.planted,
        }
    }
}

/// True when the bytes after `end` are what the last block of a store has that was not closed.
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
