//! The command line of `oribi perf table-scan`.
//!
//! Flags, defaults and meanings are those of `kudu perf table_scan` of Kudu 1.18; its spelling with
//! underscores works too, and so does `--flag=false`.

use clap::{Args, ValueEnum};
use oribi_kudu::{Layout, ReplicaSelection};
use serde::Serialize;
use serde_json::{Value, json};

use crate::perf::kudu::KuduArgs;
use crate::perf::report::OutputArgs;

/// Scan a Kudu table as fast as possible and count its rows.
///
/// Flags and report are those of `kudu perf table_scan`, so that both tools can be compared.
#[derive(Args, Clone, Debug)]
pub struct TableScanArgs {
    #[command(flatten)]
    pub kudu: KuduArgs,
    /// Name of the table.
    pub table: String,
    /// Columns to read, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Count rows without reading any column.
    #[arg(long, alias = "row_count_only", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub row_count_only: bool,
    /// Report each tablet with its cost on the server.
    #[arg(long, alias = "report_scanner_stats", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub report_scanner_stats: bool,
    /// Approximate bytes of a batch; negative for the default of the server.
    #[arg(long, alias = "scan_batch_size", value_name = "BYTES", default_value_t = -1, allow_negative_numbers = true)]
    pub scan_batch_size: i32,
    /// Return the rows of each tablet in key order, and continue on another server when one fails.
    #[arg(long, alias = "fault_tolerant", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub fault_tolerant: bool,
    /// Let servers cache the blocks that they read.
    #[arg(long, alias = "fill_cache", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = true, default_missing_value = "true")]
    pub fill_cache: bool,
    /// Conditions as JSON: ["<", "column", 5], ["IN", "column", [1, 2]], ["NULL", "column"],
    /// ["NOTNULL", "column"] or ["AND", condition, ...].
    #[arg(long, default_value = "", hide_default_value = true)]
    pub predicates: String,
    /// Tablets to scan, by ID, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    pub tablets: Vec<String>,
    /// Replicas to read.
    #[arg(long, alias = "replica_selection", value_name = "REPLICAS", value_enum, ignore_case = true, default_value_t = Replicas::Closest)]
    pub replica_selection: Replicas,
    /// Layout of rows in batches.
    #[arg(long, value_enum, default_value_t = ScanRowLayout::Rowwise)]
    pub layout: ScanRowLayout,
    #[command(flatten)]
    pub output: OutputArgs,
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
pub enum ScanRowLayout {
    /// Row after row.
    Rowwise,
    /// Column after column.
    Columnar,
}

impl From<ScanRowLayout> for Layout {
    fn from(layout: ScanRowLayout) -> Layout {
        match layout {
            ScanRowLayout::Rowwise => Layout::Rowwise,
            ScanRowLayout::Columnar => Layout::Columnar,
        }
    }
}

/// Options that a result depends on.
pub fn options(args: &TableScanArgs) -> Value {
    json!({
        "columns": args.columns,
        "row_count_only": args.row_count_only,
        "scan_batch_size": args.scan_batch_size,
        "fault_tolerant": args.fault_tolerant,
        "fill_cache": args.fill_cache,
        "num_threads": args.kudu.num_threads,
        "predicates": args.predicates,
        "tablets": args.tablets,
        "replica_selection": args.replica_selection,
        "layout": args.layout,
    })
}
