//! The errors of a scan: an invalid description, or an answer that does not match it.
//!
//! [`Error`](crate::Error) wraps it. Like the errors of cells it has names where a user needs them,
//! and no text where a type suffices.

use super::block::BlockFault;
use super::cell::CellError;
use super::operand::OperandError;

/// Why a scan is invalid, or its results are unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The table has no such column.
    #[error("there is no column {column:?}")]
    UnknownColumn {
        /// The requested name.
        column: String,
    },
    /// A column was projected twice.
    #[error("column {column:?} is projected twice")]
    DuplicateColumn {
        /// Name of the column.
        column: String,
    },
    /// A value does not match the column that it is compared with.
    #[error("column {column:?}: {source}")]
    Operand {
        /// Name of the column.
        column: String,
        /// The type that it has.
        source: OperandError,
    },
    /// A key has more values than there are key columns, or fewer where all are required.
    #[error("the key has {values} values, the table {key_columns} key columns")]
    KeyLength {
        /// Number of values.
        values: usize,
        /// Columns of the table's primary key.
        key_columns: usize,
    },
    /// This client cannot decode a serialised scan token.
    #[error("scan token: {reason}")]
    Token {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A server sent rows that do not match the scan.
    #[error("rows that do not fit the scan: {0}")]
    Block(#[from] BlockFault),
    /// The caller read a cell as a type that it does not have.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// The cell of a column cannot be read into the field of a struct.
    #[error("column {column:?}: {source}")]
    Field {
        /// Name of the column.
        column: String,
        /// What is wrong with the cell.
        source: CellError,
    },
    /// Arrow refused the rows.
    #[error("record batch: {reason}")]
    Arrow {
        /// Arrow's message.
        reason: String,
    },
}
