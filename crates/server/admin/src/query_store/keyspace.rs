//! The documents of one collection, read for a statement.
//!
//! Owns: the rights of a read and a scan, and documents as the language takes them: the body,
//! without attributes and inflated. A look-up sees the newest version as a GET does, a scan shows
//! each vbucket as of one moment, with every write acknowledged before it began.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use oribi_auth::Privilege;
use oribi_query::{DocumentMutation, KeyRange, Keyspace, KeyspaceName, QueryDocument, Result};
use oribi_sql::document_cells::{inflated, inflated_bytes, is_json, parts_of};
use oribi_sql::documents::{DocumentScan, DocumentSource, DocumentStream};
use oribi_sql::key_filter::KeyFilter;
use oribi_sql::source::{Argument, Condition, Operator};
use oribi_types::Datatype;

use super::change;
use super::place::KeyspacePlace;
use crate::sql::documents::BucketDocuments;

/// See the module text.
pub(super) struct CollectionKeyspace {
    place: KeyspacePlace,
    documents: BucketDocuments,
}

impl std::fmt::Debug for CollectionKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CollectionKeyspace").field(&self.place.name).finish()
    }
}

impl CollectionKeyspace {
    pub(super) fn new(place: KeyspacePlace) -> CollectionKeyspace {
        let documents = BucketDocuments::new(
            Arc::clone(&place.handle),
            place.path(),
            vec![place.collection],
            Arc::clone(&place.control),
        );
        CollectionKeyspace { place, documents }
    }

    fn stream(&self, keys: KeyFilter) -> Result<Box<dyn DocumentStream>> {
        let scan = DocumentScan {
            keys,
            needs_figures: true,
            needs_value: true,
            needs_meta: true,
            ..DocumentScan::default()
        };
        self.documents.scan(scan).map_err(|error| self.place.read_error(&error))
    }

    /// The next document of a stream.
    fn next(&self, stream: &mut dyn DocumentStream) -> Result<Option<QueryDocument>> {
        let failed = |error: anyhow::Error| self.place.read_error(&error);
        if !stream.advance().map_err(failed)? {
            return Ok(None);
        }
        let expanded = stream.document().and_then(|stored| {
            let (_, body) = parts_of(stored.datatype, stored.value);
            stored.datatype.contains(Datatype::SNAPPY).then(|| inflated_bytes(body)).flatten()
        });
        if let Some(bytes) = expanded {
            stream.make_room(bytes).map_err(failed)?;
        }
        Ok(stream.document().map(|stored| {
            let (_, body) = parts_of(stored.datatype, stored.value);
            let plain = stored.datatype.contains(Datatype::SNAPPY).then(|| inflated(body));
            let value = match plain.flatten() {
                Some(plain) => Bytes::from(plain),
                None => Bytes::copy_from_slice(body),
            };
            QueryDocument {
                key: Bytes::copy_from_slice(stored.key),
                is_json: is_json(stored.datatype, &value),
                value,
                cas: stored.cas,
                flags: stored.flags,
                expiration: stored.expiry,
            }
        }))
    }
}

impl Keyspace for CollectionKeyspace {
    fn name(&self) -> KeyspaceName {
        self.place.name.clone()
    }

    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>> {
        self.place.check_rights(&[Privilege::Read])?;
        let mut stream = self.stream(filter([(Operator::Equal, key)]))?;
        self.next(&mut *stream)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        self.place.check_rights(&[Privilege::Read, Privilege::RangeScan])?;
        let low = range.low.iter().map(|(key, is_in)| match is_in {
            true => (Operator::GreaterOrEqual, &key[..]),
            false => (Operator::Greater, &key[..]),
        });
        let high = range.high.iter().map(|(key, is_in)| match is_in {
            true => (Operator::LessOrEqual, &key[..]),
            false => (Operator::Less, &key[..]),
        });
        let mut stream = self.stream(filter(low.chain(high)))?;
        while let Some(document) = self.next(&mut *stream)? {
            if visit(document).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, mutation: DocumentMutation) -> Result<u64> {
        change::apply(&self.place, &mutation)
    }
}

fn filter<'k>(bounds: impl IntoIterator<Item = (Operator, &'k [u8])>) -> KeyFilter {
    let conditions: Vec<Condition> = bounds
        .into_iter()
        .map(|(operator, key)| Condition {
            column: 0,
            operator,
            values: vec![Argument::Text(key.to_vec())],
        })
        .collect();
    KeyFilter::of(conditions.iter())
}
