//! The `oribi` program: one binary, one subcommand per job.
//!
//! It owns the command line and the exit status. Invariants: an error is one line on standard error
//! and a status other than 0. `serve`, `config`, `user` and `health` are modules here; the tools
//! are the crate `oribi-tools`. A build without the feature `tools` has `no_tools` instead and
//! links none of the tools' dependencies.

// A C function sets up the system's allocator; no other code may be unsafe.
#![deny(unsafe_code)]
// A reader that closes the pipe would make these panic.
#![deny(clippy::print_stdout)]

mod config;
mod health;
mod manual;
#[cfg(any(test, not(feature = "tools")))]
mod no_tools;
mod notify;
mod print;
mod serve;
mod system_allocator;
mod user;

use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
#[cfg(feature = "tools")]
use oribi_tools as tools;

#[cfg(not(feature = "tools"))]
use crate::no_tools as tools;
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
    let user = Command::new("user").about("Manage the users of a server or of a data directory");
    Command::new("oribi")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A durable key-value server for clients of Couchbase and memcached")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve::command())
        .subcommand(config::command())
        .subcommand(
            user::with_arguments(UserCommand::augment_subcommands(user))
                .subcommand_required(true)
                .arg_required_else_help(true),
        )
        .subcommands(tools::commands())
        .subcommand(health::command())
        .subcommand(manual::completions_command())
        .subcommand(manual::man_command())
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches),
        Some(("config", matches)) => config::run(matches).map(|()| ExitCode::SUCCESS),
        Some(("user", matches)) => {
            let command = UserCommand::from_arg_matches(matches)?;
            user::run(command, matches).map(|()| ExitCode::SUCCESS)
        }
        Some(("health", matches)) => health::run(matches).map(|()| ExitCode::SUCCESS),
        Some(("completions", matches)) => {
            manual::print_completions(matches, command()).map(|()| ExitCode::SUCCESS)
        }
        Some(("man", matches)) => {
            manual::write_manual(matches, command()).map(|()| ExitCode::SUCCESS)
        }
        Some((tool, matches)) => tools::run(tool, matches),
        None => unreachable!("clap demands a subcommand"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
