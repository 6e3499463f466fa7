//! `oribi perf`: a server under load.
//!
//! `oribi perf kv` writes and reads documents as fast as it is asked to and verifies all that it reads.
//! It is built for its own cost to be small against the server's: one event loop per thread, no locks
//! and no allocation per operation, one system call for a batch of requests and one for as many
//! answers as have arrived. It uses the key-value protocol only, so it works against any server that
//! speaks it, and with `--memcached` against any of the memcached binary protocol.
//!
//! [`worker`] is the loop; [`link`] sends a batch and judges its answers; [`run`] is the order of things.

mod choices;
mod cluster;
pub(crate) mod control;
pub(crate) mod cpu;
mod crew;
mod flight;
mod hdr;
mod key;
pub(crate) mod key_choice;
mod link;
mod operation;
mod options;
mod pace;
mod plot;
mod progress;
mod request;
mod run;
mod schedule;
pub(crate) mod summary;
mod tally;
mod thread_times;
pub(crate) mod timeline;
mod value;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

/// Put a server under load.
#[derive(Subcommand, Debug)]
pub enum PerfCommand {
    // Described where its options are.
    Kv(Box<options::KvArgs>),
    Loadgen(crate::loadgen::LoadgenArgs),
    TableScan(crate::table_scan::TableScanArgs),
}

impl PerfCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            PerfCommand::Kv(args) => run::run(*args),
            PerfCommand::Loadgen(args) => crate::loadgen::run(args),
            PerfCommand::TableScan(args) => crate::table_scan::run(args),
        }
    }
}
