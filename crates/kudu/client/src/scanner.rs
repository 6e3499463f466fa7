//! Scans: read many rows with projections, predicates and bounds, over all tablets that can have a
//! row.
//!
//! [`ScannerBuilder`] describes a scan, [`Scanner`] returns its rows in batches, and [`ScanToken`]
//! is a part of a scan for another task or machine. Inside, [`tablet_scan`] walks the tablets,
//! [`rowwise`] and [`columnar`] decode answers without copying, and [`pruning`] skips tablets.
//! Invariants: a batch borrows the frame of its answer. By default the scanner prefetches the next
//! batch while the caller reads the last one. A dropped scanner is closed on its server. Lookups
//! read single rows by their keys.

#[cfg(feature = "arrow")]
mod arrow;
mod batch;
mod block;
mod builder;
mod cell;
mod columnar;
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
pub use builder::ScannerBuilder;
pub use cell::{Cell, FromCell};
pub use metrics::ScanMetrics;
pub use operand::Operand;
pub use predicate::Predicate;
pub use projection::{ProjectedColumn, Projection};
pub use spec::{Layout, ReadMode};
pub use token::{ScanToken, TokenOptions};

use crate::error::Error;
pub(crate) use batch::BatchBlock;
pub(crate) use rowwise::RowwiseBlock;
pub(crate) use spec::{ScanSpec, TabletFilter};
pub(crate) use tablet_scan::SCAN;
use tablet_scan::TabletScan;

/// A scan in progress.
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

/// The state of the scan. It moves into a task for every request, so a cancelled caller loses
/// nothing.
#[derive(Debug)]
enum State {
    Idle(Box<TabletScan>),
    Fetching(JoinHandle<FetchedBatch>),
    /// The next batch has arrived, but the caller has not taken it.
    Fetched(Box<FetchedBatch>),
    /// It ended or failed.
    Done,
}

type FetchedBatch = (Box<TabletScan>, Result<Option<ScanBatch>, Error>);

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
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The cost of the batches so far.
    pub fn metrics(&self) -> ScanMetrics {
        self.metrics
    }

    /// The hybrid time at which a snapshot scan reads: the requested one, or, from the first batch
    /// on, the one that a server chose.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot
    }

    /// The next rows, at least one; `None` at the end. The call is cancellation-safe: the next call
    /// gets the same rows. After an error the scan is over.
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

    /// Reads to the end and returns the number of rows.
    pub async fn count(mut self) -> Result<u64, Error> {
        let mut rows = 0;
        while let Some(batch) = self.next_batch().await? {
            rows += batch.num_rows() as u64;
        }
        Ok(rows)
    }

    /// Keeps an idle scan open on the server. By the server's default, a scanner expires after a
    /// minute without a read.
    pub async fn keep_alive(&mut self) -> Result<(), Error> {
        self.wait().await;
        match &self.state {
            State::Idle(scan) => scan.keep_alive().await,
            State::Fetched(fetched) => fetched.0.keep_alive().await,
            State::Fetching(_) | State::Done => Ok(()),
        }
    }

    /// Ends the scan and frees its state on the server, at the latest after a few seconds. Dropping
    /// a scanner does the same in the background.
    pub async fn close(mut self) {
        self.wait().await;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(mut scan) => scan.close().await,
            State::Fetched(mut fetched) => fetched.0.close().await,
            State::Fetching(_) | State::Done => {}
        }
    }

    /// Starts to fetch the next batch.
    fn fetch(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(mut scan) => State::Fetching(tokio::spawn(async move {
                let result = scan.next().await;
                (scan, result)
            })),
            other => other,
        };
    }

    /// Waits for the batch in flight, if there is one.
    async fn wait(&mut self) {
        let State::Fetching(task) = &mut self.state else { return };
        self.state = match task.await {
            Ok(fetched) => State::Fetched(Box::new(fetched)),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The task's runtime is shutting down, and the caller with it.
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

/// Frees a scan's state on the server. Outside a runtime the server frees it itself after a minute.
fn close_in_background(mut scan: Box<TabletScan>) {
    if let (true, Ok(runtime)) = (scan.has_open_scanner(), Handle::try_current()) {
        runtime.spawn(async move { scan.close().await });
    }
}
