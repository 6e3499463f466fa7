//! What a run found: the report of `kudu perf loadgen`, line by line, and the same as one JSON document.
//!
//! Invariants: the lines that the other tool prints are here in the same words, order and number format,
//! so that whatever reads its report can read this one; lines that only this program has come after the
//! other's in each block. Field names of the JSON are part of the interface.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use oribi_kudu::StatusCode;
use serde::Serialize;

use super::options::Options;
use crate::perf::cpu::CpuTime;
use crate::perf::timeline::Sample;

/// Digits of a number in the report: what the other tool's output stream prints unless told otherwise.
const SIGNIFICANT_DIGITS: i32 = 6;

/// What each row does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WriteKind {
    /// INSERT.
    Insert,
    /// UPSERT.
    Upsert,
    /// DELETE.
    Delete,
}

impl WriteKind {
    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            WriteKind::Insert => "INSERT",
            WriteKind::Upsert => "UPSERT",
            WriteKind::Delete => "DELETE",
        }
    }
}

/// A phase as it was measured.
pub struct Measured {
    /// What rows did.
    pub kind: WriteKind,
    /// Rows handed to sessions.
    pub rows: u64,
    /// Rows that failed.
    pub failed_rows: u64,
    /// From the start of the threads to the end of the last.
    pub took: Duration,
    /// Round trips of Write requests, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Rows that were answered, over time.
    pub timeline: Vec<Sample>,
    /// CPU time of this process.
    pub client_cpu: CpuTime,
    /// Ctrl-C ended it.
    pub interrupted: bool,
    /// The first thing that ended a thread early.
    pub error: Option<String>,
}

impl Measured {
    /// True when all rows are in the table.
    pub fn is_complete(&self) -> bool {
        self.failed_rows == 0 && self.error.is_none() && !self.interrupted
    }

    /// What the run has to report as its failure, in the other tool's words.
    pub fn complaint(&self) -> Option<String> {
        let failed = match self.failed_rows {
            0 => None,
            rows => Some(format!("Encountered {rows} write operation errors")),
        };
        let parts = self.error.clone().into_iter().chain(failed).collect::<Vec<_>>();
        (!parts.is_empty()).then(|| format!("Runtime error: {}", parts.join("; ")))
    }

    /// The block of the report, with the empty line before it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let milliseconds = self.took.as_secs_f64() * 1e3;
        let rows = self.rows;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{} report", self.kind.name());
        let _ = writeln!(text, "    rows total: {rows}");
        let _ = writeln!(text, "    time total: {} ms", number(milliseconds));
        if rows > 0 && self.failed_rows == 0 {
            let _ = writeln!(text, "  time per row: {} ms", number(milliseconds / rows as f64));
        }
        let summary = PhaseSummary::new(self);
        if self.rows > 0 {
            let _ = writeln!(text, "rows per second: {}", number(summary.rows_per_second));
            let _ = writeln!(
                text,
                "CPU of client: {} us per row",
                number(summary.client_cpu_us_per_row)
            );
        }
        if let Some(latency) = &summary.write_latency_ms {
            let LatencySummary { p50, p95, p99, p99_9, max, .. } = latency;
            let figures =
                [("p50", p50), ("p95", p95), ("p99", p99), ("p99.9", p99_9), ("max", max)];
            let figures = figures.map(|(name, value)| format!("{name} {}", number(*value)));
            let _ =
                writeln!(text, "Write requests: {}, ms: {}", summary.writes, figures.join(", "));
        }
        text
    }
}

/// Counting the rows of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Scanned {
    /// Rows that were written.
    pub expected_rows: u64,
    /// Rows that were found.
    pub actual_rows: u64,
}

impl Scanned {
    /// The block of the report, with the empty line before it.
    pub fn text(&self) -> String {
        let Scanned { expected_rows, actual_rows } = self;
        format!(
            "\nScanner report\n  expected rows: {expected_rows}\n  actual rows  : {actual_rows}\n"
        )
    }

    /// The failure of the run, if the numbers differ.
    pub fn complaint(&self) -> Option<String> {
        let Scanned { expected_rows, actual_rows } = self;
        (expected_rows != actual_rows).then(|| {
            format!(
                "Runtime error: Row count mismatch: expected {expected_rows}, actual {actual_rows}"
            )
        })
    }
}

