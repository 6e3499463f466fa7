//! `oribi perf table-scan`: reads a whole Kudu table as fast as its cluster gives it.
//!
//! The counterpart of `kudu perf table_scan`, for comparing the two clients and for finding tablets that are
//! larger or slower than others: the same flags and the same report. What it adds: a live line, rows and bytes
//! per second, the client's own processor time, the layout of rows as a choice, and `--json`.
//!
//! [`run`] is the order of things; [`options`] is the command line; [`predicates`] reads conditions that are
//! written as JSON; [`report`] is what is said at the end.

mod options;
mod predicates;
mod report;
mod run;

pub use options::TableScanArgs;
pub use run::run;
