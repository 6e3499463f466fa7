//! `oribi copy`: a bucket's change stream into a bucket of another server, once or for good.
//!
//! The same writes as a restore's, without an archive in between. The position goes to a file only
//! when everything up to it was taken by the target, so a copy that continues there omits nothing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use futures_util::FutureExt;
use indicatif::ProgressBar;
use oribi_backup::manifest::BackupCollection;
use oribi_client::{
    ChangeToken, Client, DcpChange, DcpEvent, DcpStream, DcpStreamOptions, DcpSystemEventKind,
};
use oribi_system::data_file::write_atomically;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::create::collections_of;
use super::filter::{BackupFilter, FilterArgs};
use super::histories::{self, Histories};
use super::progress;
use super::restore::collections::{CollectionMapping, missing};
use super::restore::writes::{RestoreTotals, RestoreWrites, RestoredDocument, WrittenCount};
use crate::admin::{Admin, AdminArgs};
use crate::print;
use crate::stats::clean;
use crate::target::{INTERRUPTED, Target};

/// Time between two records of the position. Each waits until the target has everything on disk.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Copy a bucket to another server. The options of the source are those of all subcommands.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// Where to: couchbase://HOST/BUCKET, with USER@ and :PORT where needed; couchbases:// for TLS.
    #[arg(value_name = "TARGET")]
    to: String,
    /// Password at the target [default: the source's].
    #[arg(long, env = "ORIBI_TARGET_PASSWORD", hide_env_values = true)]
    target_password: Option<String>,
    /// Port of the target's admin HTTP [default: the cluster map's].
    #[arg(long, value_name = "PORT")]
    target_admin_port: Option<u16>,
    /// Continue with changes as they happen, instead of ending.
    #[arg(long)]
    follow: bool,
    /// Drop collections and scopes at the target that the source has dropped since the copy began.
    #[arg(long)]
    drop_collections: bool,
    /// Keep the position in this file, and continue there if the file exists.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Write each version whatever the target has. Without it, a version stays that is the same or
    /// newer by the bucket's conflict resolution.
    #[arg(long)]
    overwrite: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: Target,
}

/// Contents of a file of `--resume`.
#[derive(Serialize, Deserialize)]
struct State {
    format: String,
    bucket: String,
    to: String,
    collections: Vec<String>,
    key_pattern: Option<String>,
    /// Scopes and collections that the source had, to tell which ones it has dropped.
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    places: Vec<BackupCollection>,
    token: String,
}

const FORMAT: &str = "oribi-copy 1";

/// Runs the subcommand to its end.
pub fn run(args: CopyArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(args.run())
}

/// Scopes and collections that the source had.
#[derive(Clone, Default)]
struct KnownCollections {
    scopes: Vec<String>,
    places: Vec<BackupCollection>,
}

impl KnownCollections {
    /// Drops at the target the entries of this list that `now` lacks.
    async fn drop_what_went(
        &self,
        now: &KnownCollections,
        admin: anyhow::Result<&Admin>,
        bucket: &str,
    ) -> anyhow::Result<()> {
        let is_gone =
            |place: &&BackupCollection| now.places.iter().all(|other| other.id != place.id);
        let places: Vec<&BackupCollection> = self.places.iter().filter(is_gone).collect();
        let is_gone = |name: &&String| !now.scopes.contains(*name);
        let scopes: Vec<&String> = self.scopes.iter().filter(is_gone).collect();
        if places.is_empty() && scopes.is_empty() {
            return Ok(());
        }
        let admin = admin.context("collections are dropped by the admin HTTP")?;
        for place in places {
            let dropped = admin.drop_collection(bucket, &place.scope, &place.collection).await;
            dropped.with_context(|| format!("dropping collection {}", place.path()))?;
            eprintln!("oribi: dropped collection {} at the target", clean(place.path().as_bytes()));
        }
        for scope in scopes {
            let dropped = admin.drop_scope(bucket, scope).await;
            dropped.with_context(|| format!("dropping scope {scope}"))?;
        }
        Ok(())
    }
}

/// Where changes go.
struct Sink {
    client: Arc<Client>,
    /// Of the target's vbuckets, before the first change.
    histories: Histories,
    on_disk: bool,
}

impl Sink {
    /// Waits until all that was acknowledged is on the target's disk, if it has one.
    async fn settle(&self) -> anyhow::Result<()> {
        match self.histories.go_on(&self.client, self.on_disk).await? {
            true => Ok(()),
            false => bail!(
                "the target may have lost changes that it had acknowledged: copy again; --resume goes on behind those that were on its disk"
            ),
        }
    }
}

/// Why the loop over events was left.
enum CopyLoopEnd {
    /// There is nothing more.
    AtEnd,
    /// A collection came or went at the source.
    ForCollections,
}

