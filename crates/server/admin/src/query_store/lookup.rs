//! Single documents by their keys.
//!
//! Owns: reading them as a GET does: from memory, and from the store where memory has no value. A
//! statement thus sees the newest version, persisted or not. It sees the version's own CAS also
//! while a client has the document locked: scans and indexes ignore locks, and a change that names
//! this CAS is refused as locked.

use std::ops::ControlFlow;

use anyhow::Result;
use oribi_engine::{GetOutcome, OperationRejection, record_of};
use oribi_protocol::hash::vbucket_of;
use oribi_storage::LARGE_RECORD_BYTES;
use oribi_system::clock::wall_clock;
use oribi_types::DocKey;

use super::batch::{DocumentBatch, StoredVersion};
use super::reader::KeyspaceReader;
use crate::statement_memory::LargeValueMemory;

/// See the module text.
pub(super) struct DocumentLookup<'r> {
    reader: &'r KeyspaceReader,
    /// At most one document.
    found: DocumentBatch,
    /// Reserved for the document, if it is large.
    large: Option<LargeValueMemory>,
}

impl<'r> DocumentLookup<'r> {
    /// Reads the document of a key.
    ///
    /// # Errors
    /// When it cannot be read now, or the statement has to end.
    pub fn read(reader: &'r KeyspaceReader, key: &[u8]) -> Result<DocumentLookup<'r>> {
        reader.control.check()?;
        reader.check_exists()?;
        let mut lookup = DocumentLookup { reader, found: DocumentBatch::default(), large: None };
        lookup.fill(key)?;
        lookup.found.advance();
        Ok(lookup)
    }

    /// None when there is no such document.
    pub fn document(&self) -> Option<StoredVersion<'_>> {
        self.found.document()
    }

    /// Copies the document into the batch, if it exists.
    fn fill(&mut self, key: &[u8]) -> Result<()> {
        debug_assert!(self.found.is_empty(), "a look-up is of one document");
        let reader = self.reader;
        let vbid = vbucket_of(key, reader.handle.vbuckets());
        let key = DocKey { collection: reader.collection, key };
        let (bucket, now) = (reader.handle.bucket(), wall_clock());
        let found = match bucket.vbucket_or_rejection(vbid) {
            Ok(vbucket) => vbucket.get(&bucket.context(now), key),
            Err(rejection) => GetOutcome::Refused(rejection),
        };
        let item = match found {
            GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => item,
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
                let read = bucket.read_persisted_reserving(vbid, key, &mut room, &mut |record| {
                    let is_expired = record.expiry != 0 && record.expiry <= now_s;
                    if !record.deleted && !is_expired {
                        found.push(&StoredVersion::from(&record));
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
        self.found.push(&StoredVersion::from(&record_of(&item)));
        Ok(())
    }
}
