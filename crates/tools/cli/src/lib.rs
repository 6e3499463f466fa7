//! The tools of Oribi: every subcommand of `oribi` that is not part of running a server.
//!
//! It owns `doc`, `bucket`, `scope`, `collection`, `node`, `backup`, `copy`, `stats`, `perf`,
//! `ping`, `top`, `watch` and `query`, one module each, with their own dependencies: a
//! terminal interface, plots. [`program`] is the program `oribi-tools`, which the program
//! `oribi` executes; `oribi` itself links only [`commands`] and [`users`] from this crate. A tool
//! writes nothing to standard output but its result.

#![forbid(unsafe_code)]
// A reader that closes the pipe would make these panic; `print` ends the tool quietly.
#![deny(clippy::print_stdout)]

mod admin;
mod backup;
mod doc;
mod duration;
mod help;
mod manage;
mod perf;
mod ping;
mod print;
pub mod program;
mod query;
mod stats;
mod target;
mod top;
mod vbucket_scan;
mod watch;

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use crate::backup::{BackupCommand, CopyArgs};
use crate::doc::DocCommand;
use crate::manage::bucket::BucketCommand;
use crate::manage::cluster::ClusterCommand;
use crate::manage::collection::CollectionCommand;
use crate::manage::node::NodeCommand;
use crate::manage::scope::ScopeCommand;
use crate::perf::PerfCommand;
use crate::ping::PingArgs;
use crate::print::ReaderGone;
use crate::query::QueryArgs;
use crate::stats::StatsArgs;
use crate::top::TopArgs;
use crate::watch::WatchArgs;

pub use crate::manage::users;

/// The subcommands, in the order in which the help lists them.
pub fn commands() -> [Command; 14] {
    let group = |name: &'static str| {
        Command::new(name).subcommand_required(true).arg_required_else_help(true)
    };
    [
        DocCommand::augment_subcommands(group("doc"))
            .about("Read and write documents of a running server"),
        BucketCommand::augment_subcommands(group("bucket"))
            .about("Manage the buckets of a running server"),
        ScopeCommand::augment_subcommands(group("scope")).about("Manage the scopes of a bucket"),
        CollectionCommand::augment_subcommands(group("collection"))
            .about("Manage the collections of a bucket"),
        ClusterCommand::augment_subcommands(group("cluster"))
            .about("Show the cluster and its copies, and fail nodes over"),
        NodeCommand::augment_subcommands(group("node")).about("Show and manage nodes"),
        BackupCommand::augment_subcommands(group("backup"))
            .about("Back buckets up, and restore them"),
        CopyArgs::augment_args(Command::new("copy"))
            .about("Copy a bucket to another server, or keep the copy in step"),
        StatsArgs::augment_args(Command::new("stats"))
            .about("Show the figures of a running server"),
        PerfCommand::augment_subcommands(group("perf"))
            .about("Put a running server or a Kudu cluster under load"),
        PingArgs::augment_args(Command::new("ping"))
            .about("Time connecting to a server and round trips"),
        TopArgs::augment_args(Command::new("top")).about("Watch what a server is doing"),
        WatchArgs::augment_args(Command::new("watch"))
            .about("Print every change of a bucket as a line of JSON"),
        QueryArgs::augment_args(Command::new("query")).about("Query documents by SQL++"),
    ]
    .map(help::finish)
}

/// Runs the subcommand `name`, one of [`commands`].
pub fn run(name: &str, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match run_tool(name, matches) {
        // As for programs that such a pipe kills, but without the status of a failure.
        Err(error) if error.downcast_ref::<ReaderGone>().is_some() => Ok(ExitCode::SUCCESS),
        outcome => outcome,
    }
}

fn run_tool(name: &str, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match name {
        "doc" => DocCommand::from_arg_matches(matches)?.run(),
        "bucket" => BucketCommand::from_arg_matches(matches)?.run(),
        "scope" => ScopeCommand::from_arg_matches(matches)?.run(),
        "collection" => CollectionCommand::from_arg_matches(matches)?.run(),
        "cluster" => ClusterCommand::from_arg_matches(matches)?.run(),
        "node" => NodeCommand::from_arg_matches(matches)?.run(),
        "backup" => BackupCommand::from_arg_matches(matches)?.run(),
        "copy" => backup::run_copy(CopyArgs::from_arg_matches(matches)?),
        "stats" => stats::run(StatsArgs::from_arg_matches(matches)?),
        "perf" => PerfCommand::from_arg_matches(matches)?.run(),
        "ping" => ping::run(PingArgs::from_arg_matches(matches)?),
        "top" => top::run(TopArgs::from_arg_matches(matches)?),
        "watch" => watch::run(WatchArgs::from_arg_matches(matches)?),
        "query" => query::run(QueryArgs::from_arg_matches(matches)?),
        _ => unreachable!("clap lets only subcommands of `commands` through"),
    }
}
