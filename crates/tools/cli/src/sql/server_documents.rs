//! The documents of one table, read from a running server.
//!
//! Owns: the choice between look-ups of keys and range scans, and the stream of their documents. A
//! few scans run side by side, each vbucket at one moment; a document that was acknowledged before
//! the scan began is shown. Invariant: a scan holds a bounded number of pages.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use oribi_client::{Client, Collection, ScanPage};
use oribi_protocol::hash::vbucket_of;
use oribi_sql::documents::{DocumentScan, DocumentSource, DocumentStream, StoredDocument};
use oribi_sql::key_filter::KeyFilter;
use oribi_types::{CollectionId, Datatype, Vbid};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::backend::Backend;
use super::server::ServerLink;
use crate::vbucket_scan::{KnownKeys, VbucketScanProgress, VbucketScanner};

/// Scans side by side, each on its own connection: the server prepares one while another is read.
const SCANS: usize = 2;

/// Pages that wait for the statement, besides the one that each scan holds. A page has 96 KiB, or
/// one document.
const PAGES_MAX: usize = 2 * SCANS;

/// Keys that are looked up one by one. More are found by a scan.
const LOOK_UPS_MAX: usize = 256;

/// Most reads of a document whose value and metadata differ in version because of concurrent
/// writes.
const READS_MAX: usize = 16;

/// Documents that a bucket has, for a planner that cannot know.
const DOCUMENTS_UNKNOWN: u64 = 1_000_000;

/// See the module text.
pub struct ServerDocuments {
    link: Arc<ServerLink>,
    client: Arc<Client>,
    collections: Vec<(String, CollectionId)>,
}

impl ServerDocuments {
    /// The documents of these collections.
    pub fn new(
        link: Arc<ServerLink>,
        client: Arc<Client>,
        collections: Vec<(String, CollectionId)>,
    ) -> ServerDocuments {
        ServerDocuments { link, client, collections }
    }

    /// Tasks for the scanners to take: the collections of a vbucket one after the other, which then
    /// costs one look at its history.
    fn places(&self, scan: &DocumentScan) -> VecDeque<(CollectionId, Vbid)> {
        let vbuckets = self.client.config().vbucket_count();
        let of_keys = scan.keys.points();
        let is_wanted = |vbid: &Vbid| {
            scan.vbuckets.as_ref().is_none_or(|wanted| wanted.contains(vbid))
                && of_keys
                    .as_ref()
                    .is_none_or(|keys| keys.iter().any(|key| vbucket_of(key, vbuckets) == *vbid))
        };
        let wanted = (0..vbuckets).map(Vbid).filter(is_wanted).collect::<Vec<_>>();
        let ids = self.collections.iter().map(|(_, id)| *id);
        let is_named =
            |id: &CollectionId| scan.collections.as_ref().is_none_or(|wanted| wanted.contains(id));
        let known: Vec<CollectionId> = ids.filter(is_named).collect();
        let of_vbucket = |vbid: Vbid| known.iter().map(move |id| (*id, vbid));
        wanted.into_iter().flat_map(of_vbucket).collect()
    }
}

impl DocumentSource for ServerDocuments {
    fn documents(&self) -> u64 {
        DOCUMENTS_UNKNOWN
    }

    fn scan(&self, scan: DocumentScan) -> Result<Box<dyn DocumentStream>> {
        let places = self.places(&scan);
        let keys = scan.keys.points().filter(|keys| keys.len() <= LOOK_UPS_MAX);
        if let Some(keys) = keys.filter(|_| !scan.needs_seqno && !scan.needs_xattrs) {
            let vbuckets = self.client.config().vbucket_count();
            let mut wanted = VecDeque::new();
            for (path, id) in &self.collections {
                for key in &keys {
                    let vbid = vbucket_of(key, vbuckets);
                    if places.contains(&(*id, vbid)) {
                        wanted.push_back((path.clone(), *id, vbid, key.to_vec()));
                    }
                }
            }
            let (link, client) = (Arc::clone(&self.link), Arc::clone(&self.client));
            return Ok(Box::new(LookUp { link, client, scan, wanted, found: None }));
        }
        Ok(Box::new(Scan::start(self, scan, places)))
    }
}

/// Documents by their keys, one after the other.
struct LookUp {
    link: Arc<ServerLink>,
    client: Arc<Client>,
    scan: DocumentScan,
    wanted: VecDeque<(String, CollectionId, Vbid, Vec<u8>)>,
    found: Option<FetchedDocument>,
}

struct FetchedDocument {
    key: Vec<u8>,
    vbid: Vbid,
    collection: CollectionId,
    cas: u64,
    flags: u32,
    datatype: Datatype,
    value: Bytes,
    rev: Option<u64>,
    expiry: u32,
}