impl CopyArgs {
    async fn run(&self) -> anyhow::Result<ExitCode> {
        let mut interrupts =
            signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
        let mut ends = signal(SignalKind::terminate()).context("cannot register for SIGTERM")?;
        let started = Instant::now();
        let mut totals = RestoreTotals::default();
        let bar = progress::bar(None, "copying");
        let outcome = tokio::select! {
            outcome = self.copy(&mut totals, &bar) => outcome.map(|()| ExitCode::SUCCESS),
            _ = interrupts.recv() => Ok(ExitCode::from(INTERRUPTED)),
            _ = ends.recv() => Ok(ExitCode::from(INTERRUPTED)),
        };
        bar.finish_and_clear();
        let outcome = outcome?;
        if outcome == ExitCode::from(INTERRUPTED) {
            eprintln!("oribi: interrupted: {}", self.resume_hint());
        }
        self.print_summary(&totals, started.elapsed())?;
        Ok(outcome)
    }

    fn resume_hint(&self) -> String {
        match &self.resume {
            Some(path) => {
                let path = path.display();
                format!("the same command goes on at the last position in {path}")
            }
            None => "the same command begins anew and leaves alone what the target has; with \
                     --resume FILE it would go on where it was"
                .to_owned(),
        }
    }

    /// A copy of a bucket onto itself would change nothing, or follow its own writes for ever.
    async fn check_places(
        &self,
        (from, from_bucket): (&Client, &str),
        (to, to_bucket): (&Client, &str),
        histories: &Histories,
    ) -> anyhow::Result<()> {
        let port = |client: &Client| client.config().this_node().map(|node| node.port);
        let is_same = from_bucket == to_bucket
            && port(from) == port(to)
            && Histories::of(from).await? == *histories;
        match is_same {
            true => {
                bail!("the source and the target are the same bucket: {}", self.source.describe())
            }
            false => Ok(()),
        }
    }

    async fn copy(&self, totals: &mut RestoreTotals, bar: &ProgressBar) -> anyhow::Result<()> {
        let filter = self.filter.filter();
        let target = self.source.at(&self.to, self.target_password.as_deref());
        let target = target.map_err(anyhow::Error::msg)?;
        let from = self.client_of(&self.source).await?;
        let to = Arc::new(self.client_of(&target).await?);
        let admin_args = AdminArgs { admin_port: self.target_admin_port };
        let admin = Admin::find(&admin_args, &target, &to).await;
        let histories = Histories::of(&to).await?;
        let (of_source, of_target) = ((&from, &*self.source.bucket), (&*to, &*target.bucket));
        self.check_places(of_source, of_target, &histories).await?;
        let sink = Sink {
            client: to.clone(),
            histories,
            on_disk: histories::has_disk(admin.as_ref().ok(), &target.bucket).await,
        };
        let (position, mut known) = self.position(&filter)?;
        let mut options = DcpStreamOptions::new()
            .attributes(true)
            .until_now(!self.follow)
            .name("oribi-copy")
            .resume(position);
        options.collections = filter.collections.clone();
        let mut changes =
            from.dcp_stream(&options).await.with_context(|| self.source.describe())?;
        loop {
            let (_, scopes, places) = collections_of(&from, &filter).await?;
            let now = KnownCollections { scopes, places };
            if self.drop_collections {
                let admin = admin.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
                known.drop_what_went(&now, admin, &target.bucket).await?;
            }
            known = now;
            let missing = missing(&to, (&known.places, &known.scopes), &filter).await?;
            if !missing.is_empty() {
                let admin = admin.as_ref().map_err(|error| {
                    anyhow::anyhow!(
                        "{missing} must be created, which the admin HTTP does: {error:#}"
                    )
                })?;
                missing.create(admin, &target.bucket).await?;
            }
            let mapping = Arc::new(CollectionMapping::of(&to, &known.places, &filter).await?);
            let (writer, of) = (to.clone(), mapping.clone());
            let written = WrittenCount::default();
            let mut writes = RestoreWrites::new(writer, of, self.overwrite, bar.clone(), written);
            writes.totals = *totals;
            let left = self
                .stream(
                    &mut changes,
                    (&mut writes, &sink),
                    (&mapping, &known),
                    &filter,
                    (bar, totals),
                )
                .await;
            *totals = writes.totals;
            if matches!(left?, CopyLoopEnd::AtEnd) {
                mapping.set_limits(admin.as_ref().ok(), &target.bucket).await?;
                break;
            }
        }
        sink.settle().await?;
        self.save(&filter, &changes.token(), &known)
    }

    async fn client_of(&self, target: &Target) -> anyhow::Result<Client> {
        // Writes rely on the order of their requests.
        target.client(target.options()?.unordered_execution(false)).await
    }

