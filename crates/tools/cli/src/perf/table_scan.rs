//! `oribi perf table-scan`: reads a whole Kudu table as fast as its cluster delivers it.
//!
//! It is the counterpart of `kudu perf table_scan`, with the same flags and report. It compares the
//! two clients and finds tablets that are larger or slower than others. It adds a live line, rows
//! and bytes per second, round trips of batches, the client's own CPU time, a choice of row layout,
//! and results as JSON and plots.
//!
//! [`mod@run`] is the order of steps; [`options`] is the command line; [`predicates`] parses JSON
//! conditions; [`report`] prints the results.

mod options;
mod predicates;
mod report;
mod run;

pub use options::TableScanArgs;
pub use run::run;
