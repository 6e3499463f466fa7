//! What the two layouts of scan results share: the faults of a block, and its sidecars.
//!
//! Invariants: a block that was built has sidecars of exactly the lengths that its row count demands, so
//! that reading a fixed-width cell only indexes; offsets of variable-length cells are checked when they are
//! read. Sidecars borrow the frame they came in: nothing is copied. Called by [`super::rowwise`] and
//! [`super::columnar`].

use bytes::Bytes;

/// What is wrong with a block of rows that a server sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockFault {
    /// The message names a sidecar that was not sent.
    #[error("the answer has {sidecars} sidecars and names number {index}")]
    NoSuchSidecar {
        /// Number that was named.
        index: i64,
        /// How many there are.
        sidecars: usize,
    },
    /// The message should name a sidecar and does not.
    #[error("the answer does not say where its {part:?} are")]
    UnnamedSidecar {
        /// What the sidecar should hold.
        part: BlockPart,
    },
    /// A sidecar has not the length that follows from the number of rows.
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
        /// Number that was sent.
        rows: i64,
    },
    /// The columns are not those of the projection.
    #[error("the projection has {columns_expected} columns, the answer {columns}")]
    ColumnCount {
        /// Columns that were sent.
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
pub enum BlockPart {
    /// Rows one after the other.
    Rows,
    /// What variable-length cells of rows point to.
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

/// The sidecar of this number, which the message has to give.
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

/// Checks that `bytes` is `rows` times `row_bytes`, which may not even fit memory.
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
