//! The rowwise layout: rows end to end, with variable-length values in a second piece.
//!
//! A row is its little-endian cells without padding, then a bitmap in which a set bit means NULL
//! (only if the projection has a nullable column). A cell of variable length is a 64-bit offset
//! into the indirect data and a 64-bit length. Invariants: `rows` is as long as its row count
//! demands. Offsets and lengths are checked on each access, because most cells may never be read.
//! most of them.

use bytes::Bytes;

use crate::proto::common::RowwiseRowBlockPb;

use super::block::{check_length, named_sidecar, row_count, sidecar};
use super::cell::Cell;
use super::projection::{ProjectedColumn, Projection};
use crate::scan_error::CellError;
use crate::scan_error::{BlockFault, BlockPart};

/// Bytes of the reference to a variable-length cell: offset and length.
const REFERENCE_BYTES: usize = 16;

/// Rows of one answer.
#[derive(Clone, Debug)]
pub(crate) struct RowwiseBlock {
    rows: Bytes,
    indirect: Bytes,
    num_rows: usize,
}

impl RowwiseBlock {
    /// Finds the sidecars of a message and checks their lengths. The server omits both when there
    /// are no rows.
    pub(crate) fn decode(
        message: &RowwiseRowBlockPb,
        sidecars: &[Bytes],
        projection: &Projection,
    ) -> Result<RowwiseBlock, BlockFault> {
        let num_rows = row_count(message.num_rows.unwrap_or(0).into())?;
        let is_empty = num_rows == 0 || projection.is_empty();
        let rows = match message.rows_sidecar {
            None if is_empty => Bytes::new(),
            index => named_sidecar(sidecars, index, BlockPart::Rows)?,
        };
        let indirect = match message.indirect_data_sidecar {
            None => Bytes::new(),
            Some(index) => sidecar(sidecars, index)?,
        };
        check_length(BlockPart::Rows, &rows, num_rows, projection.row_bytes())?;
        Ok(RowwiseBlock { rows, indirect, num_rows })
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Bytes of its pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.len() + self.indirect.len()
    }

    /// The cell of a row, `None` for NULL.
    #[inline]
    pub(crate) fn cell<'a>(
        &'a self,
        projection: &Projection,
        column: &ProjectedColumn,
        column_index: usize,
        row: usize,
    ) -> Result<Option<Cell<'a>>, CellError> {
        if row >= self.num_rows {
            return Err(CellError::NoSuchRow { index: row });
        }
        let start = row * projection.row_bytes();
        let row = &self.rows[start..start + projection.row_bytes()];
        if projection.has_bitmap() {
            let byte = row[projection.bitmap_offset() + column_index / 8];
            if byte >> (column_index % 8) & 1 == 1 {
                return Ok(None);
            }
        }
        let data_type = column.data_type();
        let cell = &row[column.offset()..column.offset() + data_type.size()];
        let bytes = match data_type.is_variable_length() {
            false => cell,
            true => self.referenced(cell)?,
        };
        Ok(Some(Cell::new(data_type, bytes)))
    }

    /// The value that a variable-length cell refers to.
    #[inline]
    fn referenced(&self, cell: &[u8]) -> Result<&[u8], CellError> {
        let reference: [u8; REFERENCE_BYTES] =
            cell.try_into().map_err(|_| CellError::OutOfBlock)?;
        let (offset, length) = reference.split_at(REFERENCE_BYTES / 2);
        let offset = read_length(offset)?;
        let end = offset.checked_add(read_length(length)?).ok_or(CellError::OutOfBlock)?;
        self.indirect.get(offset..end).ok_or(CellError::OutOfBlock)
    }
}

fn read_length(bytes: &[u8]) -> Result<usize, CellError> {
    let bytes = bytes.try_into().map_err(|_| CellError::OutOfBlock)?;
    usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| CellError::OutOfBlock)
}
