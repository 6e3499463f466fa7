//! `oribi doc set`: one document from the command line, a file or standard input.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::{ArgGroup, Args};
use oribi_client::{ClientError, Collection, FLAGS_JSON, Operation, RejectionKind, WriteOptions};
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_types::{Cas, DurabilityLevel};
use serde_json::json;

use super::number::{parse_u32, parse_u64};
use super::place::{CollectionTarget, missing, named};
use super::row::FLAGS_RAW;
use super::{expiry, row};
use crate::print;
use crate::target::DurabilityArgument;

/// Arguments of `oribi doc set`.
#[derive(Args, Debug)]
#[command(override_usage = "oribi doc set [OPTIONS] <KEY> <VALUE|--file <FILE>>")]
#[command(group(ArgGroup::new("source").required(true).args(["value", "file"])))]
pub struct SetArgs {
    /// Key of the document.
    key: OsString,
    /// Value; - reads standard input.
    #[arg(allow_negative_numbers = true)]
    value: Option<OsString>,
    /// Read the value from this file; - reads standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    place: CollectionTarget,
    /// Fail if the document exists.
    #[arg(long, conflicts_with_all = ["replace", "cas"])]
    add: bool,
    /// Fail if the document does not exist.
    #[arg(long)]
    replace: bool,
    /// Fail if the document has another CAS.
    #[arg(long, value_parser = parse_u64)]
    cas: Option<u64>,
    /// Expiry: seconds, or a time such as 90s, 15m, 12h or 7d, or @UNIXTIME; 0 for never.
    #[arg(long, value_name = "TIME", value_parser = expiry::parse, default_value = "0")]
    expiry: u32,
    /// Flags, decimal or 0x... [default: those of JSON or of binary values, as the value is].
    #[arg(long, value_parser = parse_u32)]
    flags: Option<u32>,
    /// Use the flags of a binary value even if the value is JSON.
    #[arg(long, conflicts_with = "flags")]
    raw: bool,
    /// Durability of the write.
    #[arg(long, value_enum, default_value_t = DurabilityArgument::None)]
    durability: DurabilityArgument,
    /// Print CAS and mutation token as JSON, 64-bit numbers as strings.
    #[arg(long)]
    json: bool,
}

/// Writes the document and prints its CAS.
pub async fn run(args: SetArgs) -> anyhow::Result<ExitCode> {
    let value = args.read_value()?;
    let flags = match args.flags {
        Some(flags) => flags,
        None if !args.raw && row::is_json(&value) => FLAGS_JSON,
        None => FLAGS_RAW,
    };
    let options = WriteOptions::new()
        .cas(Cas(args.cas.unwrap_or(0)))
        .flags(flags)
        .expiry(args.expiry)
        .durability(DurabilityLevel::from(args.durability));
    let (client, collection) = args.place.connect(false).await?;
    let key = args.key.as_encoded_bytes();
    let operation = match (args.add, args.replace) {
        (true, _) => Operation::add(key, value, &options),
        (_, true) => Operation::replace(key, value, &options),
        _ => Operation::upsert(key, value, &options),
    };
    let written = client.run(&collection, &operation).await;
    let reply = written.map_err(|error| explain(error, &args.key, args.cas, &collection))?;
    if !args.json {
        print::line(&reply.cas.0.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let token = reply.mutation.map(|token| {
        json!({
            "vbucket": token.vbid.0,
            "vbucket_uuid": token.vb_uuid.0.to_string(),
            "seqno": token.seqno.0.to_string(),
        })
    });
    let key = args.key.to_string_lossy();
    let written = json!({ "key": key, "cas": reply.cas.0.to_string(), "mutation_token": token });
    print::line(&written.to_string())?;
    Ok(ExitCode::SUCCESS)
}

impl SetArgs {
    fn read_value(&self) -> anyhow::Result<Bytes> {
        let stdin = || ("standard input".to_owned(), Box::new(std::io::stdin()) as Box<dyn Read>);
        let (name, source) = match (&self.file, &self.value) {
            (Some(path), _) if path.as_os_str() == "-" => stdin(),
            (Some(path), _) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
                (name, Box::new(file) as Box<dyn Read>)
            }
            (None, Some(value)) if value == "-" => stdin(),
            (None, Some(value)) => return Ok(Bytes::copy_from_slice(value.as_encoded_bytes())),
            (None, None) => bail!("a value is needed: VALUE, - or --file"),
        };
        let mut bytes = Vec::new();
        // One byte more than the limit is enough to detect an oversized value.
        let limit = VALUE_BYTES_MAX as u64 + 1;
        source.take(limit).read_to_end(&mut bytes).with_context(|| format!("reading {name}"))?;
        if bytes.len() > VALUE_BYTES_MAX {
            bail!("{name} has more than the {VALUE_BYTES_MAX} bytes that a value may have");
        }
        Ok(bytes.into())
    }
}

/// The outcome of one write to `key`, in words; `cas` is the CAS that the caller required.
pub fn explain(
    error: ClientError,
    key: &OsStr,
    cas: Option<u64>,
    collection: &Collection,
) -> anyhow::Error {
    let document = named(key.as_encoded_bytes());
    match (error.rejection(), cas) {
        (Some(RejectionKind::NotFound), _) => anyhow!(missing(key, collection)),
        (Some(RejectionKind::Exists), Some(cas)) => {
            anyhow!("{document} has another CAS than {cas}")
        }
        (Some(RejectionKind::Exists), None) => {
            anyhow!("{document} exists already in {}", collection.path())
        }
        _ => anyhow::Error::from(error).context(format!("writing {document}")),
    }
}
