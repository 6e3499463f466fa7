//! The checked description of a scan, ready to send: the product of the builder and of scan tokens.
//!
//! Invariants: columns, predicates and bounds match the table's schema. The description does not
//! change while the scan runs; the parts that do (tablet, position, timestamps) are arguments of
//! [`ScanSpec::open_request`]. An ordered scan is always a snapshot scan, because servers require
//! it, and because otherwise it could not resume on another replica.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::meta_cache::Tablet;
use crate::proto::common::{
    ColumnPredicatePb, OrderModePb, ReadModePb, column_predicate_pb::Predicate as PredicatePb,
};
use crate::proto::tserver::{NewScanRequestPb, ScanRequestPb, feature, row_format};
use crate::retry::{Attempt, ReplicaSelection};
use crate::table::Table;

use super::key_bound::KeyBound;
use super::predicate::ColumnPredicate;
use super::projection::Projection;
use super::pruning::PartitionPruner;

/// The default timeout of one batch.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Which version of the rows a scan sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// The replica's current data. Tablets are read at different moments, and a follower may lag
    /// behind.
    #[default]
    Latest,
    /// The table at this hybrid time (microseconds since 1970-01-01 UTC shifted left by 12 bits),
    /// or at the time at which the scan begins. All tablets are read at the same time, and another
    /// read returns the same rows.
    AtSnapshot(Option<u64>),
    /// A state that includes all writes that this client has seen acknowledged.
    YourWrites,
}

/// How servers lay out rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Row after row: best for whole rows.
    #[default]
    Rowwise,
    /// Column after column: best for Arrow and for few columns of many rows.
    Columnar,
}

/// The complete description of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanSpec {
    pub table: Table,
    pub projection: Arc<Projection>,
    pub predicates: Vec<ColumnPredicatePb>,
    /// Inclusive; empty for no bound.
    pub start_primary_key: Bytes,
    /// Exclusive; empty for no bound.
    pub stop_primary_key: Bytes,
    /// In rows, over all tablets.
    pub limit: Option<u64>,
    /// Hint for the bytes of an answer; 0 makes the server only open the scanner.
    pub batch_bytes: Option<u32>,
    pub read_mode: ReadMode,
    pub selection: ReplicaSelection,
    /// Each tablet's rows come in the order of their keys, and the scan continues on another
    /// replica when a server fails.
    pub is_fault_tolerant: bool,
    pub layout: Layout,
    pub cache_blocks: bool,
    /// The timeout of one batch, however many requests it takes.
    pub timeout: Duration,
    pub tablets: TabletFilter,
}

/// The tablets that a scan has to visit.
#[derive(Clone, Debug, Default)]
pub(crate) struct TabletFilter {
    pub predicates: Vec<ColumnPredicate>,
    pub lower_bound: Option<KeyBound>,
    pub upper_bound: Option<KeyBound>,
    /// Partition key, inclusive; empty for no bound.
    pub partition_start: Bytes,
    /// Partition key, exclusive; empty for no bound.
    pub partition_end: Bytes,
}

impl TabletFilter {
    /// Selects only this tablet.
    pub(crate) fn of_tablet(tablet: &Tablet) -> TabletFilter {
        let partition = tablet.partition();
        TabletFilter {
            partition_start: partition.start.clone(),
            partition_end: partition.end.clone(),
            ..TabletFilter::default()
        }
    }
}

/// The position in a tablet where a scanner begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    /// The scan resumes after this key.
    pub last_primary_key: Option<Bytes>,
    /// The snapshot of earlier answers.
    pub snap_timestamp: Option<u64>,
    /// The rest of the row limit.
    pub rows_left: Option<u64>,
}

