//! The errors of a scan: an invalid description, or an answer that does not match it.
//!
//! [`Error`](crate::Error) wraps it. Like the errors of cells it has names where a user needs them,
//! and no text where a type suffices.

use crate::schema::DataType;

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
        /// Reason why it is invalid.
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
        /// Reason why the cell is invalid.
        source: CellError,
    },
    /// Arrow refused the rows.
    #[error("record batch: {reason}")]
    Arrow {
        /// Arrow's message.
        reason: String,
    },
}

/// Reason why a server's block of rows is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockFault {
    /// The message names a sidecar that the answer does not have.
    #[error("the answer has {sidecars} sidecars and names number {index}")]
    NoSuchSidecar {
        /// The index in the message.
        index: i64,
        /// The number of sidecars.
        sidecars: usize,
    },
    /// The message does not name a sidecar that it needs.
    #[error("the answer does not say where its {part:?} are")]
    UnnamedSidecar {
        /// Expected contents of the sidecar.
        part: BlockPart,
    },
    /// A sidecar does not have the length that follows from the number of rows.
    #[error("{part:?} of {rows} rows take {bytes_expected} bytes, the server sent {bytes}")]
    WrongLength {
        /// Contents of the sidecar.
        part: BlockPart,
        /// Rows of the block.
        rows: usize,
        /// Bytes that were sent.
        bytes: usize,
        /// Bytes that these rows take.
        bytes_expected: usize,
    },
    /// The number of rows is negative or does not fit memory.
    #[error("the answer claims to have {rows} rows")]
    RowCount {
        /// The number in the answer.
        rows: i64,
    },
    /// The columns differ from those of the projection.
    #[error("the projection has {columns_expected} columns, the answer {columns}")]
    ColumnCount {
        /// Columns in the answer.
        columns: usize,
        /// Columns of the projection.
        columns_expected: usize,
    },
    /// Offsets of variable-length cells do not ascend, or leave the data.
    #[error("the offsets of column {column} do not ascend within the data")]
    Offsets {
        /// Position of the column in the projection.
        column: usize,
    },
    /// A string column holds bytes that are not UTF-8.
    #[error("column {column} holds bytes that are not UTF-8")]
    NotUtf8 {
        /// Position of the column in the projection.
        column: usize,
    },
}

/// Contents of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockPart {
    /// Rows, end to end.
    Rows,
    /// The indirect data of variable-length cells in rows.
    IndirectData,
    /// Cells of one fixed-width column.
    Cells,
    /// Offsets of one variable-length column.
    Offsets,
    /// Content of one variable-length column.
    Content,
    /// Bits that say which cells of a column are not NULL.
    NonNullBitmap,
}

/// Why a cell cannot be read as the requested type. It has no text, because it is made once per
/// cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The projection has fewer columns.
    #[error("the projection has no column {index}")]
    NoSuchColumn {
        /// The requested position, from 0.
        index: usize,
    },
    /// The batch has fewer rows.
    #[error("the batch has no row {index}")]
    NoSuchRow {
        /// The requested row, from 0.
        index: usize,
    },
    /// The cell is NULL and the requested type is not an `Option`.
    #[error("the cell is NULL")]
    Null,
    /// Cells of this column cannot be read as the requested type.
    #[error("a column of type {data_type} cannot be read as {asked}")]
    WrongType {
        /// Type of the column.
        data_type: DataType,
        /// The requested Rust type.
        asked: &'static str,
    },
    /// The cell's offset and length point outside the data that the server sent.
    #[error("the cell lies outside the data that the server sent")]
    OutOfBlock,
    /// A string column holds bytes that are not UTF-8; read it as bytes.
    #[error("the cell is not UTF-8")]
    NotUtf8,
}

/// No cell of the column's type can equal the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this value cannot be compared with a column of type {data_type}")]
#[non_exhaustive]
pub struct OperandError {
    /// Type of the column.
    pub data_type: DataType,
}
