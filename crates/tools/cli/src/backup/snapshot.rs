//! `oribi backup snapshot`: a copy of a data directory by hard links.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use oribi_server::buckets::snapshot::{Snapshot, snapshot};
use serde_json::json;

use crate::print;

/// Copy a data directory on this machine by hard links, at once, also while its server runs. A
/// server can be started on the copy.
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    /// Directory that is made; on the file system of the data directory, and not in it.
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Data directory of the server.
    #[arg(long, value_name = "DIR", default_value = "oribi-data")]
    data_dir: PathBuf,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Makes the snapshot and prints the summary.
pub fn run(args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let Snapshot { buckets, remote, sizes } = snapshot(&args.data_dir, &args.target)?;
    for (name, storage) in &remote {
        eprintln!(
            "oribi: the documents of bucket \"{name}\" are in {storage}, not in the snapshot"
        );
    }
    if args.json {
        let summary = json!({
            "buckets": buckets,
            "remote": remote.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "linked_files": sizes.linked,
            "linked_bytes": sizes.linked_bytes,
            "copied_bytes": sizes.copied_bytes,
        });
        print::line(&summary.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    print::line(&format!(
        "{}: {} buckets, {} linked, {} copied",
        args.target.display(),
        buckets.len(),
        HumanBytes(sizes.linked_bytes),
        HumanBytes(sizes.copied_bytes),
    ))?;
    Ok(ExitCode::SUCCESS)
}
