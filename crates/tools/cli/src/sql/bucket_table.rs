//! The documents of a bucket that Oribi keeps in Kudu, one row each.
//!
//! It owns SQL's view of the table that `storage = "kudu://..."` writes. It hides tombstones,
//! expired documents, those of dropped collections ([`super::collections`]) and the store's own
//! state. A document in several rows is shown as one ([`super::long_document`]). Invariants: the
//! body of a document costs no byte unless a statement asks for it. The start time of the scan
//! decides whether a document has expired.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use oribi_kudu::{Predicate, ReadMode, Schema, Table};
use oribi_protocol::hash::vbucket_of;
use oribi_sql::ValueRef;
use oribi_sql::columns::{BODY, COLLECTION, ID, JSON, VBUCKET, XATTRS};
use oribi_sql::source::{
    Argument, Column, Condition, Conditions, Operator, RowStream, ScanRequest, TableSource,
};
use oribi_types::Datatype;

use super::cluster::{KuduRows, SqlCluster};
use super::collections::SqlCollections;
use super::document::SqlDocument;
use super::layout::{COLUMNS, SqlLayout};
use super::long_document;
use super::predicates::{cell, predicate};

/// What a table's comment says before the number of its vbuckets.
const VBUCKETS_NOTE: &str = "vbuckets=";
/// Most values of `id in (...)` whose vbuckets are worth naming.
const HASHED_KEYS_MAX: usize = 64;

/// See the module text.
pub struct BucketTable {
    cluster: Arc<SqlCluster>,
    table: Table,
    columns: Vec<Column>,
    rows: u64,
    collections: SqlCollections,
    /// How many vbuckets the bucket has, where its table says so.
    vbuckets: Option<u16>,
}

/// True when a table has the primary key of a bucket's.
pub fn is_bucket(schema: &Schema) -> bool {
    let key = schema.key_columns().iter().map(|column| column.name());
    key.eq(["vbucket", "collection", "key", "chunk"])
        && COLUMNS.iter().all(|(_, _, name, _)| schema.column_index(name).is_some())
}

impl BucketTable {
    /// The table with about this many rows.
    pub fn new(cluster: Arc<SqlCluster>, table: Table, rows: u64) -> BucketTable {
        let columns = COLUMNS.iter().enumerate().map(|(at, (name, declared, _, _))| Column {
            name: (*name).to_owned(),
            declared,
            takes: if at < XATTRS { Conditions::Comparisons } else { Conditions::Nullness },
        });
        let vbuckets = vbuckets_of(table.comment());
        let (columns, collections) = (columns.collect(), SqlCollections::default());
        BucketTable { columns, cluster, table, rows, collections, vbuckets }
    }

    /// The vbuckets in which documents with these keys are, if the conditions name keys.
    fn vbuckets_of_keys(&self, conditions: &[Condition]) -> Option<Predicate> {
        let vbuckets = self.vbuckets?;
        let of_keys = conditions.iter().find(|condition| {
            condition.column == ID && matches!(condition.operator, Operator::Equal | Operator::In)
        })?;
        if of_keys.values.len() > HASHED_KEYS_MAX {
            return None;
        }
        let keys = of_keys.values.iter().filter(|value| **value != Argument::Null);
        let hashed = keys.map(|key| match key {
            Argument::Text(key) => i16::try_from(vbucket_of(key, vbuckets).0).ok(),
            _ => None,
        });
        Some(Predicate::in_list("vbucket", hashed.collect::<Option<Vec<_>>>()?))
    }
}

/// The number of vbuckets in the comment of a table.
fn vbuckets_of(comment: &str) -> Option<u16> {
    let (_, rest) = comment.split_once(VBUCKETS_NOTE)?;
    let digits = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|count| *count > 0)
}

impl TableSource for BucketTable {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn identity(&self) -> &[usize] {
        &[VBUCKET, COLLECTION, ID]
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn share_read(&self, conditions: &[(usize, Operator)]) -> f64 {
        let is_fixed = |column| {
            conditions.iter().any(|(fixed, operator)| {
                *fixed == column && matches!(operator, Operator::Equal | Operator::In)
            })
        };
        let vbuckets = f64::from(self.vbuckets.unwrap_or(1));
        let knows_vbucket = is_fixed(VBUCKET) || (is_fixed(ID) && self.vbuckets.is_some());
        match (knows_vbucket, is_fixed(COLLECTION), is_fixed(ID)) {
            (true, true, true) => 0.0,
            (true, _, _) => 1.0 / vbuckets,
            (false, _, true) => 0.2,
            (false, _, false) => 0.5_f64.powi(conditions.len().min(3) as i32),
        }
    }

