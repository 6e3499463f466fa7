//! Where the rows of a virtual table come from.
//!
//! Owns the seam between SQLite's side ([`crate::virtual_table`]) and what has the rows: what a
//! table has for columns, which conditions it may be asked to check itself, and a stream of rows.
//! Invariants: conditions only ever narrow; a source that ignores one returns too many rows and
//! never too few, because SQLite checks each again. A stream holds a batch of rows and not the
//! table.

use rusqlite::types::{FromSql, FromSqlResult, ValueRef};

/// A column as SQL sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its declared type.
    pub declared: &'static str,
    /// Which conditions on it the source takes.
    pub takes: Conditions,
}

/// Which conditions a source takes on a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// Whether it is NULL.
    Nullness,
    /// Comparisons, too.
    Comparisons,
}

/// What SQLite asks of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=`.
    Equal,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `IN`, with all values at once.
    In,
    /// `IS NULL`.
    IsNull,
    /// `IS NOT NULL`.
    IsNotNull,
}

/// A value of a statement. Text need not be UTF-8, because keys need not be.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// NULL.
    Null,
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(Vec<u8>),
    /// Bytes.
    Blob(Vec<u8>),
}

impl FromSql for Argument {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Argument> {
        Ok(match value {
            ValueRef::Null => Argument::Null,
            ValueRef::Integer(number) => Argument::Integer(number),
            ValueRef::Real(number) => Argument::Real(number),
            ValueRef::Text(text) => Argument::Text(text.to_vec()),
            ValueRef::Blob(bytes) => Argument::Blob(bytes.to_vec()),
        })
    }
}

/// A condition with its values: several with `IN`, none where NULL is asked for, one otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Position of the column in [`TableSource::columns`].
    pub column: usize,
    /// What has to hold.
    pub operator: Operator,
    /// What it is compared with, as SQLite has it: of any type.
    pub values: Vec<Argument>,
}

/// What a statement needs of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanRequest {
    /// Positions of the columns that are looked at, ascending. Others may be asked for and are
    /// NULL.
    pub columns: Vec<usize>,
    /// All of them hold for the rows that are wanted.
    pub conditions: Vec<Condition>,
}

/// Rows one after the other.
pub trait RowStream {
    /// Goes to the next row; false at the end. The first call goes to the first row.
    ///
    /// # Errors
    /// What the user is told when the rows cannot be had.
    fn advance(&mut self) -> anyhow::Result<bool>;

    /// A cell of the current row, by the position in [`TableSource::columns`].
    fn cell(&self, column: usize) -> anyhow::Result<ValueRef<'_>>;
}

/// A table that can be scanned.
pub trait TableSource: Send + Sync {
    /// Its columns.
    fn columns(&self) -> &[Column];

    /// Positions of the columns that together tell a row from every other one: its primary key.
    fn identity(&self) -> &[usize];

    /// How many rows it has, about.
    fn rows(&self) -> u64;

    /// The share of the rows, from 0 to 1, that a scan under conditions on these columns has to
    /// look at, about.
    fn share_read(&self, conditions: &[(usize, Operator)]) -> f64;

    /// Starts a scan.
    ///
    /// # Errors
    /// What the user is told when it cannot start.
    fn scan(&self, request: &ScanRequest) -> anyhow::Result<Box<dyn RowStream>>;
}
