//! Repository tasks, run as `cargo xtask NAME`.
//!
//! Owns the command line only; each task is a module. Tasks read the work tree and write below
//! `target`. They need no toolchain components beyond cargo itself; `dist` names the two programs
//! that it calls for packages of distributions.

mod dist;
mod mutants;
mod soak;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask TASK\n\n  tidy [DIRECTORY]\n         check layers, import circles, file headers and lengths, unsafe, links";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("tidy") => match arguments.next() {
            Some(directory) => tidy::run(Path::new(&directory)),
            None => tidy::run(&workspace_root()?),
        },
        Some("dist") => dist::run(&workspace_root()?, arguments),
        Some("invariants") => tidy::invariants::run(&workspace_root()?, arguments),
        Some("mutants") => mutants::run(&workspace_root()?, arguments),
        Some("soak") => soak::run(&workspace_root()?, arguments),
        Some("help" | "--help" | "-h") => {
            println!("{}", usage());
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => bail!("unknown task {other:?}\n\n{}", usage()),
        None => bail!("no task given\n\n{}", usage()),
    }
}

fn usage() -> String {
    [USAGE, tidy::invariants::USAGE, mutants::USAGE, soak::USAGE, dist::USAGE].join("\n")
}

/// The directory above this crate, so that the task works from any directory of the checkout.
fn workspace_root() -> Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set; run this through `cargo xtask`")?;
    let mut root = PathBuf::from(manifest_dir);
    root.pop();
    Ok(root)
}
