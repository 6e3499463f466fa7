//! The program `oribi-tools`: the command line of all tools, and the exit status.
//!
//! `oribi` executes it with its own name as the first argument, so its help and its errors are
//! those of one program. It also runs by its own name. Invariants: an error is one line on standard
//! error and a status other than 0. It runs for the `oribi` of the same version only, because the
//! help, completions and manual of that program describe these tools.

use std::env;
use std::process::ExitCode;

use anyhow::bail;
use clap::Command;

use crate::{commands, run};

/// Name of the executable file, next to that of `oribi`.
pub const NAME: &str = "oribi-tools";

/// Environment variable by which `oribi` tells its version.
pub const VERSION_VARIABLE: &str = "ORIBI_TOOLS_VERSION";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs the tool that the command line names.
pub fn main() -> ExitCode {
    let outcome = check_version(env::var(VERSION_VARIABLE).ok().as_deref()).and_then(|()| {
        let matches = command().get_matches();
        let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
        run(name, matches)
    });
    match outcome {
        Ok(status) => status,
        Err(error) => {
            eprintln!("oribi: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    Command::new("oribi")
        .version(VERSION)
        .about("The tools of the key-value server Oribi")
        .after_help("`oribi` runs these tools and the server; `oribi --help` lists all of it.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands())
}

/// `version` is that of the `oribi` that executes this program, if one does.
fn check_version(version: Option<&str>) -> anyhow::Result<()> {
    match version {
        Some(version) if version != VERSION => {
            let place = env::current_exe().unwrap_or_else(|_| NAME.into());
            bail!(
                "`oribi` has version {version} and {} has {VERSION}; install both from one package",
                place.display()
            );
        }
        _ => Ok(()),
    }
}
