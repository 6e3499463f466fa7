//! The report of a run: that of `kudu perf loadgen`, line by line, and the same as one JSON
//! document.
//!
//! Invariants: the lines of the other tool are here in the same words, order and number format, so
//! any program that reads its report can read this one. Lines that only this program has come last
//! in each block. Field names of the JSON are part of the interface.

use std::fmt::Write as _;

use oribi_kudu::StatusCode;
use serde::Serialize;
use serde_json::Value;

use crate::perf::kudu::{number, percentiles_text};
use crate::perf::report::LatencySummary;
use crate::perf::timeline::TimelineSample;
use crate::perf::workers::PhaseMeasurements;

/// Operation of each row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WriteKind {
    Insert,
    Upsert,
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

/// Counting the rows of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CountedRows {
    /// Rows that were written.
    pub expected_rows: u64,
    /// Rows that were found.
    pub actual_rows: u64,
}

impl CountedRows {
    /// The block of the report, with the empty line before it.
    pub fn text(&self) -> String {
        let CountedRows { expected_rows, actual_rows } = self;
        format!(
            "\nScanner report\n  expected rows: {expected_rows}\n  actual rows  : {actual_rows}\n"
        )
    }

    /// The failure of the run, if the numbers differ.
    pub fn complaint(&self) -> Option<String> {
        let CountedRows { expected_rows, actual_rows } = self;
        (expected_rows != actual_rows).then(|| {
            format!(
                "Runtime error: Row count mismatch: expected {expected_rows}, actual {actual_rows}"
            )
        })
    }
}

#[derive(Serialize, Debug)]
pub struct LoadgenSummary {
    /// Version of this program.
    pub version: &'static str,
    pub options: Value,
    /// Name of the table.
    pub table: String,
    /// True when it was made for the run.
    pub auto_table: bool,
    /// True when it was dropped at the end.
    pub dropped: bool,
    pub write: Option<LoadgenPhaseSummary>,
    pub scan: Option<CountedRows>,
    pub cleanup: Option<LoadgenPhaseSummary>,
    pub interrupted: bool,
    pub error: Option<String>,
}

/// Counters of a thread in a phase.
#[derive(Default)]
pub struct LoadgenOutcome {
    /// Rows handed to the session.
    pub rows: u64,
    pub failed_rows: u64,
    /// The first failed rows in words.
    pub shown: Vec<String>,
    /// Reason of an early end.
    pub error: Option<String>,
    /// Newest hybrid time that its client saw.
    pub timestamp: u64,
}

/// One phase of writing.
#[derive(Serialize, Debug)]
pub struct LoadgenPhaseSummary {
    kind: WriteKind,
    /// Rows handed to sessions.
    pub rows: u64,
    failed_rows: u64,
    seconds: f64,
    rows_per_second: f64,
    client_cpu_us_per_row: f64,
    writes: u64,
    /// Round trips of Write requests.
    write_latency_ms: Option<LatencySummary>,
    timeline: Vec<TimelineSample>,
    /// The first thing that ended a thread early.
    #[serde(skip)]
    error: Option<String>,
}

impl LoadgenPhaseSummary {
    /// The figures of a phase.
    pub fn new(
        kind: WriteKind,
        outcomes: Vec<LoadgenOutcome>,
        measured: &PhaseMeasurements,
    ) -> LoadgenPhaseSummary {
        let rows = outcomes.iter().map(|outcome| outcome.rows).sum();
        let latencies = &measured.latencies.write;
        LoadgenPhaseSummary {
            kind,
            rows,
            failed_rows: outcomes.iter().map(|outcome| outcome.failed_rows).sum(),
            seconds: measured.took.as_secs_f64(),
            rows_per_second: measured.per_second(rows),
            client_cpu_us_per_row: measured.client_cpu_us_per(rows),
            writes: latencies.len(),
            write_latency_ms: (!latencies.is_empty()).then(|| LatencySummary::in_millis(latencies)),
            timeline: measured.timeline.clone(),
            error: outcomes.into_iter().find_map(|outcome| outcome.error),
        }
    }

    /// True when no row and no thread failed.
    pub fn is_success(&self) -> bool {
        self.failed_rows == 0 && self.error.is_none()
    }

