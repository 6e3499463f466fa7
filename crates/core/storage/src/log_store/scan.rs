//! Scans by seqno: one pass forwards over a vbucket's records, at one moment.
//!
//! Owns: the snapshot that a scan keeps, and the order in which it reads. Invariants: every record
//! is checked before it is shown, and has a higher seqno than the one before it; no lock is held
//! while it reads. Memory: four bytes a record that the scan has yet to open (the index has 18 to
//! 20 for each), [`READ_AHEAD_BYTES`], and one record.
//!
//! A commit appends ascending seqnos, so the records of a vbucket lie in one ascending run over all
//! segments, but for those that compaction has moved. These lie in their own runs, between the
//! others. The scan takes the places of all records from the index when it begins; files stay
//! readable for it. It opens a segment when the segment's lowest seqno is next. Where it is known
//! that the vbucket's records ascend in the segment ([`super::spans`]), that is one run. Otherwise
//! the scan reads their seqnos once and divides them into the fewest ascending runs: each record
//! goes to the run that ends with the highest seqno below its own. Runs are then merged, each read
//! forwards through its own window. A large record whose value is not wanted is checked in pieces.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_types::{CollectionId, Seqno, Vbid};

use super::blocks::BLOCK_BYTES_MAX;
use super::catalog::{Catalog, Segment};
use super::index::Mark;
use super::layout::{RECORD_SEQNO_AT, StoredRecord, UNIT_BYTES, decode_parts, stored_bytes_of};
use super::log::Log;
use super::read::{FIRST_READ_BYTES, damaged};
use super::spans::{SegmentKnowledge, Span};
use super::window::Window;
use crate::counters::ReadCount;
use crate::state_layout::take;
use crate::{
    LARGE_RECORD_BYTES, LoadValues, Record, RecordVisitor, ReserveMemory, ScanProgress, SeqnoRange,
    SeqnoScan, SnapshotSeqnos, StoreError,
};

/// Bytes that all runs read ahead together.
const READ_AHEAD_BYTES: u64 = 8 << 20;
/// Bytes that one run reads ahead: at most as many as stay in a core's own cache, at least a page.
const RUN_AHEAD_MAX: u64 = 512 << 10;
const RUN_AHEAD_MIN: u64 = 4 << 10;
/// Bytes of a window beyond its read-ahead: the record that begins there, and blocks.
const WINDOW_BYTES_MORE: u64 = FIRST_READ_BYTES as u64 + 3 * BLOCK_BYTES_MAX as u64;
/// Records this near to each other are read together, as in [`super::get_many`].
const GAP_BYTES_MAX: u64 = 16 << 10;
const _: () = assert!(RUN_AHEAD_MIN <= RUN_AHEAD_MAX && RUN_AHEAD_MAX <= READ_AHEAD_BYTES);
const _: () = assert!(GAP_BYTES_MAX <= RUN_AHEAD_MAX);

/// A segment that was not opened yet.
struct Part {
    segment: Segment,
    slot: u16,
    units: Vec<u32>,
    /// Known records of the vbucket in it.
    span: Option<Span>,
    /// The scan has all of them, because nothing is written to it.
    is_sealed: bool,
}

impl Part {
    /// No record in it has a lower seqno.
    fn lowest(&self) -> Seqno {
        self.span.map_or(Seqno(0), |span| span.lowest)
    }
}

/// Records whose places and seqnos ascend.
struct Run {
    /// No record that is left has a lower seqno.
    next_seqno: Seqno,
    segment: Arc<Segment>,
    units: Vec<u32>,
    /// Index of the next one.
    next: usize,
    window: Window,
}

impl Run {
    fn new(next_seqno: Seqno, segment: Arc<Segment>, units: Vec<u32>, window: Window) -> Run {
        Run { next_seqno, segment, units, next: 0, window }
    }

    fn offset(&self, index: usize) -> u64 {
        debug_assert!(index < self.units.len(), "a run is read up to its end");
        u64::from(self.units[index]) * UNIT_BYTES
    }

