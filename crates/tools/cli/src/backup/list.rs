//! `oribi backup list`: a line for each backup.

use std::process::ExitCode;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use oribi_backup::manifest::BackupKind;
use oribi_backup::{ArchiveEntry, EntryState, time};
use serde_json::{Value, json};

use super::place::ArchivePlace;
use crate::print;
use crate::stats::clean;

/// List the backups of an archive.
#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    archive: ArchivePlace,
    /// Print an array of JSON objects.
    #[arg(long)]
    json: bool,
}

/// Prints the list.
pub fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let entries = args.archive.open()?.entries()?;
    if args.json {
        print::line(&Value::from(entries.iter().map(object).collect::<Vec<_>>()).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["id", "bucket", "kind", "finished (UTC)", "documents", "removals", "stored"]);
    for entry in &entries {
        table.add_row(row(entry));
    }
    print::line(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &ArchiveEntry) -> Vec<String> {
    // Names in an archive of a stranger may control a terminal.
    cells(entry).iter().map(|cell| clean(cell.as_bytes())).collect()
}

fn cells(entry: &ArchiveEntry) -> Vec<String> {
    let id = entry.id.clone();
    match &entry.state {
        EntryState::Finished(manifest) => vec![
            id,
            manifest.begin.bucket.clone(),
            kind(manifest.begin.kind).to_owned(),
            time::readable(manifest.finished_at),
            HumanCount(manifest.mutations).to_string(),
            HumanCount(manifest.removals).to_string(),
            HumanBytes(manifest.stored_bytes).to_string(),
        ],
        EntryState::Unfinished(begin) => {
            vec![id, begin.bucket.clone(), kind(begin.kind).to_owned(), "unfinished".to_owned()]
        }
        EntryState::Damaged(error) => vec![id, String::new(), String::new(), error.to_string()],
    }
}

fn object(entry: &ArchiveEntry) -> Value {
    match &entry.state {
        EntryState::Finished(manifest) => json!({
            "id": entry.id,
            "state": "finished",
            "bucket": manifest.begin.bucket,
            "kind": kind(manifest.begin.kind),
            "parent": manifest.begin.parent,
            "collections": manifest.begin.collections,
            "key_pattern": manifest.begin.key_pattern,
            "started_at": manifest.begin.started_at,
            "finished_at": manifest.finished_at,
            "documents": manifest.mutations,
            "removals": manifest.removals,
            "plain_bytes": manifest.plain_bytes,
            "stored_bytes": manifest.stored_bytes,
            "segments": manifest.segments.len(),
        }),
        EntryState::Unfinished(begin) => json!({
            "id": entry.id,
            "state": "unfinished",
            "bucket": begin.bucket,
            "kind": kind(begin.kind),
            "parent": begin.parent,
            "started_at": begin.started_at,
        }),
        EntryState::Damaged(error) => json!({
            "id": entry.id,
            "state": "damaged",
            "reason": error.to_string(),
        }),
    }
}

/// How people call it.
pub fn kind(kind: BackupKind) -> &'static str {
    match kind {
        BackupKind::Full => "full",
        BackupKind::Incremental => "incremental",
    }
}