    fn scan(&self, request: &ScanRequest) -> Result<Box<dyn RowStream>> {
        let layout = SqlLayout::new(&request.columns);
        let mut scan = self
            .table
            .scan()
            .columns(layout.names.iter().copied())
            .read_mode(ReadMode::AtSnapshot(None))
            .filter(Predicate::equal("chunk", 0_i16))
            .filter(Predicate::greater_or_equal("collection", 0_i64))
            .filter(Predicate::equal("deleted", false));
        for condition in &request.conditions {
            if let Some(predicate) = bucket_predicate(condition) {
                scan = scan.filter(predicate);
            }
        }
        if let Some(predicate) = self.collections.that_exist(&self.cluster, &self.table)? {
            scan = scan.filter(predicate);
        }
        if let Some(predicate) = self.vbuckets_of_keys(&request.conditions) {
            scan = scan.filter(predicate);
        }
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Ok(Box::new(BucketRows {
            rows: KuduRows::start(&self.cluster, scan)?,
            cluster: self.cluster.clone(),
            table: self.table.clone(),
            layout,
            now: i64::try_from(now.as_secs())?,
            document: SqlDocument::default(),
        }))
    }
}

/// The predicate for a condition. What SQL shows of a body and of attributes may be made of another
/// column than theirs ([`super::document`]): there the datatype says what will be shown.
fn bucket_predicate(condition: &Condition) -> Option<Predicate> {
    match (condition.column, condition.operator) {
        (JSON, Operator::IsNotNull) | (BODY, Operator::IsNull) => Some(datatypes(Datatype::JSON)),
        (XATTRS, Operator::IsNotNull) => Some(datatypes(Datatype::XATTR)),
        // A cell of these that is not NULL is shown in its own column.
        (column, _) => {
            let (_, _, name, data_type) = COLUMNS[column];
            predicate(name, data_type, condition)
        }
    }
}

/// All datatypes with this bit.
fn datatypes(bit: Datatype) -> Predicate {
    let all = Datatype::JSON.0 | Datatype::SNAPPY.0 | Datatype::XATTR.0;
    let with_bit = (0..=all).filter(|datatype| Datatype(*datatype).contains(bit));
    Predicate::in_list("datatype", with_bit.map(i16::from).collect::<Vec<_>>())
}

struct BucketRows {
    rows: KuduRows,
    cluster: Arc<SqlCluster>,
    table: Table,
    layout: SqlLayout,
    now: i64,
    /// What of the current row is not in it as it is shown.
    document: SqlDocument,
}

impl RowStream for BucketRows {
    fn advance(&mut self) -> Result<bool> {
        while self.rows.advance()? {
            let Some(row) = self.rows.row() else { return Ok(false) };
            let expiry = self.layout.get::<i64>(row, "expiry")?;
            if expiry != 0 && expiry <= self.now {
                continue;
            }
            if !long_document::is_long(row, &self.layout)? {
                self.document = SqlDocument::of_row(row, &self.layout)?;
                return Ok(true);
            }
            let (cluster, table) = (&self.cluster, &self.table);
            // Without one it was deleted since the scan began.
            if let Some(whole) = long_document::read(cluster, table, row, &self.layout, self.now)? {
                self.document = whole;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn cell(&self, column: usize) -> Result<ValueRef<'_>> {
        let Some(at) = self.layout.positions.get(column).copied().flatten() else {
            return Ok(ValueRef::Null);
        };
        if let Some(value) = self.document.value(column) {
            return Ok(value);
        }
        let Some(row) = self.document.first_row().or_else(|| self.rows.row()) else {
            return Ok(ValueRef::Null);
        };
        let (_, _, name, _) = COLUMNS[column];
        let schema = self.table.schema();
        let index = schema.column_index(name).with_context(|| format!("no column {name}"))?;
        cell(row, at, &schema.columns()[index])
    }
}

#[cfg(test)]
mod tests {
    //! What a table's comment says, and what a scan returns.

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
    fn whether_there_is_json_is_asked_of_the_datatype() {
        let asked = |column, operator| {
            let condition = Condition { column, operator, values: Vec::new() };
            format!("{:?}", bucket_predicate(&condition).unwrap())
        };
        let json = format!("{:?}", Predicate::in_list("datatype", vec![1_i16, 3, 5, 7]));
        assert_eq!(asked(JSON, Operator::IsNotNull), json);
        assert_eq!(asked(BODY, Operator::IsNull), json);
        let xattrs = format!("{:?}", Predicate::in_list("datatype", vec![4_i16, 5, 6, 7]));
        assert_eq!(asked(XATTRS, Operator::IsNotNull), xattrs);
        let is_null = format!("{:?}", Predicate::is_null("json"));
        assert_eq!(asked(JSON, Operator::IsNull), is_null);
    }
}
