//! A run from its command line to its exit status.
//!
//! Owns the order of things: check options, create the files that results go to, ask the server, connect,
//! populate, load, report. Ctrl-C ends the phase that is under way and reports what there is; a second
//! one ends the program. A broken connection ends the run the same way, with its error.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use super::choices;
use super::cluster::{Discovery, Routes};
use super::control::{Control, Live, Progress};
use super::cpu::CpuTime;
use super::crew::{Crew, Event};
use super::hdr;
use super::key::KeyField;
use super::options::KvArgs;
use super::plot::Plot;
use super::progress::{Extent, LiveLine};
use super::summary::{Measured, Options, PhaseSummary, Summary};
use super::tally::{Counts, Latencies};
use super::thread_times::ThreadTimes;
use super::timeline::Timeline;
use super::value::Values;
use super::worker::{Phase, PhaseKind, Shared};

/// Between two samples of throughput.
const TICK: Duration = Duration::from_millis(100);

/// How long batches in flight may go on after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Exit status after Ctrl-C, as shells expect it.
const EXIT_INTERRUPTED: u8 = 130;

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
    let outputs = Outputs::create(&args)?;
    let (sender, events) = channel();
    watch_interrupts(sender.clone())?;
    let shared = Arc::new(prepare(args)?);
    let mut run = Run::start(shared, &sender, events)?;
    if !run.shared.args.no_population {
        run.population = Some(run.phase(PhaseKind::Population)?);
    }
    if !run.shared.args.populate_only && !run.is_over() {
        run.load = Some(run.phase(PhaseKind::Load)?);
    }
    run.crew.take().map_or(Ok(()), Crew::end)?;
    run.report(outputs)
}

/// Files that results go to. Made before anything else, so that no result is lost to a wrong path.
struct Outputs {
    report: Option<(PathBuf, File)>,
    plot: Option<(PathBuf, File)>,
    hdr: Option<(PathBuf, File)>,
}

impl Outputs {
    fn create(args: &KvArgs) -> anyhow::Result<Outputs> {
        let create = |option: &str, path: &Option<PathBuf>| -> anyhow::Result<_> {
            let Some(path) = path else { return Ok(None) };
            let file = File::create(path)
                .with_context(|| format!("{option}: cannot create {}", path.display()))?;
            Ok(Some((path.clone(), file)))
        };
        Ok(Outputs {
            report: create("--report", &args.report)?,
            plot: create("--plot", &args.plot)?,
            hdr: create("--hdr", &args.hdr)?,
        })
    }
}

fn write_file(output: Option<(PathBuf, File)>, content: &[u8]) -> anyhow::Result<()> {
    let Some((path, mut file)) = output else { return Ok(()) };
    file.write_all(content).with_context(|| format!("cannot write {}", path.display()))
}

/// Tells of the first Ctrl-C, and ends the program at the second.
fn watch_interrupts(events: Sender<Event>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT]).context("cannot register for signals")?;
    std::thread::spawn(move || {
        let mut signals = signals.forever();
        signals.next();
        // Nobody listens when the run is over anyway.
        let _ = events.send(Event::Interrupted);
        signals.next();
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    });
    Ok(())
}

/// Asks the server and makes what all workers share.
fn prepare(args: KvArgs) -> anyhow::Result<Shared> {
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
    let values = Values::new(args.form(), sizes, args.random_body, args.random_seed);
    let live = (0..args.workers()).map(|_| Live::new()).collect();
    Ok(Shared { args, discovery, values, keys, collections, control: Control::new(), live })
}

/// A run that is under way.
struct Run {
    shared: Arc<Shared>,
    crew: Option<Crew>,
    events: Receiver<Event>,
    population: Option<Measured>,
    load: Option<Measured>,
    interrupted: bool,
    error: Option<anyhow::Error>,
}

/// What is known of a phase while it runs.
struct Watch {
    started: Instant,
    counts: Counts,
    latencies: Latencies,
    timeline: Timeline,
    line: LiveLine,
    /// When batches in flight are ended.
    cancel_at: Option<Instant>,
    /// Threads that have not finished.
    threads_left: usize,
}

impl Run {
    /// Starts the threads and waits until all are connected.
    fn start(
        shared: Arc<Shared>,
        sender: &Sender<Event>,
        events: Receiver<Event>,
    ) -> anyhow::Result<Run> {
        let crew = Crew::start(&shared, sender)?;
        for _ in 0..crew.len() {
            match events.recv().context("the threads are gone")? {
                Event::Ready(ready) => ready?,
                Event::Finished(..) => bail!("a thread finished what was not begun"),
                Event::Interrupted => bail!("interrupted while connecting"),
            }
        }
        Ok(Run {
            shared,
            crew: Some(crew),
            events,
            population: None,
            load: None,
            interrupted: false,
            error: None,
        })
    }

    /// True when nothing more shall be begun.
    fn is_over(&self) -> bool {
        self.interrupted || self.error.is_some()
    }