impl ScanSpec {
    /// The features that the server needs for this scan.
    pub(crate) fn features(&self) -> &'static [u32] {
        const PREDICATES: u32 = feature::COLUMN_PREDICATES;
        const BLOOM_FILTER: u32 = feature::BLOOM_FILTER_PREDICATE_V2;
        const COLUMNAR: u32 = feature::COLUMNAR_LAYOUT;
        let is_bloom = |predicate: &ColumnPredicatePb| {
            matches!(predicate.predicate, Some(PredicatePb::InBloomFilter(_)))
        };
        let columnar = self.layout == Layout::Columnar;
        match (self.predicates.is_empty(), self.predicates.iter().any(is_bloom), columnar) {
            (true, _, false) => &[],
            (true, _, true) => &[COLUMNAR],
            (false, false, false) => &[PREDICATES],
            (false, false, true) => &[PREDICATES, COLUMNAR],
            (false, true, false) => &[PREDICATES, BLOOM_FILTER],
            (false, true, true) => &[PREDICATES, BLOOM_FILTER, COLUMNAR],
        }
    }

    /// The tablets that may hold rows of the result, ordered by partition key.
    pub(crate) fn tablets_of(&self, snapshot: &[Arc<Tablet>]) -> Vec<Arc<Tablet>> {
        let TabletFilter { predicates, lower_bound, upper_bound, partition_start, partition_end } =
            &self.tablets;
        let mut pruner = PartitionPruner::new(
            self.table.partition_schema(),
            self.table.schema(),
            predicates,
            lower_bound.as_ref(),
            upper_bound.as_ref(),
        );
        let is_wanted = |tablet: &&Arc<Tablet>| {
            let partition = tablet.partition();
            let ends_before = !partition.end.is_empty() && partition.end <= *partition_start;
            let starts_behind = !partition_end.is_empty() && partition.start >= *partition_end;
            !ends_before && !starts_behind && pruner.may_contain(partition)
        };
        snapshot.iter().filter(is_wanted).cloned().collect()
    }

    /// The read mode of the requests.
    pub(crate) fn wire_read_mode(&self) -> ReadModePb {
        match self.read_mode {
            // At a time that the server chooses. It is later than the time that the client sends as
            // its newest.
            _ if self.is_fault_tolerant => ReadModePb::ReadAtSnapshot,
            ReadMode::Latest => ReadModePb::ReadLatest,
            ReadMode::AtSnapshot(_) => ReadModePb::ReadAtSnapshot,
            ReadMode::YourWrites => ReadModePb::ReadYourWrites,
        }
    }

    /// The snapshot that the caller requested.
    pub(crate) fn chosen_snapshot(&self) -> Option<u64> {
        match self.read_mode {
            ReadMode::AtSnapshot(timestamp) => timestamp,
            ReadMode::Latest | ReadMode::YourWrites => None,
        }
    }

    /// The request that opens a scanner and returns its first rows.
    pub(crate) fn open_request(&self, position: &Position, attempt: &Attempt<'_>) -> ScanRequestPb {
        let read_mode = self.wire_read_mode();
        let at_snapshot = read_mode == ReadModePb::ReadAtSnapshot;
        let some_key = |key: &Bytes| (!key.is_empty()).then(|| key.clone());
        let order_mode =
            if self.is_fault_tolerant { OrderModePb::Ordered } else { OrderModePb::Unordered };
        let columnar = self.layout == Layout::Columnar && !self.projection.is_empty();
        let new_scan_request = NewScanRequestPb {
            tablet_id: Bytes::copy_from_slice(attempt.tablet_id.as_bytes()),
            limit: position.rows_left,
            projected_columns: self.projection.to_pb(),
            read_mode: Some(read_mode.into()),
            snap_timestamp: position.snap_timestamp.filter(|_| at_snapshot),
            propagated_timestamp: attempt.propagated_timestamp,
            start_primary_key: some_key(&self.start_primary_key),
            stop_primary_key: some_key(&self.stop_primary_key),
            cache_blocks: Some(self.cache_blocks),
            order_mode: Some(order_mode.into()),
            last_primary_key: position.last_primary_key.clone(),
            column_predicates: self.predicates.clone(),
            row_format_flags: columnar.then_some(row_format::COLUMNAR_LAYOUT),
            authz_token: attempt.authz_token.cloned(),
            snap_start_timestamp: None,
        };
        ScanRequestPb {
            scanner_id: None,
            new_scan_request: Some(new_scan_request),
            call_seq_id: Some(0),
            batch_size_bytes: self.batch_bytes,
            close_scanner: None,
        }
    }
}
