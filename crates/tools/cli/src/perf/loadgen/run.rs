//! The order of a load: table, rows, count, clean-up, drop, report.
//!
//! Invariants: a failure skips the next steps, but never the drop of the table. A signal lets
//! threads send their buffered rows and then does the same.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use oribi_kudu::{Client, ReadMode};
use tokio::runtime::{Builder, Runtime};

use super::options::{LoadgenArgs, options};
use super::report::{
    CountedRows, LoadgenOutcome, LoadgenPhaseSummary, LoadgenSummary, WriteKind, errors_of_thread,
};
use super::table::LoadTable;
use super::worker::{self, LoadJob};
use crate::perf::control::Control;
use crate::perf::plot::Plot;
use crate::perf::progress::RunExtent;
use crate::perf::report::{Outputs, print};
use crate::perf::workers::{PhaseMeasurements, WorkerPlan, Workers};
use crate::target::INTERRUPTED;

/// Runs `oribi perf loadgen`.
pub fn run(args: LoadgenArgs) -> Result<ExitCode> {
    let outputs = Outputs::create(&args.output)?;
    let args = Arc::new(args);
    let (runtime, client) = args.kudu.connect_here()?;
    let control = Control::watching_signals(args.kudu.num_threads as usize)?;
    let table = LoadTable::prepare(&runtime, &client, &args)?;
    let mut summary = LoadgenSummary {
        version: env!("CARGO_PKG_VERSION"),
        options: options(&args),
        table: table.name().to_owned(),
        auto_table: args.is_auto_table(),
        dropped: false,
        write: None,
        scan: None,
        cleanup: None,
        interrupted: false,
        error: None,
    };
    let mut load = Load { args, control, runtime: &runtime, client, written: None };
    load.run(&mut summary);
    if table.is_to_be_dropped() {
        load.say(&format!("Dropping auto-created table '{}'\n", table.name()));
        match table.finish() {
            Ok(()) => summary.dropped = true,
            Err(error) => add_error(&mut summary, format!("{error:#}")),
        }
    }
    load.end(&summary, outputs)
}

/// A load that is under way.
struct Load<'a> {
    args: Arc<LoadgenArgs>,
    control: Arc<Control>,
    runtime: &'a Runtime,
    client: Client,
    /// Writing the rows, once that is over.
    written: Option<PhaseMeasurements>,
}

impl Load<'_> {
    /// Everything between creating the table and dropping it; failures end up in the summary.
    fn run(&mut self, summary: &mut LoadgenSummary) {
        let kind = if self.args.is_auto_table() { "auto-created table" } else { "table" };
        self.say(&format!("Using {kind} '{}'\n", summary.table));
        if let Err(error) = self.with_threads(summary) {
            add_error(summary, format!("{error:#}"));
        }
        summary.interrupted = self.control.is_interrupted();
    }

    /// Connects the threads and lets them do all phases.
    fn with_threads(&mut self, summary: &mut LoadgenSummary) -> Result<()> {
        // Connections of a client that threads share live on this thread.
        let place = match self.args.use_client_per_thread {
            true => None,
            false => {
                let place = Builder::new_multi_thread().worker_threads(1).enable_all().build();
                Some(place.context("starting the event loop")?)
            }
        };
        let shared = match &place {
            Some(place) => {
                Some((place.block_on(self.args.kudu.connect())?, place.handle().clone()))
            }
            None => None,
        };
        let job = LoadJob {
            args: self.args.clone(),
            table: summary.table.clone(),
            control: self.control.clone(),
            shared,
        };
        let connect = move |thread| {
            let mut write = worker::connect(job.clone(), thread)?;
            Ok(move |kind, _started| write(kind))
        };
        let threads = self.args.kudu.num_threads;
        let mut workers = Workers::start("loadgen", threads, self.control.clone(), connect)?;
        self.phases(&mut workers, summary)?;
        workers.end()
    }

    fn phases(
        &mut self,
        workers: &mut Workers<WriteKind, LoadgenOutcome>,
        summary: &mut LoadgenSummary,
    ) -> Result<()> {
        let kind = if self.args.use_upsert { WriteKind::Upsert } else { WriteKind::Insert };
        let (written, measured) = self.phase(workers, kind, summary)?;
        let (rows, is_success) = (written.rows, written.is_success());
        summary.write = Some(written);
        self.written = Some(measured);
        if !is_success || self.control.is_interrupted() {
            return Ok(());
        }
        if self.args.run_scan {
            let counting = count_rows(&self.client, &summary.table);
            let actual_rows = self.runtime.block_on(counting).context("cannot count the rows")?;
            let scanned = CountedRows { expected_rows: rows, actual_rows };
            self.say(&scanned.text());
            summary.scan = Some(scanned);
            if let Some(complaint) = scanned.complaint() {
                add_error(summary, complaint);
                return Ok(());
            }
        }
        if self.args.run_cleanup && !self.control.is_interrupted() {
            let (deleted, _) = self.phase(workers, WriteKind::Delete, summary)?;
            summary.cleanup = Some(deleted);
        }
        Ok(())
    }

    /// Writes or deletes all rows with all threads, and reports it.
    fn phase(
        &self,
        workers: &mut Workers<WriteKind, LoadgenOutcome>,
        kind: WriteKind,
        summary: &mut LoadgenSummary,
    ) -> Result<(LoadgenPhaseSummary, PhaseMeasurements)> {
        let extent = self.args.rows_total().map_or(RunExtent::Endless, RunExtent::Operations);
        let plan = WorkerPlan { name: kind.name(), unit: "rows", extent, server_pid: None };
        let (outcomes, measured) = workers.phase(&plan, kind)?;
        for (thread, outcome) in outcomes.iter().enumerate() {
            self.client.observe(outcome.timestamp);
            if !outcome.shown.is_empty() {
                eprint!("{}", errors_of_thread(thread, &outcome.shown));
            }
        }
        let phase = LoadgenPhaseSummary::new(kind, outcomes, &measured);
        self.say(&phase.text());
        if let Some(complaint) = phase.complaint() {
            add_error(summary, complaint);
        }
        Ok((phase, measured))
    }

    /// Prints a part of the report. The reader may be gone: the load continues, and its table is
    /// dropped.
    fn say(&self, text: &str) {
        if !self.args.output.json {
            let _ = print(text);
        }
    }

    /// Prints and writes the final report, and returns the exit status.
    fn end(&self, summary: &LoadgenSummary, outputs: Outputs) -> Result<ExitCode> {
        let plot = self.written.as_ref().map(|measured| Plot {
            title: format!(
                "{} threads writing into {}, at {}",
                self.args.kudu.num_threads,
                summary.table,
                self.args.kudu.masters.join(", ")
            ),
            names: ["", "Write"],
            latencies: &measured.latencies,
            rate: "rows per second",
            timeline: &measured.timeline,
        });
        outputs.write(summary, "", plot)?;
        if let Some(error) = &summary.error {
            eprintln!("oribi: {error}");
            return Ok(ExitCode::FAILURE);
        }
        Ok(if summary.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
    }
}

/// The number of rows of a table.
///
/// Reads what this client, and those whose timestamps it was told, have written: without that a
/// replica that lags behind would be believed.
async fn count_rows(client: &Client, table: &str) -> Result<u64> {
    let table = client.open_table(table).await?;
    Ok(table.scan().read_mode(ReadMode::YourWrites).count().await?)
}

/// Adds a failure; the first stays first.
fn add_error(summary: &mut LoadgenSummary, error: String) {
    summary.error = Some(match summary.error.take() {
        Some(first) => format!("{first}; {error}"),
        None => error,
    });
}
