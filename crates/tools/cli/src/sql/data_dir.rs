//! The data directory of a server that does not run.
//!
//! Owns: the buckets that statements have named, and their tables, whose names are those of a
//! running server. Invariants: the directory is locked, so that no server starts concurrently and
//! nothing changes; a scan shows each vbucket at one moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use oribi_server::buckets::offline::{OfflineBucket, OfflineDirectory, OfflineScan, StoredRecord};
use oribi_sql::batch::DocumentBatch;
use oribi_sql::catalog::Catalog;
use oribi_sql::documents::{
    DocumentScan, DocumentSource, DocumentStream, DocumentTable, StoredDocument,
};
use oribi_sql::source::TableSource;
use oribi_types::{CollectionId, DocKey, Vbid};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use super::backend::Backend;

/// Bytes of documents that a scan copies before SQLite sees the first of them.
const BATCH_BYTES: usize = 128 * 1024;

/// Records between two looks whether the statement was interrupted.
const RECORDS_PER_LOOK: usize = 4096;

/// Documents that a bucket has, for a planner that cannot know.
const DOCUMENTS_UNKNOWN: u64 = 1_000_000;

/// See the module text.
pub struct DataDirectory {
    // Buckets are closed before the lock is released.
    buckets: Mutex<BTreeMap<String, Arc<OfflineBucket>>>,
    directory: OfflineDirectory,
    /// The bucket whose name may be left out.
    near: String,
    runtime: Runtime,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    is_interrupted: AtomicBool,
    documents: AtomicU64,
}

impl DataDirectory {
    /// Locks the directory.
    ///
    /// # Errors
    /// When there is none, or a server runs on it.
    pub fn open(path: &Path, near: &str) -> Result<Arc<DataDirectory>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("starting the event loop")?;
        let directory = OfflineDirectory::open(path)?;
        let (near, buckets, counts) = (near.to_owned(), Mutex::default(), Arc::default());
        Ok(Arc::new(DataDirectory { buckets, directory, near, runtime, counts }))
    }

    fn bucket(&self, name: &str) -> Result<Arc<OfflineBucket>> {
        if let Some(known) = self.buckets.lock().get(name) {
            return Ok(Arc::clone(known));
        }
        let bucket = Arc::new(self.directory.bucket(name)?);
        self.buckets.lock().insert(name.to_owned(), Arc::clone(&bucket));
        Ok(bucket)
    }
}

impl Backend for DataDirectory {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn interrupt(&self) {
        self.counts.is_interrupted.store(true, Relaxed);
    }

    fn is_interrupted(&self) -> bool {
        self.counts.is_interrupted.load(Relaxed)
    }

    fn begin_statement(&self) {
        self.counts.is_interrupted.store(false, Relaxed);
        self.counts.documents.store(0, Relaxed);
    }

    fn cost(&self) -> String {
        format!("{} documents", self.counts.documents.load(Relaxed))
    }
}

impl Catalog for DataDirectory {
    fn names(&self) -> Result<Vec<String>> {
        let (mut names, mut of_collections) = (self.directory.buckets()?, Vec::new());
        for name in &names {
            // A bucket that is kept elsewhere says so when it is named.
            let Ok(bucket) = self.bucket(name) else { continue };
            let paths = bucket.collections();
            of_collections.extend(paths.iter().map(|path| format!("{name}.{path}")));
            if *name == self.near {
                of_collections.extend(paths);
            }
        }
        names.extend(of_collections);
        Ok(names)
    }

    fn table(&self, name: &str) -> Result<Arc<dyn TableSource>> {
        for bucket_name in self.directory.buckets()? {
            let of_bucket = name.strip_prefix(&bucket_name).and_then(|rest| rest.strip_prefix('.'));
            let is_near = bucket_name == self.near;
            if name != bucket_name && of_bucket.is_none() && !is_near {
                continue;
            }
            let bucket = self.bucket(&bucket_name)?;
            let mut paths = bucket.collections();
            paths.retain(|path| {
                name == bucket_name || of_bucket == Some(path) || is_near && name == path
            });
            let ids = paths.iter().map(|path| bucket.collection(path));
            let ids = ids.collect::<Result<BTreeSet<_>, _>>()?;
            if !ids.is_empty() {
                let counts = Arc::clone(&self.counts);
                let documents = Documents { bucket, collections: ids, counts };
                return Ok(Arc::new(DocumentTable::new(Arc::new(documents))));
            }
        }
        bail!("no such table: {name}")
    }
}

