//! Reading many rows: scans with projections, predicates and bounds, over all tablets that can have a row.
//!
//! [`ScannerBuilder`] describes a scan, [`Scanner`] returns its rows in batches, [`ScanToken`] is a part of a scan
//! that can be sent elsewhere. Inside, [`tablet_scan`] goes through the tablets; [`rowwise`] and [`columnar`] decode
//! what comes back, without copying; [`pruning`] leaves tablets out. Invariants: a batch borrows the frame in
//! which it came; while the caller looks at a batch the next one is on its way (unless told otherwise); a
//! scanner that is dropped is closed on its server. Single rows by their keys are the business of lookups.

#[cfg(feature = "arrow")]
mod arrow;
mod batch;
mod block;
mod bloom_filter;
mod builder;
mod cell;
mod columnar;
mod error;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod harness;
mod key_bound;
mod metrics;
mod operand;
mod predicate;
mod projection;
mod pruning;
mod rowwise;
mod spec;
mod tablet_scan;
#[cfg(test)]
mod tests;
mod token;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub use batch::{Row, ScanBatch};
pub use block::{BlockFault, BlockPart};
pub use bloom_filter::BloomFilter;
pub use builder::ScannerBuilder;
pub use cell::{Cell, CellError, FromCell};
pub use error::ScanError;
pub use metrics::ScanMetrics;
pub use operand::{Operand, OperandError};
pub use predicate::Predicate;
pub use projection::{ProjectedColumn, Projection};
pub use spec::{Layout, ReadMode};
pub use token::{ScanToken, TokenOptions};

use crate::error::Error;
pub(crate) use batch::Block;
pub(crate) use rowwise::RowwiseBlock;
pub(crate) use spec::{ScanSpec, TabletFilter};
pub(crate) use tablet_scan::SCAN;
use tablet_scan::TabletScan;

/// A scan under way.
///
/// ```no_run
/// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use oribi_kudu::Predicate;
///
/// let mut scanner = table.scan().columns(["id", "name"]).filter(Predicate::less("id", 100)).build()?;
/// while let Some(batch) = scanner.next_batch().await? {
///     for row in batch.rows() {
///         println!("{} {:?}", row.get::<i64>(0)?, row.get::<Option<&str>>(1)?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scanner {
    projection: Arc<Projection>,
    prefetch: bool,
    state: State,
    metrics: ScanMetrics,
    snapshot: Option<u64>,
}

/// Where the scan is. It moves into a task for every request, so that a caller who stops waiting loses nothing.
#[derive(Debug)]
enum State {
    Idle(Box<TabletScan>),
    Fetching(JoinHandle<Fetched>),
    /// The next batch has been waited for, but not been taken.
    Fetched(Box<Fetched>),
    /// It ended or failed.
    Done,
}

type Fetched = (Box<TabletScan>, Result<Option<ScanBatch>, Error>);

impl Scanner {
    pub(crate) fn new(spec: ScanSpec, prefetch: bool) -> Scanner {
        Scanner {
            projection: spec.projection.clone(),
            prefetch,
            state: State::Idle(Box::new(TabletScan::new(Arc::new(spec)))),
            metrics: ScanMetrics::default(),
            snapshot: None,
        }
    }

    /// The columns of its rows.
    pub fn projection(&self) -> &Arc<Projection> {
        &self.projection
    }

    /// What the batches so far have cost.
    pub fn metrics(&self) -> ScanMetrics {
        self.metrics
    }

    /// The hybrid time at which a snapshot scan reads: the one that was asked for, or, from the first batch on, the
    /// one that a server chose.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot
    }

    /// The next rows, at least one; `None` at the end. A caller who stops waiting may call it again and gets the same
    /// rows. After an error the scan is over.
    pub async fn next_batch(&mut self) -> Result<Option<ScanBatch>, Error> {
        if let State::Idle(_) = self.state {
            self.fetch();
        }
        self.wait().await;
        let State::Fetched(fetched) = std::mem::replace(&mut self.state, State::Done) else {
            return Ok(None);
        };
        let (scan, result) = *fetched;
        self.metrics = scan.metrics();
        self.snapshot = scan.snapshot();
        match result {
            Ok(Some(batch)) => {
                self.state = State::Idle(scan);
                if self.prefetch {
                    self.fetch();
                }
                Ok(Some(batch))
            }
            other => {
                close_in_background(scan);
                other
            }
        }
    }

    /// Reads to the end and returns how many rows came.
    pub async fn count(mut self) -> Result<u64, Error> {
        let mut rows = 0;
        while let Some(batch) = self.next_batch().await? {
            rows += batch.num_rows() as u64;
        }
        Ok(rows)
    }

    /// Tells the server that the scan goes on, although nothing was read for a while. Scanners that nobody reads
    /// from expire after a minute, by the server's default.
    pub async fn keep_alive(&mut self) -> Result<(), Error> {
        self.wait().await;
        match &self.state {
            State::Idle(scan) => scan.keep_alive().await,
            State::Fetched(fetched) => fetched.0.keep_alive().await,
            State::Fetching(_) | State::Done => Ok(()),
        }
    }

    /// Ends the scan and frees what the server holds for it, at latest after a few seconds. Dropping a scanner does the
    /// same in the background.
    pub async fn close(mut self) {
        self.wait().await;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(mut scan) => scan.close().await,
            State::Fetched(mut fetched) => fetched.0.close().await,
            State::Fetching(_) | State::Done => {}
        }
    }

    /// Starts to get the next batch.
    fn fetch(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(mut scan) => State::Fetching(tokio::spawn(async move {
                let result = scan.next().await;
                (scan, result)
            })),
            other => other,
        };
    }

    /// Waits for the batch that is on its way, if there is one.
    async fn wait(&mut self) {
        let State::Fetching(task) = &mut self.state else { return };
        self.state = match task.await {
            Ok(fetched) => State::Fetched(Box::new(fetched)),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime of the task is shutting down, and with it whoever would read on.
            Err(_) => State::Done,
        };
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(scan) => close_in_background(scan),
            State::Fetched(fetched) => close_in_background(fetched.0),
            State::Fetching(task) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move {
                        if let Ok((mut scan, _)) = task.await {
                            scan.close().await;
                        }
                    });
                }
            }
            State::Done => {}
        }
    }
}

/// Frees what a server holds for a scan. Outside of a runtime the server does so itself after a minute.
fn close_in_background(mut scan: Box<TabletScan>) {
    if let (true, Ok(runtime)) = (scan.has_open_scanner(), Handle::try_current()) {
        runtime.spawn(async move { scan.close().await });
    }
}
