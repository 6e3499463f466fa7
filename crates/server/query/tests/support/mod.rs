//! A datastore in memory, and a way to run one request.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use oribi_query::{
    Datastore, DocumentIndex, DocumentMutation, IndexChange, IndexDefinition, KeyRange, Keyspace,
    KeyspaceIndex, KeyspaceName, MemoryBudget, Precondition, QueryDocument, QueryError,
    QueryRequest, ResponseHead, Result, RowSink, RunControl, RunOutcome, Service, SinkError,
};

/// Documents of one keyspace in memory.
#[derive(Debug)]
pub struct MemoryKeyspace {
    name: KeyspaceName,
    documents: Mutex<BTreeMap<Bytes, QueryDocument>>,
    indexes: Mutex<Vec<Arc<DocumentIndex>>>,
    newest_cas: AtomicU64,
    pub scans: AtomicUsize,
    pub index_lists: AtomicUsize,
}

impl MemoryKeyspace {
    fn new(name: KeyspaceName) -> MemoryKeyspace {
        MemoryKeyspace {
            name,
            documents: Mutex::default(),
            indexes: Mutex::default(),
            newest_cas: AtomicU64::new(1),
            scans: AtomicUsize::new(0),
            index_lists: AtomicUsize::new(0),
        }
    }

    pub fn put(&self, key: &str, value: &str) {
        let mutation = DocumentMutation {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            expiration: None,
            precondition: Precondition::None,
        };
        self.mutate(mutation).unwrap();
    }

    pub fn remove(&self, key: &str) {
        let mutation = DocumentMutation {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: None,
            expiration: None,
            precondition: Precondition::None,
        };
        self.mutate(mutation).unwrap();
    }

    pub fn remove_index(&self, name: &str) {
        self.indexes.lock().unwrap().retain(|index| index.definition().name != name);
    }

    pub fn index(&self, name: &str) -> Arc<DocumentIndex> {
        let indexes = self.indexes.lock().unwrap();
        indexes.iter().find(|index| index.definition().name == name).unwrap().clone()
    }

    /// Builds an index at once.
    fn add_index(&self, definition: IndexDefinition) -> Result<()> {
        let budget = Arc::new(TestBudget::new(64 << 20));
        let index = Arc::new(DocumentIndex::new(definition, budget)?);
        for document in self.documents.lock().unwrap().values() {
            index.insert(&document.into(), false).unwrap();
        }
        self.indexes.lock().unwrap().push(index);
        Ok(())
    }

    pub fn clear(&self) {
        self.documents.lock().unwrap().clear();
        self.indexes.lock().unwrap().iter().for_each(|index| index.clear());
    }
}

