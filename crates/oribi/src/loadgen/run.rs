//! The order of a load: table, rows, count, clean-up, drop, report.
//!
//! Owns the threads of a phase and the reaction to signals. Invariants: what fails skips what would have
//! come next but never the dropping of the table; the first SIGINT, SIGTERM or SIGHUP lets threads send what
//! they hold and stop, a second, or a second that passes, ends requests in flight, a third the process. With
//! `--json` standard output has one document and nothing else.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use oribi_kudu::Client;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::runtime::{Builder, Runtime};

use super::count::count_rows;
use super::live::{Live, LiveLine, answered_rows, no_latencies};
use super::options::{LoadgenArgs, Options};
use super::report::{Measured, PhaseSummary, Scanned, Summary, WriteKind, errors_of_thread};
use super::table::LoadTable;
use super::worker::{self, Event, Job, Outcome};
use crate::perf::control::Control;
use crate::perf::cpu::CpuTime;
use crate::perf::timeline::Timeline;

/// Between two looks at the clock and the signals.
const TICK: Duration = Duration::from_millis(100);

/// How long requests in flight may go on after the first signal.
const GRACE: Duration = Duration::from_secs(1);

/// Exit status after a signal, as shells expect it of Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs `oribi perf loadgen`.
pub fn run(args: LoadgenArgs) -> Result<ExitCode> {
    let args = Arc::new(args);
    let control = Arc::new(Control::new());
    watch_signals(control.clone())?;
    let runtime =
        Builder::new_current_thread().enable_all().build().context("starting the event loop")?;
    let client = runtime.block_on(worker::connect(&args)).context("cannot reach the cluster")?;
    let table = LoadTable::prepare(&runtime, &client, &args)?;
    let mut summary = Summary {
        version: env!("CARGO_PKG_VERSION"),
        options: Options::from(&*args),
        table: table.name().to_owned(),
        auto_table: args.is_auto_table(),
        dropped: false,
        write: None,
        scan: None,
        cleanup: None,
        interrupted: false,
        error: None,
    };
    let load = Load { args, control, runtime: &runtime, client };
    load.run(&mut summary);
    if table.is_to_be_dropped() {
        load.say(&format!("Dropping auto-created table '{}'\n", table.name()));
        match table.finish() {
            Ok(()) => summary.dropped = true,
            Err(error) => add_error(&mut summary, format!("{error:#}")),
        }
    }
    load.end(&summary)
}

/// Tells threads to stop at the first signal, to stop waiting at the second, and ends the process at the third.
fn watch_signals(control: Arc<Control>) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot register for signals")?;
    std::thread::spawn(move || {
        let mut signals = signals.forever();
        signals.next();
        control.stop();
        signals.next();
        control.cancel();
        signals.next();
        eprintln!("oribi: ended by a third signal; the auto-created table may be left behind");
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    });
    Ok(())
}

/// A load that is under way.
struct Load<'a> {
    args: Arc<LoadgenArgs>,
    control: Arc<Control>,
    runtime: &'a Runtime,
    client: Client,
}