    /// The run's failure, in the other tool's words.
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
        let LoadgenPhaseSummary { rows, seconds, .. } = *self;
        let milliseconds = seconds * 1e3;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{} report", self.kind.name());
        let _ = writeln!(text, "    rows total: {rows}");
        let _ = writeln!(text, "    time total: {} ms", number(milliseconds));
        if rows > 0 && self.failed_rows == 0 {
            let _ = writeln!(text, "  time per row: {} ms", number(milliseconds / rows as f64));
        }
        if rows > 0 {
            let _ = writeln!(text, "rows per second: {}", number(self.rows_per_second));
            let cpu = number(self.client_cpu_us_per_row);
            let _ = writeln!(text, "CPU of client: {cpu} us per row");
        }
        if let Some(latency) = &self.write_latency_ms {
            let _ = writeln!(text, "Write requests: {}", percentiles_text(latency));
        }
        text
    }
}

/// The failed rows of one thread, for standard error, with the empty line after them.
pub fn errors_of_thread(thread: usize, lines: &[String]) -> String {
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
        _ => "Unknown error",
    }
}

#[cfg(test)]
mod tests {
    //! The lines are the other tool's.

    use std::time::Duration;

    use super::*;
    use crate::perf::cpu::{CpuTime, Usage};
    use crate::perf::latencies::Latencies;

    fn measured(writes: u64) -> PhaseMeasurements {
        let mut latencies = Latencies::new();
        latencies.write.record_n(2_000_000, writes).unwrap();
        let cpu = Duration::from_millis(1);
        PhaseMeasurements {
            latencies,
            took: Duration::from_nanos(23_143_000),
            usage: Usage {
                client: CpuTime { user: cpu, system: cpu },
                server: None,
                server_threads: None,
            },
            timeline: Vec::new(),
        }
    }

    #[test]
    fn a_report_begins_with_the_other_tools_lines() {
        let threads = [1500, 500].map(|rows| LoadgenOutcome { rows, ..LoadgenOutcome::default() });
        let phase = LoadgenPhaseSummary::new(WriteKind::Insert, threads.into(), &measured(16));
        let text = phase.text();
        let expected = "\nINSERT report\n    rows total: 2000\n    time total: 23.143 ms\n  time per row: 0.0115715 ms\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("CPU of client: 1 us per row\n"), "{text}");
        assert!(text.contains("Write requests: 16, ms: p50 2"), "{text}");
        assert_eq!((phase.complaint(), phase.is_success()), (None, true));
    }

    #[test]
    fn failed_rows_are_counted_without_time_per_row() {
        let phase = |outcome, writes| {
            LoadgenPhaseSummary::new(WriteKind::Upsert, vec![outcome], &measured(writes))
        };
        let failed = || LoadgenOutcome { rows: 200, failed_rows: 200, ..LoadgenOutcome::default() };
        let text = phase(failed(), 1).text();
        assert!(text.starts_with("\nUPSERT report\n    rows total: 200\n"));
        assert!(!text.contains("time per row"));
        assert!(!phase(failed(), 1).is_success());
        let words = "Runtime error: Encountered 200 write operation errors";
        assert_eq!(phase(failed(), 1).complaint().as_deref(), Some(words));
        let both = LoadgenOutcome { error: Some("Timed out: x".to_owned()), ..failed() };
        let words = "Runtime error: Timed out: x; Encountered 200 write operation errors";
        assert_eq!(phase(both, 1).complaint().as_deref(), Some(words));
        assert_eq!(
            phase(LoadgenOutcome::default(), 0).text(),
            "\nUPSERT report\n    rows total: 0\n    time total: 23.143 ms\n"
        );
    }

    #[test]
    fn counts_that_differ_are_a_failure() {
        let scanned = CountedRows { expected_rows: 3, actual_rows: 2 };
        assert_eq!(scanned.text(), "\nScanner report\n  expected rows: 3\n  actual rows  : 2\n");
        let words = "Runtime error: Row count mismatch: expected 3, actual 2";
        assert_eq!(scanned.complaint().as_deref(), Some(words));
        assert_eq!(CountedRows { actual_rows: 3, ..scanned }.complaint(), None);
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
