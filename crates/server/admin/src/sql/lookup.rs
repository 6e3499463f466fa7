//! Single documents by their keys.
//!
//! Owns: reading them as a GET does: from memory, and from the store where memory has no value. A
//! statement thus sees the newest version, persisted or not.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Result;
use oribi_engine::{GetOutcome, ItemRef, LOCKED_CAS, OperationRejection};
use oribi_protocol::hash::vbucket_of;
use oribi_sql::batch::DocumentBatch;
use oribi_sql::documents::{DocumentStream, StoredDocument};
use oribi_storage::{LARGE_RECORD_BYTES, Record};
use oribi_system::clock::wall_clock;
use oribi_types::{CollectionId, DocKey, Vbid};

use super::memory::LargeValueMemory;
use super::reader::DocumentReader;
use super::snapshot_scans::stored;
use crate::limits::SQL_BATCH_BYTES;

/// See the module text.
pub(super) struct DocumentLookup {
    reader: Arc<DocumentReader>,
    keys: Vec<(Vbid, Vec<u8>)>,
    collections: Vec<CollectionId>,
    /// Each key in each collection: the number of the next one.
    next: usize,
    /// The current document; the batch has at most one.
    found: DocumentBatch,
    /// For it, if it is large.
    large: Option<LargeValueMemory>,
    /// For what is made of it.
    beside: Option<LargeValueMemory>,
}

impl DocumentLookup {
    pub fn new(
        reader: Arc<DocumentReader>,
        keys: Vec<Vec<u8>>,
        collections: Vec<CollectionId>,
        vbuckets: Option<BTreeSet<Vbid>>,
    ) -> DocumentLookup {
        let count = reader.handle.vbuckets();
        let places = keys.into_iter().map(|key| (vbucket_of(&key, count), key));
        let keys = places
            .filter(|(vbid, _)| vbuckets.as_ref().is_none_or(|wanted| wanted.contains(vbid)))
            .collect();
        let found = DocumentBatch::default();
        DocumentLookup { reader, keys, collections, next: 0, found, large: None, beside: None }
    }

    /// Reads one into the batch, if it is there.
    fn read(&mut self, at: usize) -> Result<()> {
        let (vbid, key) = &self.keys[at / self.collections.len()];
        let collection = self.collections[at % self.collections.len()];
        let (vbid, key) = (*vbid, DocKey { collection, key });
        let reader = &self.reader;
        let (bucket, now) = (reader.handle.bucket(), wall_clock());
        let (item, cas) = match bucket.get(vbid, key, now) {
            GetOutcome::Hit(item) => {
                let cas = item.cas().0;
                (item, cas)
            }
            GetOutcome::HitLocked(item) => (item, LOCKED_CAS.0),
            // A collection that is dropped at this moment has no documents.
            GetOutcome::Miss | GetOutcome::Refused(OperationRejection::UnknownCollection) => {
                return Ok(());
            }
            GetOutcome::Refused(OperationRejection::NeedsFetch) => {
                let now_s = u32::try_from(now.unix_ns / 1_000_000_000).unwrap_or(u32::MAX);
                let (found, large) = (&mut self.found, &mut self.large);
                let mut refused = None;
                // The store's copy, and the batch's.
                let mut room = |bytes: usize| match reader.control.hold_large(2 * bytes) {
                    Ok(held) => {
                        *large = Some(held);
                        ControlFlow::Continue(())
                    }
                    Err(why) => {
                        refused = Some(why);
                        ControlFlow::Break(())
                    }
                };
                let read = bucket.read_persisted_asking(vbid, key, &mut room, &mut |record| {
                    let is_expired = record.expiry != 0 && record.expiry <= now_s;
                    if !record.deleted && !is_expired {
                        found.push(&stored(vbid, &record), true);
                    }
                });
                if let Some(held) = large {
                    held.keep(found.bytes());
                }
                if let Some(why) = refused {
                    return Err(why);
                }
                return match read {
                    Ok(_) => Ok(()),
                    Err(error) => Err(reader.control.unavailable(format!(
                        "a document of {:?} cannot be read: {error}",
                        reader.handle.name()
                    ))),
                };
            }
            GetOutcome::Refused(OperationRejection::NotMyVbucket) => return Err(reader.not_here()),
            GetOutcome::Refused(_) => {
                return Err(reader.control.unavailable(format!(
                    "the bucket {:?} is loading or short of memory; try again",
                    reader.handle.name()
                )));
            }
        };
        if item.value_bytes() > LARGE_RECORD_BYTES {
            self.large = Some(reader.control.hold_large(item.value_bytes())?);
        }
        self.found.push(&StoredDocument { cas, ..stored(vbid, &record_of(&item)) }, true);
        Ok(())
    }
}

fn record_of(item: &ItemRef) -> Record<'_> {
    Record {
        key: item.key(),
        value: item.value(),
        cas: item.cas(),
        seqno: item.seqno(),
        rev_seqno: item.rev_seqno(),
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
        deleted: item.is_deleted(),
        expired: item.is_expiration(),
    }
}

impl DocumentStream for DocumentLookup {
    fn advance(&mut self) -> Result<bool> {
        self.found.clear(SQL_BATCH_BYTES);
        (self.large, self.beside) = (None, None);
        while self.next < self.keys.len() * self.collections.len() {
            self.reader.control.check()?;
            self.next += 1;
            self.read(self.next - 1)?;
            if !self.found.is_empty() {
                return Ok(self.found.advance());
            }
        }
        Ok(false)
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        self.found.document()
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if bytes > LARGE_RECORD_BYTES {
            self.beside = Some(self.reader.control.hold_large(bytes)?);
        }
        Ok(())
    }
}
