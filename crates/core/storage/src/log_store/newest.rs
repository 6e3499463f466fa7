//! Reads the newest segment: everything that is not a document, and where the log ends.
//!
//! Owns: the line between a tail that a crash cut off and damage. A frame says up to which number
//! frames were synced when it was begun. So when something is wrong and a frame after it says that
//! the frame which should be there was synced, the bytes were damaged later. When no frame says so,
//! the frame was never acknowledged, or was the last one of a store that was not closed.
//! A segment without a whole root is refused, unless the caller has what the root said from earlier
//! segments. Callers: opening. It changes nothing on disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use oribi_types::{Seqno, Vbid};

use super::bounds::{LogBounds, LogPosition, TombstonePurge};
use super::catalog::Catalog;
use super::files::LogFile;
use super::hint::HintVersion;
use super::layout::{
    FrameHeader, Kind, LISTED_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, SEGMENT_SEED_AT, StoredRecord,
    UNIT_BYTES, decode_segment_header,
};
use super::planted::{Bug, PlantedBug};
use super::reader::{ReadFault, SegmentReader, Step, find_frame};
use super::salvage::{Damage, PassedFrame, SalvageItem, states_of_commit};
use super::spans::{Span, Spans};
use crate::state_layout::{decode_state, take};
use crate::{StoreError, VbucketState};

/// Content of the newest segment.
pub(super) struct Newest {
    pub(super) id: u32,
    pub(super) file: Arc<dyn LogFile>,
    pub(super) seed: u64,
    /// Numbers and lengths of all segments but those that are gone.
    pub(super) segments: BTreeMap<u32, u64>,
    pub(super) bounds: LogBounds,
    pub(super) states: BTreeMap<Vbid, VbucketState>,
    pub(super) locals: BTreeMap<String, Vec<u8>>,
    /// Versions in the order in which they were written.
    pub(super) versions: Vec<HintVersion>,
    pub(super) spans: Spans,
    /// Where the last whole frame ends.
    pub(super) end: u64,
    /// Where frames begin that no other frame says were synced.
    pub(super) uncertain: u64,
    pub(super) last_number: u64,
    pub(super) is_closed: bool,
    /// Frames and damage in their order, when damage is accepted.
    pub(super) passed: Vec<SalvageItem>,
    pub(super) is_damaged: bool,
}

/// Content of a segment's root: everything that is not a version.
#[derive(Clone, Default)]
pub(super) struct Root {
    pub(super) segments: BTreeMap<u32, u64>,
    pub(super) bounds: LogBounds,
    pub(super) states: BTreeMap<Vbid, VbucketState>,
    pub(super) locals: BTreeMap<String, Vec<u8>>,
}

/// Whether damage is accepted, and what stands in for a damaged root.
#[derive(Clone, Copy)]
pub(super) enum Salvage<'r> {
    No,
    /// Damage is accepted after the root.
    BehindTheRoot,
    /// Damage is accepted; this is what the root says.
    WithRoot(&'r Root),
}

/// Why the newest segment is not usable.
#[derive(Debug)]
pub(super) enum NewestFault {
    /// It was still being made: nothing in it was ever acknowledged.
    Unfinished,
    /// It cannot be read, or is damaged.
    Fault(ReadFault),
}

impl From<io::Error> for NewestFault {
    fn from(error: io::Error) -> NewestFault {
        NewestFault::Fault(ReadFault::Io(error))
    }
}

/// Frames of the newest segment, and their combined content.
struct Frames {
    newest: Newest,
    /// Number and offset of each.
    found: Vec<(u64, u64)>,
    /// Highest number that a frame says was synced.
    synced: u64,
    /// Content of the frame that is being read, until it is whole.
    versions: Vec<(HintVersion, Seqno)>,
    controls: Vec<Control>,
    /// The frame that is being read, when damage is accepted.
    passed: Option<PassedFrame>,
    has_given_root: bool,
}

