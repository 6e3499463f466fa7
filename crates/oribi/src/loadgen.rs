//! `oribi perf loadgen`: generated rows into Kudu, as fast as a cluster takes them.
//!
//! The counterpart of `kudu perf loadgen`, for comparing the two clients and for loading a cluster: the same
//! flags, table, data and report, so that a command line, a script that reads the report, and a table can be
//! used with either. What it adds: a live line, round trips of Write requests, the client's own processor time,
//! `--json`, keys that are written again and again (`--zipf-keys`), and that the table it creates is dropped whatever happens.
//!
//! [`worker`] is one thread; [`run`] is the order of things; [`generator`] and [`row`] make the data;
//! [`report`] is what is said of it.

mod count;
mod generator;
mod live;
mod options;
mod report;
mod row;
mod run;
mod table;
mod worker;

pub use options::LoadgenArgs;
pub(crate) use report::number;
pub use run::run;
