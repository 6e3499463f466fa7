//! `oribi backup create`: a bucket's change stream into an archive.
//!
//! Several lanes share the vbuckets ([`lane`]). Each takes the next change when it has compressed
//! the one before, so the server sends no faster than the archive takes. A segment is cut when
//! enough came, and at the latest after half a minute; what was cut is not fetched again when the
//! program is started again after an interruption.

mod lane;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use oribi_backup::archive::Archive;
use oribi_backup::limits::SEGMENT_BYTES;
use oribi_backup::manifest::{BackupCollection, BackupKind, BackupManifest, Begin};
use oribi_backup::writer::BackupWriter;
use oribi_client::{ChangeToken, Client, ClientError, DcpStreamOptions, Rest};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use self::lane::{BackupLane, BackupShared};
use super::clock::now_s;
use super::filter::{BackupFilter, FilterArgs};
use super::jobs::Jobs;
use super::place::ArchivePlace;
use super::{indexes, list, progress, users};
use crate::admin::{Admin, AdminArgs};
use crate::print;
use crate::target::{INTERRUPTED, Target};

/// KiB of records in a segment unless an option says otherwise. Each lane has two in memory, after
/// compression.
const SEGMENT_KIB: u64 = SEGMENT_BYTES / 2 / 1024;

/// Back a bucket up.
#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    archive: ArchivePlace,
    /// Take everything, also if the archive has an earlier backup of the same documents.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// Take the server's users as well, with their roles and the verifiers of their passwords. It
    /// needs the role `admin`.
    #[arg(long)]
    with_users: bool,
    /// Level of zstd's compression: 1 to 19, or -7 to -1, which are faster and compress less; 0
    /// does not compress.
    #[arg(long, value_name = "LEVEL", default_value_t = 1, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i32).range(-7..=19))]
    level: i32,
    #[command(flatten)]
    jobs: Jobs,
    /// KiB of documents in a file of the archive. What is in a finished file need not be fetched
    /// again when the backup is interrupted; memory holds two of each job, after compression.
    #[arg(long, value_name = "KIB", default_value_t = SEGMENT_KIB)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=SEGMENT_BYTES / 1024))]
    segment_kib: u64,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    target: Target,
}

