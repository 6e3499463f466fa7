//! Index definitions of a bucket, and `indexes.json` in its directory, which keeps them.
//!
//! Owns: the file, the limits of definitions, and how a change alters their list. Invariants:
//! - the file is replaced atomically before a change is in force, and one that cannot be read here
//!   is an error and stays as it is;
//! - a definition belongs to a collection by its id, so a collection that is created again has no
//!   index of the dropped one; the file goes with the bucket's directory.
//!
//! A bucket without a directory keeps definitions as long as it lives. Caller: `query_indexes`.

use std::collections::HashMap;
use std::io::Read;

use oribi_query::{IndexChange, IndexDefinition, KeyspaceName, QueryError, Result};
use oribi_system::data_file::write_atomically;
use oribi_system::random::random_bytes;
use oribi_types::CollectionId;
use serde::{Deserialize, Serialize};

use oribi_server::buckets::BucketHandle;

/// Codes of a missing index, of one that exists, and of a catalog that cannot be read or written.
const NO_INDEX: u32 = 12016;
const INDEX_EXISTS: u32 = 4300;
const CATALOG_FAILED: u32 = 12014;

/// Code of a definition that no index can have.
const TOO_LONG: u32 = 5010;

/// The state of an index that waits for BUILD INDEX.
const DEFERRED: &str = "deferred";

const FILE_NAME: &str = "indexes.json";
const FILE_MODE: u32 = 0o600;
const VERSION: u32 = 1;

/// Definitions of a bucket. Each is listed and compared by every statement that has a choice.
const INDEXES_MAX: usize = 1_000;

/// Bytes of all texts of a definition, and of all definitions of a bucket. Written definitions have
/// some hundred. Compiled ones take several times as much, for each index.
pub(super) const DEFINITION_BYTES_MAX: usize = 16 << 10;
pub(super) const DEFINITIONS_BYTES_MAX: usize = 512 << 10;

/// Bytes of the file. JSON escapes a byte to six at most.
const FILE_BYTES_MAX: u64 = 8 << 20;
const _: () = assert!(DEFINITION_BYTES_MAX <= DEFINITIONS_BYTES_MAX, "one definition fits");
// JSON writes a byte of a text in six at most.
const _: () = assert!(6 * DEFINITIONS_BYTES_MAX as u64 <= FILE_BYTES_MAX);

/// Content of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    version: u32,
    indexes: Vec<StoredIndex>,
}

/// The field that every version of the file has.
#[derive(Debug, Deserialize)]
struct FileVersion {
    version: u32,
}

/// A definition as the file keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredIndex {
    pub id: String,
    pub name: String,
    pub collection: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_primary: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    /// `deferred`, or `online` for one that is built.
    pub state: String,
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

    /// Whether a feed has entries for it. The scan of a primary index is a scan.
    pub fn has_entries(&self) -> bool {
        !self.is_primary && self.state != DEFERRED
    }

    pub fn definition(&self, keyspace: KeyspaceName) -> IndexDefinition {
        IndexDefinition {
            name: self.name.clone(),
            keyspace,
            is_primary: self.is_primary,
            keys: self.keys.clone(),
            condition: self.condition.clone(),
            partition: self.partition.clone(),
            state: self.state.clone(),
            reason: None,
            size: None,
            id: self.id.clone(),
            replica_count: self.replica_count,
        }
    }

    /// Bytes of its texts.
    fn text_bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(String::len).sum();
        let optional = [&self.condition, &self.partition].into_iter().flatten();
        self.name.len() + keys + optional.map(String::len).sum::<usize>()
    }

    pub fn is(&self, collection: CollectionId, name: &str) -> bool {
        self.collection == collection.0 && self.name == name
    }
}

/// Changes a list of definitions.
pub(super) fn change_in(
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
            let index = StoredIndex::of(new, collection);
            let bytes = index.text_bytes();
            if bytes > DEFINITION_BYTES_MAX {
                let msg = format!(
                    "The definition of the index {} has {bytes} bytes of names and expressions, and \
                     may have {DEFINITION_BYTES_MAX}: shorten it",
                    index.name
                );
                return Err(QueryError::datastore(TOO_LONG, msg));
            }
            let before: usize = all.iter().map(StoredIndex::text_bytes).sum();
            if before + bytes > DEFINITIONS_BYTES_MAX {
                let msg = format!(
                    "The definitions of a bucket's indexes may have {DEFINITIONS_BYTES_MAX} bytes \
                     of names and expressions: drop some, or shorten them"
                );
                return Err(QueryError::datastore(TOO_LONG, msg));
            }
            all.push(index);
            assert!(all.len() <= INDEXES_MAX, "a bucket has so many indexes at most");
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
pub(super) fn keyspaces_of(handle: &BucketHandle) -> HashMap<u32, KeyspaceName> {
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

pub(super) fn read(handle: &BucketHandle) -> Result<Vec<StoredIndex>> {
    let Some(directory) = handle.directory() else { return Ok(Vec::new()) };
    let path = directory.join(FILE_NAME);
    let failed = |why: String| {
        let msg = format!(
            "The index definitions in {} cannot be read, and the file stays as it is: {why}",
            path.display()
        );
        QueryError::datastore(CATALOG_FAILED, msg)
    };
    let read = std::fs::File::open(&path).and_then(|file| {
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok(text)
    });
    let text = match read {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error.to_string())),
    };
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    // First, because a later version may have any fields.
    let damaged = |error: serde_json::Error| failed(format!("it is damaged: {error}"));
    let FileVersion { version } = serde_json::from_slice(&text).map_err(damaged)?;
    if version != VERSION {
        return Err(failed(format!(
            "it has version {version}, and this server knows version {VERSION}; start the server \
             that wrote it, or a later one"
        )));
    }
    let file: IndexFile = serde_json::from_slice(&text).map_err(damaged)?;
    Ok(file.indexes)
}

pub(super) fn write(handle: &BucketHandle, indexes: &[StoredIndex]) -> Result<()> {
    let Some(directory) = handle.directory() else { return Ok(()) };
    let path = directory.join(FILE_NAME);
    let file = IndexFile { version: VERSION, indexes: indexes.to_vec() };
    let json = serde_json::to_vec_pretty(&file).expect("plain structs");
    write_atomically(&path, &json, FILE_MODE).map_err(|error| {
        let msg = format!("The index definitions cannot be kept in {}: {error}", path.display());
        QueryError::datastore(CATALOG_FAILED, msg)
    })
}