    /// Copies until there is nothing more, or the pairs of collections have to be made anew. The
    /// totals are those of all that was answered, whenever the future is dropped while it waits for
    /// changes.
    async fn stream(
        &self,
        changes: &mut DcpStream,
        (writes, sink): (&mut RestoreWrites, &Sink),
        (mapping, known): (&CollectionMapping, &KnownCollections),
        filter: &BackupFilter,
        (bar, totals): (&ProgressBar, &mut RestoreTotals),
    ) -> anyhow::Result<CopyLoopEnd> {
        let mut saved = Instant::now();
        loop {
            *totals = writes.totals;
            let event = match changes.next().now_or_never() {
                Some(event) => event,
                None => {
                    // While nothing comes, the target gets what came.
                    writes.settle().await?;
                    *totals = writes.totals;
                    changes.next().await
                }
            };
            match event.context("reading changes")? {
                None => {
                    writes.settle().await?;
                    return Ok(CopyLoopEnd::AtEnd);
                }
                Some(DcpEvent::Change(change)) => {
                    // One of a collection that is gone by now is not copied.
                    if filter.has_key(&change.key) && mapping.get(change.collection).is_some() {
                        if self.follow {
                            bar.set_message(behind(&change));
                        }
                        writes.take(stored(&change)).await?;
                    }
                }
                Some(DcpEvent::System(event))
                    if event.kind == DcpSystemEventKind::CollectionCreated
                        && event.collection.is_some_and(|id| mapping.get(id).is_none()) =>
                {
                    writes.settle().await?;
                    return Ok(CopyLoopEnd::ForCollections);
                }
                // Every vbucket reports it; once the pairs are made anew, later reports are stale.
                Some(DcpEvent::System(event))
                    if event.kind == DcpSystemEventKind::CollectionDropped
                        && event.collection.is_some_and(|id| mapping.get(id).is_some()) =>
                {
                    writes.settle().await?;
                    return Ok(CopyLoopEnd::ForCollections);
                }
                Some(DcpEvent::Rollback(rollback)) => eprintln!(
                    "oribi: the source lost changes of {} behind seqno {}, which the target may have: copy with --overwrite from the beginning",
                    rollback.to.vbid, rollback.to.seqno.0
                ),
                Some(DcpEvent::Disconnected(lost)) => {
                    eprintln!("oribi: {}; connecting again", clean(lost.reason.as_bytes()));
                }
                Some(_) => {}
            }
            if saved.elapsed() >= SAVE_INTERVAL {
                writes.settle().await?;
                sink.settle().await?;
                self.save(filter, &changes.token(), known)?;
                saved = Instant::now();
            }
            // Signals are looked at only when this future waits.
            tokio::task::consume_budget().await;
        }
    }

    /// Where to begin, and what the source had there.
    fn position(&self, filter: &BackupFilter) -> anyhow::Result<(ChangeToken, KnownCollections)> {
        let Some(path) = &self.resume else { return Ok(Default::default()) };
        let named = || path.display().to_string();
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Default::default()),
            bytes => bytes.with_context(named)?,
        };
        let state: State = serde_json::from_slice(&bytes).with_context(named)?;
        let expected = self.state(filter, String::new(), &KnownCollections::default());
        let is_same = state.format == expected.format
            && state.bucket == expected.bucket
            && state.to == expected.to
            && state.collections == expected.collections
            && state.key_pattern == expected.key_pattern;
        match is_same {
            true => {
                let known = KnownCollections { scopes: state.scopes, places: state.places };
                Ok((state.token.parse().with_context(named)?, known))
            }
            false => bail!("{} is the position of another copy", named()),
        }
    }

    fn state(&self, filter: &BackupFilter, token: String, known: &KnownCollections) -> State {
        State {
            format: FORMAT.to_owned(),
            bucket: self.source.bucket.clone(),
            to: self.to.clone(),
            collections: filter.collections.clone(),
            key_pattern: filter.key_pattern(),
            scopes: known.scopes.clone(),
            places: known.places.clone(),
            token,
        }
    }

    fn save(
        &self,
        filter: &BackupFilter,
        token: &ChangeToken,
        known: &KnownCollections,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.resume else { return Ok(()) };
        let state = serde_json::to_vec(&self.state(filter, token.to_string(), known))?;
        write_atomically(Path::new(path), &state, 0o600).with_context(|| path.display().to_string())
    }

    fn print_summary(&self, totals: &RestoreTotals, elapsed: Duration) -> anyhow::Result<()> {
        let seconds = elapsed.as_secs_f64();
        if self.json {
            let summary = json!({
                "documents": totals.documents,
                "removals": totals.removals,
                "bytes": totals.bytes,
                "written": totals.written,
                "skipped": totals.skipped,
                "seconds": (seconds * 1000.0).round() / 1000.0,
            });
            return print::line(&summary.to_string());
        }
        print::line(&format!("copied {}", progress::written(totals, "", elapsed)))
    }
}

/// How old the change is: a CAS is the time of its write in nanoseconds.
fn behind(change: &DcpChange) -> String {
    let written_s = change.cas.0 / 1_000_000_000;
    format!("{} s behind", super::clock::now_s().saturating_sub(written_s))
}

fn stored(change: &DcpChange) -> RestoredDocument {
    RestoredDocument {
        collection: change.collection,
        version: change.version(),
        key: change.key.clone(),
        value: change.raw_value.clone(),
    }
}
