//! `oribi backup create`: a bucket's change stream into an archive.
//!
//! The stream runs on the runtime; a thread encodes, compresses and writes ([`writing`]). Between
//! them is a short queue, so the server sends no faster than the archive takes. A segment is cut
//! when enough came, and at the latest after [`CUT_INTERVAL`]; what was cut is not fetched again
//! when the program is started again after an interruption.
//!
//! A rollback says that the server lost changes which the archive may have, and that versions it
//! has are missing in the archive. The vbucket is then backed up anew, from its beginning.

mod writing;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use oribi_backup::limits::SEGMENT_BYTES;
use oribi_backup::manifest::{Begin, CollectionChange, CollectionEvent, Kind, Manifest, Place};
use oribi_backup::writer::BackupWriter;
use oribi_client::{
    ChangeEvent, ChangeStream, ChangeStreamOptions, ChangeToken, Client, ClientError, Position,
    SystemEvent, SystemEventKind,
};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::writing::{Queue, Writing};
use super::clock::now_s;
use super::filter::{Filter, FilterArgs};
use super::place::ArchivePlace;
use super::{list, progress, users};
use crate::admin::{Admin, AdminArgs};
use crate::print;
use crate::stats::clean;
use crate::target::{INTERRUPTED, Target};

/// Longest time until what came is durable.
const CUT_INTERVAL: Duration = Duration::from_secs(30);

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
    /// Take the server's users as well, with their roles and the verifiers of their passwords, from this
    /// data directory of it.
    #[arg(long, value_name = "DATA_DIR")]
    with_users: Option<PathBuf>,
    /// Level of zstd's compression, 1 to 19.
    #[arg(long, value_name = "LEVEL", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// KiB of documents in a file of the archive. What is in a finished file need not be fetched again when
    /// the backup is interrupted; memory holds one.
    #[arg(long, value_name = "KIB", default_value_t = SEGMENT_BYTES / 1024)]
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
    let filter = args.filter.filter()?;
    let (archive, _lock) = args.archive.open_to_write(true)?;
    let archive = Arc::new(archive);
    let client = args.target.client(args.target.options()?).await?;
    let begin = args.describe_bucket(&client, &filter).await?;
    let parent = match args.full {
        true => None,
        false => archive.parent_for(&begin)?,
    };
    let unfinished = archive.unfinished_for(&begin)?.filter(|begun| {
        // A full one was asked for, or the parent of the interrupted one is there no more.
        let parent = parent.as_ref().map(|parent| &parent.begin.id);
        begun.parent.as_ref() == parent
    });
    let is_resumed = unfinished.is_some();
    let begin = match (unfinished, &parent) {
        (Some(begun), _) => begun,
        (None, parent) => Begin {
            id: archive.new_id(begin.started_at)?,
            kind: if parent.is_some() { Kind::Incremental } else { Kind::Full },
            parent: parent.as_ref().map(|parent| parent.begin.id.clone()),
            from: parent.as_ref().map_or(String::new(), |parent| parent.token.clone()),
            ..begin
        },
    };
    let (id, level) = (begin.id.clone(), args.level);
    let started = Instant::now();
    let bar = progress::bar(None, "backing up");
    let (writing, queue) = Writing::start(archive.clone(), move |archive| match is_resumed {
        true => BackupWriter::resume(archive, begin, level),
        false => BackupWriter::begin(archive, begin, level),
    });
    let writing = writing.begun().await;
    let from = match writing.token() {
        Some(token) => token.parse::<ChangeToken>().context("the archive's token")?,
        None => return writing.outcome().await.map(|_| ExitCode::FAILURE),
    };
    if is_resumed {
        eprintln!("oribi: {id} was interrupted, and goes on where it was");
    }
    let options = stream_options(&filter);
    let mut backup = Backup {
        client: &client,
        options,
        filter: &filter,
        queue,
        bar: bar.clone(),
        segment_bytes: args.segment_kib * 1024,
        lost: HashSet::new(),
    };
    let outcome = tokio::select! {
        outcome = backup.run(from) => outcome.map(|()| false),
        _ = interrupts.recv() => Ok(true),
        _ = ends.recv() => Ok(true),
    };
    drop(backup);
    bar.finish_and_clear();
    let manifest = writing.outcome().await.with_context(|| format!("writing {id}"));
    let resumable = || format!("backup {id} is unfinished; the same command goes on with it");
    match (outcome, manifest) {
        (Ok(false), Ok(Some(manifest))) => {
            args.print_summary(&manifest, started.elapsed())?;
            Ok(ExitCode::SUCCESS)
        }
        (Ok(true), Ok(_)) => {
            eprintln!("oribi: {}", resumable());
            Ok(ExitCode::from(INTERRUPTED))
        }
        // The queue is closed because writing failed.
        (_, Err(error)) => Err(error.context(resumable())),
        (Err(error), _) => Err(error.context(resumable())),
        (Ok(false), Ok(None)) => bail!(resumable()),
    }
}

fn stream_options(filter: &Filter) -> ChangeStreamOptions {
    let options = ChangeStreamOptions::new().attributes(true).until_now(true).name("oribi-backup");
    filter.collections.iter().fold(options, |options, path| options.collection(path))
}

