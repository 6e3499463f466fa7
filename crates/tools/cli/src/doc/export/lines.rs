//! The common part of all exports: the arguments, and the lines on their way to the output.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use oribi_client::{Client, Collection, PipelineOptions};
use regex::bytes::Regex;
use serde_json::json;

use super::output::ExportOutput;
use crate::doc::import::parse_in_flight;
use crate::doc::row::write::{WriteMeta, write};
use crate::doc::row::{KEY, parse_key_field};
use crate::stats::push_clean;
use crate::target::{Target, find_collection};

/// The path of the default collection.
pub const DEFAULT_PATH: &str = "_default._default";

/// Arguments of `oribi doc export`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").args(["keys", "data_dir"])))]
pub struct ExportArgs {
    /// File to write; - writes standard output.
    pub file: PathBuf,
    /// Export the documents with these keys, one key a line, in this order; - reads standard input.
    ///
    /// Without it, range scans export all documents of the collections, in any order. They need a
    /// bucket with storage, and the rights to scan and to read metadata.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Export from the data directory of a stopped server.
    ///
    /// No document changes, but opening the store recovers its files as a start of the server does:
    /// it cuts off the partial write of a crash, and may compact.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub target: Target,
    /// Collection, as scope.collection; the default one if not given. Given several times, with
    /// --meta, each line names its own.
    #[arg(long = "collection", value_name = "COLLECTION")]
    pub collections: Vec<String>,
    /// All collections of the bucket; each line names its own, so that an import finds them.
    #[arg(long, conflicts_with_all = ["collections", "keys"], requires = "meta")]
    pub all_collections: bool,
    /// Field of each line that holds the key.
    #[arg(long, value_name = "FIELD", default_value = KEY, value_parser = parse_key_field)]
    pub key_field: String,
    /// Write CAS, flags, expiry and extended attributes too, those of the system included, for
    /// `import --meta`. Without it, an import gives back keys and values.
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
    /// Only keys are wanted.
    #[arg(skip)]
    pub listing: Option<Listing>,
}

/// Which keys are listed, and how.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Keys match it.
    pub pattern: Regex,
    /// Each is a JSON object.
    pub as_json: bool,
}

impl ExportArgs {
    /// True when each line names its collection.
    pub fn has_places(&self) -> bool {
        self.all_collections || self.collections.len() > 1
    }

    /// Refuses arguments that no export can follow.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.has_places() && !self.meta {
            bail!("several collections in one file need --meta, so that each line names its own");
        }
        if self.collections.len() > 1 && self.keys.is_some() {
            bail!("--keys are keys of one collection; export one --collection after the other");
        }
        Ok(())
    }

    /// The collections to export.
    pub async fn collections(&self, client: &Client) -> anyhow::Result<Vec<Collection>> {
        if !self.has_places() {
            let path = self.collections.first().map(String::as_str);
            return Ok(vec![find_collection(client, path).await?]);
        }
        let mut paths = self.collections.clone();
        if self.all_collections {
            let manifest = client.collections_manifest().await.context("asking for collections")?;
            for scope in &manifest.scopes {
                let names = scope.collections.iter().map(|collection| &collection.name);
                paths.extend(names.map(|name| format!("{}.{name}", scope.name)));
            }
        }
        let mut collections = Vec::with_capacity(paths.len());
        for path in &paths {
            collections.push(find_collection(client, Some(path)).await?);
        }
        Ok(collections)
    }

    /// Begins the output.
    pub fn lines(&self) -> anyhow::Result<ExportLines> {
        Ok(ExportLines {
            output: ExportOutput::create(&self.file)?,
            key_field: self.key_field.clone(),
            line: Vec::new(),
            documents: 0,
            missing: 0,
        })
    }
}

/// True when all documents were exported, false when Ctrl-C ended it before.
pub type ExportOutcome = anyhow::Result<bool>;

/// Lines on their way to the output.
pub struct ExportLines {
    pub output: ExportOutput,
    key_field: String,
    line: Vec<u8>,
    /// Documents so far.
    pub documents: u64,
    /// Keys without a document so far.
    pub missing: u64,
}

impl ExportLines {
    /// Adds a document.
    pub fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        meta: Option<&WriteMeta<'_>>,
    ) -> anyhow::Result<()> {
        self.line.clear();
        write(&mut self.line, key, value, &self.key_field, meta);
        self.documents += 1;
        self.output.write(&self.line)
    }

    /// Adds a key if it is wanted, with its collection if there are several.
    pub fn list(
        &mut self,
        key: &[u8],
        listing: &Listing,
        (path, has_places): (&str, bool),
    ) -> anyhow::Result<()> {
        if !listing.pattern.is_match(key) {
            return Ok(());
        }
        self.documents += 1;
        let place = has_places.then_some(path);
        let line = match listing.as_json {
            true => {
                let key = String::from_utf8_lossy(key);
                json!({ "key": key, "collection": path }).to_string().into_bytes()
            }
            false => listed(key, place, stdout().is_terminal()),
        };
        self.output.write(&line)?;
        self.output.write(b"\n")
    }
}

/// A key of a list: its bytes for programs, and text that does not control a terminal.
fn listed(key: &[u8], place: Option<&str>, is_terminal: bool) -> Vec<u8> {
    let mut line = place.map_or_else(Vec::new, |path| format!("{path}\t").into_bytes());
    match is_terminal {
        true => push_clean(&mut line, key),
        false => line.extend_from_slice(key),
    }
    line
}

/// Scope and collection of a path; one without a scope is in the default one.
pub fn parts_of(path: &str) -> (&str, &str) {
    path.split_once('.').unwrap_or(("_default", path))
}

#[cfg(test)]
mod tests {
    //! Keys on a terminal and in a pipe.

    use super::listed;

    #[test]
    fn keys_on_a_terminal_are_escaped() {
        let key = b"a\x1b]0;title\x07\n\0\xff";
        assert_eq!(listed(key, None, false), key);
        let shown = String::from_utf8(listed(key, Some("s.c"), true)).expect("it is text");
        assert!(shown.starts_with("s.c\ta") && shown.contains("title"), "{shown:?}");
        let is_control = |character: char| character.is_control() && character != '\t';
        assert!(!shown.contains(is_control), "{shown:?}");
    }
}
