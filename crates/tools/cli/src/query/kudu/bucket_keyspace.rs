//! The documents of one collection of a bucket that Oribi keeps in Kudu.
//!
//! Owns the view of the table that `storage = "kudu://..."` writes. It hides tombstones, expired
//! documents and the store's state. A document in several rows is read as one
//! ([`super::long_document`]). Invariants: the body of a document costs no byte unless the
//! statement reads it. The start time of the scan decides whether a document has expired.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use oribi_kudu::{Predicate, ReadMode, Table};
use oribi_protocol::hash::vbucket_of;
use oribi_query::{DocumentMutation, KeyRange, Keyspace, KeyspaceName, QueryDocument, ScanHints};

use super::cluster::{KuduRows, QueryCluster};
use super::layout::ScanLayout;
use super::refusal::{failed, read_only};
use super::{document, long_document};

/// Prefix of a table's comment, before the number of its vbuckets.
const VBUCKETS_NOTE: &str = "vbuckets=";

/// See the module text.
pub struct BucketKeyspace {
    cluster: Arc<QueryCluster>,
    table: Table,
    name: KeyspaceName,
    collection: i64,
    /// How many vbuckets the bucket has, where its table says so.
    vbuckets: Option<u16>,
}

impl std::fmt::Debug for BucketKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BucketKeyspace").field(&self.name).finish()
    }
}

impl BucketKeyspace {
    pub fn new(
        cluster: Arc<QueryCluster>,
        table: Table,
        name: KeyspaceName,
        collection: i64,
    ) -> BucketKeyspace {
        let vbuckets = vbuckets_of(table.comment());
        BucketKeyspace { cluster, table, name, collection, vbuckets }
    }

    /// Visits the documents of rows that meet the predicates.
    fn read(
        &self,
        predicates: Vec<Predicate>,
        needs_body: bool,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        let layout = ScanLayout::new(needs_body);
        let mut scan = self
            .table
            .scan()
            .columns(layout.names.iter().copied())
            .read_mode(ReadMode::AtSnapshot(None))
            .filter(Predicate::equal("chunk", 0_i16))
            .filter(Predicate::equal("collection", self.collection))
            .filter(Predicate::equal("deleted", false));
        for predicate in predicates {
            scan = scan.filter(predicate);
        }
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        let now = i64::try_from(now.as_secs())?;
        let mut rows = KuduRows::start(&self.cluster, scan)?;
        while rows.advance()? {
            let Some(row) = rows.row() else { break };
            let expiry = layout.get::<i64>(row, "expiry")?;
            if expiry != 0 && expiry <= now {
                continue;
            }
            let document = match long_document::is_long(row, &layout)? {
                false => document::of_row(row, &layout)?,
                true => match long_document::read(&self.cluster, &self.table, row, &layout, now)? {
                    Some(whole) => whole,
                    // It was deleted since the scan began.
                    None => continue,
                },
            };
            if visit(document).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The number of vbuckets in the comment of a table.
fn vbuckets_of(comment: &str) -> Option<u16> {
    let (_, rest) = comment.split_once(VBUCKETS_NOTE)?;
    let digits = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|count| *count > 0)
}

/// The bounds of keys as predicates on a column of text; none when a bound is no text.
pub fn key_predicates(column: &str, range: &KeyRange) -> Option<Vec<Predicate>> {
    let mut predicates = Vec::new();
    if let Some((low, is_in)) = &range.low {
        let Ok(low) = std::str::from_utf8(low) else { return None };
        predicates.push(match is_in {
            true => Predicate::greater_or_equal(column, low),
            false => Predicate::greater(column, low),
        });
    }
    if let Some((high, is_in)) = &range.high {
        let Ok(high) = std::str::from_utf8(high) else { return None };
        predicates.push(match is_in {
            true => Predicate::less_or_equal(column, high),
            false => Predicate::less(column, high),
        });
    }
    Some(predicates)
}

impl Keyspace for BucketKeyspace {
    fn name(&self) -> KeyspaceName {
        self.name.clone()
    }

    fn get(&self, key: &[u8]) -> oribi_query::Result<Option<QueryDocument>> {
        let Ok(text) = std::str::from_utf8(key) else { return Ok(None) };
        let mut predicates = vec![Predicate::equal("key", text)];
        if let Some(vbuckets) = self.vbuckets
            && let Ok(vbucket) = i16::try_from(vbucket_of(key, vbuckets).0)
        {
            predicates.push(Predicate::equal("vbucket", vbucket));
        }
        let mut found = None;
        let mut take = |document| {
            found = Some(document);
            ControlFlow::Break(())
        };
        self.read(predicates, true, &mut take).map_err(failed)?;
        Ok(found)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> oribi_query::Result<()> {
        self.scan_hinted(range, &ScanHints::default(), visit)
    }

    fn takes_hints(&self) -> bool {
        true
    }

    fn scan_hinted(
        &self,
        range: &KeyRange,
        hints: &ScanHints,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> oribi_query::Result<()> {
        let needs_body = hints.fields.as_ref().is_none_or(|fields| !fields.is_empty());
        let predicates = key_predicates("key", range).unwrap_or_default();
        self.read(predicates, needs_body, visit).map_err(failed)
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, _mutation: DocumentMutation) -> oribi_query::Result<u64> {
        Err(read_only())
    }
}

#[cfg(test)]
mod tests {
    //! What a table's comment says, and keys as predicates.

    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_comment_says_how_many_vbuckets_there_are() {
        assert_eq!(vbuckets_of("oribi bucket, vbuckets=64"), Some(64));
        assert_eq!(vbuckets_of("vbuckets=1024; more"), Some(1024));
        for comment in ["", "a table", "vbuckets=", "vbuckets=0", "vbuckets=70000", "vbuckets=-1"] {
            assert_eq!(vbuckets_of(comment), None, "{comment}");
        }
    }

    #[test]
    fn bounds_of_keys_are_sent() {
        let bound = |key: &'static [u8]| Some((Bytes::from_static(key), false));
        let sent = |range: KeyRange| format!("{:?}", key_predicates("key", &range));
        let range = KeyRange { low: bound(b"a"), high: bound(b"b") };
        let expected = vec![Predicate::greater("key", "a"), Predicate::less("key", "b")];
        assert_eq!(sent(range), format!("{:?}", Some(expected)));
        assert_eq!(sent(KeyRange { low: bound(b"\xff"), high: None }), "None");
    }
}
