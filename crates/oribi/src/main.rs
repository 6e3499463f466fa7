//! The `oribi` program: the server, and one command for all tools.
//!
//! It owns the command line and the exit status. Invariants: an error is one line on standard error
//! and a status other than 0. `serve`, `config`, `user` and `health` are modules here. The tools
//! are a separate program, `oribi-tools`, which [`tools`] executes; this one has only their
//! command lines, for help, completions and manual.

// A C function sets up the system's allocator; no other code may be unsafe.
#![deny(unsafe_code)]
// A reader that closes the pipe would make these panic.
#![deny(clippy::print_stdout)]

mod config;
mod groups;
mod health;
mod manual;
mod notify;
mod print;
mod serve;
mod system_allocator;
mod tools;
mod user;

use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};

use crate::user::UserCommand;

fn main() -> ExitCode {
    let outcome = match tools::named(std::env::args_os().nth(1).as_deref()) {
        Some(tool) => tools::run(tool),
        None => matches().and_then(|matches| run(&matches)),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            eprintln!("oribi: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line. A word that is a command one level lower is an error that names it.
fn matches() -> anyhow::Result<ArgMatches> {
    let first = std::env::args().nth(1);
    if let Some(meant) = first.as_deref().and_then(groups::command_for) {
        let word = first.unwrap_or_default();
        anyhow::bail!("there is no command `{word}`; `oribi {meant} --help` is what you look for");
    }
    Ok(command().get_matches())
}

fn command() -> Command {
    let user = user::with_arguments(UserCommand::augment_subcommands(Command::new("user")));
    let program = Command::new("oribi")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A durable key-value server for clients of Couchbase and memcached")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve::command())
        .subcommand(config::command())
        .subcommand(
            user.about("Manage the users of a server or of a data directory")
                .subcommand_required(true)
                .arg_required_else_help(true),
        )
        .subcommands(tools::commands())
        .subcommand(health::command())
        .subcommand(manual::completions_command())
        .subcommand(manual::man_command());
    groups::apply(program)
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
        Some((tool, _)) => tools::run(tool),
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
