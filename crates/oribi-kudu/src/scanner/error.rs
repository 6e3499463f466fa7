//! What is wrong with a scan before a server has been asked, or with what a server answered.
//!
//! Part of [`Error`](crate::Error), which wraps it. Like the errors of cells it carries names where a user
//! needs them and no text where a type says it.

use super::block::BlockFault;
use super::cell::CellError;
use super::operand::OperandError;

/// Why a scan could not be described, or its results not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The table has no such column.
    #[error("there is no column {column:?}")]
    UnknownColumn {
        /// Name that was asked for.
        column: String,
    },
    /// A column was projected twice.
    #[error("column {column:?} is projected twice")]
    DuplicateColumn {
        /// Name of the column.
        column: String,
    },
    /// A value does not fit the column that it is compared with.
    #[error("column {column:?}: {source}")]
    Operand {
        /// Name of the column.
        column: String,
        /// The type that it has.
        source: OperandError,
    },
    /// A key has more values than there are key columns, or fewer where all are needed.
    #[error("the key has {values} values, the table {key_columns} key columns")]
    KeyLength {
        /// Values that were given.
        values: usize,
        /// Columns of the table's primary key.
        key_columns: usize,
    },
    /// A serialised scan token cannot be understood by this client.
    #[error("scan token: {reason}")]
    Token {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A server sent rows that do not fit the scan.
    #[error("rows that do not fit the scan: {0}")]
    Block(#[from] BlockFault),
    /// A cell was read as something that it is not.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// Arrow refused the rows.
    #[error("record batch: {reason}")]
    Arrow {
        /// In Arrow's words.
        reason: String,
    },
}
