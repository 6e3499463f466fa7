//! Index definitions of all buckets.
//!
//! Owns: the definitions, and `indexes.json` in a bucket's directory, which keeps them. Invariants:
//! - the file is replaced atomically before a change is in force, and one that cannot be parsed is
//!   an error and stays as it is;
//! - a definition belongs to a collection by its id, so a collection that is created again has no
//!   index of the dropped one; the file goes with the bucket's directory.
//!
//! A bucket without a directory keeps definitions as long as it lives. Caller: `query_store`, which
//! has checked the rights.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use oribi_query::{IndexChange, IndexDefinition, KeyspaceName, QueryError, Result};
use oribi_system::data_file::write_atomically;
use oribi_system::random::random_bytes;
use oribi_types::CollectionId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use oribi_server::buckets::BucketHandle;

/// Codes of a missing index, of one that exists, and of a catalog that cannot be read or written.
const NO_INDEX: u32 = 12016;
const INDEX_EXISTS: u32 = 4300;
const CATALOG_FAILED: u32 = 12014;

const FILE_NAME: &str = "indexes.json";
const FILE_MODE: u32 = 0o600;
const VERSION: u32 = 1;

/// Definitions of a bucket. Each is listed and compared by every statement that has a choice.
const INDEXES_MAX: usize = 1_000;

/// Content of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    version: u32,
    indexes: Vec<StoredIndex>,
}

/// A definition as the file keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIndex {
    id: String,
    name: String,
    collection: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_primary: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    state: String,
    #[serde(default)]
    replica_count: u32,
}

impl StoredIndex {
    fn of(new: IndexDefinition, collection: CollectionId) -> StoredIndex {
        StoredIndex {
            id: format!("{:016x}", u64::from_ne_bytes(random_bytes())),
            name: new.name,
            collection: collection.0,
            is_primary: new.is_primary,
            keys: new.keys,
            condition: new.condition,
            partition: new.partition,
            state: new.state,
            replica_count: new.replica_count,
        }
    }

    fn definition(&self, keyspace: KeyspaceName) -> IndexDefinition {
        IndexDefinition {
            name: self.name.clone(),
            keyspace,
            is_primary: self.is_primary,
            keys: self.keys.clone(),
            condition: self.condition.clone(),
            partition: self.partition.clone(),
            state: self.state.clone(),
            id: self.id.clone(),
            replica_count: self.replica_count,
        }
    }

    fn is(&self, collection: CollectionId, name: &str) -> bool {
        self.collection == collection.0 && self.name == name
    }
}

/// The definitions of a bucket that was asked for.
struct BucketIndexes {
    bucket: Weak<BucketHandle>,
    indexes: Vec<StoredIndex>,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct IndexDefinitions {
    /// By the bucket's uuid.
    buckets: Mutex<HashMap<String, BucketIndexes>>,
}

impl IndexDefinitions {
    /// The definitions in collections that exist.
    pub(super) fn list(&self, handle: &Arc<BucketHandle>) -> Result<Vec<IndexDefinition>> {
        let mut buckets = self.buckets.lock();
        let indexes = loaded(&mut buckets, handle)?;
        if indexes.is_empty() {
            return Ok(Vec::new());
        }
        let names = keyspaces_of(handle);
        let named =
            |index: &StoredIndex| Some(index.definition(names.get(&index.collection)?.clone()));
        Ok(indexes.iter().filter_map(named).collect())
    }

