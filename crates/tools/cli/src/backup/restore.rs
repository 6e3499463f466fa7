//! `oribi backup restore`: a backup's documents into a bucket.
//!
//! First every file that is needed is checked by the rules of `verify`; a damaged archive restores
//! nothing. Then missing scopes and collections are created, by name: ids are the target's own. The
//! records follow as versions with their metadata: they are inflated once ([`reading`]) and written
//! by several lanes, each with its vbuckets ([`lane`], [`writes`]). Limits of time come
//! last, because a server would cut the expiry of documents that are older than the limit.
//!
//! A server that crashes during a restore may lose versions that it has acknowledged. So at the end
//! the histories of the target's vbuckets are compared with those at the beginning ([`Histories`]),
//! and the work is repeated where they differ. A restore that was interrupted is repeated by its
//! user: versions that are there already are left alone.

pub(super) mod collections;
mod lane;
mod reading;
pub(super) mod writes;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use futures_util::{StreamExt, stream};
use indicatif::HumanCount;
use oribi_backup::chain::Chain;
use oribi_backup::checker::BackupChecker;
use oribi_backup::manifest::BackupManifest;
use oribi_backup::{Archive, time};
use oribi_client::Client;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use self::collections::{CollectionMapping, missing};
use self::lane::{LaneSelection, RestoreLane};
use self::writes::{RestoreTotals, RestoreWrites, WrittenCount};
use super::filter::{BackupFilter, FilterArgs};
use super::histories::{self, Histories};
use super::jobs::Jobs;
use super::place::ArchivePlace;
use super::{indexes, list, progress, users};
use crate::admin::{Admin, AdminArgs};
use crate::print;
use crate::stats::clean;
use crate::target::{INTERRUPTED, Target};

/// Pause between two looks whether something has happened.
const POLL: Duration = Duration::from_millis(20);

/// How often everything is written when the server crashes again and again.
const ROUNDS_MAX: usize = 5;

/// Longest wait for a new bucket to be served.
const BUCKET_PATIENCE: Duration = Duration::from_secs(60);

/// Write a backup's documents into a bucket.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    archive: ArchivePlace,
    /// Bucket to write to [default: that of --bucket].
    #[arg(long, value_name = "BUCKET")]
    into: Option<String>,
    /// Which backup: an id, or a UTC time such as 2026-11-23T02:30 for the last one finished by
    /// then [default: the last one].
    #[arg(long, value_name = "TIME|ID")]
    at: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Create the bucket if there is none, with the settings in the backup and this quota of
    /// memory.
    #[arg(long, value_name = "MIB")]
    create_bucket: Option<u32>,
    /// Write each version whatever the bucket has. Without it, a version stays that is the same or
    /// newer by the bucket's conflict resolution.
    #[arg(long)]
    overwrite: bool,
    /// Leave versions alone that are the same or newer: the default.
    #[arg(long, conflicts_with = "overwrite")]
    skip_newer: bool,
    /// Add the users in the backup to those of the server. Users that are there stay as they are,
    /// unless given --overwrite. It needs the role `admin`.
    #[arg(long)]
    with_users: bool,
    /// Check the archive and say what would be written.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    jobs: Jobs,
    /// Do not wait until everything is on the server's disk.
    #[arg(long)]
    no_persist: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// Its --bucket is the one that was backed up.
    #[command(flatten)]
    target: Target,
}

/// Restores and prints the summary.
pub async fn run(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let mut ends = signal(SignalKind::terminate()).context("cannot register for SIGTERM")?;
    let restore = tokio::spawn(args.restore());
    let abort = restore.abort_handle();
    let outcome = tokio::select! {
        outcome = restore => outcome.context("the restore")?,
        _ = interrupts.recv() => Ok(ExitCode::from(INTERRUPTED)),
        _ = ends.recv() => Ok(ExitCode::from(INTERRUPTED)),
    };
    abort.abort();
    if matches!(outcome, Ok(status) if status == ExitCode::from(INTERRUPTED)) {
        eprintln!(
            "oribi: interrupted: a part of the backup may be in the bucket; the same command again \
             writes the rest"
        );
    }
    outcome
}

