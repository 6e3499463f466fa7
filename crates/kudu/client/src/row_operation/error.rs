//! Why a row is not valid. The encoder finds it, before any server is involved.

use crate::schema::ValueError;

use super::RowOperation;

/// Why a row in progress is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The table has no column of this name.
    #[error("there is no column {column:?}")]
    UnknownColumn {
        /// The name.
        column: String,
    },
    /// The table has fewer columns.
    #[error("there is no column {index}, the table has {columns}")]
    NoSuchColumn {
        /// The requested index, from 0.
        index: usize,
        /// How many columns there are.
        columns: usize,
    },
    /// The column cannot hold the value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The row already has a cell for this column.
    #[error("column {column:?} is set twice")]
    SetTwice {
        /// Name of the column.
        column: String,
    },
    /// The cell is larger than servers accept.
    #[error("column {column:?}: a cell has at most {bytes_max} bytes, this one has {bytes}")]
    CellTooLarge {
        /// Name of the column.
        column: String,
        /// Bytes of the cell.
        bytes: usize,
        /// Largest cell, in bytes.
        bytes_max: usize,
    },
    /// The row is larger than one request can be.
    #[error("a row has at most {bytes_max} bytes, this one has {bytes}")]
    RowTooLarge {
        /// Bytes of the row.
        bytes: usize,
        /// Largest row, in bytes.
        bytes_max: usize,
    },
    /// The operation needs a cell that the row does not have.
    #[error("{operation} needs column {column:?}")]
    MissingCell {
        /// Name of the column.
        column: String,
        /// The operation.
        operation: RowOperation,
    },
    /// A delete names a column outside the key.
    #[error("{operation} names only the key, and column {column:?} is not part of it")]
    NotPartOfKey {
        /// Name of the column.
        column: String,
        /// The operation.
        operation: RowOperation,
    },
    /// An update does not change anything.
    #[error("{operation} needs a cell besides the key")]
    NothingToUpdate {
        /// The operation.
        operation: RowOperation,
    },
    /// An insert sets the column that the server assigns.
    #[error("{operation} cannot set column {column:?}, which the server numbers")]
    AutoIncrementing {
        /// Name of the column.
        column: String,
        /// The operation.
        operation: RowOperation,
    },
}
