//! `oribi doc`: reads and writes documents of a server, from any machine.
//!
//! It owns the list of these subcommands, one module each; [`place`] is how they connect. They use
//! only the key-value protocol, so they work against any server that speaks it; the admin API
//! creates collections. The one exception is `export --data-dir`, which reads the files of a
//! stopped server.

mod expiry;
mod export;
mod get;
mod import;
mod input;
mod ls;
mod number;
mod place;
mod remove;
mod row;
mod set;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

pub use row::is_json;

/// Work with documents of a running server.
#[derive(Subcommand, Debug)]
pub enum DocCommand {
    /// Print one document.
    Get(get::GetArgs),
    /// Print the exact bytes of several documents, one after another.
    Cat(get::CatArgs),
    /// Write one document.
    Set(set::SetArgs),
    /// Remove documents.
    #[command(visible_alias = "rm", alias = "delete")]
    Drop(remove::RemoveArgs),
    /// Set the expiry of documents.
    Touch(remove::TouchArgs),
    /// List the keys of documents.
    #[command(visible_alias = "ls")]
    List(ls::LsArgs),
    /// Load a file of JSON lines, a JSON array, or CSV.
    Import(import::ImportArgs),
    /// Write the documents of collections as JSON lines.
    Export(export::ExportArgs),
}

impl DocCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // Other threads read input, and a separate one serves sockets.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("starting the runtime")?;
        runtime.block_on(async {
            match self {
                DocCommand::Get(args) => get::get(args).await,
                DocCommand::Cat(args) => get::cat(args).await,
                DocCommand::Set(args) => set::run(args).await,
                DocCommand::Drop(args) => remove::remove(args).await,
                DocCommand::Touch(args) => remove::touch(args).await,
                DocCommand::List(args) => ls::run(args).await,
                DocCommand::Import(args) => import::run(args).await,
                DocCommand::Export(args) => export::run(args).await,
            }
        })
    }
}