/// A record that is no version, kept until its frame is whole.
struct Control {
    kind: Kind,
    vbid: Vbid,
    collection: oribi_types::CollectionId,
    expiry: u32,
    number: u64,
    offset: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Control {
    fn of(stored: &StoredRecord<'_>) -> Control {
        let record = &stored.record;
        Control {
            kind: stored.kind,
            vbid: stored.vbid,
            collection: record.key.collection,
            expiry: record.expiry,
            number: record.seqno.0,
            offset: record.cas.0,
            key: record.key.key.to_vec(),
            value: record.value.to_vec(),
        }
    }
}

/// Reads the newest segment. `seed` is the store's, if other segments have it.
pub(super) fn read_newest(
    file: Arc<dyn LogFile>,
    id: u32,
    seed: Option<u64>,
    salvage: Salvage<'_>,
    planted: PlantedBug,
) -> Result<Newest, NewestFault> {
    let bytes = file.bytes()?;
    let mut header = [0; SEGMENT_HEADER_BYTES];
    let read = file.read_at(&mut header, 0)?;
    let (seed, has_header) = match (decode_segment_header(&header, id), salvage) {
        (Ok(own), _) if read == header.len() => (own, true),
        // Without another segment, the seed is right unless the damage is in the seed.
        (_, Salvage::WithRoot(_)) => {
            (seed.unwrap_or(u64::from_le_bytes(take(&header, SEGMENT_SEED_AT))), false)
        }
        _ => return Err(no_root(&*file, id, seed)?),
    };
    let mut frames = Frames::new(id, Arc::clone(&file), seed, salvage);
    if !has_header {
        let what = "a damaged segment header";
        frames.passed_damage(Damage::of_header(SEGMENT_HEADER_BYTES, what));
    }
    let mut reader = SegmentReader::new(Arc::clone(&file), id, seed, bytes, planted);
    loop {
        let fault = match frames.read(&mut reader) {
            // A header without a root: power was lost between the two.
            Ok(()) if frames.lacks_root() => return Err(no_root(&*file, id, Some(seed))?),
            Ok(()) => break,
            Err(fault) => fault,
        };
        let ReadFault::Bad { offset, what } = fault else {
            return Err(NewestFault::Fault(fault));
        };
        if frames.lacks_root() {
            return Err(no_root(&*file, id, Some(seed))?);
        }
        // The reader may have stopped inside of a frame: everything from its beginning is in doubt.
        let from = frames.newest.end + UNIT_BYTES;
        let expected = frames.newest.last_number + 1;
        let behind = find_frame(&*file, seed, from, &mut |header| {
            let is_behind = header.synced >= expected && header.number > expected;
            header.segment == id && (is_behind || frames.found.is_empty())
        })?;
        let Some(next) = behind else { break };
        if planted.has(Bug::TakesDamageForATail) {
            break;
        }
        if matches!(salvage, Salvage::No) {
            return Err(NewestFault::Fault(ReadFault::Bad { offset, what }));
        }
        let begin = frames.newest.end;
        let states = states_of_commit(&*file, seed, (begin, next))?;
        frames.passed_damage(Damage { states, ..Damage::new(begin, next - begin, what) });
        frames.newest.end = next;
        frames.newest.last_number = 0;
        reader.jump(next);
    }
    match frames.found.is_empty() {
        true => Err(no_root(&*file, id, Some(seed))?),
        false => Ok(frames.finish()),
    }
}

/// Consequence of a segment without a whole root: a frame that is there nevertheless was written
/// after the root was synced.
fn no_root(file: &dyn LogFile, id: u32, seed: Option<u64>) -> io::Result<NewestFault> {
    let Some(seed) = seed else {
        let what = "no segment header";
        return Ok(NewestFault::Fault(ReadFault::Bad { offset: 0, what }));
    };
    let from = SEGMENT_HEADER_BYTES as u64 + UNIT_BYTES;
    let behind = find_frame(file, seed, from, &mut |header| header.segment == id)?;
    Ok(match behind {
        None => NewestFault::Unfinished,
        Some(_) => {
            let what = "no root although frames follow";
            NewestFault::Fault(ReadFault::Bad { offset: SEGMENT_HEADER_BYTES as u64, what })
        }
    })
}

impl Frames {
    fn new(id: u32, file: Arc<dyn LogFile>, seed: u64, salvage: Salvage<'_>) -> Frames {
        let given = match salvage {
            Salvage::WithRoot(root) => Some(root),
            Salvage::No | Salvage::BehindTheRoot => None,
        };
        let has_given_root = given.is_some();
        let Root { segments, bounds, states, locals } = given.cloned().unwrap_or_default();
        let newest = Newest {
            id,
            file,
            seed,
            segments,
            bounds,
            states,
            locals,
            versions: Vec::new(),
            spans: Spans::complete(),
            end: SEGMENT_HEADER_BYTES as u64,
            uncertain: 0,
            last_number: 0,
            is_closed: false,
            passed: Vec::new(),
            is_damaged: false,
        };
        let passed = (!matches!(salvage, Salvage::No)).then(PassedFrame::default);
        Frames {
            newest,
            found: Vec::new(),
            synced: 0,
            versions: Vec::new(),
            controls: Vec::new(),
            passed,
            has_given_root,
        }
    }

    /// True when nothing says what the root has to say.
    fn lacks_root(&self) -> bool {
        self.found.is_empty() && !self.has_given_root
    }

    fn passed_damage(&mut self, damage: Damage) {
        self.newest.passed.push(SalvageItem::Damage(damage));
        self.newest.is_damaged = true;
    }

