//! `oribi doc export`: the documents of a collection as JSON lines.
//!
//! It owns the order of an export and its summary. From a running server it exports all documents
//! of a collection by range scans, or those of a list of keys; from a stopped one, all documents in
//! its files. Invariant: the output file gets its name only when it is complete; until then it is
//! FILE.part.

mod by_keys;
pub mod by_scan;
mod from_files;
mod lines;
mod output;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::HumanCount;
use serde_json::json;

pub use self::lines::{ExportArgs, Listing};
use crate::backup::progress::{amount, counted};
use crate::print;
use crate::target::INTERRUPTED;

/// Exports the documents and prints the summary.
pub async fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    let started = Instant::now();
    let (lines, outcome) = match (&args.keys, &args.data_dir) {
        (Some(keys), _) => by_keys::run(&args, keys).await?,
        (None, Some(data_dir)) => from_files::run(&args, data_dir)?,
        (None, None) => by_scan::run(&args).await?,
    };
    let (documents, missing) = (lines.documents, lines.missing);
    let bytes = match outcome {
        Ok(true) => lines.output.finish()?,
        Ok(false) => {
            eprintln!("oribi: interrupted: the export is not complete; run it again");
            lines.output.abandon()
        }
        Err(_) => lines.output.abandon(),
    };
    let is_complete = outcome
        .with_context(|| format!("the export stopped after {} documents", HumanCount(documents)))?;
    print_summary(&args, documents, missing, bytes, started.elapsed(), is_complete)?;
    if !is_complete {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match missing > 0 && !args.ignore_missing {
        true => Ok(ExitCode::FAILURE),
        false => Ok(ExitCode::SUCCESS),
    }
}

fn print_summary(
    args: &ExportArgs,
    documents: u64,
    missing: u64,
    bytes: u64,
    elapsed: Duration,
    is_complete: bool,
) -> anyhow::Result<()> {
    let seconds = elapsed.as_secs_f64();
    let text = if args.json {
        json!({
            "documents": documents,
            "missing": missing,
            "bytes": bytes,
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "interrupted": !is_complete,
        })
        .to_string()
    } else {
        let missing = match missing {
            0 => String::new(),
            missing => format!(", {} without a document", counted(missing, "key")),
        };
        let amount = amount(documents, bytes);
        format!("exported {amount} in {seconds:.2} s{missing}")
    };
    // Standard output is for the lines if they go there.
    match args.file.as_os_str() == "-" {
        true => eprintln!("{text}"),
        false => print::line(&text)?,
    }
    Ok(())
}
