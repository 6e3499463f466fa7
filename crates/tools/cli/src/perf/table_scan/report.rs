//! What a scan found: the report of `kudu perf table_scan`, line by line, and the same as one JSON
//! document.
//!
//! Invariants: lines that the other tool prints are here in its words and columns; lines that only
//! this program has come last. Field names of the JSON are part of the interface.

use std::fmt::Write as _;

use oribi_kudu::ScanMetrics;
use serde::Serialize;
use serde_json::Value;

use crate::perf::kudu::{number, percentiles_text};
use crate::perf::report::LatencySummary;
use crate::perf::timeline::TimelineSample;
use crate::perf::workers::PhaseMeasurements;

/// One tablet, or the whole table.
#[derive(Serialize, Debug)]
pub struct TabletReport {
    pub tablet: String,
    pub rows: u64,
    /// From opening the scanner to its end.
    pub seconds: f64,
    /// Figures of the server.
    pub server: ServerFigures,
}

#[derive(Serialize, Debug, Default, Clone, Copy)]
pub struct ServerFigures {
    requests: u64,
    bytes_read: u64,
    cfile_cache_hit_bytes: u64,
    cfile_cache_miss_bytes: u64,
    cpu_system_nanos: u64,
    cpu_user_nanos: u64,
    queue_duration_nanos: u64,
    total_duration_nanos: u64,
}

impl From<ScanMetrics> for ServerFigures {
    fn from(metrics: ScanMetrics) -> ServerFigures {
        ServerFigures {
            requests: metrics.requests,
            bytes_read: metrics.bytes_read,
            cfile_cache_hit_bytes: metrics.cfile_cache_hit_bytes,
            cfile_cache_miss_bytes: metrics.cfile_cache_miss_bytes,
            cpu_system_nanos: metrics.cpu_system_nanos,
            cpu_user_nanos: metrics.cpu_user_nanos,
            queue_duration_nanos: metrics.queue_duration_nanos,
            total_duration_nanos: metrics.total_duration_nanos,
        }
    }
}

impl TabletReport {
    /// The lines about one tablet.
    pub fn text(&self) -> String {
        let TabletReport { tablet, rows, seconds, server } = self;
        let mut text = format!("T {tablet} scanned {rows} rows in {} seconds\n", number(*seconds));
        let figures = [
            ("NextBatch() calls", server.requests),
            ("bytes_read", server.bytes_read),
            ("cfile_cache_hit_bytes", server.cfile_cache_hit_bytes),
            ("cfile_cache_miss_bytes", server.cfile_cache_miss_bytes),
            ("cpu_system_nanos", server.cpu_system_nanos),
            ("cpu_user_nanos", server.cpu_user_nanos),
            ("queue_duration_nanos", server.queue_duration_nanos),
            ("total_duration_nanos", server.total_duration_nanos),
        ];
        for (name, figure) in figures {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:>32}{figure:>16}");
        }
        text
    }
}

#[derive(Serialize, Debug)]
pub struct TableScanSummary {
    /// Version of this program.
    pub version: &'static str,
    pub options: Value,
    /// Name of the table.
    pub table: String,
    pub rows: u64,
    /// Bytes of rows received.
    pub bytes: u64,
    /// From the first scanner to the end of the last.
    pub seconds: f64,
    pub rows_per_second: f64,
    /// CPU time of this process, in microseconds per row.
    pub client_cpu_us_per_row: f64,
    /// Round trips of batches.
    pub batch_latency_ms: Option<LatencySummary>,
    pub timeline: Vec<TimelineSample>,
    /// One for each tablet, in the order of their keys.
    pub tablets: Vec<TabletReport>,
    /// Ctrl-C ended it before all rows were received.
    pub interrupted: bool,
}

impl TableScanSummary {
    /// Adds up what tablets sent.
    pub fn new(
        options: Value,
        table: &str,
        bytes: u64,
        tablets: Vec<TabletReport>,
        measured: &PhaseMeasurements,
        interrupted: bool,
    ) -> TableScanSummary {
        let rows = tablets.iter().map(|tablet| tablet.rows).sum::<u64>();
        let latencies = &measured.latencies.read;
        TableScanSummary {
            version: env!("CARGO_PKG_VERSION"),
            options,
            table: table.to_owned(),
            rows,
            bytes,
            seconds: measured.took.as_secs_f64(),
            rows_per_second: measured.per_second(rows),
            client_cpu_us_per_row: measured.client_cpu_us_per(rows),
            batch_latency_ms: (!latencies.is_empty()).then(|| LatencySummary::in_millis(latencies)),
            timeline: measured.timeline.clone(),
            tablets,
            interrupted,
        }
    }

    /// The last lines of the report.
    pub fn text(&self) -> String {
        let mut text = format!("Total count {} cost {} seconds\n", self.rows, number(self.seconds));
        if self.rows > 0 {
            let _ = writeln!(text, "rows per second: {}", number(self.rows_per_second));
            let _ = writeln!(
                text,
                "MB per second: {}",
                number(self.bytes as f64 / 1e6 / self.seconds.max(1e-9))
            );
            let _ =
                writeln!(text, "CPU of client: {} us per row", number(self.client_cpu_us_per_row));
        }
        if let Some(latency) = &self.batch_latency_ms {
            let _ = writeln!(text, "Batches: {}", percentiles_text(latency));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    //! The lines are the other tool's, column for column.

    use super::*;

    #[test]
    fn lines_of_a_tablet_are_aligned() {
        let server =
            ServerFigures { requests: 1, cpu_user_nanos: 238_000, ..ServerFigures::default() };
        let report = TabletReport { tablet: "3ee6".to_owned(), rows: 2, seconds: 0.25, server };
        let text = report.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "T 3ee6 scanned 2 rows in 0.25 seconds");
        assert_eq!(lines[1], "               NextBatch() calls               1");
        assert_eq!(lines[6], "                  cpu_user_nanos          238000");
        assert_eq!(lines.len(), 9);
    }
}
