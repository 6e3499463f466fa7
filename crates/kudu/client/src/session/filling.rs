//! The rows that are not in flight yet: one pair of buffers for each tablet, and the row in
//! progress.
//!
//! One lock guards everything here. A row holds it from its first cell to its end; only the timer
//! takes it too, and never waits for it. Invariants: between two rows the buffers hold whole rows
//! only. An abandoned row leaves no bytes in the buffer. `bytes` is the sum over the tablets. The
//! session calls it. It sends nothing itself, but says when it is time.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::partition::TabletMap;
use crate::row_operation::{RowEncoder, RowError, RowOperation};

use super::lane::TabletLane;
use super::row_buffers::RowBuffers;
use super::write_target::TableView;

/// Buffered rows, and the row in progress.
#[derive(Debug)]
pub(super) struct Filling {
    pub encoder: RowEncoder,
    map: TabletMap,
    lanes: Vec<FillingLane>,
    number_of_tablet: HashMap<String, u32>,
    place: Place,
    /// Where the open row's strings begin in the indirect data of its tablet.
    indirect_start: usize,
    /// Scratch space for encoded keys.
    scratch: Vec<u8>,
    /// Bytes of all rows here.
    bytes: usize,
    /// Tablets that have rows here.
    lanes_with_rows: usize,
    /// The size from which one tablet's rows fill a request.
    lane_flush_bytes: usize,
    limits: FillingLimits,
    /// All rows that the session ever took.
    rows_taken: u64,
    /// A first row came since the last notification of the timer.
    timer_is_due: bool,
    /// At least one tablet is known.
    pub has_view: bool,
}

/// The bounds of the buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillingLimits {
    /// Bytes over all tablets from which the session sends rows.
    pub watermark_bytes: usize,
    /// Bytes of the rows of one request, at most.
    pub batch_bytes_max: usize,
    /// Most bytes of one row, as far as the schema and the largest cell tell.
    pub row_bytes_max: usize,
}

#[derive(Debug)]
struct FillingLane {
    buffers: RowBuffers,
    /// Batches, older than `buffers`, whose request has no space for another row.
    full: Vec<RowBuffers>,
    /// When the first of the rows came.
    since: Instant,
    lane: Arc<TabletLane>,
}

/// The tablet of the open row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Its key is not complete.
    Unknown,
    /// The tablet of this number.
    Tablet(usize),
    /// No known tablet.
    Nowhere,
}

/// A batch to queue.
#[derive(Debug)]
pub(super) struct SealedBatch {
    pub lane: Arc<TabletLane>,
    pub buffers: RowBuffers,
}

/// The outcome of finishing a row.
#[derive(Debug)]
pub(super) enum AddResult {
    /// It is buffered with others.
    Buffered,
    /// It completed a batch that is ready to be sent.
    BatchReady(usize),
    /// No known tablet covers it; it is still open.
    NoTablet,
}

impl Filling {
    pub(super) fn new(encoder: RowEncoder, limits: FillingLimits) -> Filling {
        Filling {
            encoder,
            map: TabletMap::default(),
            lanes: Vec::new(),
            number_of_tablet: HashMap::new(),
            place: Place::Unknown,
            indirect_start: 0,
            scratch: Vec::new(),
            bytes: 0,
            lanes_with_rows: 0,
            lane_flush_bytes: limits.watermark_bytes,
            limits,
            rows_taken: 0,
            timer_is_due: false,
            has_view: false,
        }
    }

    /// Bytes of all rows here.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All rows that the session ever took.
    pub(super) fn rows_taken(&self) -> u64 {
        self.rows_taken
    }

    /// Rows in the buffers.
    pub(super) fn rows(&self) -> usize {
        let rows = |lane: &FillingLane| -> usize {
            lane.full.iter().map(|buffers| buffers.row_count).sum::<usize>()
                + lane.buffers.row_count
        };
        self.lanes.iter().map(rows).sum()
    }

