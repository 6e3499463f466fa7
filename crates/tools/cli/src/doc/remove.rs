//! `oribi doc drop` and `oribi doc touch`: the same small change to each of several documents.
//!
//! A key without a document is reported and the rest continues; any other failure ends the command.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use oribi_client::{Client, Collection, Operation, RejectionKind, WriteOptions};
use oribi_types::{Cas, DurabilityLevel};

use super::expiry;
use super::number::parse_u64;
use super::place::{CollectionTarget, missing};
use super::set::explain;
use crate::target::DurabilityArgument;

/// Arguments of `oribi doc drop`.
#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// Keys of the documents.
    #[arg(required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    place: CollectionTarget,
    /// Fail if the document has another CAS; with one key only.
    #[arg(long, value_parser = parse_u64)]
    cas: Option<u64>,
    /// Do not fail for keys without a document.
    #[arg(long)]
    ignore_missing: bool,
    /// Durability of a removal.
    #[arg(long, value_enum, default_value_t = DurabilityArgument::None)]
    durability: DurabilityArgument,
}

/// Arguments of `oribi doc touch`.
#[derive(Args, Debug)]
pub struct TouchArgs {
    /// Keys of the documents.
    #[arg(required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    place: CollectionTarget,
    /// Expiry: seconds, or a time such as 90s, 15m, 12h or 7d, or @UNIXTIME; 0 for never.
    #[arg(long, value_name = "TIME", value_parser = expiry::parse)]
    expiry: u32,
    /// Do not fail for keys without a document.
    #[arg(long)]
    ignore_missing: bool,
}

/// Removes the documents.
pub async fn remove(args: RemoveArgs) -> anyhow::Result<ExitCode> {
    if args.cas.is_some() && args.keys.len() > 1 {
        bail!("--cas goes with one key");
    }
    let options = WriteOptions::new()
        .cas(Cas(args.cas.unwrap_or(0)))
        .durability(DurabilityLevel::from(args.durability));
    let (client, collection) = args.place.connect(false).await?;
    let mut changes = Changes::new(&client, &collection, args.ignore_missing);
    for key in &args.keys {
        let operation = Operation::delete(key.as_encoded_bytes(), &options);
        changes.run(key, &operation, args.cas).await?;
    }
    Ok(changes.status)
}

/// Sets the expiry of the documents.
pub async fn touch(args: TouchArgs) -> anyhow::Result<ExitCode> {
    let (client, collection) = args.place.connect(false).await?;
    let mut changes = Changes::new(&client, &collection, args.ignore_missing);
    for key in &args.keys {
        let operation = Operation::touch(key.as_encoded_bytes(), args.expiry);
        changes.run(key, &operation, None).await?;
    }
    Ok(changes.status)
}

struct Changes<'a> {
    client: &'a Client,
    collection: &'a Collection,
    ignore_missing: bool,
    status: ExitCode,
}

impl<'a> Changes<'a> {
    fn new(client: &'a Client, collection: &'a Collection, ignore_missing: bool) -> Changes<'a> {
        Changes { client, collection, ignore_missing, status: ExitCode::SUCCESS }
    }

    async fn run(
        &mut self,
        key: &OsString,
        operation: &Operation<'_>,
        cas: Option<u64>,
    ) -> anyhow::Result<()> {
        match self.client.run(self.collection, operation).await {
            Ok(_) => {}
            Err(error) if error.rejection() == Some(RejectionKind::NotFound) => {
                if !self.ignore_missing {
                    eprintln!("oribi: {}", missing(key, self.collection));
                    self.status = ExitCode::FAILURE;
                }
            }
            Err(error) => return Err(explain(error, key, cas, self.collection)),
        }
        Ok(())
    }
}
