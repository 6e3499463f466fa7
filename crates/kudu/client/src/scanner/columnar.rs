//! The columnar layout: one piece per column, as in Arrow.
//!
//! A fixed-width column is an array of little-endian cells, with NULL ones zeroed. A column of
//! variable length has one 32-bit offset more than rows (none at all without rows), and the
//! content. A nullable column has a bitmap in which a set bit means that the cell is **not** NULL,
//! the reverse of the rowwise layout. Invariants: every piece has the length that its row count
//! demands, except the content. Its offsets are checked on access, or all at once by
//! `check_offsets`.

use bytes::Bytes;

use crate::proto::common::{ColumnarColumnPb, ColumnarRowBlockPb};

use super::block::{check_length, named_sidecar, row_count, sidecar};
use super::cell::Cell;
use super::projection::{ProjectedColumn, Projection};
use crate::scan_error::CellError;
use crate::scan_error::{BlockFault, BlockPart};

/// Bytes of an offset of a variable-length column.
const OFFSET_BYTES: usize = 4;

/// Columns of one answer.
#[derive(Clone, Debug)]
pub(crate) struct ColumnarBlock {
    columns: Vec<ColumnPieces>,
    num_rows: usize,
}

/// The pieces of one column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnPieces {
    /// Cells of fixed width, or offsets into `content`.
    pub data: Bytes,
    /// Content of cells of variable length.
    pub content: Bytes,
    /// A set bit for each cell that is not NULL; `None` for a column without NULLs.
    pub non_null: Option<Bytes>,
}

impl ColumnarBlock {
    /// Finds the sidecars of a message and checks their lengths.
    pub(crate) fn decode(
        message: &ColumnarRowBlockPb,
        sidecars: &[Bytes],
        projection: &Projection,
    ) -> Result<ColumnarBlock, BlockFault> {
        let num_rows = row_count(message.num_rows.unwrap_or(0))?;
        // The server omits the columns when it has looked at no row at all.
        if num_rows == 0 || projection.is_empty() {
            return Ok(ColumnarBlock { columns: Vec::new(), num_rows });
        }
        let (columns, columns_expected) = (message.columns.len(), projection.columns().len());
        if columns != columns_expected {
            return Err(BlockFault::ColumnCount { columns, columns_expected });
        }
        let columns = projection
            .columns()
            .iter()
            .zip(&message.columns)
            .map(|(column, message)| ColumnPieces::decode(message, sidecars, column, num_rows))
            .collect::<Result<_, _>>()?;
        Ok(ColumnarBlock { columns, num_rows })
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Bytes of its pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.iter().map(ColumnPieces::bytes).sum()
    }

    /// The pieces of a column; `None` in a block without rows.
    pub(crate) fn column(&self, column_index: usize) -> Option<&ColumnPieces> {
        self.columns.get(column_index)
    }

    /// The cell of a row, `None` for NULL.
    #[inline]
    pub(crate) fn cell<'a>(
        &'a self,
        column: &ProjectedColumn,
        column_index: usize,
        row: usize,
    ) -> Result<Option<Cell<'a>>, CellError> {
        if row >= self.num_rows {
            return Err(CellError::NoSuchRow { index: row });
        }
        let pieces =
            self.column(column_index).ok_or(CellError::NoSuchColumn { index: column_index })?;
        if pieces.is_null(row) {
            return Ok(None);
        }
        let data_type = column.data_type();
        let bytes = match data_type.is_variable_length() {
            true => pieces.content_of(row)?,
            false => &pieces.data[row * data_type.size()..(row + 1) * data_type.size()],
        };
        Ok(Some(Cell::new(data_type, bytes)))
    }
}

impl ColumnPieces {
    fn decode(
        message: &ColumnarColumnPb,
        sidecars: &[Bytes],
        column: &ProjectedColumn,
        num_rows: usize,
    ) -> Result<ColumnPieces, BlockFault> {
        let is_variable_length = column.data_type().is_variable_length();
        let data = named_sidecar(
            sidecars,
            message.data_sidecar,
            if is_variable_length { BlockPart::Offsets } else { BlockPart::Cells },
        )?;
        let mut content = Bytes::new();
        if is_variable_length {
            check_length(BlockPart::Offsets, &data, num_rows + 1, OFFSET_BYTES)?;
            content = named_sidecar(sidecars, message.varlen_data_sidecar, BlockPart::Content)?;
        } else {
            check_length(BlockPart::Cells, &data, num_rows, column.data_type().size())?;
        }
        let non_null = match message.non_null_bitmap_sidecar {
            Some(index) if column.is_nullable() => Some(sidecar(sidecars, index)?),
            _ => None,
        };
        if let Some(bitmap) = &non_null {
            check_length(BlockPart::NonNullBitmap, bitmap, num_rows.div_ceil(8), 1)?;
        }
        Ok(ColumnPieces { data, content, non_null })
    }

    fn bytes(&self) -> usize {
        self.data.len() + self.content.len() + self.non_null.as_ref().map_or(0, Bytes::len)
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.non_null.as_ref().is_some_and(|bitmap| bitmap[row / 8] >> (row % 8) & 1 == 0)
    }

    #[inline]
    fn content_of(&self, row: usize) -> Result<&[u8], CellError> {
        let (start, end) = (self.offset(row), self.offset(row + 1));
        self.content.get(start..end).ok_or(CellError::OutOfBlock)
    }

    /// Offset number `at`; the block has one more offset than rows.
    #[inline]
    fn offset(&self, at: usize) -> usize {
        let bytes = &self.data[at * OFFSET_BYTES..(at + 1) * OFFSET_BYTES];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    }

    /// Checks all offsets of a variable-length column at once: they ascend and end within the
    /// content.
    #[cfg(feature = "arrow")]
    pub(crate) fn check_offsets(&self, column: usize) -> Result<(), BlockFault> {
        let mut previous = 0;
        for bytes in self.data.chunks_exact(OFFSET_BYTES) {
            let offset = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
            if offset < previous {
                return Err(BlockFault::Offsets { column });
            }
            previous = offset;
        }
        match previous <= self.content.len() {
            true => Ok(()),
            false => Err(BlockFault::Offsets { column }),
        }
    }
}
