//! `oribi doc export`: the documents of a collection as JSON lines.
//!
//! Owns what the ways of getting at documents share: the arguments, the lines, the output and the summary.
//! From a running server come all documents of a collection by range scans, or those of a list of keys; from a
//! stopped one all that are in its files. Invariant: the output file has its name only when it is complete;
//! until then it is FILE.part.

mod by_keys;
mod by_scan;
mod from_files;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{ArgGroup, Args};
use indicatif::{HumanBytes, HumanCount};
use oribi_client::pipeline::PipelineOptions;
use serde_json::json;

use self::output::Output;
use super::Place;
use super::import::parse_in_flight;
use super::row::parse_key_field;
use super::row::write::{Meta, write};
use crate::target::INTERRUPTED;

/// Arguments of `oribi doc export`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").args(["keys", "data_dir"])))]
pub struct ExportArgs {
    /// File to write; - writes standard output.
    file: PathBuf,
    /// Export only the documents with these keys, one a line, in this order; - reads standard input.
    ///
    /// Without it all documents of --collection are exported, by range scans, in no certain order. That needs a bucket
    /// that is on disk, and the rights to scan and to read metadata.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Export all documents of --collection from the data directory of a stopped server.
    ///
    /// No document is changed, but opening the store does with its files what a start of the server
    /// does: what a crash left half written is cut off, and tables may be merged.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Field of each line that holds the key.
    #[arg(long, default_value = "_key", value_parser = parse_key_field)]
    key_field: String,
    /// Write CAS, flags and expiry too, so that `import --meta` gives back the same documents.
    #[arg(long)]
    meta: bool,
    /// Keys without a document are no failure.
    #[arg(long, visible_alias = "skip-missing")]
    ignore_missing: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Most reads in flight, with --keys.
    #[arg(long, default_value_t = PipelineOptions::default().operations_max)]
    #[arg(value_parser = parse_in_flight)]
    in_flight: usize,
}

/// True when all documents were exported, false when Ctrl-C ended it before.
type Outcome = anyhow::Result<bool>;

/// Lines on their way to the output.
struct Lines {
    output: Output,
    key_field: String,
    line: Vec<u8>,
    documents: u64,
    missing: u64,
}

impl Lines {
    fn add(&mut self, key: &[u8], value: &[u8], meta: Option<&Meta>) -> anyhow::Result<()> {
        self.line.clear();
        write(&mut self.line, key, value, &self.key_field, meta);
        self.documents += 1;
        self.output.write(&self.line)
    }
}

/// Exports the documents and prints the summary.
pub async fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
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
            eprintln!("oribi: interrupted");
            lines.output.abandon()
        }
        Err(_) => lines.output.abandon(),
    };
    let is_complete = outcome
        .with_context(|| format!("the export stopped after {} documents", HumanCount(documents)))?;
    args.print_summary(documents, missing, bytes, started.elapsed(), is_complete);
    if !is_complete {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match missing > 0 && !args.ignore_missing {
        true => Ok(ExitCode::FAILURE),
        false => Ok(ExitCode::SUCCESS),
    }
}

impl ExportArgs {
    fn lines(&self) -> anyhow::Result<Lines> {
        Ok(Lines {
            output: Output::create(&self.file)?,
            key_field: self.key_field.clone(),
            line: Vec::new(),
            documents: 0,
            missing: 0,
        })
    }

    fn print_summary(
        &self,
        documents: u64,
        missing: u64,
        bytes: u64,
        elapsed: Duration,
        is_complete: bool,
    ) {
        let seconds = elapsed.as_secs_f64();
        let text = if self.json {
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
                missing => format!(", {} keys without a document", HumanCount(missing)),
            };
            let (documents, bytes) = (HumanCount(documents), HumanBytes(bytes));
            format!("exported {documents} documents ({bytes}) in {seconds:.2} s{missing}")
        };
        // Standard output is for the lines when they go there.
        match self.file.as_os_str() == "-" {
            true => eprintln!("{text}"),
            false => println!("{text}"),
        }
    }
}