    /// Starts a row. It forgets a row that was left open.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.give_up();
    }

    /// Forgets the open row, if there is one.
    #[inline]
    pub(super) fn give_up(&mut self) {
        if let Place::Tablet(number) = self.place {
            self.lanes[number].buffers.indirect.truncate(self.indirect_start);
        }
        self.place = Place::Unknown;
        self.encoder.clear();
    }

    /// Sets a cell of variable length.
    #[inline]
    pub(super) fn put_with<E>(
        &mut self,
        put: impl FnOnce(&mut RowEncoder, Option<&mut Vec<u8>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let indirect = match self.place {
            Place::Tablet(number) => Some(&mut self.lanes[number].buffers.indirect),
            Place::Unknown | Place::Nowhere => None,
        };
        put(&mut self.encoder, indirect)?;
        self.settle();
        Ok(())
    }

    /// Finds the row's tablet once its key is complete.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.place == Place::Unknown && self.encoder.is_locatable() {
            self.locate();
        }
    }

    fn locate(&mut self) {
        let Some(number) = self.map.locate(&self.encoder, &mut self.scratch) else {
            self.place = Place::Nowhere;
            return;
        };
        let buffers = &mut self.lanes[number].buffers;
        self.indirect_start = buffers.indirect.len();
        self.encoder.unstage(&mut buffers.indirect);
        self.place = Place::Tablet(number);
    }

    /// Looks for the open row's tablet again.
    pub(super) fn relocate(&mut self) {
        self.place = Place::Unknown;
    }

    /// Bytes of the open row beyond its fixed part, so far.
    fn open_string_bytes(&self) -> usize {
        match self.place {
            Place::Tablet(number) => {
                self.lanes[number].buffers.indirect.len() - self.indirect_start
            }
            Place::Unknown | Place::Nowhere => self.encoder.staged_bytes(),
        }
    }

    /// Most bytes that the open row can have.
    pub(super) fn open_row_bytes(&self) -> usize {
        self.encoder.row_bytes_max() + self.open_string_bytes()
    }

    /// Finishes the open row, or says why it is invalid. After an error the row is gone.
    #[inline]
    pub(super) fn finish(&mut self, operation: RowOperation) -> Result<AddResult, RowError> {
        self.settle();
        if let Err(error) = self.check(operation) {
            self.give_up();
            return Err(error);
        }
        let Place::Tablet(number) = self.place else { return Ok(AddResult::NoTablet) };
        let lane = &mut self.lanes[number];
        let row_start = lane.buffers.rows.len();
        self.encoder.finish(operation.wire(), &mut lane.buffers.rows);
        self.bytes +=
            lane.buffers.rows.len() - row_start + lane.buffers.indirect.len() - self.indirect_start;
        lane.buffers.row_count += 1;
        self.rows_taken += 1;
        self.place = Place::Unknown;
        let is_first = lane.buffers.row_count == 1 && lane.full.is_empty();
        let lane_bytes = lane.buffers.bytes();
        let is_full =
            lane_bytes.saturating_add(self.limits.row_bytes_max) > self.limits.batch_bytes_max;
        if is_first {
            lane.since = Instant::now();
        }
        if is_full {
            lane.full.push(std::mem::take(&mut lane.buffers));
        }
        if is_first {
            self.count_lanes(1);
        }
        let is_ready = lane_bytes >= self.lane_flush_bytes || is_full;
        Ok(if is_ready { AddResult::BatchReady(number) } else { AddResult::Buffered })
    }

    fn check(&self, operation: RowOperation) -> Result<(), RowError> {
        self.encoder.check(operation)?;
        let bytes = self.open_row_bytes();
        if bytes > self.limits.batch_bytes_max {
            return Err(RowError::RowTooLarge { bytes, bytes_max: self.limits.batch_bytes_max });
        }
        Ok(())
    }

    /// Whether to notify the timer of new rows; the call resets the flag.
    #[inline]
    pub(super) fn take_timer_is_due(&mut self) -> bool {
        std::mem::take(&mut self.timer_is_due)
    }

    /// Whether a batch for this tablet is queued or in flight.
    pub(super) fn is_lane_busy(&self, number: usize) -> bool {
        self.lanes[number].lane.is_busy()
    }

    /// Removes one tablet's rows for sending.
    pub(super) fn seal(&mut self, number: usize, sealed: &mut Vec<SealedBatch>) {
        // The lock is free, so no row is in progress: an open row was dropped.
        if let Place::Tablet(_) = self.place {
            self.give_up();
        }
        let lane = &mut self.lanes[number];
        if !lane.has_rows() {
            return;
        }
        let mut batches = std::mem::take(&mut lane.full);
        if !lane.buffers.is_empty() {
            batches.push(std::mem::replace(&mut lane.buffers, lane.lane.take_spare()));
        }
        for buffers in batches {
            self.bytes -= buffers.bytes();
            sealed.push(SealedBatch { lane: lane.lane.clone(), buffers });
        }
        self.count_lanes(-1);
    }

    /// Removes the rows of every tablet for sending.
    pub(super) fn seal_all(&mut self) -> Vec<SealedBatch> {
        self.seal_where(|_| true)
    }

    /// Removes the rows of idle tablets that have enough of them. If none has and nothing is in
    /// flight, it removes those of all tablets.
    pub(super) fn seal_for_room(&mut self, is_anything_under_way: bool) -> Vec<SealedBatch> {
        let enough = self.lane_flush_bytes;
        let sealed = self.seal_where(|lane| lane.bytes() >= enough && !lane.lane.is_busy());
        if sealed.is_empty() && !is_anything_under_way { self.seal_all() } else { sealed }
    }

    /// Removes the rows of tablets whose first row came before `limit`.
    pub(super) fn seal_older_than(&mut self, limit: Instant) -> Vec<SealedBatch> {
        self.seal_where(|lane| lane.since <= limit)
    }

    fn seal_where(&mut self, is_wanted: impl Fn(&FillingLane) -> bool) -> Vec<SealedBatch> {
        let mut sealed = Vec::new();
        for number in 0..self.lanes.len() {
            let lane = &self.lanes[number];
            if lane.has_rows() && is_wanted(lane) {
                self.seal(number, &mut sealed);
            }
        }
        sealed
    }

    /// When the oldest row came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lanes.iter().filter(|lane| lane.has_rows()).map(|lane| lane.since).min()
    }

    /// Adopts the tablets of a view. Tablets that are gone keep their rows, which fail when sent.
    pub(super) fn adopt(&mut self, view: &TableView) {
        for tablet in &view.tablets {
            if !self.number_of_tablet.contains_key(&tablet.id) {
                self.number_of_tablet.insert(tablet.id.clone(), self.lanes.len() as u32);
                self.lanes.push(FillingLane {
                    buffers: RowBuffers::default(),
                    full: Vec::new(),
                    since: Instant::now(),
                    lane: Arc::new(TabletLane::new(tablet.id.clone())),
                });
            }
        }
        let numbered = view.tablets.iter().filter_map(|tablet| {
            self.number_of_tablet.get(&tablet.id).map(|number| (*number, &tablet.partition))
        });
        self.map = TabletMap::numbered(&view.partition_schema, numbered);
        self.has_view = true;
    }

    /// Updates one tablet's share of the watermark, which depends on the number of tablets with
    /// rows.
    fn count_lanes(&mut self, change: isize) {
        self.timer_is_due |= self.lanes_with_rows == 0;
        self.lanes_with_rows = self.lanes_with_rows.saturating_add_signed(change);
        self.lane_flush_bytes = (self.limits.watermark_bytes / self.lanes_with_rows.max(1)).max(1);
    }
}

impl FillingLane {
    fn has_rows(&self) -> bool {
        !self.buffers.is_empty() || !self.full.is_empty()
    }

    /// Bytes of the rows, including full batches.
    fn bytes(&self) -> usize {
        self.full.iter().map(RowBuffers::bytes).sum::<usize>() + self.buffers.bytes()
    }
}
