//! Scans of one vbucket by seqno, which Kudu does not order its rows by.
//!
//! Owns: the division of a range of seqnos into windows. A scan of lengths alone counts the bytes
//! in each of a fixed number of equal parts of the range. Parts next to each other that fit a
//! window together are read at once and sorted in memory; a part that is too large for a window is
//! divided again. Each window filters the vbucket's rows by seqno in the server, which reads one
//! small column of all of them. Invariants: all scans read one snapshot of the tablet, which also
//! has the vbucket's state, so they show one snapshot; memory holds the documents of one window,
//! whatever the size of the vbucket, and windows are smaller the more scans there are; one longer
//! document is read when its reader has space for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_kudu::Predicate;
use oribi_storage::{
    Counters, LARGE_RECORD_BYTES, OwnedRecord, ReadCount, Record, RecordVisitor, ReserveMemory,
    ScanProgress, SeqnoRange, SeqnoScan, SnapshotSeqnos, StoreError, decode_state, reserve_for,
};
use oribi_types::{Seqno, Vbid};

use crate::block_on::block_on;
use crate::failure::of_cell;
use crate::key_scan::room_bytes;
use crate::layout::{COLUMNS, column};
use crate::patience::Attempts;
use crate::pieces::corrupt;
use crate::scan::{Bounds, ScanInterruption};
use crate::shared::StoreState;

/// Most bytes of the documents that a scan has in memory at a time; one document may be longer.
const WINDOW_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 8 << 20 };
/// The same, of all scans of the process together: each has its part of it.
const SHARED_BYTES: u64 = 32 << 20;
/// Least part of it.
const WINDOW_BYTES_MIN: u64 = if cfg!(test) { 1 << 10 } else { 256 << 10 };
/// Parts into which a range is divided to count their bytes.
const PARTS: u64 = if cfg!(test) { 8 } else { 1024 };
/// Approximate size of a record in memory besides its value.
const RECORD_BYTES: u64 = 256;
/// Seqnos above are negative in the table.
const HALF: u64 = 1 << 63;

/// A range of seqnos, both bounds included, that does not cross [`HALF`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    from: u64,
    to: u64,
    /// It is known to fit a window, or cannot be divided.
    is_window: bool,
    /// Approximate size of its documents, if it is a window.
    bytes: u64,
}

/// Scans of the process that are not yet dropped.
static SCANS: AtomicU64 = AtomicU64::new(0);

/// A scan that counts in [`SCANS`].
struct ScanCount;

impl ScanCount {
    fn new() -> ScanCount {
        SCANS.fetch_add(1, Ordering::Relaxed);
        ScanCount
    }
}

impl Drop for ScanCount {
    fn drop(&mut self) {
        SCANS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of a window of each of so many scans.
fn window_bytes(scans: u64) -> u64 {
    (SHARED_BYTES / scans.max(1)).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES)
}

impl Range {
    /// The ranges of the seqnos from `from` to `to`, the last one first.
    fn of(from: Seqno, to: Seqno) -> Vec<Range> {
        let halves = [(from.0.max(HALF), to.0), (from.0, to.0.min(HALF - 1))];
        let ranges = halves.into_iter().filter(|(from, to)| from <= to);
        ranges.map(|(from, to)| Range { from, to, is_window: false, bytes: 0 }).collect()
    }

    /// Seqnos of a part of it.
    fn part_width(&self) -> u64 {
        (self.to - self.from) / PARTS + 1
    }

    /// Windows of so many bytes and ranges to divide, the last one first, given the bytes of each
    /// part.
    fn divided(&self, bytes: &[u64], window_bytes: u64) -> Vec<Range> {
        let width = self.part_width();
        let mut ranges: Vec<Range> = Vec::new();
        for (number, bytes) in (0..).zip(bytes).filter(|(_, bytes)| **bytes > 0) {
            let from = self.from + number * width;
            let to = from.saturating_add(width - 1).min(self.to);
            match ranges.last_mut() {
                Some(last) if last.is_window && last.bytes + bytes <= window_bytes => {
                    (last.to, last.bytes) = (to, last.bytes + bytes);
                }
                _ => {
                    let is_window = *bytes <= window_bytes || from == to;
                    ranges.push(Range { from, to, is_window, bytes: *bytes });
                }
            }
        }
        ranges.reverse();
        ranges
    }

    /// Bytes for which a reader has to find space before the window is read: those of one document
    /// that is longer than windows are.
    fn asks_for(&self) -> Option<usize> {
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let is_large = self.is_window && self.from == self.to && bytes > LARGE_RECORD_BYTES;
        is_large.then(|| room_bytes(bytes))
    }

