//! The commands that administer a running server: `oribi bucket`, `cluster`, `scope`,
//! `collection`, `node`, and what `oribi user` does with a server.
//!
//! They use the admin HTTP, which client libraries' managers use as well. Invariants: what removes
//! documents is done only after `--yes` or after the name was typed on a terminal; standard output
//! has the result alone, as a table or as JSON.

pub mod bucket;
pub mod cluster;
pub mod collection;
mod confirm;
pub mod node;
mod place;
mod rebalance;
pub mod scope;
mod table;
pub mod users;

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context;

/// Runs a command to its end.
fn run<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(command)
}

/// The status of a successful command.
fn done(said: &str) -> anyhow::Result<ExitCode> {
    eprintln!("{said}");
    Ok(ExitCode::SUCCESS)
}
