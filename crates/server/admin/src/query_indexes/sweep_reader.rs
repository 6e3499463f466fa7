//! Documents as the sweep of an index reads them: without a user, a statement or a deadline.
//!
//! Owns: the difference between a document that is not here, whose entries go, and one that cannot
//! be read now.

use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_engine::{Bucket, GetOutcome, OperationRejection, record_of};
use oribi_protocol::hash::vbucket_of;
use oribi_query::stored::{body_of, inflated_bytes};
use oribi_query::{
    DocumentMutation, KeyRange, Keyspace, KeyspaceName, QueryDocument, QueryError, Result,
};
use oribi_storage::Record;
use oribi_system::clock::wall_clock;
use oribi_types::{CollectionId, Datatype, DocKey};

/// Code of a document that cannot be read.
const NOT_READABLE: u32 = 12008;

/// Larger documents are not read, because a sweep reserves nothing for them.
const FREE_DOCUMENT_BYTES: usize = 256 << 10;

/// See the module text.
pub(super) struct SweptCollection {
    pub bucket: Arc<Bucket>,
    pub collection: CollectionId,
}

impl std::fmt::Debug for SweptCollection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SweptCollection").field(&self.collection).finish()
    }
}

fn unreadable() -> Box<QueryError> {
    QueryError::datastore(NOT_READABLE, "a document cannot be read now")
}

fn document(record: &Record<'_>) -> Option<QueryDocument> {
    let body = body_of(record.datatype, record.value);
    let inflated = match record.datatype.contains(Datatype::SNAPPY) {
        true => inflated_bytes(body).unwrap_or(0),
        false => 0,
    };
    (body.len().max(inflated) <= FREE_DOCUMENT_BYTES).then(|| QueryDocument {
        cas: record.cas.0,
        flags: record.flags,
        expiration: record.expiry,
        ..QueryDocument::of_body(record.key.key, record.datatype, body)
    })
}

impl Keyspace for SweptCollection {
    fn name(&self) -> KeyspaceName {
        KeyspaceName { bucket: self.bucket.config().name.clone(), collection: None }
    }

    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>> {
        let vbid = vbucket_of(key, self.bucket.config().vbuckets);
        let key = DocKey { collection: self.collection, key };
        let now = wall_clock();
        let found = match self.bucket.vbucket_or_rejection(vbid) {
            Ok(vbucket) => vbucket.get(&self.bucket.context(now), key),
            Err(rejection) => GetOutcome::Refused(rejection),
        };
        match found {
            GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
                document(&record_of(&item)).map(Some).ok_or_else(unreadable)
            }
            GetOutcome::Miss
            | GetOutcome::Refused(
                OperationRejection::UnknownCollection | OperationRejection::NotMyVbucket,
            ) => Ok(None),
            GetOutcome::Refused(OperationRejection::NeedsFetch) => {
                let now_s = u32::try_from(now.unix_ns / 1_000_000_000).unwrap_or(u32::MAX);
                let (mut found, mut is_large) = (None, false);
                let mut no_room = |_: usize| {
                    is_large = true;
                    ControlFlow::Break(())
                };
                let read =
                    self.bucket.read_persisted_reserving(vbid, key, &mut no_room, &mut |record| {
                        let is_expired = record.expiry != 0 && record.expiry <= now_s;
                        if !record.deleted && !is_expired {
                            found = Some(document(&record));
                        }
                    });
                match (read, found) {
                    (Ok(_), Some(Some(document))) => Ok(Some(document)),
                    (Ok(_), None) if !is_large => Ok(None),
                    _ => Err(unreadable()),
                }
            }
            GetOutcome::Refused(_) => Err(unreadable()),
        }
    }

    fn scan(
        &self,
        _: &KeyRange,
        _: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        Err(unreadable())
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, _: DocumentMutation) -> Result<u64> {
        Err(unreadable())
    }
}
