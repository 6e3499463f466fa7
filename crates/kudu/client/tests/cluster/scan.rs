//! Scans, scan tokens and lookups against a real Kudu: rows that the C++ tool wrote are read, and
//! what this client reads is compared with what the tool reads.
//!
//! All tests share one cluster; each has its own tables.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[cfg(feature = "arrow")]
mod arrow;
mod lookups;
mod options;
mod predicates;
mod rows;
mod tokens;
mod written;

use oribi_kudu::{
    Client, ClientBuilder, ColumnSchema, ColumnSchemaBuilder, DataType, HashPartition, Scanner,
    Schema, Table, TableCreator, Value,
};
use oribi_testkit::{KuduCluster, SharedKuduCluster};

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

/// A client of the shared cluster, unless there is no Kudu.
async fn connect() -> Option<(&'static KuduCluster, Client)> {
    let cluster = CLUSTER.get()?;
    let client =
        ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap().build().await.unwrap();
    Some((cluster, client))
}

/// Creates a table whose rows are the choice of the load generator: key, number and text in four
/// tablets.
async fn numbers_table(client: &Client, name: &str) -> Table {
    let schema = Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("int_val", DataType::Int32).nullable(true))
        .column(ColumnSchema::builder("string_val", DataType::String).nullable(true))
        .build()
        .unwrap();
    let creator = TableCreator::new(name, schema)
        .hash_partition(HashPartition::new(["key"], 4))
        .num_replicas(1);
    client.create_table(creator).await.unwrap()
}

/// Creates a table with a column of every type, most of them nullable, in three tablets.
async fn every_type_table(client: &Client, name: &str) -> Table {
    let nullable = |name: &str, data_type| ColumnSchema::builder(name, data_type).nullable(true);
    let schema = Schema::builder()
        .column(ColumnSchema::builder("id", DataType::Int32).key())
        .column(ColumnSchema::builder("name", DataType::String).key())
        .column(nullable("i8", DataType::Int8))
        .column(nullable("i16", DataType::Int16))
        .column(nullable("i64", DataType::Int64))
        .column(ColumnSchema::builder("flag", DataType::Bool).nullable(false))
        .column(nullable("f", DataType::Float))
        .column(nullable("d", DataType::Double))
        .column(nullable("raw", DataType::Binary))
        .column(nullable("at", DataType::UnixtimeMicros))
        .column(nullable("day", DataType::Date))
        .column(ColumnSchemaBuilder::decimal("small", 9, 2).nullable(true))
        .column(ColumnSchemaBuilder::decimal("medium", 18, 4).nullable(true))
        .column(ColumnSchemaBuilder::decimal("large", 38, 10).nullable(true))
        .column(ColumnSchemaBuilder::varchar("short", 40).nullable(true))
        .build()
        .unwrap();
    let creator = TableCreator::new(name, schema)
        .hash_partition(HashPartition::new(["id"], 3))
        .num_replicas(1);
    client.create_table(creator).await.unwrap()
}

/// Has the C++ tool write rows: two threads, this many each.
fn loadgen(cluster: &KuduCluster, table: &str, rows_per_thread: u64) {
    let rows = format!("--num_rows_per_thread={rows_per_thread}");
    let name = format!("--table_name={table}");
    cluster.tool_stdout(&["perf", "loadgen", &cluster.master_addresses(), &name, &rows]).unwrap();
}

/// A value that outlives its batch.
#[derive(Clone, Debug, PartialEq)]
enum OwnedCell {
    Null,
    Bool(bool),
    /// Integers, dates, times and decimals.
    Number(i128),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
}

impl From<Value<'_>> for OwnedCell {
    fn from(value: Value<'_>) -> OwnedCell {
        match value {
            Value::Null => OwnedCell::Null,
            Value::Bool(value) => OwnedCell::Bool(value),
            Value::Int8(value) => OwnedCell::Number(value.into()),
            Value::Int16(value) => OwnedCell::Number(value.into()),
            Value::Int32(value) | Value::Date(value) => OwnedCell::Number(value.into()),
            Value::Int64(value) | Value::UnixtimeMicros(value) => OwnedCell::Number(value.into()),
            Value::Decimal(value) => OwnedCell::Number(value),
            Value::Float(value) => OwnedCell::Float(value),
            Value::Double(value) => OwnedCell::Double(value),
            Value::String(value) => OwnedCell::Bytes(value.as_bytes().to_vec()),
            Value::Binary(value) => OwnedCell::Bytes(value.to_vec()),
            other => panic!("{other:?} is a kind of value that the tests do not know"),
        }
    }
}

/// Everything a scan returns, in its order.
async fn all_rows(scanner: Scanner) -> Vec<Vec<OwnedCell>> {
    let mut scanner = scanner;
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        assert!(batch.num_rows() > 0, "a batch has rows");
        let columns = batch.projection().columns().len();
        rows.extend(batch.rows().map(|row| {
            (0..columns)
                .map(|column| OwnedCell::from(row.get::<Value<'_>>(column).unwrap()))
                .collect::<Vec<_>>()
        }));
    }
    assert_eq!(scanner.metrics().rows, rows.len() as u64);
    rows
}

/// Rows in an order that does not depend on tablets.
fn sorted(mut rows: Vec<Vec<OwnedCell>>) -> Vec<Vec<OwnedCell>> {
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}
