//! Versions on their way to a bucket, in batches of quiet requests.
//!
//! A server answers a quiet request only to refuse it, so a batch costs one answer: that to the
//! NOOP after it, on each connection that the batch used. A few batches are in flight. A version
//! that is the same or newer there is a refusal that counts as done.
//!
//! Any other refusal, and a connection that ends, lead to the slow way: what is in flight is waited
//! for, and everything from the first version on that may be missing is written once more, one
//! after the other. Only so a newer version of a key is never followed by an older one. Writing a
//! version twice does no harm. Memory is that of the batches in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use oribi_client::{
    Bytes, Client, ClientError, ClusterMap, Collection, CollectionId, Connection, DocumentVersion,
    KvNode, Operation, RejectionKind, Reply, ResolutionMode, VersionKind,
};
use oribi_protocol::feature::Feature;
use oribi_protocol::leb128;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::collections::CollectionMapping;

/// Bytes of keys and values in a batch. One document may exceed it, when it is the last one.
const BATCH_BYTES: usize = 256 * 1024;

/// Batches in flight: enough that the server always has one to work on.
const BATCHES: usize = 4;

/// A version that is to be written.
pub struct RestoredDocument {
    /// Collection's id in the backup.
    pub collection: CollectionId,
    pub version: DocumentVersion,
    pub key: Bytes,
    pub value: Bytes,
}

#[derive(Clone, Copy, Default)]
pub struct RestoreTotals {
    /// Records that are documents.
    pub documents: u64,
    /// Records that are removals.
    pub removals: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Versions that the target took.
    pub written: u64,
    /// Versions that the target left out, because it had them or newer ones.
    pub skipped: u64,
    /// Versions that were written once more, one by one, because their first outcome is not known.
    pub repeated: u64,
}

impl RestoreTotals {
    /// Counts a record that is wanted.
    pub fn count(&mut self, is_document: bool, key: &[u8], value: &[u8]) {
        match is_document {
            true => self.documents += 1,
            false => self.removals += 1,
        }
        self.bytes += (key.len() + value.len()) as u64;
    }

    /// Adds those of another part.
    pub fn add(&mut self, other: &RestoreTotals) {
        self.documents += other.documents;
        self.removals += other.removals;
        self.bytes += other.bytes;
        self.written += other.written;
        self.skipped += other.skipped;
        self.repeated += other.repeated;
    }
}

/// Versions that all writers have written so far.
pub type WrittenCount = Arc<AtomicU64>;

/// See the module text.
pub struct RestoreWrites {
    client: Arc<Client>,
    mapping: Arc<CollectionMapping>,
    overwrite: bool,
    resolution: ResolutionMode,
    config: Arc<ClusterMap>,
    /// Connections to the nodes that were needed.
    links: Vec<Link>,
    /// Index of the link for each vbucket, once it was needed.
    routes: Vec<Option<usize>>,
    /// Versions whose outcome is not known, oldest first.
    window: VecDeque<RestoredDocument>,
    batches: VecDeque<Batch>,
    open: Batch,
    /// Ids of the last version's collection, in the backup and at the target.
    last_collection: Option<(CollectionId, CollectionId)>,
    extras: Vec<u8>,
    key: Vec<u8>,
    bar: ProgressBar,
    written: WrittenCount,
    pub totals: RestoreTotals,
}

struct Link {
    node: KvNode,
    /// None once it is of no use.
    connection: Option<Connection>,
}

/// Versions that are confirmed together.
#[derive(Default)]
struct Batch {
    /// Number of the first one, and the one after the last.
    first: u64,
    end: u64,
    bytes: usize,
    /// Links that it used.
    links: Vec<usize>,
    /// Versions that the server left out.
    skipped: Vec<u64>,
    /// The first version that may be missing.
    failed: Option<u64>,
}

/// Whether a version was taken.
enum Outcome {
    Written,
    Skipped,
}

impl RestoreWrites {
    /// Writes to the collections of a mapping. The client's connections must keep the order of
    /// requests: what is behind a batch confirms it.
    pub fn new(
        client: Arc<Client>,
        mapping: Arc<CollectionMapping>,
        overwrite: bool,
        bar: ProgressBar,
        written: WrittenCount,
    ) -> RestoreWrites {
        let config = client.config();
        RestoreWrites {
            routes: vec![None; usize::from(config.vbucket_count())],
            client,
            mapping,
            overwrite,
            resolution: ResolutionMode::Revision,
            config,
            links: Vec::new(),
            window: VecDeque::new(),
            batches: VecDeque::new(),
            open: Batch::default(),
            last_collection: None,
            extras: Vec::new(),
            key: Vec::new(),
            bar,
            written,
            totals: RestoreTotals::default(),
        }
    }

