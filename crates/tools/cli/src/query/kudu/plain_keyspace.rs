//! A table of Kudu that is not a bucket's: each row is a document of its columns.
//!
//! Owns the mapping of a row to JSON. Dates are days since 1970-01-01 and timestamps microseconds
//! since then; decimals have all their digits; bytes are base64. `META().id` is the text of a
//! single key column, else a JSON array of the key's columns.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use oribi_kudu::{DataType, Table};
use oribi_query::{DocumentMutation, KeyRange, Keyspace, KeyspaceName, QueryDocument, ScanHints};

use super::bucket_keyspace::key_predicates;
use super::cluster::{KuduRows, QueryCluster};
use super::predicates::{predicate, push_cell};
use super::refusal::{failed, read_only};
use crate::stats::text::push_json_string;

/// See the module text.
pub struct PlainKeyspace {
    cluster: Arc<QueryCluster>,
    table: Table,
    name: KeyspaceName,
}

impl std::fmt::Debug for PlainKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PlainKeyspace").field(&self.name).finish()
    }
}

impl PlainKeyspace {
    pub fn new(cluster: Arc<QueryCluster>, table: Table, name: KeyspaceName) -> PlainKeyspace {
        PlainKeyspace { cluster, table, name }
    }

    fn read(
        &self,
        range: &KeyRange,
        hints: &ScanHints,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        let schema = self.table.schema();
        let keys = schema.num_key_columns();
        // The key's columns come first, because the key is made of them.
        let is_read = |name: &str| {
            hints.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| field == name))
        };
        let columns: Vec<usize> = (0..schema.columns().len())
            .filter(|at| *at < keys || is_read(schema.columns()[*at].name()))
            .collect();
        let names = columns.iter().map(|at| schema.columns()[*at].name());
        let mut scan = self.table.scan().columns(names);
        for condition in &hints.conditions {
            let column = schema.columns().iter().find(|column| column.name() == condition.field);
            if let Some(predicate) = column.and_then(|column| predicate(column, condition)) {
                scan = scan.filter(predicate);
            }
        }
        let is_text = keys == 1 && schema.columns()[0].data_type() == DataType::String;
        if is_text {
            let bounds = key_predicates(schema.columns()[0].name(), range).unwrap_or_default();
            scan = bounds.into_iter().fold(scan, |scan, bound| scan.filter(bound));
        }
        let mut rows = KuduRows::start(&self.cluster, scan)?;
        while rows.advance()? {
            let row = rows.row().context("a row of the batch")?;
            let (mut value, mut id) = (b"{".to_vec(), b"[".to_vec());
            for (position, at) in columns.iter().enumerate() {
                let column = &schema.columns()[*at];
                if position > 0 {
                    value.push(b',');
                }
                push_json_string(&mut value, column.name().as_bytes());
                value.push(b':');
                push_cell(&mut value, row, position, column)?;
                if *at < keys {
                    if position > 0 {
                        id.push(b',');
                    }
                    push_cell(&mut id, row, position, column)?;
                }
            }
            value.push(b'}');
            id.push(b']');
            if keys == 1 {
                id = match is_text {
                    true => row.get::<&[u8]>(0)?.to_vec(),
                    false => id[1..id.len() - 1].to_vec(),
                };
            }
            if !range.contains(&id) {
                continue;
            }
            let (cas, flags, expiration) = (0, 0, 0);
            let (key, value, is_json) = (Bytes::from(id), Bytes::from(value), true);
            if visit(QueryDocument { key, value, is_json, cas, flags, expiration }).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Keyspace for PlainKeyspace {
    fn name(&self) -> KeyspaceName {
        self.name.clone()
    }

    fn get(&self, key: &[u8]) -> oribi_query::Result<Option<QueryDocument>> {
        let bound = Some((Bytes::copy_from_slice(key), true));
        let range = KeyRange { low: bound.clone(), high: bound };
        let mut found = None;
        self.scan(&range, &mut |document| {
            found = Some(document);
            ControlFlow::Break(())
        })?;
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
        self.read(range, hints, visit).map_err(failed)
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, _mutation: DocumentMutation) -> oribi_query::Result<u64> {
        Err(read_only())
    }
}
