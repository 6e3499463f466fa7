//! The data directory of a server that does not run.
//!
//! Owns: the buckets that statements have named, and their keyspaces. Invariants: the directory is
//! locked, so that no server starts concurrently and nothing changes; a scan shows each vbucket at
//! one moment.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use oribi_query::stored::body_of;
use oribi_query::{
    Datastore, DocumentMutation, IndexChange, IndexDefinition, KeyRange, Keyspace, KeyspaceName,
    QueryDocument, QueryError,
};
use oribi_server::buckets::offline::{OfflineBucket, OfflineDirectory, StoredRecord};
use oribi_types::{CollectionId, DocKey, Vbid};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::runtime::{Builder, Runtime};

use super::local::{LocalEngine, interrupted};
use super::source::{QuerySource, ResultSink, Summary};

/// Bytes of documents that a scan copies before the statement sees the first of them.
const BATCH_BYTES: usize = 128 * 1024;

/// Records between two looks whether the statement was interrupted.
const RECORDS_PER_LOOK: usize = 4096;

/// Path of the collection that a bucket's name stands for.
const DEFAULT_COLLECTION: &str = "_default._default";

/// A failure of the store, and what cannot be done here.
const STORE_FAILED: u32 = 12008;
const READ_ONLY: u32 = 1000;

/// See the module text.
pub struct DataDirectory {
    runtime: Runtime,
    engine: LocalEngine,
    store: DirectoryStore,
}

struct DirectoryStore {
    // Buckets are closed before the lock is released.
    buckets: Mutex<BTreeMap<String, Arc<OfflineBucket>>>,
    directory: OfflineDirectory,
    documents: Arc<AtomicU64>,
    cancelled: Arc<AtomicBool>,
}

impl DataDirectory {
    /// Locks the directory.
    ///
    /// # Errors
    /// When there is none, or a server runs on it.
    pub fn open(path: &Path) -> Result<Arc<DataDirectory>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("starting the event loop")?;
        let directory = OfflineDirectory::open(path)?;
        let engine = LocalEngine::default();
        let (buckets, documents, cancelled) =
            (Mutex::default(), Arc::default(), engine.cancelled());
        let store = DirectoryStore { buckets, directory, documents, cancelled };
        Ok(Arc::new(DataDirectory { runtime, engine, store }))
    }
}

impl QuerySource for DataDirectory {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn run(&self, request: &Map<String, Value>, sink: &mut dyn ResultSink) -> Result<Summary> {
        self.engine.run(&self.store, request, sink)
    }

    fn interrupt(&self) {
        self.engine.interrupt();
    }

    fn is_interrupted(&self) -> bool {
        self.engine.is_interrupted()
    }

    fn begin_statement(&self) {
        self.engine.begin_statement();
        self.store.documents.store(0, Relaxed);
    }

    fn cost(&self) -> Option<String> {
        Some(format!("{} documents read", self.store.documents.load(Relaxed)))
    }
}

/// An error of the store as the statement's.
fn failed(error: impl Into<anyhow::Error>) -> Box<QueryError> {
    QueryError::datastore(STORE_FAILED, format!("{:#}", error.into()))
}

impl DirectoryStore {
    fn bucket(&self, name: &str) -> oribi_query::Result<Arc<OfflineBucket>> {
        if let Some(known) = self.buckets.lock().get(name) {
            return Ok(Arc::clone(known));
        }
        let bucket = Arc::new(self.directory.bucket(name).map_err(failed)?);
        self.buckets.lock().insert(name.to_owned(), Arc::clone(&bucket));
        Ok(bucket)
    }
}

/// The path of a keyspace's collection.
fn path_of(name: &KeyspaceName) -> String {
    match &name.collection {
        None => DEFAULT_COLLECTION.to_owned(),
        Some((scope, collection)) => format!("{scope}.{collection}"),
    }
}

impl Datastore for DirectoryStore {
    fn keyspace(&self, name: &KeyspaceName) -> oribi_query::Result<Arc<dyn Keyspace>> {
        let path = path_of(name);
        let missing = || match &name.collection {
            None => QueryError::keyspace_missing(&format!("default:{}", name.bucket)),
            Some(_) => QueryError::keyspace_missing(&format!("default:{}.{path}", name.bucket)),
        };
        if !self.directory.buckets().map_err(failed)?.contains(&name.bucket) {
            return Err(missing());
        }
        let bucket = self.bucket(&name.bucket)?;
        if !bucket.collections().contains(&path) {
            return Err(missing());
        }
        let collection = bucket.collection(&path).map_err(failed)?;
        let vbuckets = bucket.vbuckets().map_err(failed)?;
        let (documents, cancelled) = (Arc::clone(&self.documents), Arc::clone(&self.cancelled));
        let name = name.clone();
        Ok(Arc::new(OfflineCollection { name, bucket, collection, vbuckets, documents, cancelled }))
    }

