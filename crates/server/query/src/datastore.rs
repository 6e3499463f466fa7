//! The seam to where documents are.
//!
//! The engine of a statement knows keyspaces, documents and index definitions only through these
//! traits. A scan is a point in time: it sees the documents as they were when it began, so a
//! statement may change the documents that it scans. Keys come in the order of their bytes.

use std::any::Any;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::consistency::Consistency;
use crate::entries::block::IndexEntry;
use crate::entries::sorted::{EntryRange, IndexSnapshot};
use crate::error::Result;
use crate::scan_hints::ScanHints;

/// A keyspace's full name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyspaceName {
    pub bucket: String,
    /// The scope and collection; none for a bucket's default collection.
    pub collection: Option<(String, String)>,
}

/// A document as it is stored.
#[derive(Clone, Debug)]
pub struct QueryDocument {
    pub key: Bytes,
    /// The value: JSON text if `is_json`.
    pub value: Bytes,
    /// Whether the value is valid JSON.
    pub is_json: bool,
    /// Changes with every change of the document.
    pub cas: u64,
    pub flags: u32,
    /// Seconds since 1970, or 0.
    pub expiration: u32,
}

/// The keys that a scan visits, all of them if both bounds are empty.
#[derive(Clone, Debug, Default)]
pub struct KeyRange {
    /// The first key, and whether it is visited itself.
    pub low: Option<(Bytes, bool)>,
    /// The last key, and whether it is visited itself.
    pub high: Option<(Bytes, bool)>,
}

impl KeyRange {
    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.low {
            Some((low, true)) => key >= &low[..],
            Some((low, false)) => key > &low[..],
            None => true,
        };
        let below = match &self.high {
            Some((high, true)) => key <= &high[..],
            Some((high, false)) => key < &high[..],
            None => true,
        };
        above && below
    }
}

/// A change of one document.
#[derive(Clone, Debug)]
pub struct DocumentMutation {
    pub key: Bytes,
    /// The new value as JSON text; none removes the document.
    pub value: Option<Bytes>,
    /// Seconds since 1970, 0 for never; none keeps what the document has.
    pub expiration: Option<u32>,
    /// When the change applies.
    pub precondition: Precondition,
}

/// When a change applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    None,
    /// The key has no document (else 17012).
    Absent,
    /// The document has this CAS (else 12033; 17014 if it is gone).
    Cas(u64),
}

/// The documents of one keyspace.
pub trait Keyspace: Debug + Send + Sync {
    fn name(&self) -> KeyspaceName;

    /// The document of a key.
    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>>;

    /// Visits documents in the order of their keys until `visit` breaks.
    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Whether scans can use hints. Computing them costs time.
    fn takes_hints(&self) -> bool {
        false
    }

    /// The same as [`Keyspace::scan`], for a keyspace that takes hints.
    fn scan_hinted(
        &self,
        range: &KeyRange,
        hints: &ScanHints,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        let _ = hints;
        self.scan(range, visit)
    }

    /// The indexes that scans may use now.
    fn indexes(&self) -> Vec<Arc<dyn KeyspaceIndex>> {
        Vec::new()
    }

    /// Called before the first index scan of a statement. Waits until the indexes have the changes
    /// that `consistency` names, until the deadline at most (1080, or 12015 for the wait of the
    /// request).
    fn catch_up(&self, consistency: &Consistency, wait: Option<Duration>) -> Result<()> {
        let _ = (consistency, wait);
        Ok(())
    }

    /// The number of documents, if it is known without a scan.
    fn count(&self) -> Option<u64>;

    /// Applies a change and answers the document's new CAS. A refusal is a
    /// [`crate::QueryError::mutation`].
    fn mutate(&self, mutation: DocumentMutation) -> Result<u64>;
}

/// A document, and the encoded keys of its entries in an index.
pub type IndexedDocument = (QueryDocument, Vec<Vec<u8>>);

/// An index as statements read it. [`crate::DocumentIndex`] is one.
pub trait KeyspaceIndex: Debug + Send + Sync {
    fn definition(&self) -> &IndexDefinition;

    /// The compiled keys. Only the planner uses their type.
    fn keys(&self) -> Arc<dyn Any + Send + Sync>;

    /// The entries of ranges as they are now. An error with `retry` if the index lacks some.
    fn snapshot(&self, ranges: Vec<EntryRange>) -> Result<IndexSnapshot>;

    /// The document of an entry as it is now. A stale entry is removed.
    fn read(
        &self,
        entry: IndexEntry<'_>,
        keyspace: &dyn Keyspace,
    ) -> Result<Option<IndexedDocument>>;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexDefinition {
    /// Unique in its keyspace.
    pub name: String,
    pub keyspace: KeyspaceName,
    /// The index of all keys.
    pub is_primary: bool,
    /// Key expressions in canonical form, with `DESC` after one.
    pub keys: Vec<String>,
    /// The condition in canonical form.
    pub condition: Option<String>,
    /// The expressions of `PARTITION BY HASH` in canonical form.
    pub partition: Option<String>,
    /// `deferred`, `building`, `online` or `offline`.
    pub state: String,
    /// Why it is offline.
    pub reason: Option<String>,
    /// A number of the definition, in hexadecimal digits.
    pub id: String,
    /// `num_replica` of its options.
    pub replica_count: u32,
    /// Its current size, if it has entries.
    pub size: Option<IndexSize>,
}

/// The current size of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSize {
    pub entries: u64,
    pub bytes: u64,
    /// How much of the documents it has, in percent.
    pub progress: u8,
}

/// A change of index definitions.
#[derive(Clone, Debug)]
pub enum IndexChange {
    /// Adds a definition; 4300 if its name exists.
    Create(IndexDefinition),
    /// Removes a definition; 12016 if there is none.
    Drop {
        keyspace: KeyspaceName,
        name: String,
    },
    Build {
        keyspace: KeyspaceName,
        names: Vec<String>,
    },
}

/// Keyspaces and index definitions.
pub trait Datastore: Send + Sync {
    /// The keyspace of a name. A missing one is 12003, a missing bucket 12020, a missing scope
    /// 12021.
    fn keyspace(&self, name: &KeyspaceName) -> Result<Arc<dyn Keyspace>>;

    /// All keyspaces that the user may see.
    fn keyspaces(&self) -> Result<Vec<KeyspaceName>>;

    /// All index definitions that the user may see.
    fn indexes(&self) -> Result<Vec<IndexDefinition>>;

    fn change_indexes(&self, change: IndexChange) -> Result<()>;

    /// Changes whenever a keyspace or index comes or goes. A prepared plan is kept until then.
    fn version(&self) -> u64;

    /// Rows of a `system:` keyspace that only the store knows, as JSON texts: `active_requests`,
    /// `completed_requests`, `my_user_info`, `user_info`, `nodes`, `applicable_roles`.
    fn catalog_rows(&self, name: &str) -> Result<Vec<String>> {
        let _ = name;
        Ok(Vec::new())
    }
}