    /// Reads whole frames up to the end of the file or the first fault.
    fn read(&mut self, reader: &mut SegmentReader) -> Result<(), ReadFault> {
        self.versions.clear();
        self.controls.clear();
        let mut open: Option<(FrameHeader, u64)> = None;
        loop {
            match reader.next()? {
                Step::Frame { header, at } => {
                    let is_in_order = self.newest.last_number == 0
                        || header.number == self.newest.last_number + 1;
                    if !is_in_order || header.synced >= header.number {
                        return Err(ReadFault::Bad { offset: at, what: "a frame out of order" });
                    }
                    open = Some((header, at));
                    if let Some(passed) = &mut self.passed {
                        *passed = PassedFrame::new(at, header.number);
                    }
                }
                Step::Record { at, stored, .. } if stored.kind.is_version() => {
                    self.passed.iter_mut().for_each(|passed| passed.add(&stored));
                    let key = stored.record.key.key;
                    let fingerprint = Catalog::fingerprint(self.newest.seed, key);
                    let version = HintVersion::of(&stored, fingerprint, at);
                    self.versions.push((version, stored.record.seqno));
                }
                Step::Record { stored, .. } => {
                    self.passed.iter_mut().for_each(|passed| passed.add(&stored));
                    self.controls.push(Control::of(&stored));
                }
                Step::FrameEnd { next } => {
                    let Some((header, at)) = open.take() else { continue };
                    self.take_frame(&header, at)?;
                    self.newest.end = next;
                    let passed = self.passed.as_mut().map(std::mem::take);
                    self.newest.passed.extend(passed.map(SalvageItem::Frame));
                }
                Step::End => return Ok(()),
            }
        }
    }

    /// A frame is whole: its content counts.
    fn take_frame(&mut self, header: &FrameHeader, at: u64) -> Result<(), ReadFault> {
        let is_root = self.controls.first().is_some_and(|first| first.kind == Kind::Segments);
        let is_in_place = if is_root { self.found.is_empty() } else { !self.lacks_root() };
        if !is_in_place {
            return Err(ReadFault::Bad { offset: at, what: "a root in the wrong place" });
        }
        if is_root {
            self.newest.forget_root();
        }
        for control in std::mem::take(&mut self.controls) {
            if let Kind::State = control.kind
                && let Err(StoreError::Foreign(text)) = decode_state(&control.value)
            {
                return Err(ReadFault::Foreign(text));
            }
            let bad = ReadFault::Bad { offset: at, what: "a frame that this version cannot read" };
            self.newest.control(control).ok_or(bad)?;
        }
        for (version, seqno) in self.versions.drain(..) {
            self.newest.spans.wrote(version.vbid, Span::of(seqno));
            self.newest.versions.push(version);
        }
        self.newest.last_number = header.number;
        self.newest.is_closed = header.records == 0;
        self.synced = self.synced.max(header.synced);
        self.found.push((header.number, at));
        Ok(())
    }

    fn finish(mut self) -> Newest {
        let uncertain = self.found.iter().find(|(number, _)| *number > self.synced);
        // A root that is not known to be synced may not even have a durable header.
        self.newest.uncertain = match uncertain {
            Some((_, at)) if *at > SEGMENT_HEADER_BYTES as u64 => *at,
            Some(_) => 0,
            None => self.newest.end,
        };
        self.newest
    }
}

impl Newest {
    /// This segment's entry in the root of a later segment.
    pub(super) fn into_root(self) -> Root {
        let Newest { segments, bounds, states, locals, .. } = self;
        Root { segments, bounds, states, locals }
    }

    /// A root says everything anew.
    fn forget_root(&mut self) {
        self.segments.clear();
        self.bounds = LogBounds::default();
        self.states.clear();
        self.locals.clear();
    }

    /// Applies a record that is no version; `None` when its content is impossible.
    fn control(&mut self, control: Control) -> Option<()> {
        let position = || {
            let segment = u32::try_from(control.number).ok()?;
            Some(LogPosition { segment, offset: control.offset })
        };
        match control.kind {
            Kind::State => {
                self.states.insert(control.vbid, decode_state(&control.value).ok()?);
            }
            Kind::Local => {
                self.locals.insert(String::from_utf8(control.key).ok()?, control.value);
            }
            Kind::DropVbucket => {
                self.states.remove(&control.vbid);
                self.bounds.drop_vbucket(control.vbid, position()?);
            }
            Kind::PurgeCollection => {
                self.bounds.purge_collection(control.vbid, control.collection, position()?);
            }
            Kind::PurgeTombstones => {
                let (purge_before, position) = (control.expiry, position()?);
                let purge = TombstonePurge { purge_before, position };
                self.bounds.purge_tombstones(control.vbid, purge);
            }
            Kind::RemoveSegment => {
                self.segments.remove(&u32::try_from(control.number).ok()?);
            }
            Kind::Segments => {
                let listed = control.value.chunks_exact(LISTED_SEGMENT_BYTES);
                let id = |one| u32::from_le_bytes(take(one, 0));
                let bytes = |one| u64::from_le_bytes(take(one, 4));
                self.segments = listed.map(|one| (id(one), bytes(one))).collect();
            }
            Kind::Document | Kind::Tombstone | Kind::PurgedTombstone => return None,
        }
        Some(())
    }
}
