//! The documents of one collection, read for a statement.
//!
//! Owns: the rights of a read and a scan, and documents as the language takes them: the body,
//! without attributes and inflated. A look-up sees the newest version as a GET does, and so does a
//! range with few keys; a scan shows each vbucket as of one moment, with every write acknowledged
//! before it began.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_auth::Privilege;
use oribi_query::stored::{body_of, inflated_bytes};
use oribi_query::{
    Consistency, DocumentMutation, KeyRange, Keyspace, KeyspaceIndex, KeyspaceName, QueryDocument,
    QueryError, Result, ScanHints,
};
use oribi_storage::{LARGE_RECORD_BYTES, LoadValues};
use oribi_types::Datatype;

use super::batch::StoredVersion;
use super::change;
use super::lookup::DocumentLookup;
use super::narrow_range::NarrowRange;
use super::place::KeyspacePlace;
use super::reader::KeyspaceReader;
use super::snapshot_scans::SnapshotScans;
use crate::query_indexes::QueryIndexes;
use crate::statement_memory::LargeValueMemory;

/// Code of a wait for indexes that took too long.
const SCAN_WAIT_OVER: u32 = 12015;

/// See the module text.
pub(super) struct CollectionKeyspace {
    place: KeyspacePlace,
    reader: KeyspaceReader,
    indexes: Arc<QueryIndexes>,
}

impl std::fmt::Debug for CollectionKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CollectionKeyspace").field(&self.place.name).finish()
    }
}

impl CollectionKeyspace {
    pub(super) fn new(place: KeyspacePlace, indexes: Arc<QueryIndexes>) -> CollectionKeyspace {
        let reader = KeyspaceReader {
            handle: Arc::clone(&place.handle),
            path: place.path(),
            collection: place.collection,
            control: Arc::clone(&place.control),
        };
        CollectionKeyspace { place, reader, indexes }
    }

    fn lookup(&self, key: &[u8]) -> anyhow::Result<Option<QueryDocument>> {
        let lookup = DocumentLookup::read(&self.reader, key)?;
        let document = lookup.document().map(|stored| self.expanded(stored)).transpose()?;
        Ok(document.map(|(document, _memory)| document))
    }

    fn scan_range(
        &self,
        range: &KeyRange,
        values: LoadValues,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        if let Some(mut narrow) = NarrowRange::find(&self.reader, range, values)? {
            while narrow.advance()? {
                let Some(stored) = narrow.document() else { break };
                let (document, _memory) = self.expanded(stored)?;
                if visit(document).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let mut scans = SnapshotScans::begin(&self.reader, range, values)?;
        while scans.advance()? {
            let Some(stored) = scans.document() else { break };
            let (document, _memory) = self.expanded(stored)?;
            if visit(document).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The document without attributes, inflated. Memory for a large body is reserved first.
    fn expanded(
        &self,
        stored: StoredVersion<'_>,
    ) -> anyhow::Result<(QueryDocument, Option<LargeValueMemory>)> {
        let body = body_of(stored.datatype, stored.value);
        let bytes = match stored.datatype.contains(Datatype::SNAPPY) {
            true => inflated_bytes(body).unwrap_or(0),
            false => 0,
        };
        let memory = match bytes > LARGE_RECORD_BYTES {
            true => Some(self.reader.control.hold_large(bytes)?),
            false => None,
        };
        let document = QueryDocument {
            cas: stored.cas,
            flags: stored.flags,
            expiration: stored.expiry,
            ..QueryDocument::of_body(stored.key, stored.datatype, body)
        };
        Ok((document, memory))
    }
}

impl Keyspace for CollectionKeyspace {
    fn name(&self) -> KeyspaceName {
        self.place.name.clone()
    }

    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>> {
        self.place.check_rights(&[Privilege::Read])?;
        self.lookup(key).map_err(|error| self.place.read_error(&error))
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        self.place.check_rights(&[Privilege::Read, Privilege::RangeScan])?;
        let scanned = self.scan_range(range, LoadValues::Read, visit);
        scanned.map_err(|error| self.place.read_error(&error))
    }

    fn takes_hints(&self) -> bool {
        true
    }

    /// Conditions are the statement's. Bodies that it does not read stay in the store.
    fn scan_hinted(
        &self,
        range: &KeyRange,
        hints: &ScanHints,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        let reads_bodies = hints.fields.as_ref().is_none_or(|fields| !fields.is_empty());
        if reads_bodies {
            return self.scan(range, visit);
        }
        self.place.check_rights(&[Privilege::Read, Privilege::RangeScan])?;
        let scanned = self.scan_range(range, LoadValues::Skip, visit);
        scanned.map_err(|error| self.place.read_error(&error))
    }

    fn indexes(&self) -> Vec<Arc<dyn KeyspaceIndex>> {
        self.indexes.usable(&self.place.handle, self.place.collection)
    }

    fn catch_up(&self, consistency: &Consistency, wait: Option<Duration>) -> Result<()> {
        // As for a scan.
        self.place.check_rights(&[Privilege::Read, Privilege::RangeScan])?;
        let wait_until = wait.and_then(|wait| Instant::now().checked_add(wait));
        let check = || {
            let check = self.reader.control.check().and_then(|()| self.reader.check_served());
            check.map_err(|error| self.place.read_error(&error))?;
            match wait_until.is_some_and(|until| Instant::now() >= until) {
                false => Ok(()),
                true => Err(QueryError::datastore(
                    SCAN_WAIT_OVER,
                    format!(
                        "The indexes of {} do not have the writes that the statement has to see \
                         within its scan_wait: allow more, or ask again",
                        self.place.path()
                    ),
                )),
            }
        };
        self.reader.check_served().map_err(|error| self.place.read_error(&error))?;
        self.indexes.catch_up(&self.place.handle, consistency, &check)
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, mutation: DocumentMutation) -> Result<u64> {
        change::apply(&self.place, &mutation)
    }
}