impl RestoreArgs {
    async fn restore(self) -> anyhow::Result<ExitCode> {
        let started = Instant::now();
        let filter = self.filter.filter();
        let archive = Arc::new(self.archive.open()?);
        let manifest = archive.find(Some(&self.target.bucket), self.at.as_deref())?;
        let chain = Arc::new(archive.chain(&manifest.begin.id)?);
        self.check(&archive, &chain).await?;
        check_filter(&filter, &manifest)?;
        let users = self.with_users.then(|| users::of(&manifest)).transpose()?;
        let totals = match self.dry_run {
            true => self.rehearse(&archive, chain, filter).await?,
            false => self.write(&archive, chain, filter).await?,
        };
        // Last, because the first user ends the development mode, and with it this program's login.
        if let Some(users) = users.filter(|_| !self.dry_run) {
            let admin = Admin::find_without_bucket(&self.admin, &self.target).await?;
            users::write(&admin, users, self.overwrite).await?;
        }
        self.print_summary(&manifest, &totals, started.elapsed())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Checks all files that are needed, several at a time.
    async fn check(&self, archive: &Arc<Archive>, chain: &Arc<Chain>) -> anyhow::Result<()> {
        let bar = progress::bar(Some(chain.segments() as u64), "checking");
        let check = |segment: usize| {
            let (archive, chain) = (archive.clone(), chain.clone());
            tokio::task::spawn_blocking(move || {
                let bytes = chain.read(&archive, segment, Vec::new())?;
                chain.check_segment(segment, &bytes)
            })
        };
        let nothing = || format!("{}: nothing was restored", self.archive.describe());
        for backup in chain.backups() {
            let mut checker = BackupChecker::new(backup.manifest).with_context(nothing)?;
            let checks = stream::iter(backup.segments.clone().map(check));
            let mut checked = checks.buffered(usize::from(self.jobs.number()));
            for segment in backup.segments {
                let Some(footer) = checked.next().await else { break };
                let footer = footer.context("checking the archive")?;
                let appended =
                    footer.and_then(|footer| checker.append(chain.name(segment), &footer));
                appended.with_context(nothing)?;
                bar.inc(1);
            }
            checker.finish().with_context(nothing)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// The parts that share the work, without their tasks.
    fn lanes(
        &self,
        archive: &Arc<Archive>,
        chain: Arc<Chain>,
        filter: BackupFilter,
    ) -> Vec<RestoreLane> {
        let lanes = self.jobs.number().clamp(1, chain.wanted().begin.vbuckets.max(1));
        let blocks = reading::read(archive, &chain, lanes);
        let selection = Arc::new(LaneSelection::new(chain, filter));
        let lane =
            |(number, blocks)| RestoreLane { selection: selection.clone(), blocks, number, lanes };
        (0..).zip(blocks).map(lane).collect()
    }

    async fn rehearse(
        &self,
        archive: &Arc<Archive>,
        chain: Arc<Chain>,
        filter: BackupFilter,
    ) -> anyhow::Result<RestoreTotals> {
        let lanes = self.lanes(archive, chain, filter).into_iter();
        sum(lanes.map(RestoreLane::count).collect()).await
    }

    async fn write(
        &self,
        archive: &Arc<Archive>,
        chain: Arc<Chain>,
        filter: BackupFilter,
    ) -> anyhow::Result<RestoreTotals> {
        let begin = &chain.wanted().begin;
        let mut target = self.target.clone();
        target.bucket = self.into.clone().unwrap_or(target.bucket);
        if let Some(quota_mib) = self.create_bucket {
            self.create_bucket(&target, chain.wanted(), quota_mib).await?;
        }
        let client = Arc::new(target.client(target.options()?.unordered_execution(false)).await?);
        let admin = Admin::find(&self.admin, &self.target, &client).await;
        let missing = missing(&client, (&begin.places, &begin.scopes), &filter).await?;
        if !missing.is_empty() {
            let admin = admin.as_ref().map_err(|error| {
                anyhow::anyhow!("{missing} must be created, which the admin HTTP does: {error:#}")
            })?;
            missing.create(admin, &target.bucket).await?;
        }
        let mapping = Arc::new(CollectionMapping::of(&client, &begin.places, &filter).await?);
        let admin = admin.as_ref().ok();
        let on_disk = !self.no_persist && histories::has_disk(admin, &target.bucket).await;
        let mut histories = Histories::of(&client).await?;
        let mut totals = self.write_once(archive, (&chain, &filter), (&client, &mapping)).await?;
        let mut rounds = 1;
        while !histories.go_on(&client, on_disk).await? {
            if rounds == ROUNDS_MAX {
                bail!("the server lost what was restored {rounds} times: restore it again");
            }
            rounds += 1;
            eprintln!("oribi: the server may have lost what was restored, which is written again");
            histories = Histories::of(&client).await?;
            let again = self.write_once(archive, (&chain, &filter), (&client, &mapping)).await?;
            totals.written += again.written;
            totals.repeated += again.repeated;
        }
        mapping.set_limits(admin, &target.bucket).await?;
        match admin {
            Some(admin) => indexes::write(admin, &target.bucket, &begin.indexes, &filter).await,
            None if begin.indexes.is_empty() => {}
            None => eprintln!("oribi: indexes need the admin HTTP: none was restored"),
        }
        Ok(totals)
    }

    /// Writes all versions.
    async fn write_once(
        &self,
        archive: &Arc<Archive>,
        (chain, filter): (&Arc<Chain>, &BackupFilter),
        (client, mapping): (&Arc<Client>, &Arc<CollectionMapping>),
    ) -> anyhow::Result<RestoreTotals> {
        let bar = progress::bar(Some(chain.records()), "restoring");
        let written = WrittenCount::default();
        let lanes = self.lanes(archive, chain.clone(), filter.clone()).into_iter();
        let lanes = lanes.map(|lane| {
            let (client, mapping) = (client.clone(), mapping.clone());
            let (bar, written) = (bar.clone(), written.clone());
            lane.write(RestoreWrites::new(client, mapping, self.overwrite, bar, written))
        });
        let outcome = sum(lanes.collect()).await;
        bar.finish_and_clear();
        outcome.with_context(|| {
            let written = HumanCount(written.load(Ordering::Relaxed));
            format!("the restore stopped: {written} versions were written, others are missing")
        })
    }

    async fn create_bucket(
        &self,
        target: &Target,
        manifest: &BackupManifest,
        quota_mib: u32,
    ) -> anyhow::Result<()> {
        if target.client(target.options()?).await.is_ok() {
            let bucket = clean(target.bucket.as_bytes());
            eprintln!(
                "oribi: bucket \"{bucket}\" exists already, and --create-bucket changes nothing"
            );
            return Ok(());
        }
        let admin = Admin::find_without_bucket(&self.admin, target).await?;
        let mut form = vec![
            ("name", target.bucket.clone()),
            ("ramQuotaMB", quota_mib.to_string()),
            ("numVBuckets", manifest.begin.vbuckets.to_string()),
        ];
        let settings = manifest.begin.bucket_settings.as_ref();
        let setting = |name: &str| settings?.get(name)?.as_str().map(str::to_owned);
        for name in [
            "bucketType",
            "evictionPolicy",
            "compressionMode",
            "memoryTier",
            "conflictResolutionType",
            "durabilityMinLevel",
        ] {
            form.extend(setting(name).map(|value| (name, value)));
        }
        if settings.is_some_and(|settings| settings["controllers"].get("flush").is_some()) {
            form.push(("flushEnabled", "1".to_owned()));
        }
        if let Err(error) = admin.create_bucket(&form).await {
            bail!("bucket \"{}\" cannot be created: {error:#}", target.bucket);
        }
        // A server may need a moment until it serves it.
        let deadline = Instant::now() + BUCKET_PATIENCE;
        loop {
            match target.client(target.options()?).await {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
                opened => return opened.map(drop),
            }
        }
    }

    fn print_summary(
        &self,
        manifest: &BackupManifest,
        totals: &RestoreTotals,
        elapsed: Duration,
    ) -> anyhow::Result<()> {
        let seconds = elapsed.as_secs_f64();
        if self.json {
            let summary = json!({
                "id": manifest.begin.id,
                "kind": list::kind(manifest.begin.kind),
                "dry_run": self.dry_run,
                "documents": totals.documents,
                "removals": totals.removals,
                "bytes": totals.bytes,
                "written": totals.written,
                "skipped": totals.skipped,
                "repeated": totals.repeated,
                "seconds": (seconds * 1000.0).round() / 1000.0,
            });
            return print::line(&summary.to_string());
        }
        let (id, at) = (&manifest.begin.id, time::readable(manifest.finished_at));
        print::line(&match self.dry_run {
            true => format!(
                "{id} of {at} UTC would restore {} and {}",
                progress::amount(totals.documents, totals.bytes),
                progress::counted(totals.removals, "removal")
            ),
            false => {
                let what = format!(" of {id} ({at} UTC)");
                format!("restored {}", progress::written(totals, &what, elapsed))
            }
        })
    }
}

/// A collection that the backup does not have is more likely a typing error than wanted.
fn check_filter(filter: &BackupFilter, manifest: &BackupManifest) -> anyhow::Result<()> {
    let places = &manifest.begin.places;
    let unknown =
        filter.collections.iter().find(|path| places.iter().all(|place| place.path() != **path));
    match unknown {
        Some(path) => bail!("backup {} has no collection {path}", manifest.begin.id),
        None => Ok(()),
    }
}

/// Sum of all lanes. When one fails, the others end.
async fn sum(mut lanes: JoinSet<anyhow::Result<RestoreTotals>>) -> anyhow::Result<RestoreTotals> {
    let mut totals = RestoreTotals::default();
    while let Some(ended) = lanes.join_next().await {
        totals.add(&ended.context("a part of the restore")??);
    }
    Ok(totals)
}
