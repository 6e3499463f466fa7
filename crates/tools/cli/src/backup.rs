//! `oribi backup`: backups of buckets over change streams, and their restoration; `oribi copy`,
//! which needs no archive in between.
//!
//! It owns the command line, the flow of documents between a server and an archive, and progress.
//! The archive's format is `oribi-backup`'s. Invariants: a backup counts once its manifest is
//! durable; a restore begins only after every file that it reads was checked; memory does not grow
//! with the bucket.

mod clock;
mod copy;
mod create;
mod filter;
mod histories;
mod indexes;
mod jobs;
mod list;
#[cfg(feature = "object-stores")]
mod objects;
mod place;
pub mod progress;
mod prune;
mod restore;
mod snapshot;
mod users;
mod verify;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

pub use copy::{CopyArgs, run as run_copy};

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum BackupCommand {
    /// Back a bucket up, online: what changed since the last backup in the archive, or everything.
    Create(create::CreateArgs),
    /// List the backups of an archive.
    List(list::ListArgs),
    /// Read an archive and check everything in it.
    Verify(verify::VerifyArgs),
    /// Write a backup's documents into a bucket.
    Restore(restore::RestoreArgs),
    /// Remove old backups.
    Prune(prune::PruneArgs),
    /// Copy a data directory on this machine at once, by hard links.
    Snapshot(snapshot::SnapshotArgs),
}

impl BackupCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            BackupCommand::List(args) => return list::run(&args),
            BackupCommand::Verify(args) => return verify::run(&args),
            BackupCommand::Prune(args) => return prune::run(&args),
            BackupCommand::Snapshot(args) => return snapshot::run(&args),
            BackupCommand::Create(_) | BackupCommand::Restore(_) => {}
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(usize::from(jobs::usual()))
            .enable_all()
            .build()
            .context("starting the runtime")?;
        let outcome = runtime.block_on(async {
            match self {
                BackupCommand::Create(args) => create::run(args).await,
                BackupCommand::Restore(args) => restore::run(args).await,
                _ => unreachable!("they have run above"),
            }
        });
        // A thread that writes to an archive ends by itself.
        runtime.shutdown_background();
        outcome
    }
}
