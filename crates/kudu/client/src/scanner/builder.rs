//! Describes a scan step by step and checks it against the table at the end.
//!
//! The client sends nothing before the first call for a batch. Users reach it through
//! [`Table::scan`].

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::retry::ReplicaSelection;
use crate::table::Table;

use super::Scanner;
use super::key_bound::KeyBound;
use super::operand::Operand;
use super::predicate::Predicate;
use super::projection::Projection;
use super::spec::{Layout, ReadMode, ScanSpec, TIMEOUT, TabletFilter};
use super::token::{ScanToken, TokenOptions, tokens_of};
use crate::scan_error::ScanError;

/// The description of a scan.
///
/// By default it returns all columns of all rows, in no order, from near replicas.
#[derive(Clone, Debug)]
pub struct ScannerBuilder {
    table: Table,
    /// `None` for all columns.
    columns: Option<Vec<String>>,
    predicates: Vec<Predicate>,
    lower_bound: Vec<Operand>,
    upper_bound: Vec<Operand>,
    limit: Option<u64>,
    batch_bytes: Option<u32>,
    read_mode: ReadMode,
    selection: ReplicaSelection,
    is_fault_tolerant: bool,
    layout: Layout,
    cache_blocks: bool,
    timeout: Duration,
    prefetch: bool,
}

impl Table {
    /// Starts to describe a scan.
    pub fn scan(&self) -> ScannerBuilder {
        ScannerBuilder {
            table: self.clone(),
            columns: None,
            predicates: Vec::new(),
            lower_bound: Vec::new(),
            upper_bound: Vec::new(),
            limit: None,
            batch_bytes: None,
            read_mode: ReadMode::default(),
            selection: ReplicaSelection::Closest,
            is_fault_tolerant: false,
            layout: Layout::default(),
            cache_blocks: true,
            timeout: TIMEOUT,
            prefetch: true,
        }
    }
}

impl ScannerBuilder {
    /// Returns only these columns, in this order. An empty list counts rows, see
    /// [`ScannerBuilder::count`].
    pub fn columns<T: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = T>,
    ) -> ScannerBuilder {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Returns only rows that satisfy this predicate and all others.
    pub fn filter(mut self, predicate: Predicate) -> ScannerBuilder {
        self.predicates.push(predicate);
        self
    }

    /// Returns only rows whose primary key is at least this. Key columns without a value count as
    /// their least value.
    pub fn lower_bound<T: Into<Operand>>(
        mut self,
        key: impl IntoIterator<Item = T>,
    ) -> ScannerBuilder {
        self.lower_bound = key.into_iter().map(Into::into).collect();
        self
    }

    /// Returns only rows whose primary key is less than this. Key columns without a value count as
    /// their least value.
    pub fn upper_bound<T: Into<Operand>>(
        mut self,
        key: impl IntoIterator<Item = T>,
    ) -> ScannerBuilder {
        self.upper_bound = key.into_iter().map(Into::into).collect();
        self
    }

    /// Returns at most this many rows.
    pub fn limit(mut self, rows: u64) -> ScannerBuilder {
        self.limit = Some(rows);
        self
    }

    /// The approximate size of an answer. The server checks it only after each block of rows, and
    /// stops at 8 MiB anyway; its default is 1 MiB.
    pub fn batch_bytes(mut self, bytes: u32) -> ScannerBuilder {
        self.batch_bytes = Some(bytes);
        self
    }

    /// Which version of the rows to return.
    pub fn read_mode(mut self, read_mode: ReadMode) -> ScannerBuilder {
        self.read_mode = read_mode;
        self
    }

    /// Which replicas to read. The default is the closest; [`ReplicaSelection::Leader`] sees every
    /// acknowledged write even with [`ReadMode::Latest`].
    pub fn replica_selection(mut self, selection: ReplicaSelection) -> ScannerBuilder {
        self.selection = selection;
        self
    }

    /// Continues on another replica when a tablet server fails. Each tablet's rows then come in the
    /// order of their primary keys, all from one snapshot. It costs the servers a merge.
    pub fn fault_tolerant(mut self, is_fault_tolerant: bool) -> ScannerBuilder {
        self.is_fault_tolerant = is_fault_tolerant;
        self
    }

    /// How servers lay out rows.
    pub fn layout(mut self, layout: Layout) -> ScannerBuilder {
        self.layout = layout;
        self
    }

    /// Whether servers keep the blocks that they read in their cache. Turn it off for large
    /// one-time scans.
    pub fn cache_blocks(mut self, cache_blocks: bool) -> ScannerBuilder {
        self.cache_blocks = cache_blocks;
        self
    }

    /// The timeout of one batch with all its attempts; 30 seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> ScannerBuilder {
        self.timeout = timeout;
        self
    }

    /// Whether to prefetch the next batch while the caller reads the last one; on by default. It
    /// costs the memory of one more batch.
    pub fn prefetch(mut self, prefetch: bool) -> ScannerBuilder {
        self.prefetch = prefetch;
        self
    }

    /// Builds the scanner, or returns the fault of its description.
    pub fn build(self) -> Result<Scanner, Error> {
        let prefetch = self.prefetch;
        Ok(Scanner::new(self.into_spec()?, prefetch))
    }

    /// How many rows the scan would return. Servers send only their number.
    pub async fn count(self) -> Result<u64, Error> {
        self.columns([""; 0]).build()?.count().await
    }

    /// Divides the scan into parts that can run in parallel, here or elsewhere. Limits are not
    /// divided: each part gets the whole limit.
    pub async fn into_tokens(self, options: TokenOptions) -> Result<Vec<ScanToken>, Error> {
        tokens_of(self.into_spec()?, options).await
    }

    fn into_spec(self) -> Result<ScanSpec, ScanError> {
        let schema = self.table.schema().clone();
        let projection = Projection::of_table(&schema, self.columns.as_deref())?;
        let predicates = self
            .predicates
            .iter()
            .map(|predicate| predicate.resolve(&schema))
            .collect::<Result<Vec<_>, _>>()?;
        let bound = |values: &[Operand]| match values {
            [] => Ok(None),
            values => KeyBound::new(&schema, values).map(Some),
        };
        let (lower_bound, upper_bound) = (bound(&self.lower_bound)?, bound(&self.upper_bound)?);
        let encoded = |bound: &Option<KeyBound>| {
            bound.as_ref().map(|bound| bound.encoded().clone()).unwrap_or_default()
        };
        Ok(ScanSpec {
            projection: Arc::new(projection),
            predicates: predicates.iter().filter_map(|predicate| predicate.to_pb()).collect(),
            start_primary_key: encoded(&lower_bound),
            stop_primary_key: encoded(&upper_bound),
            limit: self.limit,
            batch_bytes: self.batch_bytes,
            read_mode: self.read_mode,
            selection: self.selection,
            is_fault_tolerant: self.is_fault_tolerant,
            layout: self.layout,
            cache_blocks: self.cache_blocks,
            timeout: self.timeout,
            tablets: TabletFilter {
                predicates,
                lower_bound,
                upper_bound,
                ..TabletFilter::default()
            },
            table: self.table,
        })
    }
}
