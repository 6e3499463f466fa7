//! The order of a load: options, files, server, connections, population, load, report.
//!
//! A signal ends the current phase and reports the results so far. A broken connection ends the run
//! the same way, with its error.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use super::choices;
use super::cluster::{self, Discovery, Routes};
use super::key::KeyField;
use super::options::KvArgs;
use super::summary::{KvPhaseSummary, KvSummary, options};
use super::tally::KvCounts;
use super::value::KvValues;
use super::worker::{self, KvWorkerShared, Phase, WorkerOutcome};
use crate::perf::control::Control;
use crate::perf::cpu::CpuTime;
use crate::perf::plot::Plot;
use crate::perf::progress::RunExtent;
use crate::perf::report::Outputs;
use crate::perf::workers::{PhaseMeasurements, WorkerPlan, Workers};
use crate::target::INTERRUPTED;

/// Exit status when the command line is wrong.
const EXIT_USAGE: u8 = 2;

/// Runs `oribi perf kv`.
pub fn run(args: KvArgs) -> anyhow::Result<ExitCode> {
    if let Err(reason) = args.check() {
        eprintln!("error: {reason}\n\nFor more information, try '--help'.");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if let Some(path) = &args.choices {
        choices::write(&args, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    let outputs = Outputs::create(&args.output)?;
    let shared = Arc::new(prepare(args)?);
    let (control, threads) = (shared.control.clone(), shared.args.num_threads);
    let workers = shared.clone();
    let connect = move |thread| worker::connect(&workers, thread);
    let mut workers = Workers::start("perf", threads, control, connect)?;
    let mut run = Run { shared, population: None, load: None, error: None };
    if !run.shared.args.no_population {
        run.population = Some(run.phase(&mut workers, Phase::Population)?);
    }
    if !run.shared.args.populate_only && !run.is_over() {
        run.load = Some(run.phase(&mut workers, Phase::Load)?);
    }
    workers.end()?;
    run.report(outputs)
}

/// Queries the server and builds the state that all workers share.
fn prepare(args: KvArgs) -> anyhow::Result<KvWorkerShared> {
    if let Some(pid) = args.server_pid {
        CpuTime::of_process(pid)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let discovery = runtime.block_on(Discovery::run(&args))?;
    let ids = discovery.collections.iter().copied();
    let paths = args.collections();
    let keys: Vec<KeyField> = std::iter::zip(&paths, ids)
        .map(|(path, id)| {
            let digits = usize::from(args.key_digits);
            KeyField::new(path, id, &args.key_prefix, digits, args.items)
        })
        .collect();
    let seeds = keys.iter().map(KeyField::seed);
    let collections = std::iter::zip(paths, seeds).collect();
    // Sizes are limited to 20 MiB.
    let sizes = args.min_size as usize..=args.max_size as usize;
    let values = KvValues::new(args.form(), sizes, args.random_body, args.random_seed);
    let control = Control::watching_signals(args.workers())?;
    Ok(KvWorkerShared { args, discovery, values, keys, collections, control })
}

/// A run that is under way.
struct Run {
    shared: Arc<KvWorkerShared>,
    population: Option<(KvCounts, PhaseMeasurements)>,
    load: Option<(KvCounts, PhaseMeasurements)>,
    error: Option<anyhow::Error>,
}

impl Run {
    /// True when nothing more shall be begun.
    fn is_over(&self) -> bool {
        self.shared.control.is_interrupted() || self.error.is_some()
    }

    /// Runs one phase and measures it.
    fn phase(
        &mut self,
        workers: &mut Workers<Phase, WorkerOutcome>,
        phase: Phase,
    ) -> anyhow::Result<(KvCounts, PhaseMeasurements)> {
        let (outcomes, measured) = workers.phase(&self.plan(phase), phase)?;
        let WorkerOutcome { counts, error } = WorkerOutcome::of_all(outcomes);
        self.error = self.error.take().or(error);
        Ok((counts, measured))
    }

    /// Name of a phase, and the condition that ends it.
    fn plan(&self, phase: Phase) -> WorkerPlan {
        let args = &self.shared.args;
        let operations = args.operations_per_worker();
        let operations = operations.map(|each| each.saturating_mul(args.workers() as u64));
        let (name, extent) = match (phase, args.length(), operations) {
            (Phase::Population, ..) => {
                let documents = args.items.saturating_mul(self.shared.keys.len() as u64);
                ("population", RunExtent::Operations(documents))
            }
            (Phase::Load, Some(length), _) => ("load", RunExtent::Time(length)),
            (Phase::Load, None, Some(operations)) => ("load", RunExtent::Operations(operations)),
            (Phase::Load, None, None) => ("load", RunExtent::Endless),
        };
        WorkerPlan { name, unit: "op", extent, server_pid: args.server_pid }
    }

    /// Prints the results, writes the files and decides the exit status.
    fn report(self, outputs: Outputs) -> anyhow::Result<ExitCode> {
        let summary = self.summary()?;
        let plot = self.load.as_ref().or(self.population.as_ref());
        let plot = plot.map(|(_, measured)| self.plot(measured, &summary));
        outputs.write(&summary, &summary.tables(), plot)?;
        Ok(summary.exit_code())
    }

    fn summary(&self) -> anyhow::Result<KvSummary> {
        let args = &self.shared.args;
        let nodes = match &self.shared.discovery.config {
            Some(config) => Routes::by_map(config, &[])?.nodes().to_vec(),
            None => vec![cluster::named_node(&self.shared.discovery.options)],
        };
        let phases = [&self.population, &self.load];
        let counts = || phases.iter().filter_map(|phase| phase.as_ref()).map(|(counts, _)| counts);
        let summed_up = |phase: &Option<(KvCounts, PhaseMeasurements)>| {
            phase.as_ref().map(|(counts, measured)| KvPhaseSummary::new(counts, measured))
        };
        Ok(KvSummary {
            version: env!("CARGO_PKG_VERSION"),
            options: options(args),
            nodes: nodes.iter().map(|node| format!("{}:{}", node.host, node.port)).collect(),
            population: summed_up(&self.population),
            load: summed_up(&self.load),
            problems: counts().map(|counts| counts.problems(args.allow_misses)).sum(),
            all_failed: counts().any(|it| it.operations() > 0 && it.succeeded() == 0),
            examples: counts().flat_map(|counts| counts.examples.clone()).collect(),
            interrupted: self.shared.control.is_interrupted(),
            error: self.error.as_ref().map(|error| format!("{error:#}")),
        })
    }

    fn plot<'a>(&self, measured: &'a PhaseMeasurements, summary: &KvSummary) -> Plot<'a> {
        let args = &self.shared.args;
        let sizes = match args.min_size == args.max_size {
            true => args.max_size.to_string(),
            false => format!("{} to {}", args.min_size, args.max_size),
        };
        let title = format!(
            "{} documents of {sizes} bytes, batches of {}, {} % writes, at {}",
            indicatif::HumanCount(args.items),
            args.batch_size,
            args.set_pct,
            summary.nodes.join(", ")
        );
        let (latencies, timeline) = (&measured.latencies, &measured.timeline[..]);
        Plot { title, names: ["GET", "SET"], latencies, rate: "operations per second", timeline }
    }
}

impl KvSummary {
    /// Says loudly what went wrong; the exit status of the program.
    fn exit_code(&self) -> ExitCode {
        for (name, phase) in [("population", &self.population), ("load", &self.load)] {
            if let Some(phase) = phase {
                phase.complain(name);
            }
        }
        for example in &self.examples {
            eprintln!("oribi:   {example}");
        }
        if let Some(error) = &self.error {
            eprintln!("oribi: {error}");
        }
        if self.problems > 0 || self.all_failed || self.error.is_some() {
            eprintln!("oribi: FAILED");
            return ExitCode::FAILURE;
        }
        if self.interrupted {
            return ExitCode::from(INTERRUPTED);
        }
        ExitCode::SUCCESS
    }
}

impl KvPhaseSummary {
    /// Prints what went wrong in the phase.
    fn complain(&self, name: &str) {
        if self.misses > 0 {
            eprintln!("oribi: {name}: {} documents not found", self.misses);
        }
        for (kind, count) in self.corrupt.iter().filter(|(_, count)| **count > 0) {
            eprintln!("oribi: {name}: {count} values with a {}", kind.replace('_', " "));
        }
        for (reason, count) in &self.refused {
            eprintln!("oribi: {name}: {count} requests refused: {reason}");
        }
        if self.given_up > 0 {
            eprintln!("oribi: {name}: {} operations given up after retries", self.given_up);
        }
    }
}
