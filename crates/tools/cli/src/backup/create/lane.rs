//! One lane of a backup: the change stream of some vbuckets into separate segments.
//!
//! Lanes share only the archive, so they use several cores, and a vbucket that is slow holds
//! up those of its lane at most. A lane encodes and compresses what it gets; a segment that is cut
//! is written on a thread, while the lane fills the next one. Memory: the stream's window, and two
//! segments after compression.
//!
//! A rollback says that the server lost changes which the archive may have, and that versions it
//! has are missing in the archive. The vbucket is then backed up anew, from its beginning.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;
use oribi_backup::manifest::{BackupCollection, CollectionChange, CollectionEvent};
use oribi_backup::segment::SegmentWriter;
use oribi_backup::writer::BackupWriter;
use oribi_backup::{ArchiveError, ArchiveRecord, RecordKind};
use oribi_client::{
    BorrowedChange, BorrowedEvent, ChangeKind, ChangeToken, Client, DcpEvent, DcpStream,
    DcpStreamOptions, DcpSystemEvent, DcpSystemEventKind, Position, Rest, Vbid,
};
use tokio::task::JoinHandle;

use super::super::filter::BackupFilter;
use crate::stats::clean;

/// Longest time until what came is durable.
const CUT_INTERVAL: Duration = Duration::from_secs(30);

/// Events between two looks at the clock.
const LOOK_INTERVAL: u64 = 64;

/// State that all lanes share.
pub struct BackupShared {
    pub client: Client,
    pub options: DcpStreamOptions,
    pub filter: BackupFilter,
    pub writer: BackupWriter,
    pub bar: ProgressBar,
    /// Bytes of records after which a segment is cut.
    pub segment_bytes: u64,
}

/// See the module text.
pub struct BackupLane {
    shared: Arc<BackupShared>,
    vbuckets: Vec<Vbid>,
    /// The one that is filled.
    segment: SegmentWriter,
    /// The one before, which is being written; it comes back empty.
    cutting: Option<JoinHandle<Result<SegmentWriter, ArchiveError>>>,
    last_cut: Instant,
    /// Changes that the progress bar does not count yet.
    uncounted: u64,
    /// This lane says when a connection ends; the others would repeat it.
    is_first: bool,
    /// Nodes whose connections ended, and nothing has come since.
    lost: HashSet<Arc<str>>,
}

impl BackupLane {
    /// A lane for every `lanes`-th vbucket from `number` on.
    pub fn new(
        shared: Arc<BackupShared>,
        number: u16,
        lanes: u16,
    ) -> Result<BackupLane, ArchiveError> {
        let vbuckets = shared.client.config().vbucket_count();
        let segment = shared.writer.segment()?;
        Ok(BackupLane {
            shared,
            vbuckets: (number..vbuckets).step_by(usize::from(lanes)).map(Vbid).collect(),
            segment,
            cutting: None,
            last_cut: Instant::now(),
            uncounted: 0,
            is_first: number == 0,
            lost: HashSet::new(),
        })
    }

    /// Streams until now; returns where its vbuckets are then. Everything is durable.
    pub async fn run(mut self, from: ChangeToken) -> anyhow::Result<ChangeToken> {
        let mut changes = self.open(from).await?;
        let mut events = 0_u64;
        while let Some(event) = changes.next_borrowed().await.context("reading changes")? {
            match event {
                BorrowedEvent::Change(change) => self.take(&change)?,
                BorrowedEvent::Other(DcpEvent::System(event)) => self.learn(&event),
                BorrowedEvent::Other(DcpEvent::Rollback(rollback)) => {
                    let vbid = rollback.to.vbid;
                    let mut token = changes.token();
                    token.set(Position::beginning(vbid));
                    self.segment.reset(vbid);
                    self.cut(&token).await?;
                    eprintln!("oribi: the server lost changes of {vbid}, which is backed up anew");
                    if rollback.to.seqno.0 > 0 {
                        changes = self.open(token).await?;
                    }
                }
                BorrowedEvent::Other(DcpEvent::Disconnected(lost))
                    if self.is_first && self.lost.insert(lost.peer.clone()) =>
                {
                    let reason = clean(lost.reason.as_bytes());
                    eprintln!("oribi: {reason}; connecting again");
                }
                _ => {}
            }
            events += 1;
            if self.segment.plain_bytes() >= self.shared.segment_bytes
                || (events.is_multiple_of(LOOK_INTERVAL) && self.is_late())
            {
                self.cut(&changes.token()).await?;
            }
            if events.is_multiple_of(LOOK_INTERVAL) {
                self.shared.bar.inc(std::mem::take(&mut self.uncounted));
                // Signals are looked at only when this future waits.
                tokio::task::consume_budget().await;
            }
        }
        self.shared.bar.inc(self.uncounted);
        let token = changes.token();
        self.cut(&token).await?;
        self.cut_ended().await?;
        Ok(self.own(&token))
    }