    /// The seqno of the record at an index, unchecked. Reads up to `ahead` bytes when it has to.
    fn seqno(&mut self, index: usize, ahead: u64) -> Result<Seqno, StoreError> {
        let offset = self.offset(index);
        if !self.window.has_head(&self.segment, offset) {
            let bytes = self.together(index, ahead);
            self.window.cover(&self.segment, offset, bytes)?;
        }
        let head = self.window.head(&self.segment, offset)?;
        Ok(Seqno(u64::from_le_bytes(take(head, RECORD_SEQNO_AT))))
    }

    /// Bytes from the record at `index` to the end of those that one read covers with it.
    fn together(&self, index: usize, ahead: u64) -> u64 {
        let (first, mut last) = (self.offset(index), self.offset(index));
        debug_assert!(self.units.is_sorted(), "a run is read forwards");
        for unit in &self.units[index + 1..] {
            let offset = u64::from(*unit) * UNIT_BYTES;
            if offset - last > GAP_BYTES_MAX || offset - first > ahead {
                break;
            }
            last = offset;
        }
        last - first + FIRST_READ_BYTES as u64
    }

    /// Loads the next record and those after it that one read covers, `ahead` bytes at most. A
    /// record of which the last read has only the head begins the next read: to read the rest of it
    /// alone would leave the next one cut off as well, and so on to the end of the run.
    fn load(&mut self, ahead: u64) -> Result<(), StoreError> {
        debug_assert!(self.next < self.units.len(), "a run that has ended is not read");
        let offset = self.offset(self.next);
        match self.window.has_record(&self.segment, offset) {
            true => Ok(()),
            false => self.window.cover(&self.segment, offset, self.together(self.next, ahead)),
        }
    }

    /// Of the next record, unchecked. [`Run::load`] has read its header.
    fn stored_bytes(&mut self) -> Result<usize, StoreError> {
        let offset = self.offset(self.next);
        Ok(stored_bytes_of(self.window.head(&self.segment, offset)?) as usize)
    }

    fn record(&mut self) -> Result<StoredRecord<'_>, StoreError> {
        let offset = self.offset(self.next);
        self.window.record(&self.segment, offset)
    }

    /// The next record without its value, which is checked all the same.
    fn without_value<'k>(&mut self, key: &'k mut Vec<u8>) -> Result<StoredRecord<'k>, StoreError> {
        let offset = self.offset(self.next);
        let head = *self.window.head(&self.segment, offset)?;
        *key = self.window.check_by_pieces(&self.segment, offset)?;
        let decoded = decode_parts(&head, key, &[]);
        decoded.map(|(stored, _)| stored).map_err(|what| damaged(self.segment.id, offset, what))
    }

    /// Passes over records below `from`.
    fn skip_to(&mut self, from: Seqno) -> Result<(), StoreError> {
        let (mut low, mut high) = (0, self.units.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.seqno(middle, 0)? < from {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        self.next = low;
        debug_assert!(self.next <= self.units.len(), "a run is skipped to its end at most");
        Ok(())
    }
}

/// Runs are ordered by their next seqno, the lowest one greatest, as a heap wants it.
impl Ord for Run {
    fn cmp(&self, other: &Run) -> Ordering {
        Reverse(self.next_seqno).cmp(&Reverse(other.next_seqno))
    }
}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Run) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Run) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Run {}

/// See the module text.
pub(super) struct LogScan {
    log: Arc<Log>,
    vbid: Vbid,
    /// Only records of this collection.
    only: Option<CollectionId>,
    values: LoadValues,
    snapshot: SnapshotSeqnos,
    from: Seqno,
    to: Seqno,
    /// By lowest seqno, the lowest one last.
    parts: Vec<Part>,
    runs: BinaryHeap<Run>,
    /// That of a run which has ended; the next one reads into its memory.
    spare: Option<Window>,
    /// Every record up to here was shown or passed over.
    passed: Seqno,
}

