//! `oribi perf`: load on a server, or on a Kudu cluster.
//!
//! It has one core and three workloads. The core: [`workers`] runs threads and measures them
//! together, [`control`] is their shared state and how signals end them. [`latencies`],
//! [`timeline`] and [`cpu`] are the figures, [`progress`] is the live line, [`report`] prints, and
//! [`plot`] and [`hdr`] draw. A workload brings the loop of one thread, its options, and the words
//! of its report. [`kv`] writes, reads and verifies documents, [`loadgen`] inserts rows into Kudu,
//! and [`table_scan`] scans them. The last two share [`kudu`].

mod control;
mod cpu;
mod hdr;
mod key_choice;
mod kudu;
mod kv;
mod latencies;
mod loadgen;
mod plot;
mod progress;
mod report;
mod table_scan;
mod thread_times;
mod timeline;
mod workers;

use std::process::ExitCode;

use clap::Subcommand;

/// Put a server or a Kudu cluster under load.
#[derive(Subcommand, Debug)]
pub enum PerfCommand {
    // Described where its options are.
    Kv(Box<kv::KvArgs>),
    Loadgen(loadgen::LoadgenArgs),
    TableScan(table_scan::TableScanArgs),
}

impl PerfCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            PerfCommand::Kv(args) => kv::run(*args),
            PerfCommand::Loadgen(args) => loadgen::run(args),
            PerfCommand::TableScan(args) => table_scan::run(args),
        }
    }
}
