//! The rows of one answer to a scan, in either layout, and a row of them.
//!
//! It owns [`ScanBatch`] and [`Row`]. Invariants: cells are views of the server's frame, which
//! lives as long as a batch of it. A batch is cheap to clone. [`super::cell`] says what a cell's
//! bytes mean; [`super::rowwise`] and [`super::columnar`] say where they are.

use std::sync::Arc;

use super::cell::{Cell, FromCell};
use super::columnar::ColumnarBlock;
use super::projection::Projection;
use super::rowwise::RowwiseBlock;
use crate::scan_error::CellError;

/// Rows of one answer.
#[derive(Clone, Debug)]
pub struct ScanBatch {
    projection: Arc<Projection>,
    block: BatchBlock,
}

/// The rows in the layout of the answer.
#[derive(Clone, Debug)]
pub(crate) enum BatchBlock {
    Rowwise(RowwiseBlock),
    Columnar(ColumnarBlock),
}

impl BatchBlock {
    pub(crate) fn num_rows(&self) -> usize {
        match self {
            BatchBlock::Rowwise(block) => block.num_rows(),
            BatchBlock::Columnar(block) => block.num_rows(),
        }
    }
}

impl ScanBatch {
    pub(crate) fn new(projection: Arc<Projection>, block: BatchBlock) -> ScanBatch {
        ScanBatch { projection, block }
    }

    /// How many rows it has; a batch may have none.
    pub fn num_rows(&self) -> usize {
        self.block.num_rows()
    }

    /// The columns of the rows.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// Bytes of the rows on the wire.
    pub fn bytes(&self) -> usize {
        match &self.block {
            BatchBlock::Rowwise(block) => block.bytes(),
            BatchBlock::Columnar(block) => block.bytes(),
        }
    }

    /// The row of this number, from 0.
    pub fn row(&self, index: usize) -> Option<Row<'_>> {
        (index < self.num_rows()).then_some(Row { batch: self, index })
    }

    /// All rows, in the order of the answer.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        (0..self.num_rows()).map(|index| Row { batch: self, index })
    }

    #[cfg(feature = "arrow")]
    pub(crate) fn block(&self) -> &BatchBlock {
        &self.block
    }

    #[inline]
    pub(crate) fn cell(
        &self,
        column_index: usize,
        row: usize,
    ) -> Result<Option<Cell<'_>>, CellError> {
        let column = self.projection.columns().get(column_index);
        let column = column.ok_or(CellError::NoSuchColumn { index: column_index })?;
        match &self.block {
            BatchBlock::Rowwise(block) => block.cell(&self.projection, column, column_index, row),
            BatchBlock::Columnar(block) => block.cell(column, column_index, row),
        }
    }
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    batch: &'a ScanBatch,
    index: usize,
}

impl<'a> Row<'a> {
    /// The cell of the column at this position of the projection, as one of the types of
    /// [`FromCell`].
    ///
    /// Positions are faster than names; [`Projection::index_of`] finds them once per scan.
    #[inline]
    pub fn get<T: FromCell<'a>>(&self, column: usize) -> Result<T, CellError> {
        T::from_cell(self.batch.cell(column, self.index)?)
    }

    /// Whether the cell of the column at this position is NULL.
    pub fn is_null(&self, column: usize) -> Result<bool, CellError> {
        self.batch.cell(column, self.index).map(|cell| cell.is_none())
    }

    /// The columns of the row.
    pub fn projection(&self) -> &'a Projection {
        &self.batch.projection
    }
}
