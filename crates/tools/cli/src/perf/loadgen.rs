//! `oribi perf loadgen`: writes generated rows into Kudu, as fast as a cluster accepts them.
//!
//! It is the counterpart of `kudu perf loadgen`, for comparing the two clients and for loading a
//! cluster. It has the same flags, table, data and report, so a command line, a script that reads
//! the report, and a table work with either. It adds a live line, round trips of Write requests,
//! the client's own CPU time, results as JSON and plots, and keys that are written again and again
//! (`--zipf-keys`). It drops the table that it creates in every case.
//!
//! [`worker`] is one thread; [`mod@run`] is the order of steps; [`generator`] and [`row`] make the
//! data; [`report`] prints the results.

mod generator;
mod options;
mod report;
mod row;
mod run;
mod table;
mod worker;

pub use options::LoadgenArgs;
pub use run::run;
