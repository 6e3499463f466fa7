//! `oribi doc list`: the keys of a collection's documents, by a pattern.
//!
//! It is an export of which only keys are printed, so it shows every document that was acknowledged
//! before it began, in any order. A pattern is a glob: `*` stands for any bytes and `?` for one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use oribi_client::PipelineOptions;
use regex::bytes::Regex;

use super::export::{ExportArgs, Listing, by_scan};
use crate::target::{INTERRUPTED, Target};

/// Arguments of `oribi doc list`.
#[derive(Args, Debug)]
pub struct LsArgs {
    /// Pattern of the keys, such as 'user:*'; ? stands for one byte.
    #[arg(default_value = "*", value_parser = parse_glob)]
    pattern: Regex,
    /// Collection, as scope.collection; the default one if not given. May be repeated.
    #[arg(long = "collection", value_name = "COLLECTION")]
    collections: Vec<String>,
    /// All collections of the bucket.
    #[arg(long, conflicts_with = "collections")]
    all_collections: bool,
    /// Print a JSON object for each key, with its collection.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

fn parse_glob(glob: &str) -> Result<Regex, String> {
    let parts = glob.chars().map(|character| match character {
        '*' => "(?s-u:.*)".to_owned(),
        '?' => "(?s-u:.)".to_owned(),
        other => regex::escape(other.encode_utf8(&mut [0; 4])),
    });
    Regex::new(&format!("^{}$", parts.collect::<String>())).map_err(|error| error.to_string())
}

/// Lists the keys.
pub async fn run(args: LsArgs) -> anyhow::Result<ExitCode> {
    let export = ExportArgs {
        file: PathBuf::from("-"),
        keys: None,
        data_dir: None,
        target: args.target,
        collections: args.collections,
        all_collections: args.all_collections,
        key_field: String::new(),
        meta: false,
        ignore_missing: false,
        json: false,
        in_flight: PipelineOptions::default().operations_max,
        listing: Some(Listing { pattern: args.pattern, as_json: args.json }),
    };
    let (lines, outcome) = by_scan::run(&export).await?;
    let is_complete = outcome?;
    lines.output.finish()?;
    match is_complete {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(INTERRUPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_keys() {
        for (glob, key, expected) in [
            ("*", &b"\xff\n"[..], true),
            ("user:*", b"user:1", true),
            ("user:*", b"a user:1", false),
            ("a?c", b"a\xffc", true),
            ("a?c", b"ac", false),
            ("a.c", b"abc", false),
            ("*[1]", b"x[1]", true),
        ] {
            assert_eq!(parse_glob(glob).unwrap().is_match(key), expected, "{glob}");
        }
    }
}