impl Keyspace for MemoryKeyspace {
    fn name(&self) -> KeyspaceName {
        self.name.clone()
    }

    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>> {
        Ok(self.documents.lock().unwrap().get(key).cloned())
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        let documents: Vec<QueryDocument> =
            self.documents.lock().unwrap().values().cloned().collect();
        for document in documents.into_iter().filter(|document| range.contains(&document.key)) {
            if visit(document).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn indexes(&self) -> Vec<Arc<dyn KeyspaceIndex>> {
        self.index_lists.fetch_add(1, Ordering::Relaxed);
        let indexes = self.indexes.lock().unwrap();
        indexes.iter().map(|index| index.clone() as Arc<dyn KeyspaceIndex>).collect()
    }

    fn count(&self) -> Option<u64> {
        Some(self.documents.lock().unwrap().len() as u64)
    }

    fn mutate(&self, mutation: DocumentMutation) -> Result<u64> {
        let mut documents = self.documents.lock().unwrap();
        let known = documents.get(&mutation.key).map(|document| document.cas);
        match (mutation.precondition, known) {
            (Precondition::Absent, Some(_)) => {
                return Err(QueryError::mutation(17012, "Duplicate Key"));
            }
            (Precondition::Cas(_), None) => {
                return Err(QueryError::mutation(17014, "Key not found"));
            }
            (Precondition::Cas(cas), Some(known)) if cas != known => {
                return Err(QueryError::mutation(12033, "CAS mismatch"));
            }
            _ => {}
        }
        let cas = self.newest_cas.fetch_add(1, Ordering::Relaxed);
        match mutation.value {
            Some(value) => {
                let expiration = mutation.expiration.unwrap_or_default();
                let key = mutation.key;
                let document = QueryDocument {
                    key: key.clone(),
                    value,
                    is_json: true,
                    cas,
                    flags: 0,
                    expiration,
                };
                for index in self.indexes.lock().unwrap().iter() {
                    index.insert(&(&document).into(), known.is_some()).unwrap();
                }
                documents.insert(key, document);
            }
            None => {
                self.indexes.lock().unwrap().iter().for_each(|index| index.note_removal());
                documents.remove(&mutation.key);
            }
        }
        Ok(cas)
    }
}

/// Keyspaces and index definitions in memory.
#[derive(Default)]
pub struct MemoryDatastore {
    keyspaces: Mutex<Vec<Arc<MemoryKeyspace>>>,
    indexes: Mutex<Vec<IndexDefinition>>,
    version: AtomicU64,
}

impl MemoryDatastore {
    /// Adds a bucket's default collection.
    pub fn add(&self, bucket: &str) -> Arc<MemoryKeyspace> {
        let name = KeyspaceName { bucket: bucket.to_owned(), collection: None };
        let keyspace = Arc::new(MemoryKeyspace::new(name));
        self.keyspaces.lock().unwrap().push(keyspace.clone());
        self.version.fetch_add(1, Ordering::Relaxed);
        keyspace
    }

    pub fn remove(&self, bucket: &str) {
        self.keyspaces.lock().unwrap().retain(|keyspace| keyspace.name.bucket != bucket);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub fn find(&self, bucket: &str) -> Arc<MemoryKeyspace> {
        let keyspaces = self.keyspaces.lock().unwrap();
        keyspaces.iter().find(|keyspace| keyspace.name.bucket == bucket).unwrap().clone()
    }
}

impl Datastore for MemoryDatastore {
    fn keyspace(&self, name: &KeyspaceName) -> Result<Arc<dyn Keyspace>> {
        let keyspaces = self.keyspaces.lock().unwrap();
        match keyspaces.iter().find(|keyspace| keyspace.name == *name) {
            Some(keyspace) => Ok(keyspace.clone()),
            None => Err(QueryError::keyspace_missing(&name.bucket)),
        }
    }

    fn keyspaces(&self) -> Result<Vec<KeyspaceName>> {
        Ok(self.keyspaces.lock().unwrap().iter().map(|keyspace| keyspace.name.clone()).collect())
    }

    fn indexes(&self) -> Result<Vec<IndexDefinition>> {
        Ok(self.indexes.lock().unwrap().clone())
    }

    fn change_indexes(&self, change: IndexChange) -> Result<()> {
        let mut indexes = self.indexes.lock().unwrap();
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        match change {
            IndexChange::Create(mut definition) => {
                definition.id = format!("{version:x}");
                if indexes.iter().any(|known| known.name == definition.name) {
                    let msg = format!("The index {} already exists", definition.name);
                    return Err(QueryError::datastore(4300, msg));
                }
                if !definition.is_primary {
                    let keyspaces = self.keyspaces.lock().unwrap();
                    let found = keyspaces.iter().find(|known| known.name == definition.keyspace);
                    found.unwrap().add_index(definition.clone())?;
                }
                indexes.push(definition);
            }
            IndexChange::Drop { name, .. } => {
                for keyspace in self.keyspaces.lock().unwrap().iter() {
                    let mut built = keyspace.indexes.lock().unwrap();
                    built.retain(|known| known.definition().name != name);
                }
                let count = indexes.len();
                indexes.retain(|known| known.name != name);
                if indexes.len() == count {
                    return Err(QueryError::datastore(12016, format!("Index {name} not found")));
                }
            }
            IndexChange::Build { names, .. } => {
                for index in indexes.iter_mut().filter(|index| names.contains(&index.name)) {
                    index.state = "online".to_owned();
                }
            }
        }
        Ok(())
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

/// A budget of so many bytes, and the most that was reserved of it.
pub struct TestBudget {
    limit: usize,
    used: AtomicUsize,
    most: AtomicUsize,
}

impl TestBudget {
    pub fn new(limit: usize) -> TestBudget {
        TestBudget { limit, used: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl MemoryBudget for TestBudget {
    fn reserve(&self, bytes: usize) -> bool {
        let used = self.used.load(Ordering::Relaxed) + bytes;
        if used > self.limit {
            return false;
        }
        self.used.store(used, Ordering::Relaxed);
        self.most.fetch_max(used, Ordering::Relaxed);
        true
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Drops the rows of an answer.
pub struct NoRows;

impl RowSink for NoRows {
    fn start(&mut self, _: &ResponseHead) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn row(&mut self, _: &[u8]) -> std::result::Result<(), SinkError> {
        Ok(())
    }
}

/// Keeps an answer's rows. With a bound it closes after so many.
#[derive(Default)]
pub struct Rows {
    pub head: Option<ResponseHead>,
    pub rows: Vec<String>,
    pub bound: Option<usize>,
}

impl RowSink for Rows {
    fn start(&mut self, head: &ResponseHead) -> std::result::Result<(), SinkError> {
        self.head = Some(head.clone());
        Ok(())
    }

    fn row(&mut self, json: &[u8]) -> std::result::Result<(), SinkError> {
        if self.bound == Some(self.rows.len()) {
            return Err(SinkError::Closed);
        }
        self.rows.push(String::from_utf8(json.to_vec()).unwrap());
        Ok(())
    }
}

/// Runs a request with 256 MiB.
pub fn run(service: &Service, store: &dyn Datastore, request: &QueryRequest) -> (RunOutcome, Rows) {
    let budget = TestBudget::new(256 << 20);
    let control = RunControl { memory: &budget, cancelled: None, timeout: None };
    let mut rows = Rows::default();
    let outcome = service.run(store, request, &control, &mut rows);
    assert_eq!(budget.used(), 0, "the statement gives all its memory back");
    (outcome, rows)
}