/// The whole run.
#[derive(Serialize, Debug)]
pub struct Summary {
    /// Version of this program.
    pub version: &'static str,
    /// What was asked for.
    pub options: Options,
    /// Name of the table.
    pub table: String,
    /// True when it was made for the run.
    pub auto_table: bool,
    /// True when it was dropped at the end.
    pub dropped: bool,
    /// Writing the rows.
    pub write: Option<PhaseSummary>,
    /// Counting them.
    pub scan: Option<Scanned>,
    /// Deleting them.
    pub cleanup: Option<PhaseSummary>,
    /// Ctrl-C ended it.
    pub interrupted: bool,
    /// Why it failed.
    pub error: Option<String>,
}

/// One phase of writing.
#[derive(Serialize, Debug)]
pub struct PhaseSummary {
    kind: WriteKind,
    rows: u64,
    failed_rows: u64,
    seconds: f64,
    rows_per_second: f64,
    client_cpu_us_per_row: f64,
    writes: u64,
    write_latency_ms: Option<LatencySummary>,
    timeline: Vec<Sample>,
}

/// Round trips of Write requests in milliseconds.
#[derive(Serialize, Debug)]
struct LatencySummary {
    min: f64,
    mean: f64,
    p50: f64,
    p75: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    p99_9: f64,
    max: f64,
}

impl PhaseSummary {
    /// The figures of a phase.
    pub fn new(measured: &Measured) -> PhaseSummary {
        let seconds = measured.took.as_secs_f64();
        let rows = measured.rows as f64;
        let cpu = (measured.client_cpu.user + measured.client_cpu.system).as_secs_f64();
        let per_row = |value: f64| if measured.rows == 0 { 0.0 } else { value / rows };
        PhaseSummary {
            kind: measured.kind,
            rows: measured.rows,
            failed_rows: measured.failed_rows,
            seconds,
            rows_per_second: if seconds > 0.0 { rows / seconds } else { 0.0 },
            client_cpu_us_per_row: per_row(cpu * 1e6),
            writes: measured.latencies.len(),
            write_latency_ms: LatencySummary::new(&measured.latencies),
            timeline: measured.timeline.clone(),
        }
    }
}

impl LatencySummary {
    fn new(latencies: &Histogram<u64>) -> Option<LatencySummary> {
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let at = |percentile: f64| milliseconds(latencies.value_at_percentile(percentile));
        (!latencies.is_empty()).then(|| LatencySummary {
            min: milliseconds(latencies.min()),
            mean: latencies.mean() / 1e6,
            p50: at(50.0),
            p75: at(75.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p99_9: at(99.9),
            max: milliseconds(latencies.max()),
        })
    }
}

/// The failed rows of one thread, for standard error, with the empty line after them.
pub fn errors_of_thread(thread: u64, lines: &[String]) -> String {
    let mut text = format!("Error from generator {thread:>4}:\n");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    text.push('\n');
    text
}

/// A status in the words of Kudu's tools.
pub fn status_text(code: StatusCode, message: &str) -> String {
    format!("{}: {message}", status_name(code))
}

fn status_name(code: StatusCode) -> &'static str {
    match code {
        StatusCode::Unknown => "Unknown error",
        StatusCode::Ok => "OK",
        StatusCode::NotFound => "Not found",
        StatusCode::Corruption => "Corruption",
        StatusCode::NotSupported => "Not implemented",
        StatusCode::InvalidArgument => "Invalid argument",
        StatusCode::IoError => "IO error",
        StatusCode::AlreadyPresent => "Already present",
        StatusCode::RuntimeError => "Runtime error",
        StatusCode::NetworkError => "Network error",
        StatusCode::IllegalState => "Illegal state",
        StatusCode::NotAuthorized => "Not authorized",
        StatusCode::Aborted => "Aborted",
        StatusCode::RemoteError => "Remote error",
        StatusCode::ServiceUnavailable => "Service unavailable",
        StatusCode::TimedOut => "Timed out",
        StatusCode::Uninitialized => "Uninitialized",
        StatusCode::ConfigurationError => "Configuration error",
        StatusCode::Incomplete => "Incomplete",
        StatusCode::EndOfFile => "End of file",
        StatusCode::Cancelled => "Cancelled",
        StatusCode::Immutable => "Immutable",
    }
}