impl LogScan {
    /// Takes the places of all records in range.
    pub(super) fn begin(log: &Arc<Log>, vbid: Vbid, range: SeqnoRange) -> LogScan {
        let SeqnoRange { from, to, collection: only, values } = range;
        // A commit shows itself table by table, and holds the writer until it is done.
        let _no_commit = log.writer.lock();
        let catalog = log.catalog.read();
        let mut parts = parts_of(&catalog, vbid, only, from, to);
        parts.sort_by_key(|part| Reverse(part.lowest()));
        LogScan {
            log: Arc::clone(log),
            vbid,
            only,
            values,
            snapshot: SnapshotSeqnos::of(catalog.states.get(&vbid)),
            from,
            to,
            parts,
            runs: BinaryHeap::new(),
            spare: None,
            passed: Seqno(0),
        }
    }

    fn visit(
        &mut self,
        count: &mut ReadCount,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        loop {
            while let Some(part) = self
                .parts
                .pop_if(|part| self.runs.peek().is_none_or(|run| part.lowest() <= run.next_seqno))
            {
                self.open(part)?;
            }
            let Some(run) = self.runs.pop() else { return Ok(ScanProgress::Ended) };
            if self.visit_run(run, count, reserve, visit)?.is_break() {
                return Ok(ScanProgress::Paused);
            }
        }
    }

    /// Visits the records of a run that come before those of all others. Breaks when `visit` does.
    fn visit_run(
        &mut self,
        mut run: Run,
        count: &mut ReadCount,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let ahead = self.ahead().clamp(RUN_AHEAD_MIN, RUN_AHEAD_MAX);
        // No two records have the same seqno.
        let others = self.runs.peek().map(|run| run.next_seqno);
        let limit = others.into_iter().chain(self.parts.last().map(Part::lowest)).min();
        debug_assert!(limit.is_none_or(|limit| run.next_seqno <= limit), "the run that is next");
        while run.next < run.units.len() {
            run.load(ahead)?;
            let seqno = run.seqno(run.next, ahead)?;
            if seqno > self.to {
                break;
            }
            if limit.is_some_and(|limit| seqno > limit) {
                run.next_seqno = seqno;
                run.window.keep_at_most(self.may_keep());
                self.runs.push(run);
                return Ok(ControlFlow::Continue(()));
            }
            let (id, offset) = (run.segment.id, run.offset(run.next));
            let bytes = run.stored_bytes()?;
            let mut key = Vec::new();
            let stored = if bytes <= LARGE_RECORD_BYTES {
                run.record()?
            } else if self.values == LoadValues::Skip {
                run.without_value(&mut key)?
            } else {
                run.window.keep_at_most(0);
                if reserve(bytes).is_break() {
                    run.next_seqno = seqno;
                    self.runs.push(run);
                    return Ok(ControlFlow::Break(()));
                }
                run.record()?
            };
            if stored.vbid != self.vbid || seqno <= self.passed {
                return Err(damaged(id, offset, "a record out of the order of seqnos"));
            }
            self.passed = seqno;
            count.add(&stored.record);
            let flow = match self.values {
                LoadValues::Read => visit(stored.record),
                LoadValues::Skip => visit(Record { value: &[], ..stored.record }),
            };
            if bytes > LARGE_RECORD_BYTES {
                run.window.keep_at_most(0);
            }
            run.next += 1;
            if flow.is_break() {
                run.next_seqno = Seqno(seqno.0.saturating_add(1));
                self.runs.push(run);
                return Ok(flow);
            }
        }
        self.spare = Some(run.window);
        Ok(ControlFlow::Continue(()))
    }

    /// A window for the next run, in memory that a run has left.
    fn window(&mut self) -> Window {
        let mut window = self.spare.take();
        if let Some(window) = &mut window {
            window.keep_at_most(self.may_keep());
        }
        window.unwrap_or_else(|| Window::ahead(FIRST_READ_BYTES as u64))
    }

