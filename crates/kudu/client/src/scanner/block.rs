//! The common part of the two layouts of scan results: the faults of a block, and its sidecars.
//!
//! Invariants: the sidecars of a decoded block have exactly the lengths that its row count demands,
//! so reading a fixed-width cell only indexes. Offsets of variable-length cells are checked on
//! access. Sidecars borrow their frame, without a copy. [`super::rowwise`] and [`super::columnar`]
//! call it.

use bytes::Bytes;

/// What is wrong with a block of rows that a server sent.
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
        /// What the sidecar should hold.
        part: BlockPart,
    },
    /// A sidecar does not have the length that follows from the number of rows.
    #[error("{part:?} of {rows} rows take {bytes_expected} bytes, the server sent {bytes}")]
    WrongLength {
        /// What the sidecar holds.
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

/// What a sidecar holds.
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

/// The sidecar of this number.
pub(crate) fn sidecar(sidecars: &[Bytes], index: i32) -> Result<Bytes, BlockFault> {
    usize::try_from(index)
        .ok()
        .and_then(|index| sidecars.get(index))
        .cloned()
        .ok_or(BlockFault::NoSuchSidecar { index: index.into(), sidecars: sidecars.len() })
}

/// The sidecar of this number, which the message must name.
pub(crate) fn named_sidecar(
    sidecars: &[Bytes],
    index: Option<i32>,
    part: BlockPart,
) -> Result<Bytes, BlockFault> {
    sidecar(sidecars, index.ok_or(BlockFault::UnnamedSidecar { part })?)
}

/// A number of rows from the wire.
pub(crate) fn row_count(rows: i64) -> Result<usize, BlockFault> {
    usize::try_from(rows).map_err(|_| BlockFault::RowCount { rows })
}

/// Checks that `bytes` is `rows` times `row_bytes`, a product that may overflow.
pub(crate) fn check_length(
    part: BlockPart,
    bytes: &Bytes,
    rows: usize,
    row_bytes: usize,
) -> Result<(), BlockFault> {
    let bytes_expected =
        rows.checked_mul(row_bytes).ok_or(BlockFault::RowCount { rows: i64::MAX })?;
    match bytes.len() == bytes_expected {
        true => Ok(()),
        false => Err(BlockFault::WrongLength { part, rows, bytes: bytes.len(), bytes_expected }),
    }
}