impl Load<'_> {
    /// Everything between creating the table and dropping it; failures end up in the summary.
    fn run(&self, summary: &mut Summary) {
        let kind = if self.args.is_auto_table() { "auto-created table" } else { "table" };
        self.say(&format!("Using {kind} '{}'\n", summary.table));
        if let Err(error) = self.phases(summary) {
            add_error(summary, format!("{error:#}"));
        }
        summary.interrupted = self.control.is_stopped();
    }

    fn phases(&self, summary: &mut Summary) -> Result<()> {
        let kind = if self.args.use_upsert { WriteKind::Upsert } else { WriteKind::Insert };
        let written = self.phase(kind, &summary.table)?;
        summary.write = Some(PhaseSummary::new(&written));
        self.report(&written, summary);
        if !written.is_complete() {
            return Ok(());
        }
        if self.args.run_scan {
            let actual_rows = self
                .runtime
                .block_on(count_rows(&self.client, &summary.table))
                .context("cannot count the rows")?;
            let scanned = Scanned { expected_rows: written.rows, actual_rows };
            self.say(&scanned.text());
            summary.scan = Some(scanned);
            if let Some(complaint) = scanned.complaint() {
                add_error(summary, complaint);
                return Ok(());
            }
        }
        if self.args.run_cleanup && !self.control.is_stopped() {
            let deleted = self.phase(WriteKind::Delete, &summary.table)?;
            summary.cleanup = Some(PhaseSummary::new(&deleted));
            self.report(&deleted, summary);
        }
        Ok(())
    }

    fn report(&self, measured: &Measured, summary: &mut Summary) {
        self.say(&measured.text());
        if let Some(complaint) = measured.complaint() {
            add_error(summary, complaint);
        }
    }

    /// Writes or deletes all rows with all threads.
    fn phase(&self, kind: WriteKind, table: &str) -> Result<Measured> {
        let shared_runtime = match self.args.use_client_per_thread {
            true => None,
            false => Some(Builder::new_multi_thread().worker_threads(1).enable_all().build()),
        };
        let shared_runtime = shared_runtime.transpose().context("starting the event loop")?;
        let shared = match &shared_runtime {
            Some(runtime) => {
                let client = runtime.block_on(worker::connect(&self.args))?;
                Some((client, runtime.handle().clone()))
            }
            None => None,
        };
        let live = (0..self.args.num_threads).map(|_| Arc::new(Live::new())).collect::<Vec<_>>();
        let (events, received) = channel();
        let mut begins = Vec::new();
        let mut threads = Vec::new();
        for (thread, live) in (0..).zip(&live) {
            let job = Job {
                args: self.args.clone(),
                table: table.to_owned(),
                kind,
                thread,
                control: self.control.clone(),
                live: live.clone(),
                shared: shared.clone(),
            };
            let (begin, wait) = channel();
            begins.push(begin);
            threads.push(worker::spawn(job, wait, events.clone()).context("starting a thread")?);
        }
        drop(events);
        let measured = self.measure(kind, &live, begins, &received)?;
        for thread in threads {
            if thread.join().is_err() {
                bail!("a thread panicked");
            }
        }
        Ok(measured)
    }

    /// Starts the threads once all are ready, and waits until all have ended.
    fn measure(
        &self,
        kind: WriteKind,
        live: &[Arc<Live>],
        begins: Vec<Sender<()>>,
        events: &Receiver<Event>,
    ) -> Result<Measured> {
        for _ in 0..begins.len() {
            match events.recv().context("a thread is gone")? {
                Event::Ready(ready) => ready.context("cannot reach the cluster")?,
                Event::Finished(_) => bail!("a thread finished what was not begun"),
            }
        }
        let cpu_before = CpuTime::of_this_process()?;
        let started = Instant::now();
        for begin in &begins {
            begin.send(()).context("a thread is gone")?;
        }
        let mut timeline = Timeline::default();
        let mut outcomes = self.wait(kind, live, begins.len(), events, |rows| {
            timeline.add(started.elapsed().as_secs_f64(), rows);
        })?;
        let took = started.elapsed();
        let client_cpu = CpuTime::of_this_process()?.since(cpu_before);
        outcomes.sort_by_key(|outcome| outcome.thread);
        let mut latencies = no_latencies();
        live.iter().for_each(|live| live.add_latencies_to(&mut latencies));
        for outcome in &outcomes {
            self.client.observe(outcome.timestamp);
            if !outcome.shown.is_empty() {
                eprint!("{}", errors_of_thread(outcome.thread, &outcome.shown));
            }
        }
        Ok(Measured {
            kind,
            rows: outcomes.iter().map(|outcome| outcome.rows).sum(),
            failed_rows: outcomes.iter().map(|outcome| outcome.failed_rows).sum(),
            took,
            latencies,
            timeline: timeline.finish(took.as_secs_f64(), answered_rows(live)),
            client_cpu,
            interrupted: self.control.is_stopped(),
            error: outcomes.into_iter().find_map(|outcome| outcome.error),
        })
    }

    /// Waits until all threads have ended; says several times a second how many rows were answered.
    fn wait(
        &self,
        kind: WriteKind,
        live: &[Arc<Live>],
        threads: usize,
        events: &Receiver<Event>,
        mut note_answered: impl FnMut(u64),
    ) -> Result<Vec<Outcome>> {
        let mut line = LiveLine::new(kind.name(), self.args.rows_total());
        let mut outcomes = Vec::new();
        let mut cancel_at = None;
        while outcomes.len() < threads {
            match events.recv_timeout(TICK) {
                Ok(Event::Finished(outcome)) => outcomes.push(outcome),
                Ok(Event::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("a thread is gone"),
            }
            note_answered(answered_rows(live));
            line.update(live);
            if self.control.is_stopped() {
                let at = *cancel_at.get_or_insert_with(|| Instant::now() + GRACE);
                if Instant::now() >= at {
                    self.control.cancel();
                }
            }
        }
        line.finish();
        Ok(outcomes)
    }

    /// Prints a part of the report; a reader that has gone is no error.
    fn say(&self, text: &str) {
        if !self.args.json {
            print_all(text);
        }
    }

    /// Prints what is left to print and decides the exit status.
    fn end(&self, summary: &Summary) -> Result<ExitCode> {
        if self.args.json {
            let json = serde_json::to_string_pretty(summary).context("the summary as JSON")?;
            print_all(&(json + "\n"));
        }
        if let Some(error) = &summary.error {
            eprintln!("oribi: {error}");
            return Ok(ExitCode::FAILURE);
        }
        Ok(if summary.interrupted { ExitCode::from(EXIT_INTERRUPTED) } else { ExitCode::SUCCESS })
    }
}

/// Adds a failure; the first stays first.
fn add_error(summary: &mut Summary, error: String) {
    summary.error = Some(match summary.error.take() {
        Some(first) => format!("{first}; {error}"),
        None => error,
    });
}

fn print_all(text: &str) {
    // The only reader may have seen enough; the load goes on, and its table is dropped.
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}
