//! `oribi doc`: documents in and out of a running server, from any machine.
//!
//! Owns the command line of these subcommands and how they connect. They use the key-value protocol
//! only, so they work against any server that speaks it; collections are made by the admin API.

mod import;
mod row;

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use oribi_client::{Client, Collection, ConnectOptions, Refused};
use oribi_types::DurabilityLevel;

/// Longer than an interactive client would wait: with thousands of writes ahead of it in the queue, a
/// durable one waits for all of them to reach the disk.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Work with documents of a running server.
#[derive(Subcommand, Debug)]
pub enum DocCommand {
    /// Load a file of JSON lines, one document a line.
    Import(import::ImportArgs),
    /// Print one document.
    Get(GetArgs),
}

/// Where the server is, and whom to be there.
#[derive(Args, Debug)]
struct ConnectionArgs {
    /// Host name or address of the server.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port of the key-value protocol.
    #[arg(long, default_value_t = 11210)]
    port: u16,
    /// User to authenticate as.
    #[arg(long, default_value = "Administrator")]
    user: String,
    /// The user's password; better given in the environment, where other users do not see it.
    #[arg(long, env = "ORIBI_PASSWORD", hide_env_values = true, default_value = "password")]
    #[arg(hide_default_value = true)]
    password: String,
    /// Bucket.
    #[arg(long, default_value = "default")]
    bucket: String,
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
    connection: ConnectionArgs,
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

impl ConnectionArgs {
    /// Connects and looks the collection up. `unordered_execution` as in [`ConnectOptions`].
    async fn connect(&self, unordered_execution: bool) -> anyhow::Result<(Client, Collection)> {
        let ConnectionArgs { host, port, user, bucket, .. } = self;
        let options = ConnectOptions {
            host: host.clone(),
            port: *port,
            unordered_execution,
            operation_timeout: OPERATION_TIMEOUT,
            ..ConnectOptions::new(user, &self.password, bucket)
        };
        let client = Client::connect(options).await.with_context(|| {
            format!("cannot open bucket \"{bucket}\" at {host}:{port} as \"{user}\"")
        })?;
        let collection = match &self.collection {
            None => client.default_collection().clone(),
            Some(path) => match client.collection(path).await {
                Err(error) => {
                    let hint = match error.refused() {
                        Some(Refused::UnknownScope | Refused::UnknownCollection) => {
                            " (collections are created by the admin API)"
                        }
                        _ => "",
                    };
                    return Err(error).context(format!("collection \"{path}\"{hint}"));
                }
                Ok(collection) => collection,
            },
        };
        Ok((client, collection))
    }
}

async fn get(args: GetArgs) -> anyhow::Result<()> {
    let (client, collection) = args.connection.connect(false).await?;
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
