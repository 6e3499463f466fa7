//! The results of every run: text or JSON on standard output, and the requested files.
//!
//! It owns the options for that, and the format of figures. Field names of JSON are part of the
//! interface: scripts read them. With `--json` standard output has exactly one document.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::hdr;
use super::plot::Plot;
use crate::print;

/// Percentiles that are reported.
pub const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99_9", 99.9),
    ("p99_99", 99.99),
];

/// Heading of these options in the help.
const HEADING: &str = "Results";

/// Where results go.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Print the results as one JSON document.
    #[arg(long, help_heading = HEADING)]
    pub json: bool,
    /// Also write the JSON document to this file.
    #[arg(long, help_heading = HEADING, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw latencies and throughput into this SVG file.
    #[arg(long, help_heading = HEADING, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the latencies as HdrHistogram percentiles to this file.
    #[arg(long, help_heading = HEADING, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

/// Files that results go to. Made before anything else, so that no result is lost to a wrong path.
pub struct Outputs {
    json: bool,
    report: Option<(PathBuf, File)>,
    plot: Option<(PathBuf, File)>,
    hdr: Option<(PathBuf, File)>,
}

impl Outputs {
    /// Creates the files.
    pub fn create(args: &OutputArgs) -> anyhow::Result<Outputs> {
        let create = |option: &str, path: &Option<PathBuf>| -> anyhow::Result<_> {
            let Some(path) = path else { return Ok(None) };
            let file = File::create(path)
                .with_context(|| format!("{option}: cannot create {}", path.display()))?;
            Ok(Some((path.clone(), file)))
        };
        Ok(Outputs {
            json: args.json,
            report: create("--report", &args.report)?,
            plot: create("--plot", &args.plot)?,
            hdr: create("--hdr", &args.hdr)?,
        })
    }

    /// Prints the summary, as JSON or as `text`, and writes the files; `plot` shows the most
    /// important phase.
    pub fn write(
        self,
        summary: &impl Serialize,
        text: &str,
        plot: Option<Plot<'_>>,
    ) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(summary).context("the summary as JSON")? + "\n";
        print(if self.json { &json } else { text })?;
        write_file(self.report, json.as_bytes())?;
        let Some(plot) = plot else { return Ok(()) };
        let mut percentiles = Vec::new();
        hdr::write(&plot.latencies.all(), &mut percentiles).context("the percentiles as text")?;
        write_file(self.hdr, &percentiles)?;
        match self.plot {
            Some(file) => write_file(Some(file), plot.draw()?.as_bytes()),
            None => Ok(()),
        }
    }
}

fn write_file(output: Option<(PathBuf, File)>, content: &[u8]) -> anyhow::Result<()> {
    let Some((path, mut file)) = output else { return Ok(()) };
    file.write_all(content).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints to standard output; a reader that has gone is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    print::unless_gone(print::bytes(text.as_bytes()))
}

/// Latencies in a unit of time.
#[derive(Serialize, Debug)]
pub struct LatencySummary {
    /// Operations.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// By percentile.
    #[serde(flatten)]
    pub percentiles: BTreeMap<&'static str, f64>,
    /// Largest.
    pub max: f64,
}

impl LatencySummary {
    /// In microseconds.
    pub fn in_micros(histogram: &Histogram<u64>) -> LatencySummary {
        LatencySummary::new(histogram, 1e3)
    }

    /// In milliseconds.
    pub fn in_millis(histogram: &Histogram<u64>) -> LatencySummary {
        LatencySummary::new(histogram, 1e6)
    }

    fn new(histogram: &Histogram<u64>, unit_ns: f64) -> LatencySummary {
        let at = |percent| histogram.value_at_percentile(percent) as f64 / unit_ns;
        LatencySummary {
            count: histogram.len(),
            min: histogram.min() as f64 / unit_ns,
            mean: histogram.mean() / unit_ns,
            percentiles: PERCENTILES.map(|(name, percent)| (name, at(percent))).into(),
            max: histogram.max() as f64 / unit_ns,
        }
    }
}

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// Microseconds with a unit that fits.
pub fn micros(micros: f64) -> String {
    match micros {
        ..1_000.0 => format!("{micros:.1} µs"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    //! Numbers are easy to read.

    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
        let shown = [12.34, 4_560.0, 2_500_000.0].map(micros);
        assert_eq!(shown, ["12.3 µs", "4.56 ms", "2.50 s"]);
    }
}
