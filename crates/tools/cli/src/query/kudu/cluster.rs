//! The Kudu cluster of a session, for a blocking program.
//!
//! It owns the runtime of Kudu's client, the interruption by Ctrl-C, and [`KuduRows`], a scan that
//! returns its rows one by one. Invariants: a scan holds at most two batches, the current one and a
//! prefetched one. An idle scan is kept alive, so a slow reader or the inner loop of a join does
//! not lose it. Every wait here ends when the statement is interrupted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use oribi_kudu::{
    Client, ClientBuilder, Error, Row, ScanBatch, ScanMetrics, Scanner, ScannerBuilder,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

/// How often to keep an idle scan alive. Servers forget scanners after a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Threads of the runtime: the thread that runs the statement is none of them.
const THREADS: usize = 2;

/// State that all tables of a session share.
pub struct QueryCluster {
    /// Dropped first, so that no task outlives its resources.
    runtime: Runtime,
    client: Client,
    timeout: Duration,
    interrupted: watch::Sender<bool>,
    runs: AtomicU64,
    cost: Arc<Mutex<ScanMetrics>>,
}

impl QueryCluster {
    /// Finds the cluster. `timeout` is for each request.
    ///
    /// # Errors
    /// When no master answers.
    pub fn connect(masters: &str, timeout: Duration) -> Result<Arc<QueryCluster>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()
            .context("starting the event loop")?;
        let builder = ClientBuilder::from_addresses(masters)?
            .rpc_timeout(timeout)
            .admin_timeout(timeout)
            .negotiation_timeout(timeout.min(Duration::from_secs(3)));
        let client = runtime
            .block_on(builder.build())
            .with_context(|| format!("cannot reach the Kudu cluster at {masters}"))?;
        Ok(Arc::new(QueryCluster {
            runtime,
            client,
            timeout,
            interrupted: watch::Sender::new(false),
            runs: AtomicU64::new(0),
            cost: Arc::default(),
        }))
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Which run of statements this is: rows cached by another one may be stale.
    pub fn run(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    /// Waits, unless the statement is interrupted.
    ///
    /// # Errors
    /// When it is.
    pub fn wait<F: Future>(&self, future: F) -> Result<F::Output> {
        let mut interrupted = self.interrupted.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                _ = interrupted.wait_for(|interrupted| *interrupted) => bail!("interrupted"),
                output = future => Ok(output),
            }
        })
    }
}

impl QueryCluster {
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Ends every wait, until [`QueryCluster::begin_statement`].
    pub fn interrupt(&self) {
        self.interrupted.send_replace(true);
    }

    /// Forgets an interruption and the cost of the statements before.
    pub fn begin_statement(&self) {
        self.interrupted.send_replace(false);
        *self.cost.lock() = ScanMetrics::default();
        self.runs.fetch_add(1, Relaxed);
    }

    /// Cost of the statement's scans so far.
    pub fn cost(&self) -> String {
        let cost = *self.cost.lock();
        format!(
            "{} requests, {} scanners, {} rows, {} bytes",
            cost.requests, cost.tablets, cost.rows, cost.bytes
        )
    }
}

/// The rows of a scan.
pub struct KuduRows {
    cluster: Arc<QueryCluster>,
    batches: mpsc::Receiver<Result<ScanBatch, Error>>,
    batch: Option<ScanBatch>,
    /// Position of the current row in the batch.
    at: usize,
}

impl KuduRows {
    /// Starts a scan.
    ///
    /// # Errors
    /// When its description does not fit the table.
    pub fn start(cluster: &Arc<QueryCluster>, scan: ScannerBuilder) -> Result<KuduRows> {
        let scanner = scan.timeout(cluster.timeout).prefetch(false).build()?;
        let (sender, batches) = mpsc::channel(1);
        cluster.runtime.spawn(feed(scanner, sender, cluster.cost.clone()));
        Ok(KuduRows { cluster: cluster.clone(), batches, batch: None, at: 0 })
    }

    /// Goes to the next row; false at the end.
    ///
    /// # Errors
    /// When the rows cannot be had, or the statement is interrupted.
    pub fn advance(&mut self) -> Result<bool> {
        self.at += 1;
        while self.batch.as_ref().is_none_or(|batch| self.at >= batch.num_rows()) {
            // A statement that finds all its rows at once would otherwise never look.
            self.batch = None;
            match self.cluster.wait(self.batches.recv())? {
                None => return Ok(false),
                Some(batch) => self.batch = Some(batch?),
            }
            self.at = 0;
        }
        Ok(true)
    }

    pub fn row(&self) -> Option<Row<'_>> {
        self.batch.as_ref().and_then(|batch| batch.row(self.at))
    }

    /// The batch with the current row, and the row's position in it.
    pub fn place(&self) -> Option<(ScanBatch, usize)> {
        self.batch.clone().map(|batch| (batch, self.at))
    }
}

/// Reads a scan to its end while there is a receiver of its batches.
async fn feed(
    mut scanner: Scanner,
    sender: mpsc::Sender<Result<ScanBatch, Error>>,
    cost: Arc<Mutex<ScanMetrics>>,
) {
    let mut counted = ScanMetrics::default();
    loop {
        let permit = loop {
            tokio::select! {
                permit = sender.reserve() => break permit,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    // A scanner that is gone says so with the next batch.
                    let _ = scanner.keep_alive().await;
                }
            }
        };
        let Ok(permit) = permit else { return scanner.close().await };
        let batch = tokio::select! {
            batch = scanner.next_batch() => batch,
            () = sender.closed() => return scanner.close().await,
        };
        let total = scanner.metrics();
        add(&mut cost.lock(), total, counted);
        counted = total;
        match batch {
            Ok(Some(batch)) => permit.send(Ok(batch)),
            Ok(None) => return,
            Err(error) => return permit.send(Err(error)),
        }
    }
}

/// Adds what came since `counted`.
fn add(cost: &mut ScanMetrics, total: ScanMetrics, counted: ScanMetrics) {
    cost.requests += total.requests - counted.requests;
    cost.tablets += total.tablets - counted.tablets;
    cost.rows += total.rows - counted.rows;
    cost.bytes += total.bytes - counted.bytes;
}
