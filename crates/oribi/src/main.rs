//! The `oribi` program: one binary, one subcommand per job.
//!
//! Owns: the command line and the exit status. Invariants: an error is one line on standard error and
//! a status other than 0; what a subcommand prints for programs goes to standard output and nothing
//! else does. Each subcommand is a module: `serve`, `config`, `user`, `doc`, `stats`, `perf`,
//! `ping`, `top`, `sql`.

// The virtual tables of `sql` implement traits that are unsafe to implement; nothing else may.
#![deny(unsafe_code)]

mod config;
mod doc;
mod loadgen;
mod perf;
mod ping;
mod serve;
mod sql;
mod stats;
mod table_scan;
mod target;
mod top;
mod user;

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use crate::doc::DocCommand;
use crate::perf::PerfCommand;
use crate::ping::PingArgs;
use crate::sql::SqlArgs;
use crate::stats::StatsArgs;
use crate::top::TopArgs;
use crate::user::UserCommand;

fn main() -> ExitCode {
    let matches = command().get_matches();
    match run(&matches) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("oribi: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let user = Command::new("user").about("Manage the users of a data directory");
    let doc = Command::new("doc").about("Read and write documents of a running server");
    let stats = Command::new("stats").about("Show the figures of a running server");
    let top = Command::new("top").about("Watch what a server is doing");
    let ping = Command::new("ping").about("Time connecting to a server and round trips");
    let sql = Command::new("sql").about("Query the documents of buckets on Kudu by SQL");
    let perf = Command::new("perf").about("Put a running server under load");
    Command::new("oribi")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A durable key-value server for clients of Couchbase and memcached")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve::command())
        .subcommand(config::command())
        .subcommand(
            UserCommand::augment_subcommands(user)
                .subcommand_required(true)
                .arg_required_else_help(true)
                .args(user::data_dir_arguments()),
        )
        .subcommand(
            DocCommand::augment_subcommands(doc)
                .subcommand_required(true)
                .arg_required_else_help(true),
        )
        .subcommand(StatsArgs::augment_args(stats))
        .subcommand(
            PerfCommand::augment_subcommands(perf)
                .subcommand_required(true)
                .arg_required_else_help(true),
        )
        .subcommand(PingArgs::augment_args(ping))
        .subcommand(TopArgs::augment_args(top))
        .subcommand(SqlArgs::augment_args(sql))
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches),
        Some(("config", matches)) => config::run(matches).map(|()| ExitCode::SUCCESS),
        Some(("user", matches)) => {
            let command = UserCommand::from_arg_matches(matches)?;
            user::run(command, matches).map(|()| ExitCode::SUCCESS)
        }
        Some(("doc", matches)) => {
            let command = DocCommand::from_arg_matches(matches)?;
            command.run()
        }
        Some(("stats", matches)) => stats::run(StatsArgs::from_arg_matches(matches)?),
        Some(("perf", matches)) => PerfCommand::from_arg_matches(matches)?.run(),
        Some(("ping", matches)) => ping::run(PingArgs::from_arg_matches(matches)?),
        Some(("top", matches)) => top::run(TopArgs::from_arg_matches(matches)?),
        Some(("sql", matches)) => sql::run(SqlArgs::from_arg_matches(matches)?),
        _ => unreachable!("clap demands one of the subcommands above"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