    /// Applies a change in a collection. Durable when it returns.
    pub(super) fn apply(
        &self,
        handle: &Arc<BucketHandle>,
        collection: CollectionId,
        change: IndexChange,
    ) -> Result<()> {
        let mut buckets = self.buckets.lock();
        let indexes = loaded(&mut buckets, handle)?;
        let names = keyspaces_of(handle);
        let mut next = indexes.clone();
        next.retain(|index| names.contains_key(&index.collection));
        change_in(&mut next, collection, change)?;
        write(handle, &next)?;
        *indexes = next;
        Ok(())
    }
}

/// Changes a list of definitions.
fn change_in(
    all: &mut Vec<StoredIndex>,
    collection: CollectionId,
    change: IndexChange,
) -> Result<()> {
    let no_index =
        |name: &str| QueryError::datastore(NO_INDEX, format!("GSI index {name} not found."));
    match change {
        IndexChange::Create(new) => {
            if all.iter().any(|one| one.is(collection, &new.name)) {
                let msg = format!("The index {} already exists.", new.name);
                return Err(QueryError::datastore(INDEX_EXISTS, msg));
            }
            if all.len() >= INDEXES_MAX {
                let msg = format!("A bucket has at most {INDEXES_MAX} indexes: drop some");
                return Err(QueryError::datastore(CATALOG_FAILED, msg));
            }
            all.push(StoredIndex::of(new, collection));
        }
        IndexChange::Drop { name, .. } => {
            let at = all.iter().position(|one| one.is(collection, &name));
            all.remove(at.ok_or_else(|| no_index(&name))?);
        }
        IndexChange::Build { names, .. } => {
            for name in names {
                let index = all.iter_mut().find(|one| one.is(collection, &name));
                index.ok_or_else(|| no_index(&name))?.state = "online".to_owned();
            }
        }
    }
    Ok(())
}

/// The names of a bucket's collections by their ids.
fn keyspaces_of(handle: &BucketHandle) -> HashMap<u32, KeyspaceName> {
    let manifest = handle.bucket().manifest();
    let mut names = HashMap::new();
    for scope in manifest.scopes() {
        for collection in &scope.collections {
            let path = (scope.name.to_string(), collection.name.to_string());
            let collection_path = (collection.id != CollectionId::DEFAULT).then_some(path);
            let name =
                KeyspaceName { bucket: handle.name().to_owned(), collection: collection_path };
            names.insert(collection.id.0, name);
        }
    }
    names
}

/// The definitions of a bucket, read at the first use.
fn loaded<'b>(
    buckets: &'b mut HashMap<String, BucketIndexes>,
    handle: &Arc<BucketHandle>,
) -> Result<&'b mut Vec<StoredIndex>> {
    let uuid = &handle.bucket().config().uuid;
    if !buckets.contains_key(uuid) {
        // Those of deleted buckets go.
        buckets.retain(|_, known| known.bucket.strong_count() > 0);
        let known = BucketIndexes { bucket: Arc::downgrade(handle), indexes: read(handle)? };
        buckets.insert(uuid.clone(), known);
    }
    let known = buckets.get_mut(uuid).expect("inserted when it was missing");
    Ok(&mut known.indexes)
}

fn read(handle: &BucketHandle) -> Result<Vec<StoredIndex>> {
    let Some(directory) = handle.directory() else { return Ok(Vec::new()) };
    let path = directory.join(FILE_NAME);
    let failed = |why: String| {
        let msg = format!("The index definitions in {} cannot be read: {why}", path.display());
        QueryError::datastore(CATALOG_FAILED, msg)
    };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let file: IndexFile = serde_json::from_slice(&text).map_err(|e| failed(e.to_string()))?;
    match file.version {
        VERSION => Ok(file.indexes),
        other => Err(failed(format!("version {other} is not known here"))),
    }
}

fn write(handle: &BucketHandle, indexes: &[StoredIndex]) -> Result<()> {
    let Some(directory) = handle.directory() else { return Ok(()) };
    let path = directory.join(FILE_NAME);
    let file = IndexFile { version: VERSION, indexes: indexes.to_vec() };
    let json = serde_json::to_vec_pretty(&file).expect("plain structs");
    write_atomically(&path, &json, FILE_MODE).map_err(|error| {
        let msg = format!("The index definitions cannot be kept in {}: {error}", path.display());
        QueryError::datastore(CATALOG_FAILED, msg)
    })
}