    /// Runs one phase and measures it.
    fn phase(&mut self, kind: PhaseKind) -> anyhow::Result<Measured> {
        let crew = self.crew.as_ref().context("the threads have been ended")?;
        let server_pid = self.shared.args.server_pid;
        let cpu_of_server = || server_pid.and_then(|pid| CpuTime::of_process(pid).ok());
        let threads_of_server = || server_pid.and_then(|pid| ThreadTimes::of_process(pid).ok());
        let (name, extent) = self.extent(kind);
        let (client_before, server_before) = (CpuTime::of_this_process()?, cpu_of_server());
        let threads_before = threads_of_server();
        let (latencies, line) = (Latencies::new(), LiveLine::new(name, extent));
        // Last: what is done between this and the first operation counts as lateness in open loop.
        let phase = Phase { kind, started: Instant::now() };
        let mut watch = Watch {
            started: phase.started,
            counts: Counts::default(),
            latencies,
            timeline: Timeline::default(),
            line,
            cancel_at: None,
            threads_left: crew.len(),
        };
        crew.begin(phase)?;
        while watch.threads_left > 0 {
            self.watch(&mut watch, extent)?;
        }
        let took = phase.started.elapsed();
        let client_cpu = CpuTime::of_this_process()?.since(client_before);
        let server_cpu = cpu_of_server().zip(server_before).map(|(now, then)| now.since(then));
        let server_threads =
            threads_of_server().zip(threads_before).map(|(now, then)| now.since(&then));
        watch.line.finish();
        let Watch { counts, latencies, timeline, .. } = watch;
        let timeline = timeline.finish(took.as_secs_f64(), counts.operations());
        Ok(Measured { counts, latencies, took, client_cpu, server_cpu, server_threads, timeline })
    }

    /// What a phase is called, and how its end is known.
    fn extent(&self, kind: PhaseKind) -> (&'static str, Extent) {
        let args = &self.shared.args;
        if kind == PhaseKind::Population {
            let documents = args.items.saturating_mul(self.shared.keys.len() as u64);
            return ("population", Extent::Operations(documents));
        }
        let operations = args.operations_per_worker();
        let operations = operations.map(|each| each.saturating_mul(args.workers() as u64));
        let extent = match (args.length(), operations) {
            (Some(length), _) => Extent::Time(length),
            (None, Some(operations)) => Extent::Operations(operations),
            (None, None) => Extent::Endless,
        };
        ("load", extent)
    }

    /// Handles one event, or the tick between two.
    fn watch(&mut self, watch: &mut Watch, extent: Extent) -> anyhow::Result<()> {
        match self.events.recv_timeout(TICK) {
            Ok(Event::Finished(outcomes, latencies)) => {
                watch.threads_left -= 1;
                watch.latencies.add(&latencies);
                for outcome in outcomes {
                    watch.counts.add(&outcome.counts);
                    if let Some(error) = outcome.error {
                        self.shared.control.cancel();
                        self.error.get_or_insert(error);
                    }
                }
            }
            Ok(Event::Interrupted) => {
                self.interrupted = true;
                self.shared.control.stop();
                watch.cancel_at = Some(Instant::now() + GRACE);
            }
            Ok(Event::Ready(_)) => {}
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the threads are gone"),
        }
        if watch.cancel_at.is_some_and(|at| Instant::now() >= at) {
            self.shared.control.cancel();
        }
        let elapsed = watch.started.elapsed();
        if matches!(extent, Extent::Time(length) if elapsed >= length) {
            self.shared.control.stop();
        }
        if watch.threads_left == self.shared.args.num_threads as usize {
            let mut progress = Progress::default();
            for live in self.shared.live.iter().map(Live::progress) {
                progress.operations += live.operations;
                progress.problems += live.problems;
            }
            watch.timeline.add(elapsed.as_secs_f64(), progress.operations);
            watch.line.update(elapsed, progress, &self.shared.live);
        }
        Ok(())
    }

    /// Prints the results, writes the files and decides the exit status.
    fn report(self, outputs: Outputs) -> anyhow::Result<ExitCode> {
        let summary = self.summary()?;
        let json = serde_json::to_string_pretty(&summary).context("the summary as JSON")? + "\n";
        match self.shared.args.json {
            true => print_all(&json)?,
            false => print_all(&summary.tables())?,
        }
        write_file(outputs.report, json.as_bytes())?;
        if let Some(measured) = self.load.as_ref().or(self.population.as_ref()) {
            let mut text = Vec::new();
            hdr::write(&measured.latencies.all(), &mut text).context("the percentiles as text")?;
            write_file(outputs.hdr, &text)?;
            if outputs.plot.is_some() {
                write_file(outputs.plot, self.plot(measured, &summary).draw()?.as_bytes())?;
            }
        }
        Ok(summary.exit_code())
    }

    fn summary(&self) -> anyhow::Result<Summary> {
        let args = &self.shared.args;
        let nodes = match &self.shared.discovery.config {
            Some(config) => Routes::by_map(config, &[])?.nodes().to_vec(),
            None => vec![super::cluster::named_node(&self.shared.discovery.options)],
        };
        let measured = [&self.population, &self.load];
        let counts = || measured.iter().filter_map(|it| it.as_ref()).map(|it| &it.counts);
        Ok(Summary {
            version: env!("CARGO_PKG_VERSION"),
            options: Options::new(args),
            nodes: nodes.iter().map(|node| format!("{}:{}", node.host, node.port)).collect(),
            population: self.population.as_ref().map(PhaseSummary::new),
            load: self.load.as_ref().map(PhaseSummary::new),
            problems: counts().map(|counts| counts.problems(args.allow_misses)).sum(),
            all_failed: counts().any(|it| it.operations() > 0 && it.succeeded() == 0),
            examples: counts().flat_map(|counts| counts.examples.clone()).collect(),
            interrupted: self.interrupted,
            error: self.error.as_ref().map(|error| format!("{error:#}")),
        })
    }

    fn plot<'a>(&self, measured: &'a Measured, summary: &Summary) -> Plot<'a> {
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
        let latencies = [("GET", &measured.latencies.get), ("SET", &measured.latencies.set)];
        Plot { title, latencies, timeline: &measured.timeline }
    }
}

impl Summary {
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
            return ExitCode::from(EXIT_INTERRUPTED);
        }
        ExitCode::SUCCESS
    }
}

impl PhaseSummary {
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

/// Prints to standard output; a reader that has gone is no error.
fn print_all(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("printing the summary"),
    }
}