impl LookUp {
    async fn read(
        client: &Client,
        (path, collection, vbid, key): (String, CollectionId, Vbid, Vec<u8>),
        needs_meta: bool,
    ) -> Result<Option<FetchedDocument>> {
        let place: Collection = client.collection(&path).await?;
        for _ in 0..READS_MAX {
            let Some(document) = client.get(&place, &key).await? else { return Ok(None) };
            let meta = match needs_meta {
                true => client.get_meta(&place, &key).await?,
                false => None,
            };
            if needs_meta && meta.is_none_or(|meta| meta.cas != document.cas) {
                continue;
            }
            return Ok(Some(FetchedDocument {
                key,
                vbid,
                collection,
                cas: document.cas.0,
                flags: document.flags,
                datatype: document.datatype,
                value: document.value,
                rev: meta.map(|meta| meta.rev_seqno.0),
                expiry: meta.map_or(0, |meta| meta.expiry),
            }));
        }
        anyhow::bail!("the document {:?} is written all the time", String::from_utf8_lossy(&key))
    }
}

impl DocumentStream for LookUp {
    fn advance(&mut self) -> Result<bool> {
        self.found = None;
        while let Some(wanted) = self.wanted.pop_front() {
            let read = LookUp::read(&self.client, wanted, self.scan.needs_meta);
            if let Some(found) = self.link.wait(read)?? {
                self.link.count(found.value.len());
                self.found = Some(found);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        let found = self.found.as_ref()?;
        Some(StoredDocument {
            vbid: found.vbid,
            collection: found.collection,
            key: &found.key,
            cas: found.cas,
            seqno: 0,
            rev: found.rev,
            flags: found.flags,
            expiry: found.expiry,
            datatype: found.datatype,
            value: &found.value,
        })
    }
}

/// Documents of range scans.
struct Scan {
    link: Arc<ServerLink>,
    keys: KeyFilter,
    pages: mpsc::Receiver<Result<VbucketScanProgress>>,
    /// They end when this is dropped.
    _scans: JoinSet<()>,
    page: Option<(Vbid, CollectionId, ScanPage, Option<Arc<KnownKeys>>)>,
    /// Positions of the current document in the page and of the next one.
    at: usize,
    next: usize,
}

impl Scan {
    fn start(
        source: &ServerDocuments,
        scan: DocumentScan,
        places: VecDeque<(CollectionId, Vbid)>,
    ) -> Scan {
        let (sender, pages) = mpsc::channel(PAGES_MAX);
        let places = Arc::new(Mutex::new(places));
        let (from, to) = ends_of(&scan.keys);
        let mut scans = JoinSet::new();
        for _ in 0..SCANS {
            let (client, places) = (Arc::clone(&source.client), Arc::clone(&places));
            let (patience, sender) = (source.link.patience(), sender.clone());
            let (from, to) = (from.clone(), to.clone());
            let work = async move {
                let mut scanner =
                    VbucketScanner::new(client, CollectionId::DEFAULT, patience, sender)
                        .between(from, to)
                        .unordered()
                        .with_attributes(scan.needs_xattrs)
                        .with_only_keys(!scan.needs_figures);
                loop {
                    let Some((collection, vbid)) = places.lock().pop_front() else { return };
                    scanner.move_to(collection);
                    if !scanner.one(vbid).await {
                        return;
                    }
                }
            };
            scans.spawn_on(work, source.link.runtime().handle());
        }
        let link = Arc::clone(&source.link);
        Scan { link, keys: scan.keys, pages, _scans: scans, page: None, at: 0, next: 0 }
    }
}

impl DocumentStream for Scan {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some((_, _, page, known)) = &self.page {
                while let Some(document) = page.document_at(self.next) {
                    let (document, next) = document?;
                    self.at = std::mem::replace(&mut self.next, next);
                    let is_known = known.as_ref().is_some_and(|known| known.contains(document.key));
                    if !is_known && self.keys.contains(document.key) {
                        self.link.count(document.value.len());
                        return Ok(true);
                    }
                }
            }
            self.page = None;
            match self.link.wait(self.pages.recv())? {
                None => return Ok(false),
                Some(Err(error)) => return Err(error.context("a scan ended early")),
                Some(Ok(VbucketScanProgress::Vbucket)) => {}
                Some(Ok(VbucketScanProgress::Page { vbid, collection, page, known })) => {
                    self.page = Some((vbid, collection, page, known));
                    (self.at, self.next) = (0, 0);
                }
            }
        }
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        let (vbid, collection, page, _) = self.page.as_ref()?;
        let (document, _) = page.document_at(self.at)?.ok()?;
        Some(StoredDocument {
            vbid: *vbid,
            collection: *collection,
            key: document.key,
            cas: document.cas.0,
            seqno: document.seqno.0,
            rev: None,
            flags: document.flags,
            expiry: document.expiry,
            datatype: document.datatype,
            value: document.value,
        })
    }
}

/// The keys between which a scan reads, both included.
fn ends_of(keys: &KeyFilter) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let key = |bound: Bound<&[u8]>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    let (mut from, mut to) = (key(keys.from()), key(keys.to()));
    if let Some(points) = keys.points() {
        from = points.first().map(|key| key.to_vec()).or(from);
        to = points.last().map(|key| key.to_vec()).or(to);
    }
    // An empty key is less than every other one, and servers want one of at least a byte.
    (from.filter(|key| !key.is_empty()), to)
}
