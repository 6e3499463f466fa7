//! The common part of the two layouts of scan results: the faults of a block, and its sidecars.
//!
//! Invariants: the sidecars of a decoded block have exactly the lengths that its row count demands,
//! so reading a fixed-width cell only indexes. Offsets of variable-length cells are checked on
//! access. Sidecars borrow their frame, without a copy. [`super::rowwise`] and [`super::columnar`]
//! call it.

use bytes::Bytes;

use crate::scan_error::{BlockFault, BlockPart};

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
