//! `oribi backup prune`: removes backups that no rule keeps.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use oribi_backup::Retention;
use serde_json::json;

use super::clock::now_s;
use super::place::ArchivePlace;
use crate::{duration, print};

/// Remove old backups. The newest one of each bucket stays, and what a kept backup builds on.
#[derive(Args, Debug)]
pub struct PruneArgs {
    #[command(flatten)]
    archive: ArchivePlace,
    /// Keep this many of the newest backups of each bucket.
    #[arg(long, value_name = "COUNT", required_unless_present = "keep_within")]
    keep_last: Option<NonZeroUsize>,
    /// Keep backups that are not older than this, such as 30d.
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    keep_within: Option<Duration>,
    /// Only say what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Print the ids as JSON.
    #[arg(long)]
    json: bool,
}

fn parse_age(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "a time is needed, such as 12h or 30d".to_owned())
}

/// Removes and prints.
pub fn run(args: &PruneArgs) -> anyhow::Result<ExitCode> {
    let (archive, _lock) = args.archive.open_to_write(false)?;
    let since = args.keep_within.map(|age| now_s().saturating_sub(age.as_secs()));
    let superfluous =
        archive.superfluous(Retention { last: args.keep_last.map(NonZeroUsize::get), since })?;
    for id in &superfluous {
        if !args.dry_run {
            archive.remove_backup(id).with_context(|| format!("removing {id}"))?;
        }
        if !args.json {
            let done = if args.dry_run { "would remove" } else { "removed" };
            // The next one is removed whether or not the output is read.
            print::unless_gone(print::line(&format!("{done} {id}")))?;
        }
    }
    if superfluous.is_empty() && !args.json {
        print::line("nothing to remove")?;
    }
    if args.json {
        print::line(&json!({ "removed": superfluous, "dry_run": args.dry_run }).to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