    fn predicates(&self) -> [Predicate; 2] {
        [
            Predicate::greater_or_equal(COLUMNS[column::SEQNO], self.from.cast_signed()),
            Predicate::less_or_equal(COLUMNS[column::SEQNO], self.to.cast_signed()),
        ]
    }
}

/// See the module text.
pub(crate) struct KuduScan {
    shared: Arc<StoreState>,
    counters: Arc<Counters>,
    vbid: Vbid,
    seqnos: SnapshotSeqnos,
    /// The hybrid time that it reads at.
    snapshot: Option<u64>,
    /// The remaining ones, the next one last.
    left: Vec<Range>,
    /// The rest of the window, in order.
    held: std::vec::IntoIter<OwnedRecord>,
    /// The reader has space for the window's only document.
    has_room: bool,
    _counted: ScanCount,
}

impl KuduScan {
    /// Begins a scan at the state of the vbucket, and the snapshot that has it.
    pub(crate) fn begin(
        shared: &Arc<StoreState>,
        counters: &Arc<Counters>,
        vbid: Vbid,
        range: SeqnoRange,
    ) -> Result<KuduScan, StoreError> {
        let found = block_on(&shared.runtime, shared.patience.read(None, shared.seqnos_now(vbid)));
        let (seqnos, snapshot) = found?;
        Ok(KuduScan {
            left: Range::of(range.from, range.to.min(seqnos.high_seqno)),
            shared: Arc::clone(shared),
            counters: Arc::clone(counters),
            vbid,
            seqnos,
            snapshot,
            held: Vec::new().into_iter(),
            has_room: false,
            _counted: ScanCount::new(),
        })
    }

    fn visit(
        &mut self,
        count: &mut ReadCount,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        loop {
            while let Some(record) = self.held.as_slice().first() {
                let record = record.borrow();
                if !self.has_room && reserve_for(&record, reserve).is_break() {
                    return Ok(ScanProgress::Paused);
                }
                count.add(&record);
                let flow = visit(record);
                self.held.next();
                if flow.is_break() {
                    return Ok(ScanProgress::Paused);
                }
            }
            // The memory of the last window is free before the next one is read.
            self.held = Vec::new().into_iter();
            let Some(range) = self.left.last().copied() else { return Ok(ScanProgress::Ended) };
            let large = range.asks_for();
            if large.is_some_and(|bytes| reserve(bytes).is_break()) {
                return Ok(ScanProgress::Paused);
            }
            self.has_room = large.is_some();
            self.left.pop();
            let (shared, bounds) = (&self.shared, Bounds::documents(self.vbid).at(self.snapshot));
            let bounds = bounds.prefetching(!self.has_room);
            let work = async {
                if range.is_window {
                    return shared.window(self.vbid, bounds, &range).await.map(Next::Window);
                }
                let bytes = shared.bytes_of_parts(&bounds, &range).await?;
                let window_bytes = window_bytes(SCANS.load(Ordering::Relaxed));
                Ok(Next::Ranges(range.divided(&bytes, window_bytes)))
            };
            match block_on(&shared.runtime, shared.patience.read(None, work))? {
                Next::Window(records) => self.held = records.into_iter(),
                Next::Ranges(ranges) => self.left.extend(ranges),
            }
        }
    }
}

enum Next {
    Window(Vec<OwnedRecord>),
    Ranges(Vec<Range>),
}

impl SeqnoScan for KuduScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        self.seqnos
    }

    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        let mut count = ReadCount::default();
        let result = self.visit(&mut count, reserve, visit);
        let counters = Arc::clone(&self.counters);
        counters.read(&count, result)
    }
}

impl StoreState {
    /// The vbucket's current state, and its snapshot.
    pub(crate) async fn seqnos_now(
        &self,
        vbid: Vbid,
    ) -> Result<(SnapshotSeqnos, Option<u64>), StoreError> {
        let mut attempts = Attempts::default();
        loop {
            match self.seqnos_once(vbid).await {
                Ok(found) => return Ok(found),
                Err(interrupted) => self.pause_scan(&mut attempts, interrupted).await?,
            }
        }
    }

    async fn seqnos_once(
        &self,
        vbid: Vbid,
    ) -> Result<(SnapshotSeqnos, Option<u64>), ScanInterruption> {
        let columns = [COLUMNS[column::BODY]];
        let bounds = Bounds::state(vbid).at(self.readable.snapshot(vbid));
        let scanner = self.scanner(&bounds, &[], &columns);
        let mut scanner = scanner.map_err(ScanInterruption::Kudu)?;
        let mut seqnos = SnapshotSeqnos::default();
        while let Some(batch) = scanner.next_batch().await.map_err(ScanInterruption::Kudu)? {
            for row in batch.rows() {
                let state = decode_state(row.get::<&[u8]>(0).map_err(of_cell)?)?;
                seqnos = SnapshotSeqnos::of(Some(&state));
                self.readable.check(vbid, seqnos.high_seqno)?;
            }
        }
        Ok((seqnos, scanner.snapshot()))
    }

