//! `oribi doc`: documents in and out of a running server, from any machine.
//!
//! Owns the command line of these subcommands and how they connect. They use the key-value protocol
//! only, so they work against any server that speaks it; collections are made by the admin API.

mod import;
mod row;

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use oribi_client::{Client, Collection, ConnectOptions};
use oribi_types::DurabilityLevel;

use crate::target::{Target, find_collection};

/// Work with documents of a running server.
#[derive(Subcommand, Debug)]
pub enum DocCommand {
    /// Load a file of JSON lines, one document a line.
    Import(import::ImportArgs),
    /// Print one document.
    Get(GetArgs),
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

/// Arguments of `oribi doc get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// Key of the document.
    key: String,
    #[command(flatten)]
    place: Place,
}

/// When a write counts as done.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Durability {
    /// In memory.
    None,
    /// In the memory of a majority of replicas.
    Majority,
    /// On the disks of a majority of replicas.
    Persist,
}

impl From<Durability> for DurabilityLevel {
    fn from(durability: Durability) -> DurabilityLevel {
        match durability {
            Durability::None => DurabilityLevel::None,
            Durability::Majority => DurabilityLevel::Majority,
            Durability::Persist => DurabilityLevel::PersistToMajority,
        }
    }
}

impl DocCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<()> {
        // Input is read on this thread, so sockets are served by another one.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("starting the runtime")?;
        runtime.block_on(async {
            match self {
                DocCommand::Import(args) => import::run(args).await,
                DocCommand::Get(args) => get(args).await,
            }
        })
    }
}

impl Place {
    /// Connects and looks the collection up. `unordered_execution` as in [`ConnectOptions`].
    async fn connect(&self, unordered_execution: bool) -> anyhow::Result<(Client, Collection)> {
        let options = ConnectOptions { unordered_execution, ..self.target.options() };
        let client = self.target.client(options).await?;
        let collection = find_collection(&client, self.collection.as_deref()).await?;
        Ok((client, collection))
    }
}

async fn get(args: GetArgs) -> anyhow::Result<()> {
    let (client, collection) = args.place.connect(false).await?;
    let document = client
        .get(&collection, args.key.as_bytes())
        .await
        .with_context(|| format!("reading \"{}\"", args.key))?
        .with_context(|| format!("no document \"{}\" in {}", args.key, collection.path()))?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&document.value).context("printing the document")?;
    if !document.value.ends_with(b"\n") {
        stdout.write_all(b"\n").context("printing the document")?;
    }
    Ok(())
}