/// Makes the backup and prints the summary.
pub async fn run(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let mut ends = signal(SignalKind::terminate()).context("cannot register for SIGTERM")?;
    let filter = args.filter.filter();
    let (archive, _lock) = args.archive.open_to_write(true)?;
    let archive = Arc::new(archive);
    let client = args.target.client(args.target.options()?).await?;
    let begin = args.describe_bucket(&client, &filter).await?;
    let entries = archive.entries()?;
    let parent = match args.full {
        true => None,
        false => archive.parent_for(&entries, &begin),
    };
    let unfinished = Archive::unfinished_for(&entries, &begin).filter(|begun| {
        // A full one was asked for, or the parent of the interrupted one is there no more.
        begun.parent.as_ref() == parent.map(|parent| &parent.begin.id)
    });
    let is_resumed = unfinished.is_some();
    let begin = match unfinished {
        Some(begun) => begun.clone(),
        None => Begin {
            id: Archive::new_id(&entries, begin.started_at),
            kind: if parent.is_some() { BackupKind::Incremental } else { BackupKind::Full },
            parent: parent.map(|parent| parent.begin.id.clone()),
            from: parent.map_or(String::new(), |parent| parent.token.clone()),
            ..begin
        },
    };
    drop(entries);
    let (id, level) = (begin.id.clone(), args.level);
    let started = Instant::now();
    if is_resumed {
        eprintln!("oribi: {id} was interrupted, and goes on where it was");
    }
    let writer = tokio::task::spawn_blocking(move || match is_resumed {
        true => BackupWriter::resume(archive, begin, level),
        false => BackupWriter::begin(archive, begin, level),
    });
    let resumable = || format!("backup {id} is unfinished; the same command goes on with it");
    let shared = Arc::new(BackupShared {
        writer: writer.await?.with_context(|| format!("writing {id}"))?,
        options: stream_options(&filter),
        client,
        filter,
        bar: progress::bar(None, "backing up"),
        segment_bytes: args.segment_kib * 1024,
    });
    let outcome = tokio::select! {
        token = stream(&shared, args.jobs.number()) => token.map(Some),
        _ = interrupts.recv() => Ok(None),
        _ = ends.recv() => Ok(None),
    };
    shared.bar.finish_and_clear();
    let Some(token) = outcome.with_context(resumable)? else {
        eprintln!("oribi: {}", resumable());
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let finished =
        tokio::task::spawn_blocking(move || shared.writer.finish(&token, now_s())).await?;
    let manifest = finished.with_context(|| format!("writing {id}")).with_context(resumable)?;
    args.print_summary(&manifest, started.elapsed())?;
    Ok(ExitCode::SUCCESS)
}

/// Streams everything until now, in as many lanes; returns where the streams are then. Lanes end
/// when this future is dropped, and when one of them fails.
async fn stream(shared: &Arc<BackupShared>, jobs: u16) -> anyhow::Result<ChangeToken> {
    let from = shared.writer.token();
    let lanes = jobs.clamp(1, shared.client.config().vbucket_count().max(1));
    let mut running = JoinSet::new();
    for number in 0..lanes {
        running.spawn(BackupLane::new(shared.clone(), number, lanes)?.run(from.clone()));
    }
    let mut token = ChangeToken::new(Rest::Beginning);
    while let Some(ended) = running.join_next().await {
        let own = ended.context("a part of the backup")??;
        token.manifest_uid = token.manifest_uid.max(own.manifest_uid);
        own.positions().iter().for_each(|position| token.set(*position));
    }
    let torn = token.positions().iter().filter(|position| !position.is_at_snapshot_end());
    match torn.count() {
        0 => {}
        // Oribi ends streams at the end of a snapshot; a server need not.
        torn => eprintln!(
            "oribi: {torn} vbuckets ended within a snapshot: versions that their newest writes replaced may be missing"
        ),
    }
    Ok(token)
}

fn stream_options(filter: &BackupFilter) -> DcpStreamOptions {
    let options = DcpStreamOptions::new().attributes(true).until_now(true).name("oribi-backup");
    filter.collections.iter().fold(options, |options, path| options.collection(path))
}

impl CreateArgs {
    /// Source of the backup; its id, kind and beginning are not decided.
    async fn describe_bucket(
        &self,
        client: &Client,
        filter: &BackupFilter,
    ) -> anyhow::Result<Begin> {
        let Target { bucket, .. } = &self.target;
        let (manifest_uid, scopes, places) = collections_of(client, filter).await?;
        let admin = Admin::find(&self.admin, &self.target, client).await;
        let users = match (&admin, self.with_users) {
            (_, false) => None,
            (Ok(admin), true) => Some(users::read(admin).await?),
            (Err(error), true) => bail!("users come by the admin HTTP: {error:#}"),
        };
        let indexes = match &admin {
            Ok(admin) => indexes::read(admin, bucket, filter).await.unwrap_or_else(|error| {
                eprintln!("oribi: definitions of indexes will not be in the backup: {error:#}");
                Vec::new()
            }),
            Err(_) => Vec::new(),
        };
        let settings = async { admin?.bucket(bucket).await };
        let bucket_settings = match settings.await {
            Ok(settings) => Some(settings),
            Err(error) => {
                eprintln!("oribi: the bucket's settings will not be in the backup: {error:#}");
                None
            }
        };
        let config = client.config();
        let source = config.this_node().or(config.nodes.first()).map(ToString::to_string);
        Ok(Begin {
            id: String::new(),
            kind: BackupKind::Full,
            parent: None,
            bucket: bucket.clone(),
            source: source.unwrap_or_default(),
            tool: concat!("oribi ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_at: now_s(),
            vbuckets: config.vbucket_count(),
            collections: filter.collections.clone(),
            key_pattern: filter.key_pattern(),
            manifest_uid,
            places,
            scopes: if filter.collections.is_empty() { scopes } else { Vec::new() },
            bucket_settings,
            users,
            indexes,
            from: String::new(),
        })
    }

    fn print_summary(&self, manifest: &BackupManifest, elapsed: Duration) -> anyhow::Result<()> {
        let seconds = elapsed.as_secs_f64();
        let BackupManifest { begin, mutations, removals, stored_bytes, .. } = manifest;
        if self.json {
            let summary = json!({
                "id": begin.id,
                "kind": list::kind(begin.kind),
                "parent": begin.parent,
                "documents": mutations,
                "removals": removals,
                "plain_bytes": manifest.plain_bytes,
                "stored_bytes": stored_bytes,
                "seconds": (seconds * 1000.0).round() / 1000.0,
            });
            return print::line(&summary.to_string());
        }
        let kind = list::kind(begin.kind);
        let amount = progress::amount(*mutations, *stored_bytes);
        print::line(&format!(
            "{}: {kind} backup of {amount} and {} in {seconds:.2} s",
            begin.id,
            progress::counted(*removals, "removal"),
        ))
    }
}

/// Version of the bucket's list of collections, its scopes, and its collections that are meant.
pub(super) async fn collections_of(
    client: &Client,
    filter: &BackupFilter,
) -> anyhow::Result<(u64, Vec<String>, Vec<BackupCollection>)> {
    let manifest = match client.collections_manifest().await {
        Err(ClientError::NotOffered(_)) => return Ok((0, Vec::new(), vec![default_place()])),
        manifest => manifest.context("the list of collections")?,
    };
    let scopes = manifest.scopes.iter().map(|scope| scope.name.clone()).collect();
    let places = manifest.scopes.iter().flat_map(|scope| {
        scope.collections.iter().map(|collection| BackupCollection {
            id: collection.id.0,
            scope: scope.name.clone(),
            collection: collection.name.clone(),
            max_ttl_s: collection.max_ttl_s,
        })
    });
    let places = places.filter(|place| filter.has_collection(&place.path())).collect();
    Ok((manifest.uid.0, scopes, places))
}

fn default_place() -> BackupCollection {
    let name = || "_default".to_owned();
    BackupCollection { id: 0, scope: name(), collection: name(), max_ttl_s: None }
}
