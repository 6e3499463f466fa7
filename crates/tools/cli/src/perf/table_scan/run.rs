//! The order of a scan: table, tablets, scanners side by side, report.
//!
//! Each thread takes the next free tablet until none is left; the first failure ends all. As in the
//! other tool, it does not look at cells: it measures how fast rows come. A signal ends the scan
//! with a report so far.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Result, bail};
use oribi_kudu::{Client, ScanToken, Table, TokenOptions};

use super::options::{TableScanArgs, options};
use super::predicates;
use super::report::{TableScanSummary, TabletReport};
use crate::perf::control::{Control, LoadProgress};
use crate::perf::latencies::{Recorder, nanoseconds};
use crate::perf::plot::Plot;
use crate::perf::progress::RunExtent;
use crate::perf::report::Outputs;
use crate::perf::workers::{WorkerPlan, WorkerReport, Workers};
use crate::target::INTERRUPTED;

/// Runs `oribi perf table-scan`.
pub fn run(args: TableScanArgs) -> Result<ExitCode> {
    let outputs = Outputs::create(&args.output)?;
    let (runtime, client) = args.kudu.connect_here()?;
    let tokens = runtime.block_on(tokens(&args, &client))?;
    let parts = tokens.len() as u64;
    let threads = args.kudu.num_threads;
    let control = Control::watching_signals(threads as usize)?;
    let next_token = AtomicUsize::new(0);
    let shared = Arc::new(Shared { args, tokens, next_token, control: control.clone() });
    let of_thread = shared.clone();
    let mut workers =
        Workers::start("scan", threads, control, move |thread| connect(&of_thread, thread))?;
    let extent = RunExtent::Parts(parts);
    let plan = WorkerPlan { name: "scan", unit: "rows", extent, server_pid: None };
    let (outcomes, measured) = workers.phase(&plan, ())?;
    workers.end()?;

    let (args, interrupted) = (&shared.args, shared.control.is_interrupted());
    let (mut bytes, mut tablets) = (0, Vec::new());
    for outcome in outcomes {
        let outcome = outcome?;
        bytes += outcome.bytes;
        tablets.extend(outcome.tablets);
    }
    tablets.sort_by_key(|(at, _)| *at);
    let tablets = tablets.into_iter().map(|(_, report)| report).collect();
    let summary =
        TableScanSummary::new(options(args), &args.table, bytes, tablets, &measured, interrupted);
    let mut text = String::new();
    if args.report_scanner_stats {
        summary.tablets.iter().for_each(|tablet| text += &tablet.text());
    }
    text += &summary.text();
    let title = format!("{threads} threads scanning {}, {} rows", args.table, summary.rows);
    let plot = Plot {
        title,
        names: ["Batch", ""],
        latencies: &measured.latencies,
        rate: "rows per second",
        timeline: &measured.timeline,
    };
    outputs.write(&summary, &text, Some(plot))?;
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// State that the threads share.
struct Shared {
    args: TableScanArgs,
    tokens: Vec<ScanToken>,
    next_token: AtomicUsize,
    control: Arc<Control>,
}

/// Counters of a thread.
#[derive(Default)]
struct ReceivedCounts {
    bytes: u64,
    /// Positions of tablets among the tokens, and their reports.
    tablets: Vec<(usize, TabletReport)>,
}

/// The tablets to scan, each with the whole description of the scan.
async fn tokens(args: &TableScanArgs, client: &Client) -> Result<Vec<ScanToken>> {
    let table = client.open_table(&args.table).await?;
    let mut scan = table
        .scan()
        .fault_tolerant(args.fault_tolerant)
        .cache_blocks(args.fill_cache)
        .replica_selection(args.replica_selection.into())
        .layout(args.layout.into())
        .timeout(args.kudu.timeout());
    if args.row_count_only {
        scan = scan.columns([""; 0]);
    } else if !args.columns.is_empty() {
        scan = scan.columns(args.columns.iter().cloned());
    }
    if let Ok(bytes) = u32::try_from(args.scan_batch_size) {
        scan = scan.batch_bytes(bytes);
    }
    for predicate in predicates::parse(&args.predicates, table.schema())? {
        scan = scan.filter(predicate);
    }
    let mut tokens = scan.into_tokens(TokenOptions::default()).await?;
    let is_of_table = |id: &String| tokens.iter().any(|token| token.tablet_id() == Some(id));
    if let Some(unknown) = args.tablets.iter().find(|id| !is_of_table(id)) {
        bail!("--tablets: the scan has no tablet {unknown}");
    }
    if !args.tablets.is_empty() {
        tokens.retain(|token| args.tablets.iter().any(|id| token.tablet_id() == Some(id)));
    }
    Ok(tokens)
}

/// Connects one thread; what is returned scans tablets until none is left.
fn connect(
    shared: &Arc<Shared>,
    thread: usize,
) -> Result<impl FnMut((), Instant) -> WorkerReport<Result<ReceivedCounts>> + use<>> {
    let shared = shared.clone();
    let (runtime, client) = shared.args.kudu.connect_here()?;
    let table = runtime.block_on(client.open_table(&shared.args.table))?;
    Ok(move |(), _started| {
        let (mut recorder, mut received) = (Recorder::new(), ReceivedCounts::default());
        let scanned = runtime.block_on(async {
            tokio::select! {
                biased;
                () = shared.control.cancelled() => Ok(()),
                scanned = scan(&shared, thread, &table, &mut recorder, &mut received) => scanned,
            }
        });
        if scanned.is_err() {
            shared.control.cancel();
        }
        let operations = shared.control.live[thread].progress().operations;
        WorkerReport {
            outcome: scanned.map(|()| received),
            operations,
            latencies: recorder.finish(),
        }
    })
}

/// Scans one tablet after the other. One that is left in the middle is reported with what it sent.
async fn scan(
    shared: &Shared,
    thread: usize,
    table: &Table,
    recorder: &mut Recorder,
    received: &mut ReceivedCounts,
) -> Result<()> {
    let (control, mut progress) = (&shared.control, LoadProgress::default());
    while !control.is_stopped() {
        let at = shared.next_token.fetch_add(1, Relaxed);
        let Some(token) = shared.tokens.get(at) else { break };
        let tablet = token.tablet_id().unwrap_or_default().to_owned();
        let started = Instant::now();
        let mut scanner = token.clone().into_scanner_of(table)?;
        let mut asked = Instant::now();
        while !control.is_stopped()
            && let Some(batch) = scanner.next_batch().await?
        {
            recorder.recent.read.saturating_record(nanoseconds(asked.elapsed()));
            received.bytes += batch.bytes() as u64;
            progress.operations += batch.num_rows() as u64;
            control.live[thread].publish(progress);
            control.live[thread].answer(|recent| recorder.hand_over(recent));
            asked = Instant::now();
        }
        let metrics = scanner.metrics();
        let (rows, seconds) = (metrics.rows, started.elapsed().as_secs_f64());
        let report = TabletReport { tablet, rows, seconds, server: metrics.into() };
        received.tablets.push((at, report));
        progress.parts += 1;
        control.live[thread].publish(progress);
    }
    Ok(())
}
