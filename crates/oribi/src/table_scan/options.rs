//! The command line of `oribi perf table-scan`.
//!
//! Flags, defaults and meanings are those of `kudu perf table_scan` of Kudu 1.18; its spelling with underscores is
//! understood as well, and so is `--flag=false`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use oribi_kudu::{Layout, ReplicaSelection};
use serde::Serialize;

/// Most threads; more only measures the scheduler.
const THREADS_MAX: u64 = 1024;
/// Longest time limit: a day, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Scan a Kudu table as fast as possible and count its rows.
///
/// Flags and report are those of `kudu perf table_scan`, so that both tools can be compared.
#[derive(Args, Clone, Debug)]
pub struct TableScanArgs {
    /// Masters as host[:port], separated by commas.
    #[arg(value_delimiter = ',', required = true)]
    pub masters: Vec<String>,
    /// Name of the table.
    pub table: String,
    /// Columns to read, separated by commas; all without it.
    #[arg(long, value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Count rows without reading any column.
    #[arg(long, alias = "row_count_only", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true")]
    pub row_count_only: bool,
    /// Report each tablet and what it cost its server.
    #[arg(long, alias = "report_scanner_stats", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true")]
    pub report_scanner_stats: bool,
    /// Bytes of an answer, about; negative for the server's default.
    #[arg(long, alias = "scan_batch_size", default_value_t = -1, allow_negative_numbers = true)]
    pub scan_batch_size: i32,
    /// Rows of each tablet in the order of their keys, and scans that go on elsewhere when a server fails.
    #[arg(long, alias = "fault_tolerant", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true")]
    pub fault_tolerant: bool,
    /// Servers keep in their caches what they read.
    #[arg(long, alias = "fill_cache", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true")]
    pub fill_cache: bool,
    /// Tablets that are scanned at the same time.
    #[arg(long, alias = "num_threads", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    pub num_threads: u64,
    /// Conditions as JSON: ["<", "column", 5], ["IN", "column", [1, 2]], ["NULL", "column"], ["NOTNULL", "column"]
    /// or ["AND", condition, ...].
    #[arg(long, default_value = "", hide_default_value = true)]
    pub predicates: String,
    /// Ids of the tablets to scan, separated by commas; all without it.
    #[arg(long, value_delimiter = ',')]
    pub tablets: Vec<String>,
    /// Which replicas are read.
    #[arg(long, alias = "replica_selection", value_enum, ignore_case = true, default_value_t = Replicas::Closest)]
    pub replica_selection: Replicas,
    /// How servers lay out rows.
    #[arg(long, value_enum, default_value_t = RowLayout::Rowwise)]
    pub layout: RowLayout,
    /// Milliseconds that the set-up of a connection may take.
    #[arg(long, alias = "negotiation_timeout_ms", default_value_t = 3000,
          value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MS_MAX))]
    pub negotiation_timeout_ms: u64,
    /// Milliseconds that a batch may take, with all that is tried again.
    #[arg(long, alias = "timeout_ms", default_value_t = 60_000,
          value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MS_MAX))]
    pub timeout_ms: u64,
    /// Print the results as one JSON document instead of the report.
    #[arg(long)]
    pub json: bool,
}

/// Which replicas are read.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Replicas {
    /// Near ones first.
    Closest,
    /// The leader only.
    Leader,
}

impl From<Replicas> for ReplicaSelection {
    fn from(replicas: Replicas) -> ReplicaSelection {
        match replicas {
            Replicas::Closest => ReplicaSelection::Closest,
            Replicas::Leader => ReplicaSelection::Leader,
        }
    }
}

/// How servers lay out rows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowLayout {
    /// Row after row.
    Rowwise,
    /// Column after column.
    Columnar,
}

impl From<RowLayout> for Layout {
    fn from(layout: RowLayout) -> Layout {
        match layout {
            RowLayout::Rowwise => Layout::Rowwise,
            RowLayout::Columnar => Layout::Columnar,
        }
    }
}

impl TableScanArgs {
    /// Time limit of one batch.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Time limit of setting up a connection.
    pub fn negotiation_timeout(&self) -> Duration {
        Duration::from_millis(self.negotiation_timeout_ms)
    }
}

/// What of the command line a result depends on.
#[derive(Serialize, Debug)]
pub struct Options {
    columns: Vec<String>,
    row_count_only: bool,
    scan_batch_size: i32,
    fault_tolerant: bool,
    fill_cache: bool,
    num_threads: u64,
    predicates: String,
    tablets: Vec<String>,
    replica_selection: Replicas,
    layout: RowLayout,
}

impl From<&TableScanArgs> for Options {
    fn from(args: &TableScanArgs) -> Options {
        Options {
            columns: args.columns.clone(),
            row_count_only: args.row_count_only,
            scan_batch_size: args.scan_batch_size,
            fault_tolerant: args.fault_tolerant,
            fill_cache: args.fill_cache,
            num_threads: args.num_threads,
            predicates: args.predicates.clone(),
            tablets: args.tablets.clone(),
            replica_selection: args.replica_selection,
            layout: args.layout,
        }
    }
}
