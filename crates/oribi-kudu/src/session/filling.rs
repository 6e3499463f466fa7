//! The rows that are not on their way yet: one pair of buffers for each tablet, and the row that is being
//! described.
//!
//! Everything here is behind one lock that a row holds from its first cell to its end. Only the timer takes it
//! too, and never waits for it. Invariants: between two rows the buffers hold whole rows only; a row that is
//! given up leaves nothing behind; `bytes` is the sum over the tablets. Called by the session; it sends
//! nothing itself but says when it is time.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::partition::TabletMap;
use crate::row_operation::{RowEncoder, RowError, RowOperation};

use super::lane::Lane;
use super::row_buffers::RowBuffers;
use super::write_target::TableView;

/// Rows that wait, and the one that is being described.
#[derive(Debug)]
pub(super) struct Filling {
    pub encoder: RowEncoder,
    map: TabletMap,
    lanes: Vec<FillingLane>,
    number_of_tablet: HashMap<String, u32>,
    place: Place,
    /// Where the open row's strings begin in the indirect data of its tablet.
    indirect_start: usize,
    /// Where keys are encoded to be hashed and compared.
    scratch: Vec<u8>,
    /// Bytes of all rows here.
    bytes: usize,
    /// Tablets that have rows here.
    lanes_with_rows: usize,
    /// Bytes from which on one tablet's rows are worth a request.
    lane_flush_bytes: usize,
    limits: FillingLimits,
    /// Rows that were ever taken.
    rows_taken: u64,
    /// A first row came since the timer was last told.
    timer_is_due: bool,
    /// Some tablets are known.
    pub has_view: bool,
}

/// What bounds the buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillingLimits {
    /// Bytes over all tablets from which on rows are worth sending.
    pub watermark_bytes: usize,
    /// Bytes of the rows of one request, at most.
    pub batch_bytes_max: usize,
    /// Bytes of one row, at most, as far as the schema and the largest cell say.
    pub row_bytes_max: usize,
}

#[derive(Debug)]
struct FillingLane {
    buffers: RowBuffers,
    /// Batches, older than `buffers`, that have no room for another row in their request.
    full: Vec<RowBuffers>,
    /// When the first of the rows came.
    since: Instant,
    lane: Arc<Lane>,
}

/// Where the open row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Its key is not complete.
    Unknown,
    /// To the tablet of this number.
    Tablet(usize),
    /// To no tablet that is known.
    Nowhere,
}

/// A batch that is to be queued.
#[derive(Debug)]
pub(super) struct SealedBatch {
    pub lane: Arc<Lane>,
    pub buffers: RowBuffers,
}

/// What became of a row that was finished.
#[derive(Debug)]
pub(super) enum Taken {
    /// It waits with others.
    Buffered,
    /// It completed a batch that is worth sending.
    BatchReady(usize),
    /// No tablet is known for it; it is still open.
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

    /// Rows that were ever taken.
    pub(super) fn rows_taken(&self) -> u64 {
        self.rows_taken
    }

    /// Rows that are here.
    pub(super) fn rows(&self) -> usize {
        let rows = |lane: &FillingLane| -> usize {
            lane.full.iter().map(|buffers| buffers.row_count).sum::<usize>()
                + lane.buffers.row_count
        };
        self.lanes.iter().map(rows).sum()
    }

    /// Starts a row. One that was left open is forgotten.
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

    /// Sets a cell whose bytes are kept apart.
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

    /// Finds the row's tablet as soon as its key is there.
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

    /// Bytes that the open row has so far besides its fixed part.
    fn open_string_bytes(&self) -> usize {
        match self.place {
            Place::Tablet(number) => {
                self.lanes[number].buffers.indirect.len() - self.indirect_start
            }
            Place::Unknown | Place::Nowhere => self.encoder.staged_bytes(),
        }
    }

    /// Bytes that the open row will have, at most.
    pub(super) fn open_row_bytes(&self) -> usize {
        self.encoder.row_bytes_max() + self.open_string_bytes()
    }

    /// Takes the open row over, or says why it is none. After an error the row is gone.
    #[inline]
    pub(super) fn finish(&mut self, operation: RowOperation) -> Result<Taken, RowError> {
        self.settle();
        if let Err(error) = self.check(operation) {
            self.give_up();
            return Err(error);
        }
        let Place::Tablet(number) = self.place else { return Ok(Taken::NoTablet) };
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
        Ok(if is_ready { Taken::BatchReady(number) } else { Taken::Buffered })
    }

    fn check(&self, operation: RowOperation) -> Result<(), RowError> {
        self.encoder.check(operation)?;
        let bytes = self.open_row_bytes();
        if bytes > self.limits.batch_bytes_max {
            return Err(RowError::RowTooLarge { bytes, bytes_max: self.limits.batch_bytes_max });
        }
        Ok(())
    }

    /// Whether the timer has to be told that there are rows, which it forgets by being told.
    #[inline]
    pub(super) fn take_timer_is_due(&mut self) -> bool {
        std::mem::take(&mut self.timer_is_due)
    }

    /// Whether a batch for this tablet is queued or under way.
    pub(super) fn is_lane_busy(&self, number: usize) -> bool {
        self.lanes[number].lane.is_busy()
    }

    /// Takes one tablet's rows to be sent.
    pub(super) fn seal(&mut self, number: usize, sealed: &mut Vec<SealedBatch>) {
        // Nobody describes a row now, or the lock would not be free: a row that is open was dropped.
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

    /// Takes the rows of every tablet to be sent.
    pub(super) fn seal_all(&mut self) -> Vec<SealedBatch> {
        self.seal_where(|_| true)
    }

    /// Takes the rows of the tablets that are idle and have enough of them; those of all if none has.
    pub(super) fn seal_for_room(&mut self, is_anything_under_way: bool) -> Vec<SealedBatch> {
        let enough = self.lane_flush_bytes;
        let sealed = self.seal_where(|lane| lane.bytes() >= enough && !lane.lane.is_busy());
        if sealed.is_empty() && !is_anything_under_way { self.seal_all() } else { sealed }
    }

    /// Takes the rows of tablets whose first row came before `limit`.
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

    /// Takes over the tablets of a view. Tablets that are gone keep their rows, which fail when sent.
    pub(super) fn adopt(&mut self, view: &TableView) {
        for tablet in &view.tablets {
            if !self.number_of_tablet.contains_key(&tablet.id) {
                self.number_of_tablet.insert(tablet.id.clone(), self.lanes.len() as u32);
                self.lanes.push(FillingLane {
                    buffers: RowBuffers::default(),
                    full: Vec::new(),
                    since: Instant::now(),
                    lane: Arc::new(Lane::new(tablet.id.clone())),
                });
            }
        }
        let numbered = view.tablets.iter().filter_map(|tablet| {
            self.number_of_tablet.get(&tablet.id).map(|number| (*number, &tablet.partition))
        });
        self.map = TabletMap::numbered(&view.partition_schema, numbered);
        self.has_view = true;
    }

    /// The share of the watermark that one tablet has depends on how many there are rows for.
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

    /// Bytes of the rows, those of full batches included.
    fn bytes(&self) -> usize {
        self.full.iter().map(RowBuffers::bytes).sum::<usize>() + self.buffers.bytes()
    }
}