    /// Adds a version to the batch, and sends the batch when it is full.
    pub async fn take(&mut self, stored: RestoredDocument) -> anyhow::Result<()> {
        let is_document = stored.version.kind == VersionKind::Mutation;
        self.totals.count(is_document, &stored.key, &stored.value);
        self.open.bytes += stored.key.len() + stored.value.len();
        if self.open.failed.is_none() && !self.push(&stored).await? {
            self.open.failed = Some(self.open.end);
        }
        self.open.end += 1;
        self.window.push_back(stored);
        match self.open.bytes >= BATCH_BYTES {
            true => self.send().await,
            false => Ok(()),
        }
    }

    pub async fn settle(&mut self) -> anyhow::Result<()> {
        self.send().await?;
        while !self.batches.is_empty() {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    /// Queues a version; false when its node cannot be reached.
    async fn push(&mut self, stored: &RestoredDocument) -> anyhow::Result<bool> {
        let collection = self.collection_id(stored)?;
        let vbid = self.config.vbucket_of(&stored.key);
        let Some(index) = self.route(usize::from(vbid.0)).await else { return Ok(false) };
        let Some(connection) = &mut self.links[index].connection else { return Ok(false) };
        self.key.clear();
        if connection.has(Feature::Collections) {
            let (bytes, len) = leb128::encode_u32(collection.0);
            self.key.extend_from_slice(&bytes[..len]);
        } else if collection != CollectionId::DEFAULT {
            return Ok(false);
        }
        self.key.extend_from_slice(&stored.key);
        let version = stored.version.overwrite(self.overwrite).resolution(self.resolution);
        self.extras.clear();
        version.write_extras(&mut self.extras);
        let opcode = match version.kind {
            VersionKind::Mutation => Opcode::SetqWithMeta,
            _ => Opcode::DelqWithMeta,
        };
        let parts = RequestParts {
            // The lower half is enough to find it again.
            opaque: self.open.end as u32,
            vbid,
            datatype: version.datatype.0,
            extras: &self.extras,
            key: &self.key,
            ..RequestParts::new(opcode)
        };
        connection.push_value(&parts, &stored.value);
        if !self.open.links.contains(&index) {
            self.open.links.push(index);
        }
        Ok(true)
    }

    /// Id of the target's collection for a version. Neighbours are mostly of one collection.
    fn collection_id(&mut self, stored: &RestoredDocument) -> anyhow::Result<CollectionId> {
        match self.last_collection {
            Some((source, target)) if source == stored.collection => Ok(target),
            _ => {
                let target = collection_of(&self.mapping, stored)?.id();
                self.last_collection = Some((stored.collection, target));
                Ok(target)
            }
        }
    }

    /// The link for a vbucket, connected.
    async fn route(&mut self, vbucket: usize) -> Option<usize> {
        if let Some(index) = self.routes.get(vbucket).copied().flatten() {
            return Some(index);
        }
        let node = self.config.active_node(oribi_client::Vbid(vbucket as u16))?.clone();
        let index = match self.links.iter().position(|link| link.node == node) {
            Some(index) => index,
            None => {
                let connection = self.client.open_connection(&node).await.ok()?;
                self.links.push(Link { node, connection: Some(connection) });
                self.links.len() - 1
            }
        };
        *self.routes.get_mut(vbucket)? = Some(index);
        Some(index)
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        let end = self.open.end;
        if end == self.open.first {
            return Ok(());
        }
        let next = Batch { first: end, end, ..Batch::default() };
        let mut batch = std::mem::replace(&mut self.open, next);
        for &index in &batch.links {
            let link = &mut self.links[index];
            let Some(connection) = &mut link.connection else { continue };
            connection.push(&RequestParts {
                opaque: batch.end as u32,
                ..RequestParts::new(Opcode::Noop)
            });
            if connection.flush().await.is_err() {
                link.connection = None;
                batch.failed = Some(batch.first);
            }
        }
        self.batches.push_back(batch);
        while self.batches.len() >= BATCHES {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let Some(batch) = self.confirm_oldest().await else { return Ok(()) };
        let end = batch.failed.unwrap_or(batch.end);
        let skipped = batch.skipped.iter().filter(|number| **number < end).count() as u64;
        let done = end - batch.first;
        self.window.drain(..done as usize);
        self.count(done - skipped, skipped);
        match batch.failed {
            Some(_) => self.repeat().await,
            None => Ok(()),
        }
    }

    /// Waits for the outcome of the oldest batch.
    async fn confirm_oldest(&mut self) -> Option<Batch> {
        let overwrite = self.overwrite;
        let mut batch = self.batches.pop_front()?;
        for index in std::mem::take(&mut batch.links) {
            let link = &mut self.links[index];
            let outcome = match &mut link.connection {
                Some(connection) => confirm(connection, &mut batch, overwrite).await,
                None => Err(()),
            };
            if outcome.is_err() {
                link.connection = None;
                batch.failed = Some(batch.first);
            }
        }
        Some(batch)
    }

    fn count(&mut self, written: u64, skipped: u64) {
        self.bar.inc(written + skipped);
        self.totals.written += written;
        self.totals.skipped += skipped;
        self.written.fetch_add(written, Ordering::Relaxed);
    }

    /// Writes everything whose outcome is not known once more.
    async fn repeat(&mut self) -> anyhow::Result<()> {
        // The writes collected so far are sent first, so that none comes after the repetition.
        let next = Batch { first: self.open.end, end: self.open.end, ..Batch::default() };
        let open = std::mem::replace(&mut self.open, next);
        for &index in &open.links {
            let Some(connection) = &mut self.links[index].connection else { continue };
            let opaque = open.end as u32;
            connection.push(&RequestParts { opaque, ..RequestParts::new(Opcode::Noop) });
            if connection.flush().await.is_err() {
                self.links[index].connection = None;
            }
        }
        self.batches.push_back(open);
        while self.confirm_oldest().await.is_some() {}
        self.totals.repeated += self.window.len() as u64;
        while let Some(stored) = self.window.pop_front() {
            match self.write(&stored).await.with_context(|| name_of(&stored))? {
                Outcome::Written => self.count(1, 0),
                Outcome::Skipped => self.count(0, 1),
            }
        }
        // The map may be another one by now.
        self.config = self.client.config();
        self.links.retain(|link| link.connection.is_some());
        self.routes.clear();
        self.routes.resize(usize::from(self.config.vbucket_count()), None);
        Ok(())
    }

    /// Writes one version, again for as long as that may help.
    async fn write(&mut self, stored: &RestoredDocument) -> anyhow::Result<Outcome> {
        let collection = collection_of(&self.mapping, stored)?;
        let mut interruptions = 0;
        loop {
            let version = stored.version.overwrite(self.overwrite).resolution(self.resolution);
            let operation = Operation::with_meta(&stored.key, stored.value.clone(), &version);
            match outcome_of(self.client.run(collection, &operation).await, self.overwrite) {
                Ok(outcome) => return Ok(outcome),
                // A bucket that resolves by time requires that writers declare it.
                Err(ClientError::Rejected(RejectionKind::Invalid))
                    if self.resolution == ResolutionMode::Revision =>
                {
                    self.resolution = ResolutionMode::Time;
                }
                Err(error)
                    if (error.was_interrupted() || error.was_not_sent()) && interruptions < 10 =>
                {
                    interruptions += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Takes the answers up to that of the NOOP after the batch. An error means that the connection is
/// of no use any more.
async fn confirm(
    connection: &mut Connection,
    batch: &mut Batch,
    overwrite: bool,
) -> Result<(), ()> {
    loop {
        let header = connection.next().await.map_err(drop)?.header;
        if header.opcode == Opcode::Noop as u8 {
            return match header.opaque == batch.end as u32 {
                true => Ok(()),
                false => Err(()),
            };
        }
        let number = batch.first + u64::from(header.opaque.wrapping_sub(batch.first as u32));
        if number >= batch.end {
            return Err(());
        }
        // With `overwrite` no version is older, so the server refused it for something else.
        match header.vbucket_or_status == Status::KeyEexists.code() && !overwrite {
            true => batch.skipped.push(number),
            false => batch.failed = Some(batch.failed.map_or(number, |first| first.min(number))),
        }
    }
}

fn outcome_of(result: Result<Reply, ClientError>, overwrite: bool) -> Result<Outcome, ClientError> {
    match result {
        Ok(_) => Ok(Outcome::Written),
        Err(ClientError::Rejected(RejectionKind::Exists)) if !overwrite => Ok(Outcome::Skipped),
        Err(error) => Err(error),
    }
}

fn collection_of<'a>(
    mapping: &'a CollectionMapping,
    stored: &RestoredDocument,
) -> anyhow::Result<&'a Collection> {
    match mapping.get(stored.collection) {
        Some(collection) => Ok(collection),
        None => bail!("collection {:x} is not in the backup's list", stored.collection.0),
    }
}

fn name_of(stored: &RestoredDocument) -> String {
    format!("document {:?}", String::from_utf8_lossy(&stored.key))
}
