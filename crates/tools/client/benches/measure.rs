//! What the benches of this crate share: the clocks, the command line, and how samples are written.
//!
//! A bench writes one JSON object per sample to standard output and checks nothing; `bench/run`
//! makes figures of them. Processor time is that of the measuring thread alone, so a peer may run
//! in another thread of the same process without being counted.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::Serialize;

const USAGE: &str = "options: [--rounds N] [--sizes BYTES,...] [--sample-bytes BYTES]";

/// How much is measured.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// How often everything is measured, the variants taking turns.
    pub rounds: u32,
    /// Sizes to measure instead of the usual ones, in bytes.
    pub sizes: Option<Vec<usize>>,
    /// A sample repeats its work until at least so many bytes went over the wire.
    pub sample_bytes: Option<usize>,
}

impl BenchOptions {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<BenchOptions> {
        let mut options = BenchOptions { rounds: 5, sizes: None, sample_bytes: None };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().context(format!("{argument} needs a value"));
            match argument.as_str() {
                // Cargo adds it to whatever it runs as a bench.
                "--bench" => {}
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--sample-bytes" => {
                    options.sample_bytes = Some(value()?.parse().context("--sample-bytes")?);
                }
                "--sizes" => {
                    let sizes = value()?.split(',').map(str::parse).collect::<Result<_, _>>();
                    options.sizes = Some(sizes.context("--sizes")?);
                }
                _ => bail!("unknown option {argument}; {USAGE}"),
            }
        }
        Ok(options)
    }
}

/// A bench: it measures as the options say and writes a line per sample.
pub type Bench = fn(&BenchOptions, &mut dyn Write) -> Result<()>;

/// Runs a bench as a program with the given arguments; what goes wrong is said on standard error.
pub fn run(bench: Bench, arguments: impl Iterator<Item = String>, out: &mut dyn Write) -> ExitCode {
    match BenchOptions::parse(arguments).and_then(|options| bench(&options, out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes one sample.
pub fn emit(out: &mut dyn Write, sample: &impl Serialize) -> Result<()> {
    serde_json::to_writer(&mut *out, sample)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Time since a start, by the clock and by this thread's processor time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    cpu: Timespec,
}

/// A reading of a [`Stopwatch`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StopwatchReading {
    /// Nanoseconds by the clock.
    pub wall_ns: u64,
    /// Nanoseconds that this thread was on a processor, in the kernel included.
    pub cpu_ns: u64,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch { cpu: clock_gettime(ClockId::ThreadCPUTime), wall: Instant::now() }
    }

    /// Time since the start.
    pub fn read(&self) -> StopwatchReading {
        let wall_ns = self.wall.elapsed().as_nanos() as u64;
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns =
            (now.tv_sec - self.cpu.tv_sec) * 1_000_000_000 + now.tv_nsec - self.cpu.tv_nsec;
        StopwatchReading { wall_ns, cpu_ns: cpu_ns.max(0) as u64 }
    }
}

/// A runtime on the calling thread, so that its processor time is all that the client uses.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
