//! `oribi backup verify`: reads everything and says what is wrong.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use oribi_backup::verify::{Report, verify};
use serde_json::json;

use super::place::ArchivePlace;
use super::progress::counted;
use crate::print;
use crate::stats::clean;

/// Read an archive and check everything in it. The exit status is 1 if something is wrong.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    archive: ArchivePlace,
    /// Only this backup and what it builds on.
    #[arg(long, value_name = "ID")]
    at: Option<String>,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
}

/// Reads and prints.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let archive = args.archive.open()?;
    let style = ProgressStyle::with_template("verifying {spinner} {bytes}  {bytes_per_sec}");
    let bar = ProgressBar::new_spinner().with_style(style.expect("the template is valid"));
    let report = verify(&archive, args.at.as_deref(), |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let report = report.with_context(|| args.archive.describe())?;
    print::unless_gone(match args.json {
        true => print_json(&report),
        false => print_text(&report),
    })?;
    Ok(match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print_json(report: &Report) -> anyhow::Result<()> {
    let report = json!({
        "backups": report.backups,
        "segments": report.segments,
        "records": report.records,
        "bytes": report.bytes,
        "problems": report.problems,
        "notices": report.notices,
    });
    print::line(&report.to_string())
}

fn print_text(report: &Report) -> anyhow::Result<()> {
    for notice in &report.notices {
        eprintln!("oribi: {}", clean(notice.as_bytes()));
    }
    for problem in &report.problems {
        print::line(&format!("PROBLEM {}", clean(problem.as_bytes())))?;
    }
    let outcome = match report.problems.len() {
        0 => "all is well".to_owned(),
        1 => "1 problem".to_owned(),
        problems => format!("{problems} problems"),
    };
    print::line(&format!(
        "{}, {}, {}, {}: {outcome}",
        counted(report.backups, "backup"),
        counted(report.segments, "segment"),
        counted(report.records, "record"),
        HumanBytes(report.bytes),
    ))
}
