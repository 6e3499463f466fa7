//! A table of Kudu that is not a bucket's: its columns as they are.
//!
//! Owns the mapping of a schema to SQL, column by column. Booleans, dates (days since 1970-01-01)
//! and timestamps (microseconds since then) are integers; decimals are integers without a scale,
//! else floating point.

use std::sync::Arc;

use anyhow::Result;
use oribi_kudu::Table;
use oribi_sql::ValueRef;
use oribi_sql::source::{Column, Operator, RowStream, ScanRequest, TableSource};

use super::cluster::{KuduRows, SqlCluster};
use super::predicates::{cell, declared, predicate, takes};

/// See the module text.
pub struct PlainTable {
    cluster: Arc<SqlCluster>,
    table: Table,
    columns: Vec<Column>,
    key_columns: Vec<usize>,
    rows: u64,
}

impl PlainTable {
    /// The table with about this many rows.
    pub fn new(cluster: Arc<SqlCluster>, table: Table, rows: u64) -> PlainTable {
        let columns = table.schema().columns().iter().map(|column| Column {
            name: column.name().to_owned(),
            declared: declared(column.data_type()),
            takes: takes(column.data_type()),
        });
        let key_columns = (0..table.schema().num_key_columns()).collect();
        PlainTable { columns: columns.collect(), key_columns, cluster, table, rows }
    }
}

impl TableSource for PlainTable {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn identity(&self) -> &[usize] {
        &self.key_columns
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn share_read(&self, conditions: &[(usize, Operator)]) -> f64 {
        // Conditions on the first columns of the key make the servers read less; others make them
        // send less.
        let keys = self.table.schema().key_columns().len();
        let is_fixed = |column| {
            conditions
                .iter()
                .any(|(fixed, operator)| (*fixed, *operator) == (column, Operator::Equal))
        };
        let fixed = (0..keys).take_while(|column| is_fixed(*column)).count();
        let all_fixed = if fixed == keys { 0.0 } else { 0.1_f64.powi(fixed as i32) };
        all_fixed * 0.5_f64.powi((conditions.len() - fixed) as i32)
    }

    fn scan(&self, request: &ScanRequest) -> Result<Box<dyn RowStream>> {
        let schema = self.table.schema();
        let mut scan = self
            .table
            .scan()
            .columns(request.columns.iter().map(|column| self.columns[*column].name.as_str()));
        for condition in &request.conditions {
            let column = &schema.columns()[condition.column];
            if let Some(predicate) = predicate(column.name(), column.data_type(), condition) {
                scan = scan.filter(predicate);
            }
        }
        let mut positions = vec![None; self.columns.len()];
        for (at, column) in request.columns.iter().enumerate() {
            positions[*column] = Some(at);
        }
        let rows = KuduRows::start(&self.cluster, scan)?;
        Ok(Box::new(PlainRows { rows, positions, table: self.table.clone() }))
    }
}

struct PlainRows {
    rows: KuduRows,
    /// Where each column of the table is in the scan.
    positions: Vec<Option<usize>>,
    table: Table,
}

impl RowStream for PlainRows {
    fn advance(&mut self) -> Result<bool> {
        self.rows.advance()
    }

    fn cell(&self, column: usize) -> Result<ValueRef<'_>> {
        let position = self.positions.get(column).copied().flatten();
        let (Some(row), Some(at)) = (self.rows.row(), position) else { return Ok(ValueRef::Null) };
        cell(row, at, &self.table.schema().columns()[column])
    }
}