impl CreateArgs {
    /// What the backup is of; its id, kind and beginning are not decided.
    async fn describe_bucket(&self, client: &Client, filter: &Filter) -> anyhow::Result<Begin> {
        let Target { bucket, .. } = &self.target;
        let (manifest_uid, scopes, places) = collections_of(client, filter).await?;
        let settings =
            async { Admin::find(&self.admin, &self.target, client).await?.bucket(bucket).await };
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
            kind: Kind::Full,
            parent: None,
            bucket: bucket.clone(),
            source: source.unwrap_or_default(),
            tool: concat!("oribi ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_at: now_s(),
            vbuckets: config.vbucket_count(),
            collections: filter.collections.clone(),
            key_pattern: filter.key_pattern.clone(),
            manifest_uid,
            places,
            scopes: if filter.collections.is_empty() { scopes } else { Vec::new() },
            bucket_settings,
            users: self.with_users.as_deref().map(users::read).transpose()?,
            from: String::new(),
        })
    }

    fn print_summary(&self, manifest: &Manifest, elapsed: Duration) -> anyhow::Result<()> {
        let seconds = elapsed.as_secs_f64();
        let Manifest { begin, mutations, removals, stored_bytes, .. } = manifest;
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
            "{}: {kind} backup of {amount} and {removals} removals in {seconds:.2} s",
            begin.id
        ))
    }
}

/// Version of the bucket's list of collections, its scopes, and its collections that are meant.
pub(super) async fn collections_of(
    client: &Client,
    filter: &Filter,
) -> anyhow::Result<(u64, Vec<String>, Vec<Place>)> {
    let manifest = match client.collections_manifest().await {
        Err(ClientError::NotOffered(_)) => return Ok((0, Vec::new(), vec![default_place()])),
        manifest => manifest.context("the list of collections")?,
    };
    let scopes = manifest.scopes.iter().map(|scope| scope.name.clone()).collect();
    let places = manifest.scopes.iter().flat_map(|scope| {
        scope.collections.iter().map(|collection| Place {
            id: collection.id.0,
            scope: scope.name.clone(),
            collection: collection.name.clone(),
            max_ttl_s: collection.max_ttl_s,
        })
    });
    let places = places.filter(|place| filter.has_collection(&place.path())).collect();
    Ok((manifest.uid.0, scopes, places))
}

fn default_place() -> Place {
    let name = || "_default".to_owned();
    Place { id: 0, scope: name(), collection: name(), max_ttl_s: None }
}

/// The stream on its way to the archive.
struct Backup<'a> {
    client: &'a Client,
    options: ChangeStreamOptions,
    filter: &'a Filter,
    queue: Queue,
    bar: ProgressBar,
    /// Bytes of records after which a segment is cut.
    segment_bytes: u64,
    /// Nodes whose connections ended, and nothing has come since.
    lost: HashSet<Arc<str>>,
}

impl Backup<'_> {
    /// Streams until now.
    async fn run(&mut self, from: ChangeToken) -> anyhow::Result<()> {
        let mut changes = self.open(from).await?;
        let mut cut = Instant::now();
        let mut since_cut = 0;
        while let Some(event) = changes.next().await.context("reading changes")? {
            match event {
                ChangeEvent::Change(change) => {
                    self.lost.clear();
                    self.bar.inc(1);
                    if self.filter.has_key(&change.key) {
                        since_cut += self.queue.change(change).await?;
                    }
                }
                ChangeEvent::System(event) => {
                    if let Some(event) = collection_event(&event) {
                        self.queue.event(event).await?;
                    }
                }
                ChangeEvent::Rollback(rollback) => {
                    let vbid = rollback.to.vbid;
                    let mut token = changes.token();
                    token.set(Position::beginning(vbid));
                    self.queue.reset(vbid, token.to_string()).await?;
                    eprintln!("oribi: the server lost changes of {vbid}, which is backed up anew");
                    if rollback.to.seqno.0 > 0 {
                        changes = self.open(token).await?;
                    }
                    (cut, since_cut) = (Instant::now(), 0);
                }
                ChangeEvent::Disconnected(lost) if self.lost.insert(lost.peer.clone()) => {
                    let reason = clean(lost.reason.as_bytes());
                    eprintln!("oribi: {reason}; connecting again");
                }
                _ => {}
            }
            if since_cut >= self.segment_bytes || (since_cut > 0 && cut.elapsed() >= CUT_INTERVAL) {
                self.queue.cut(changes.token().to_string()).await?;
                (cut, since_cut) = (Instant::now(), 0);
            }
            // Signals are looked at only when this future waits.
            tokio::task::consume_budget().await;
        }
        let token = changes.token();
        let torn = token.positions().iter().filter(|position| !position.is_at_snapshot_end());
        match torn.count() {
            0 => {}
            // Oribi ends streams at the end of a snapshot; a server need not.
            torn => eprintln!(
                "oribi: {torn} vbuckets ended within a snapshot: versions that their newest writes replaced may be missing"
            ),
        }
        self.queue.finish(token.to_string()).await
    }

    async fn open(&self, from: ChangeToken) -> anyhow::Result<ChangeStream> {
        let options = self.options.clone().resume(from);
        self.client.changes(&options).await.context("opening the change stream")
    }
}

fn collection_event(event: &SystemEvent) -> Option<CollectionEvent> {
    let name = |name: &Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    let change = match (event.kind, event.collection) {
        (SystemEventKind::CollectionCreated, Some(id)) => CollectionChange::Created(Place {
            id: id.0,
            scope: name(&event.scope_name),
            collection: name(&event.collection_name),
            max_ttl_s: event.max_ttl_s,
        }),
        (SystemEventKind::CollectionDropped, Some(id)) => CollectionChange::Dropped { id: id.0 },
        (SystemEventKind::ScopeCreated, _) => {
            CollectionChange::ScopeCreated { name: name(&event.scope_name) }
        }
        (SystemEventKind::ScopeDropped, _) => {
            CollectionChange::ScopeDropped { name: name(&event.scope_name) }
        }
        // A kind that this program is older than.
        _ => return None,
    };
    Some(CollectionEvent { manifest_uid: event.manifest_uid.0, change })
}