/// A number with six significant digits and no zeros behind them; in powers of ten when it is very small
/// or has more digits before the point.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Rounding may carry into another digit, so the exponent is that of the rounded number.
    let scientific = format!("{value:.*e}", (SIGNIFICANT_DIGITS - 1) as usize);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent = exponent.parse::<i32>().expect("the format's exponent is a number");
    if !(-4..SIGNIFICANT_DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = (SIGNIFICANT_DIGITS - 1 - exponent) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    //! The lines are the other tool's, digit for digit.

    use super::*;

    fn measured() -> Measured {
        let mut latencies = Histogram::new(3).unwrap();
        latencies.record_n(2_000_000, 16).unwrap();
        Measured {
            kind: WriteKind::Insert,
            rows: 2000,
            failed_rows: 0,
            took: Duration::from_nanos(23_143_000),
            latencies,
            timeline: Vec::new(),
            client_cpu: CpuTime {
                user: Duration::from_millis(1),
                system: Duration::from_millis(1),
            },
            interrupted: false,
            error: None,
        }
    }

    #[test]
    fn numbers_look_like_those_of_an_output_stream() {
        let cases = [
            (23.143, "23.143"),
            (0.011_571_5, "0.0115715"),
            (1126.7, "1126.7"),
            (999_999.4, "999999"),
            (999_999.6, "1e+06"),
            (12_345_678.0, "1.23457e+07"),
            (0.000_012_345_678, "1.23457e-05"),
            (0.000_1, "0.0001"),
            (100.0, "100"),
            (0.0, "0"),
            (2.0, "2"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value:?}");
        }
    }

    #[test]
    fn a_report_begins_with_the_other_tools_lines() {
        let text = measured().text();
        let expected = "\nINSERT report\n    rows total: 2000\n    time total: 23.143 ms\n  time per row: 0.0115715 ms\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("CPU of client: 1 us per row\n"), "{text}");
        assert!(text.contains("Write requests: 16, ms: p50 2"), "{text}");
        assert_eq!(measured().complaint(), None);
    }

    #[test]
    fn failures_leave_out_the_time_per_row_and_say_how_many() {
        let failed =
            Measured { failed_rows: 200, rows: 200, kind: WriteKind::Upsert, ..measured() };
        assert!(failed.text().starts_with("\nUPSERT report\n    rows total: 200\n"));
        assert!(!failed.text().contains("time per row"));
        assert!(!failed.is_complete());
        let words = "Runtime error: Encountered 200 write operation errors";
        assert_eq!(failed.complaint().as_deref(), Some(words));
        let both = Measured { error: Some("Timed out: x".to_owned()), ..failed };
        let words = "Runtime error: Timed out: x; Encountered 200 write operation errors";
        assert_eq!(both.complaint().as_deref(), Some(words));
        let nothing = Measured { rows: 0, latencies: Histogram::new(3).unwrap(), ..measured() };
        assert_eq!(
            nothing.text(),
            "\nINSERT report\n    rows total: 0\n    time total: 23.143 ms\n"
        );
    }

    #[test]
    fn counts_that_differ_are_a_failure() {
        let scanned = Scanned { expected_rows: 3, actual_rows: 2 };
        assert_eq!(scanned.text(), "\nScanner report\n  expected rows: 3\n  actual rows  : 2\n");
        let words = "Runtime error: Row count mismatch: expected 3, actual 2";
        assert_eq!(scanned.complaint().as_deref(), Some(words));
        assert_eq!(Scanned { actual_rows: 3, ..scanned }.complaint(), None);
    }

    #[test]
    fn failed_rows_are_listed_by_thread() {
        let line = status_text(StatusCode::AlreadyPresent, "key already present");
        assert_eq!(
            errors_of_thread(0, &[line]),
            "Error from generator    0:\n  Already present: key already present\n\n"
        );
    }
}