    /// The documents of a window, in order of seqno.
    async fn window(
        &self,
        vbid: Vbid,
        bounds: Bounds,
        range: &Range,
    ) -> Result<Vec<OwnedRecord>, StoreError> {
        let mut found = Vec::new();
        let mut keep = |record: Record<'_>| {
            found.push(OwnedRecord::of(&record));
            ControlFlow::Continue(())
        };
        self.scan_documents(vbid, bounds, &range.predicates(), &mut keep).await?;
        found.sort_unstable_by_key(OwnedRecord::seqno);
        Ok(found)
    }

    /// Bytes of the documents in each part of a range.
    async fn bytes_of_parts(&self, bounds: &Bounds, range: &Range) -> Result<Vec<u64>, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let mut bytes = vec![0; PARTS as usize];
            match self.count_bytes(bounds, range, &mut bytes).await {
                Ok(()) => return Ok(bytes),
                Err(interrupted) => self.pause_scan(&mut attempts, interrupted).await?,
            }
        }
    }

    async fn count_bytes(
        &self,
        bounds: &Bounds,
        range: &Range,
        bytes: &mut [u64],
    ) -> Result<(), ScanInterruption> {
        let [least, most] = range.predicates();
        let predicates = [Predicate::equal(COLUMNS[column::CHUNK], 0_i16), least, most];
        let places = [column::SEQNO, column::BODY_BYTES, column::XATTRS];
        let columns = places.map(|place| COLUMNS[place]);
        let scanner = self.scanner(bounds, &predicates, &columns);
        let mut scanner = scanner.map_err(ScanInterruption::Kudu)?;
        while let Some(batch) = scanner.next_batch().await.map_err(ScanInterruption::Kudu)? {
            for row in batch.rows() {
                let seqno: i64 = row.get(0).map_err(of_cell)?;
                let body_bytes: i64 = row.get(1).map_err(of_cell)?;
                let xattrs: Option<&[u8]> = row.get(2).map_err(of_cell)?;
                let part =
                    seqno.cast_unsigned().checked_sub(range.from).map(|at| at / range.part_width());
                let part = part.and_then(|part| bytes.get_mut(usize::try_from(part).ok()?));
                let (Some(part), Ok(body_bytes)) = (part, u64::try_from(body_bytes)) else {
                    return Err(corrupt("a seqno or a length that it cannot have").into());
                };
                *part += body_bytes + xattrs.map_or(0, <[u8]>::len) as u64 + RECORD_BYTES;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(from: u64, to: u64, bytes: &[u64]) -> Vec<(u64, u64, bool)> {
        let ranges = Range { from, to, is_window: false, bytes: 0 };
        let ranges = ranges.divided(bytes, WINDOW_BYTES);
        ranges.iter().rev().map(|range| (range.from, range.to, range.is_window)).collect()
    }

    #[test]
    fn parts_join_to_a_window_and_large_ones_split() {
        let full = WINDOW_BYTES;
        assert_eq!(divided(1, 80, &[0; 8]), []);
        assert_eq!(divided(1, 80, &[1, 0, 1, 0, 0, 0, 0, 1]), [(1, 80, true)]);
        assert_eq!(
            divided(1, 80, &[full, 1, full - 1, 1, full + 1, 1, 0, 0]),
            [(1, 10, true), (11, 30, true), (31, 40, true), (41, 50, false), (51, 60, true)]
        );
        // Parts of one seqno cannot be divided.
        assert_eq!(divided(5, 6, &[2 * full, full]), [(5, 5, true), (6, 6, true)]);
        let end = u64::MAX;
        assert_eq!(divided(end - 1, end, &[1, full]), [(end - 1, end - 1, true), (end, end, true)]);
    }

    #[test]
    fn a_range_is_cut_where_seqnos_become_negative() {
        let of = |from, to| {
            let ranges = Range::of(Seqno(from), Seqno(to));
            ranges.iter().rev().map(|range| (range.from, range.to)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 9), [(1, 9)]);
        assert_eq!(of(HALF - 1, HALF), [(HALF - 1, HALF - 1), (HALF, HALF)]);
        assert_eq!(of(HALF, u64::MAX), [(HALF, u64::MAX)]);
        assert_eq!(of(9, 1), []);
        assert_eq!(of(HALF + 1, HALF - 1), []);
    }
}