/// The documents of one table.
struct Documents {
    bucket: Arc<OfflineBucket>,
    collections: BTreeSet<CollectionId>,
    counts: Arc<Counts>,
}

impl DocumentSource for Documents {
    fn documents(&self) -> u64 {
        DOCUMENTS_UNKNOWN
    }

    fn scan(&self, scan: DocumentScan) -> Result<Box<dyn DocumentStream>> {
        let mut left: VecDeque<Vbid> = self.bucket.vbuckets()?.into();
        left.retain(|vbid| scan.vbuckets.as_ref().is_none_or(|wanted| wanted.contains(vbid)));
        let mut collections = self.collections.clone();
        if let Some(wanted) = &scan.collections {
            collections.retain(|id| wanted.contains(id));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        let mut walk = Walk {
            bucket: Arc::clone(&self.bucket),
            counts: Arc::clone(&self.counts),
            scan,
            collections,
            left,
            current: None,
            batch: DocumentBatch::default(),
            now,
        };
        if let Some(keys) = walk.scan.keys.points() {
            let keys = keys.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
            walk.look_up(&keys)?;
        }
        Ok(Box::new(walk))
    }
}

/// A scan, or the documents of look-ups, which the first batch has.
struct Walk {
    bucket: Arc<OfflineBucket>,
    counts: Arc<Counts>,
    scan: DocumentScan,
    collections: BTreeSet<CollectionId>,
    left: VecDeque<Vbid>,
    current: Option<(Vbid, OfflineScan)>,
    batch: DocumentBatch,
    /// UNIX seconds when the scan began.
    now: u32,
}

impl Walk {
    /// Reads the documents of these keys into the batch.
    fn look_up(&mut self, keys: &[Vec<u8>]) -> Result<()> {
        for vbid in std::mem::take(&mut self.left) {
            for (collection, key) in
                self.collections.iter().flat_map(|id| keys.iter().map(move |key| (*id, key)))
            {
                let (batch, now) = (&mut self.batch, self.now);
                self.bucket.read(vbid, DocKey { collection, key }, &mut |record| {
                    if is_live(&record, now) {
                        batch.push(&stored(vbid, &record), true);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Fills the batch; false when nothing is left.
    fn fill(&mut self) -> Result<bool> {
        self.batch.clear(BATCH_BYTES);
        while self.batch.is_empty() {
            if self.counts.is_interrupted.load(Relaxed) {
                bail!("interrupted");
            }
            let (vbid, mut scan) = match self.current.take() {
                Some(current) => current,
                None => {
                    let Some(vbid) = self.left.pop_front() else { return Ok(false) };
                    (vbid, self.bucket.begin_scan(vbid)?)
                }
            };
            let (batch, now, mut looked_at) = (&mut self.batch, self.now, 0);
            let (collections, wanted) = (&self.collections, &self.scan);
            let has_more = scan.resume(&mut |record| {
                looked_at += 1;
                let is_wanted = collections.contains(&record.key.collection)
                    && is_live(&record, now)
                    && wanted.keys.contains(record.key.key);
                if is_wanted {
                    batch.push(&stored(vbid, &record), wanted.needs_value);
                }
                match batch.bytes() >= BATCH_BYTES || looked_at >= RECORDS_PER_LOOK {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
            if has_more {
                self.current = Some((vbid, scan));
            }
        }
        Ok(true)
    }
}

impl DocumentStream for Walk {
    fn advance(&mut self) -> Result<bool> {
        let has_one = self.batch.advance() || (self.fill()? && self.batch.advance());
        self.counts.documents.fetch_add(u64::from(has_one), Relaxed);
        Ok(has_one)
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        self.batch.document()
    }
}

fn is_live(record: &StoredRecord<'_>, now: u32) -> bool {
    !record.deleted && (record.expiry == 0 || record.expiry > now)
}

fn stored<'a>(vbid: Vbid, record: &StoredRecord<'a>) -> StoredDocument<'a> {
    StoredDocument {
        vbid,
        collection: record.key.collection,
        key: record.key.key,
        cas: record.cas.0,
        seqno: record.seqno.0,
        rev: Some(record.rev_seqno.0),
        flags: record.flags,
        expiry: record.expiry,
        datatype: record.datatype,
        value: record.value,
    }
}
