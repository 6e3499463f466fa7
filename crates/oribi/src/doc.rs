//! `oribi doc`: documents in and out of a server, from any machine.
//!
//! Owns the command line of these subcommands and how they connect. They use the key-value protocol
//! only, so they work against any server that speaks it; collections are made by the admin API. The
//! one exception is `export --data-dir`, which reads the files of a server that does not run.

mod expiry;
mod export;
mod get;
mod import;
mod input;
mod remove;
mod row;
mod set;

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use oribi_client::{Client, Collection, ConnectOptions};

use crate::target::{Target, find_collection};

/// Flags that SDKs expect of a document that is not JSON: format 3 ("binary") in the high byte.
const FLAGS_RAW: u32 = 0x0300_0000;

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
    Rm(remove::RemoveArgs),
    /// Set the expiry of documents.
    Touch(remove::TouchArgs),
    /// Load a file of JSON lines, one document a line.
    Import(import::ImportArgs),
    /// Write the documents of a collection as JSON lines.
    Export(export::ExportArgs),
}

/// The server and the collection on it.
#[derive(Args, Debug)]
struct Place {
    #[command(flatten)]
    target: Target,
    /// Collection, as scope.collection; the default one if not given.
    #[arg(long)]
    collection: Option<String>,
}

impl DocCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // Input is read on other threads than this one, and sockets are served by one of their own.
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
                DocCommand::Rm(args) => remove::remove(args).await,
                DocCommand::Touch(args) => remove::touch(args).await,
                DocCommand::Import(args) => import::run(args).await,
                DocCommand::Export(args) => export::run(args).await,
            }
        })
    }
}

impl Place {
    /// Connects and looks the collection up. `unordered_execution` as in [`ConnectOptions`].
    async fn connect(&self, unordered_execution: bool) -> anyhow::Result<(Client, Collection)> {
        let options = ConnectOptions { unordered_execution, ..self.target.options()? };
        let client = self.target.client(options).await?;
        let collection = find_collection(&client, self.collection.as_deref()).await?;
        Ok((client, collection))
    }
}

/// What is said of a key that has no document.
fn missing(key: &OsStr, collection: &Collection) -> String {
    format!("no document \"{}\" in {}", key.to_string_lossy(), collection.path())
}

/// A number as people write flags and CAS values: decimal, or hexadecimal after 0x.
fn parse_u64(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a whole number is needed, or 0x and hexadecimal digits".to_owned())
}

/// As [`parse_u64`], for 32 bits.
fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_u64(text)?).map_err(|_| "the number has more than 32 bits".to_owned())
}
