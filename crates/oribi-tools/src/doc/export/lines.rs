//! The common part of all exports: the arguments, and the lines on their way to the output.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use oribi_client::PipelineOptions;

use super::output::Output;
use crate::doc::import::parse_in_flight;
use crate::doc::place::Place;
use crate::doc::row::parse_key_field;
use crate::doc::row::write::{Meta, write};

/// Arguments of `oribi doc export`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").args(["keys", "data_dir"])))]
pub struct ExportArgs {
    /// File to write; - writes standard output.
    pub file: PathBuf,
    /// Export the documents with these keys, one key a line, in this order; - reads standard input.
    ///
    /// Without it, range scans export all documents of --collection, in any order. They need a bucket with
    /// storage, and the rights to scan and to read metadata.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Export all documents of --collection from the data directory of a stopped server.
    ///
    /// No document changes, but opening the store recovers its files as a start of the server does: it
    /// cuts off what a crash left half written, and may compact.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
    /// Field of each line that holds the key.
    #[arg(long, value_name = "FIELD", default_value = "_key", value_parser = parse_key_field)]
    pub key_field: String,
    /// Write CAS, flags and expiry too, so that `import --meta` gives back the same documents.
    #[arg(long)]
    pub meta: bool,
    /// Do not fail for keys without a document.
    #[arg(long, visible_alias = "skip-missing")]
    pub ignore_missing: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// Most reads in flight, with --keys.
    #[arg(long, value_name = "COUNT", default_value_t = PipelineOptions::default().operations_max)]
    #[arg(value_parser = parse_in_flight)]
    pub in_flight: usize,
}

impl ExportArgs {
    /// Begins the output.
    pub fn lines(&self) -> anyhow::Result<Lines> {
        Ok(Lines {
            output: Output::create(&self.file)?,
            key_field: self.key_field.clone(),
            line: Vec::new(),
            documents: 0,
            missing: 0,
        })
    }
}

/// True when all documents were exported, false when Ctrl-C ended it before.
pub type Outcome = anyhow::Result<bool>;

/// Lines on their way to the output.
pub struct Lines {
    pub output: Output,
    key_field: String,
    line: Vec<u8>,
    /// Documents so far.
    pub documents: u64,
    /// Keys without a document so far.
    pub missing: u64,
}

impl Lines {
    /// Adds a document.
    pub fn add(&mut self, key: &[u8], value: &[u8], meta: Option<&Meta>) -> anyhow::Result<()> {
        self.line.clear();
        write(&mut self.line, key, value, &self.key_field, meta);
        self.documents += 1;
        self.output.write(&self.line)
    }
}
