//! The order of a scan: table, tablets, scanners side by side, report.
//!
//! One task per thread takes the next tablet that nobody has, until none is left; the first failure ends all.
//! Cells are not looked at, as in the other tool: what is measured is how fast rows come. With `--json`
//! standard output has one document and nothing else.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oribi_kudu::{Client, ClientBuilder, ScanToken, Table, TokenOptions};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::options::{Options, TableScanArgs};
use super::predicates;
use super::report::{Summary, TabletReport};
use crate::perf::cpu::CpuTime;
use crate::perf::summary::table::grouped;

/// Between two redraws of the live line.
const REDRAW: Duration = Duration::from_millis(250);

/// Runs `oribi perf table-scan`.
pub fn run(args: TableScanArgs) -> Result<ExitCode> {
    let threads = usize::try_from(args.num_threads).context("--num-threads")?;
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let summary = runtime.context("starting the event loop")?.block_on(scan(&args, threads))?;
    let mut text = String::new();
    if args.json {
        text = serde_json::to_string_pretty(&summary)? + "\n";
    } else {
        if args.report_scanner_stats {
            summary.tablets.iter().for_each(|tablet| text += &tablet.text());
        }
        text += &summary.text();
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the report")?;
    Ok(ExitCode::SUCCESS)
}

async fn connect(args: &TableScanArgs) -> Result<Client> {
    let client = ClientBuilder::from_addresses(&args.masters.join(","))?
        .rpc_timeout(args.timeout())
        .admin_timeout(args.timeout())
        .negotiation_timeout(args.negotiation_timeout())
        .build()
        .await?;
    Ok(client)
}

/// What the tasks share.
struct Shared {
    table: Table,
    tokens: Vec<ScanToken>,
    next_token: AtomicUsize,
    rows: AtomicU64,
    bytes: AtomicU64,
}

async fn scan(args: &TableScanArgs, threads: usize) -> Result<Summary> {
    let client = connect(args).await.context("cannot reach the cluster")?;
    let table = client.open_table(&args.table).await?;
    let tokens = tokens(args, &table).await?;
    let shared = Arc::new(Shared {
        table,
        tokens,
        next_token: AtomicUsize::new(0),
        rows: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    let cpu_before = CpuTime::of_this_process()?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    (0..threads).for_each(|_| drop(tasks.spawn(take_tablets(shared.clone()))));
    let mut reports = with_live_line(&shared, tasks).await?;
    let took = started.elapsed();
    let cpu = CpuTime::of_this_process()?.since(cpu_before);
    reports.sort_by_key(|(at, _)| *at);
    let reports = reports.into_iter().map(|(_, report)| report).collect();
    Ok(Summary::new(
        Options::from(args),
        &args.table,
        shared.bytes.load(Relaxed),
        reports,
        took,
        cpu,
    ))
}

/// The tablets to scan, each with the whole description of the scan.
async fn tokens(args: &TableScanArgs, table: &Table) -> Result<Vec<ScanToken>> {
    let mut scan = table
        .scan()
        .fault_tolerant(args.fault_tolerant)
        .cache_blocks(args.fill_cache)
        .replica_selection(args.replica_selection.into())
        .layout(args.layout.into())
        .timeout(args.timeout());
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

/// Scans one tablet after the other until nobody has any left.
async fn take_tablets(shared: Arc<Shared>) -> Result<Vec<(usize, TabletReport)>> {
    let mut reports = Vec::new();
    loop {
        let at = shared.next_token.fetch_add(1, Relaxed);
        let Some(token) = shared.tokens.get(at) else { return Ok(reports) };
        let tablet = token.tablet_id().unwrap_or_default().to_owned();
        let started = Instant::now();
        let mut scanner = token.clone().into_scanner_of(&shared.table)?;
        while let Some(batch) = scanner.next_batch().await? {
            shared.rows.fetch_add(batch.num_rows() as u64, Relaxed);
            shared.bytes.fetch_add(batch.bytes() as u64, Relaxed);
        }
        let metrics = scanner.metrics();
        let seconds = started.elapsed().as_secs_f64();
        reports.push((
            at,
            TabletReport { tablet, rows: metrics.rows, seconds, server: metrics.into() },
        ));
    }
}

/// Waits for the tasks, and shows on a terminal how far they are.
async fn with_live_line(
    shared: &Shared,
    mut tasks: JoinSet<Result<Vec<(usize, TabletReport)>>>,
) -> Result<Vec<(usize, TabletReport)>> {
    let bar = ProgressBar::with_draw_target(
        Some(shared.tokens.len() as u64),
        ProgressDrawTarget::stderr(),
    );
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} tablets, {msg}");
    bar.set_style(style.expect("the template is constant"));
    let (mut redraw, mut drawn) = (tokio::time::interval(REDRAW), (Instant::now(), 0));
    let mut reports = Vec::new();
    let result = loop {
        tokio::select! {
            finished = tasks.join_next() => match finished {
                None => break Ok(()),
                Some(Ok(Ok(tablets))) => reports.extend(tablets),
                Some(Ok(Err(error))) => break Err(error),
                Some(Err(error)) => break Err(error.into()),
            },
            _ = redraw.tick() => {
                let rows = shared.rows.load(Relaxed);
                let per_second = (rows - drawn.1) as f64 / drawn.0.elapsed().as_secs_f64().max(1e-3);
                bar.set_message(format!("{} rows, {} rows/s", grouped(rows), grouped(per_second as u64)));
                let begun = shared.next_token.load(Relaxed).min(shared.tokens.len());
                bar.set_position(begun.saturating_sub(tasks.len()) as u64);
                drawn = (Instant::now(), rows);
            }
        }
    };
    bar.finish_and_clear();
    result.map(|()| reports)
}
