//! `oribi doc get` and `oribi doc cat`: documents on standard output or in a file.
//!
//! `get` appends a line end to the value, for people and line-based tools; `cat` and `get --output`
//! give the exact bytes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use oribi_client::{Client, ClientError, Collection, Document, RejectionKind};
use oribi_types::Datatype;
use serde::Serialize;
use serde_json::value::RawValue;

use super::place::{CollectionTarget, missing, named};
use crate::print;

/// Arguments of `oribi doc get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// Key of the document.
    key: OsString,
    #[command(flatten)]
    place: CollectionTarget,
    /// Print a JSON object with key, value, CAS, flags, expiry and datatype. CAS is a string,
    /// because many JSON readers round 64-bit numbers.
    #[arg(long)]
    json: bool,
    /// Write the exact bytes to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Arguments of `oribi doc cat`.
#[derive(Args, Debug)]
pub struct CatArgs {
    /// Keys of the documents.
    #[arg(required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    place: CollectionTarget,
}

/// A document with all its metadata.
#[derive(Serialize)]
struct DocumentDescription<'a> {
    key: String,
    cas: String,
    flags: u32,
    /// UNIX time, 0 for none; absent when the server does not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    expiry: Option<u32>,
    datatype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// Prints one document.
pub async fn get(args: GetArgs) -> anyhow::Result<ExitCode> {
    let (client, collection) = args.place.connect(false).await?;
    let key = args.key.as_encoded_bytes();
    let document = client
        .get(&collection, key)
        .await
        .with_context(|| format!("reading {}", named(key)))?
        .ok_or_else(|| anyhow!(missing(&args.key, &collection)))?;
    let mut bytes = match args.json {
        true => describe(&client, &collection, key, &document).await?.into_bytes(),
        false => document.value.to_vec(),
    };
    if let Some(path) = &args.output {
        std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    print::bytes(&bytes)?;
    Ok(ExitCode::SUCCESS)
}

async fn describe(
    client: &Client,
    collection: &Collection,
    key: &[u8],
    document: &Document,
) -> anyhow::Result<String> {
    let expiry = match client.get_meta(collection, key).await {
        Ok(meta) => meta.filter(|meta| !meta.is_deleted).map(|meta| meta.expiry),
        Err(ClientError::Rejected(RejectionKind::NotSupported | RejectionKind::AccessDenied)) => {
            None
        }
        Err(error) => return Err(error).context("reading the expiry"),
    };
    let value: Option<&RawValue> = serde_json::from_slice(&document.value).ok();
    let described = DocumentDescription {
        key: String::from_utf8_lossy(key).into_owned(),
        cas: document.cas.0.to_string(),
        flags: document.flags,
        expiry,
        datatype: if document.datatype.contains(Datatype::JSON) { "json" } else { "raw" },
        value,
        value_base64: value.is_none().then(|| STANDARD.encode(&document.value)),
    };
    serde_json::to_string(&described).context("describing the document")
}

/// Prints several documents.
pub async fn cat(args: CatArgs) -> anyhow::Result<ExitCode> {
    let (client, collection) = args.place.connect(false).await?;
    let mut status = ExitCode::SUCCESS;
    for key in &args.keys {
        let document = client.get(&collection, key.as_encoded_bytes()).await;
        let reading = || format!("reading {}", named(key.as_encoded_bytes()));
        match document.with_context(reading)? {
            Some(document) => print::bytes(&document.value)?,
            None => {
                eprintln!("oribi: {}", missing(key, &collection));
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}