    /// Bytes that a run may keep in memory while it waits for its turn.
    fn may_keep(&self) -> u64 {
        self.ahead() + WINDOW_BYTES_MORE
    }

    /// Bytes that each run may read ahead.
    fn ahead(&self) -> u64 {
        READ_AHEAD_BYTES / (self.runs.len() as u64 + 1)
    }

    /// Finds the runs of a segment.
    fn open(&mut self, part: Part) -> Result<(), StoreError> {
        let Part { segment, slot, mut units, span, is_sealed } = part;
        debug_assert!(!units.is_empty(), "a part has a record");
        units.sort_unstable();
        let mut all = Run::new(self.from, Arc::new(segment), units, self.window());
        if let Some(span) = span.filter(|span| span.is_ascending) {
            all.next_seqno = span.lowest.max(self.from);
            if span.lowest < self.from {
                all.skip_to(self.from)?;
            }
            self.runs.push(all);
            return Ok(());
        }
        let mut found: Option<Span> = None;
        let mut runs: Vec<(Seqno, Run)> = Vec::new();
        for index in 0..all.units.len() {
            let seqno = all.seqno(index, RUN_AHEAD_MAX)?;
            found = Some(found.map_or(Span::of(seqno), |found| found.and(seqno)));
            if seqno < self.from || self.to < seqno {
                continue;
            }
            let at = runs.partition_point(|(last, _)| *last > seqno);
            if at == runs.len() {
                let window = Window::ahead(FIRST_READ_BYTES as u64);
                runs.push((seqno, Run::new(seqno, Arc::clone(&all.segment), Vec::new(), window)));
            }
            let (last, run) = &mut runs[at];
            *last = seqno;
            run.units.push(all.units[index]);
        }
        debug_assert!(
            runs.is_sorted_by(|left, right| left.0 > right.0),
            "the fewest ascending runs"
        );
        self.runs.extend(runs.into_iter().map(|(_, run)| run));
        self.spare = Some(all.window);
        // A collection's records say little about those of others.
        let is_news = is_sealed && self.only.is_none() && span != found;
        if let (Some(found), true) = (found, is_news) {
            // What still counts may ascend where not all that was written does.
            self.log.catalog.write().learn(slot, all.segment.id, self.vbid, found);
        }
        Ok(())
    }
}

/// The places of the vbucket's records by segment, without segments that have none in range.
fn parts_of(
    catalog: &Catalog,
    vbid: Vbid,
    only: Option<CollectionId>,
    from: Seqno,
    to: Seqno,
) -> Vec<Part> {
    let part = |slot: u16, segment: &Segment| {
        let span = match catalog.span(slot, vbid) {
            SegmentKnowledge::Absent => return None,
            SegmentKnowledge::Span(span) if span.highest < from || to < span.lowest => return None,
            SegmentKnowledge::Span(span) => Some(span),
            SegmentKnowledge::Nothing => None,
        };
        let is_sealed = slot != catalog.active;
        Some(Part { segment: segment.clone(), slot, units: Vec::new(), span, is_sealed })
    };
    let taken = (0..).zip(&catalog.segments);
    let mut parts: Vec<Option<Part>> =
        taken.map(|(slot, segment)| part(slot, segment.as_ref()?)).collect();
    let is_wanted = |collection: CollectionId| only.is_none_or(|only| only == collection);
    let tables = catalog.tables_of(vbid).filter(|((_, collection), _)| is_wanted(*collection));
    for (_, table) in tables {
        for entry in table.iter().filter(|entry| entry.mark() != Mark::Purged) {
            let place = entry.place();
            if let Some(Some(part)) = parts.get_mut(usize::from(place.slot)) {
                part.units.push(place.unit);
            }
        }
    }
    parts.into_iter().flatten().filter(|part| !part.units.is_empty()).collect()
}

impl SeqnoScan for LogScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        self.snapshot
    }

    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        let mut count = ReadCount::default();
        let result = self.visit(&mut count, reserve, visit);
        self.log.has_read(&count, result)
    }
}
