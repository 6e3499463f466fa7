//! Single documents by their keys.
//!
//! Owns: reading them as a GET does: from memory, and from the store where memory has no value. A
//! statement thus sees the newest version, persisted or not.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use anyhow::Result;
use oribi_engine::{GetOutcome, ItemRef, LOCKED_CAS, Refused};
use oribi_protocol::hash::vbucket_of;
use oribi_sql::batch::DocumentBatch;
use oribi_sql::documents::{DocumentStream, StoredDocument};
use oribi_storage::Record;
use oribi_types::{CollectionId, DocKey, Vbid};

use super::moments::stored;
use super::reader::Reader;
use crate::clock::wall_clock;
use crate::limits::SQL_BATCH_BYTES;

/// See the module text.
pub(super) struct LookUp {
    reader: Arc<Reader>,
    wanted: VecDeque<(Vbid, CollectionId, Arc<[u8]>)>,
    /// The current document; the batch has at most one.
    found: DocumentBatch,
}

impl LookUp {
    pub fn new(
        reader: Arc<Reader>,
        keys: Vec<Vec<u8>>,
        collections: Vec<CollectionId>,
        vbuckets: Option<BTreeSet<Vbid>>,
    ) -> LookUp {
        let count = reader.handle.vbuckets();
        let places = keys.into_iter().map(|key| (vbucket_of(&key, count), Arc::<[u8]>::from(key)));
        let wanted = places
            .filter(|(vbid, _)| vbuckets.as_ref().is_none_or(|wanted| wanted.contains(vbid)))
            .flat_map(|(vbid, key)| collections.iter().map(move |id| (vbid, *id, Arc::clone(&key))))
            .collect();
        LookUp { reader, wanted, found: DocumentBatch::default() }
    }

    fn read(&mut self, vbid: Vbid, key: DocKey<'_>) -> Result<()> {
        let reader = &self.reader;
        let (bucket, now) = (reader.handle.bucket(), wall_clock());
        let (item, cas) = match bucket.get(vbid, key, now) {
            GetOutcome::Hit(item) => {
                let cas = item.cas().0;
                (item, cas)
            }
            GetOutcome::HitLocked(item) => (item, LOCKED_CAS.0),
            // A collection that is dropped at this moment has no documents.
            GetOutcome::Miss | GetOutcome::Refused(Refused::UnknownCollection) => return Ok(()),
            GetOutcome::Refused(Refused::NeedsFetch) => {
                let now_s = u32::try_from(now.unix_ns / 1_000_000_000).unwrap_or(u32::MAX);
                let found = &mut self.found;
                let read = bucket.read_persisted(vbid, key, &mut |record| {
                    let is_expired = record.expiry != 0 && record.expiry <= now_s;
                    if !record.deleted && !is_expired {
                        found.push(&stored(vbid, &record), true);
                    }
                });
                return match read {
                    Ok(_) => Ok(()),
                    Err(error) => Err(reader.control.unavailable(format!(
                        "a document of {:?} cannot be read: {error}",
                        reader.handle.name()
                    ))),
                };
            }
            GetOutcome::Refused(Refused::NotMyVbucket) => return Err(reader.not_here()),
            GetOutcome::Refused(_) => {
                return Err(reader.control.unavailable(format!(
                    "the bucket {:?} is loading or short of memory; try again",
                    reader.handle.name()
                )));
            }
        };
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

impl DocumentStream for LookUp {
    fn advance(&mut self) -> Result<bool> {
        self.found.clear(SQL_BATCH_BYTES);
        while let Some((vbid, collection, key)) = self.wanted.pop_front() {
            self.reader.control.check()?;
            self.read(vbid, DocKey { collection, key: &key })?;
            if !self.found.is_empty() {
                return Ok(self.found.advance());
            }
        }
        Ok(false)
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        self.found.document()
    }
}