    async fn open(&self, from: ChangeToken) -> anyhow::Result<DcpStream> {
        let BackupShared { client, options, .. } = &*self.shared;
        let options = options.clone().vbuckets(self.vbuckets.iter().copied()).resume(from);
        client.dcp_stream(&options).await.context("opening the change stream")
    }

    fn learn(&mut self, event: &DcpSystemEvent) {
        if let Some(event) = collection_event(event) {
            self.segment.event(event);
        }
    }

    fn take(&mut self, change: &BorrowedChange<'_>) -> Result<(), ArchiveError> {
        if !self.lost.is_empty() {
            self.lost.clear();
        }
        self.uncounted += 1;
        match self.shared.filter.has_key(change.key) {
            true => self.segment.push(&record_of(change)),
            false => Ok(()),
        }
    }

    fn is_late(&self) -> bool {
        self.segment.has_news() && self.last_cut.elapsed() >= CUT_INTERVAL
    }

    /// Has everything so far made durable; `token` is the stream's after it.
    async fn cut(&mut self, token: &ChangeToken) -> anyhow::Result<()> {
        self.last_cut = Instant::now();
        if !self.segment.has_news() {
            return Ok(());
        }
        // The segments of a vbucket are written one after the other.
        let next = match self.cut_ended().await? {
            Some(empty) => empty,
            None => self.shared.writer.segment()?,
        };
        let mut full = std::mem::replace(&mut self.segment, next);
        let (shared, token) = (self.shared.clone(), self.own(token));
        self.cutting = Some(tokio::task::spawn_blocking(move || {
            shared.writer.cut(&mut full, &token)?;
            Ok(full)
        }));
        Ok(())
    }

    /// Waits for the segment that is being written, if there is one.
    async fn cut_ended(&mut self) -> anyhow::Result<Option<SegmentWriter>> {
        let Some(cutting) = self.cutting.take() else { return Ok(None) };
        let cut = cutting.await.context("the thread that writes the archive")?;
        cut.map(Some).context("writing the archive")
    }

    /// The positions of this lane's vbuckets.
    fn own(&self, token: &ChangeToken) -> ChangeToken {
        let mut own = ChangeToken::new(Rest::Beginning);
        own.manifest_uid = token.manifest_uid;
        for position in self.vbuckets.iter().filter_map(|vbid| token.position(*vbid)) {
            own.set(*position);
        }
        own
    }
}

fn record_of<'a>(change: &BorrowedChange<'a>) -> ArchiveRecord<'a> {
    let kind = match change.kind {
        ChangeKind::Deletion => RecordKind::Deletion,
        ChangeKind::Expiration => RecordKind::Expiration,
        _ => RecordKind::Mutation,
    };
    let expiry = match kind {
        RecordKind::Mutation => change.expiry,
        _ => change.deleted_at.unwrap_or(0),
    };
    ArchiveRecord {
        kind,
        vbid: change.position.vbid,
        seqno: change.position.seqno,
        cas: change.cas,
        rev: change.rev,
        flags: change.flags,
        expiry,
        collection: change.collection,
        datatype: change.datatype,
        key: change.key,
        value: change.raw_value,
    }
}

fn collection_event(event: &DcpSystemEvent) -> Option<CollectionEvent> {
    let name = |name: &Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    let change = match (event.kind, event.collection) {
        (DcpSystemEventKind::CollectionCreated, Some(id)) => {
            CollectionChange::Created(BackupCollection {
                id: id.0,
                scope: name(&event.scope_name),
                collection: name(&event.collection_name),
                max_ttl_s: event.max_ttl_s,
            })
        }
        (DcpSystemEventKind::CollectionDropped, Some(id)) => CollectionChange::Dropped { id: id.0 },
        (DcpSystemEventKind::ScopeCreated, _) => {
            CollectionChange::ScopeCreated { name: name(&event.scope_name) }
        }
        (DcpSystemEventKind::ScopeDropped, _) => {
            CollectionChange::ScopeDropped { name: name(&event.scope_name) }
        }
        // A kind that this program is older than.
        _ => return None,
    };
    Some(CollectionEvent { manifest_uid: event.manifest_uid.0, change })
}