    fn keyspaces(&self) -> oribi_query::Result<Vec<KeyspaceName>> {
        let mut found = Vec::new();
        for bucket in self.directory.buckets().map_err(failed)? {
            // A bucket that is kept elsewhere says so when a statement names it.
            let Ok(opened) = self.bucket(&bucket) else { continue };
            for path in opened.collections() {
                let collection = match path.split_once('.') {
                    Some((scope, name)) if path != DEFAULT_COLLECTION => {
                        Some((scope.to_owned(), name.to_owned()))
                    }
                    _ => None,
                };
                found.push(KeyspaceName { bucket: bucket.clone(), collection });
            }
        }
        Ok(found)
    }

    fn indexes(&self) -> oribi_query::Result<Vec<IndexDefinition>> {
        Ok(Vec::new())
    }

    fn change_indexes(&self, _change: IndexChange) -> oribi_query::Result<()> {
        Err(QueryError::datastore(READ_ONLY, "A data directory is only read"))
    }

    fn version(&self) -> u64 {
        0
    }
}

/// The documents of one collection.
struct OfflineCollection {
    name: KeyspaceName,
    bucket: Arc<OfflineBucket>,
    collection: CollectionId,
    vbuckets: Vec<Vbid>,
    documents: Arc<AtomicU64>,
    cancelled: Arc<AtomicBool>,
}

impl std::fmt::Debug for OfflineCollection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OfflineCollection").field(&self.name).finish()
    }
}

impl Keyspace for OfflineCollection {
    fn name(&self) -> KeyspaceName {
        self.name.clone()
    }

    fn get(&self, key: &[u8]) -> oribi_query::Result<Option<QueryDocument>> {
        let (now, mut found) = (unix_seconds(), None);
        let key = DocKey { collection: self.collection, key };
        // Buckets may have been made with any number of vbuckets, and the store does not record it.
        for vbid in &self.vbuckets {
            let mut take = |record: StoredRecord<'_>| {
                if is_live(&record, now) {
                    found = Some(document_of(&record));
                }
            };
            self.bucket.read(*vbid, key, &mut take).map_err(failed)?;
            if found.is_some() {
                self.documents.fetch_add(1, Relaxed);
                break;
            }
        }
        Ok(found)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> oribi_query::Result<()> {
        let now = unix_seconds();
        let mut batch = Vec::new();
        for vbid in &self.vbuckets {
            let mut scan = self.bucket.begin_scan(*vbid).map_err(failed)?;
            let mut has_more = true;
            while has_more {
                if self.cancelled.load(Relaxed) {
                    return Err(interrupted());
                }
                let (mut looked_at, mut bytes) = (0, 0);
                has_more = scan
                    .resume(&mut |record| {
                        looked_at += 1;
                        let is_wanted = record.key.collection == self.collection
                            && is_live(&record, now)
                            && range.contains(record.key.key);
                        if is_wanted {
                            bytes += record.value.len();
                            batch.push(document_of(&record));
                        }
                        match bytes >= BATCH_BYTES || looked_at >= RECORDS_PER_LOOK {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    })
                    .map_err(failed)?;
                for document in batch.drain(..) {
                    self.documents.fetch_add(1, Relaxed);
                    if visit(document).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, _mutation: DocumentMutation) -> oribi_query::Result<u64> {
        Err(QueryError::datastore(READ_ONLY, "A data directory is only read"))
    }
}

fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

fn is_live(record: &StoredRecord<'_>, now: u32) -> bool {
    !record.deleted && (record.expiry == 0 || record.expiry > now)
}

fn document_of(record: &StoredRecord<'_>) -> QueryDocument {
    let body = body_of(record.datatype, record.value);
    QueryDocument {
        cas: record.cas.0,
        flags: record.flags,
        expiration: record.expiry,
        ..QueryDocument::of_body(record.key.key, record.datatype, body)
    }
}
