//! Arrow arrays of a rowwise batch: each column is gathered from the rows.
//!
//! This is for programs that read rows and only occasionally need Arrow; a scan for Arrow asks for
//! the columnar layout.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, StringBuilder};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, Buffer, MutableBuffer, NullBufferBuilder, ScalarBuffer};

use crate::scan_error::CellError;
use crate::scan_error::ScanError;
use crate::scanner::batch::ScanBatch;
use crate::scanner::cell::{Cell, FromCell};
use crate::scanner::projection::ProjectedColumn;
use crate::schema::DataType;

use super::fixed_width::{FixedWidthSource, fixed_width, refused};

/// The array of the column at this position.
pub(super) fn array(
    batch: &ScanBatch,
    column: &ProjectedColumn,
    column_index: usize,
) -> Result<ArrayRef, ScanError> {
    let source = Source { batch, column_index };
    if let Some(array) = fixed_width(&source, column)? {
        return Ok(array);
    }
    match column.data_type() {
        DataType::Binary => {
            let mut builder = BinaryBuilder::with_capacity(batch.num_rows(), 0);
            source.each(|cell: Option<&[u8]>| builder.append_option(cell))?;
            Ok(Arc::new(builder.finish()))
        }
        _ => {
            let mut builder = StringBuilder::with_capacity(batch.num_rows(), 0);
            source.each(|cell: Option<&str>| builder.append_option(cell))?;
            Ok(Arc::new(builder.finish()))
        }
    }
}

struct Source<'a> {
    batch: &'a ScanBatch,
    column_index: usize,
}

impl<'a> Source<'a> {
    /// Calls `append` with the column's cell of every row.
    fn each<T: FromCell<'a>>(&self, mut append: impl FnMut(T)) -> Result<(), CellError> {
        for row in self.batch.rows() {
            append(row.get(self.column_index)?);
        }
        Ok(())
    }
}

impl FixedWidthSource for Source<'_> {
    fn primitive<T: ArrowPrimitiveType>(&self) -> Result<PrimitiveArray<T>, ScanError> {
        let width = T::Native::get_byte_width();
        // This buffer is aligned for every type; the cells of a row are not.
        let mut values = MutableBuffer::with_capacity(self.batch.num_rows() * width);
        let mut nulls = NullBufferBuilder::new(self.batch.num_rows());
        self.each(|cell: Option<Cell<'_>>| match cell {
            Some(cell) => {
                values.extend_from_slice(cell.bytes());
                nulls.append_non_null();
            }
            None => {
                values.extend_zeros(width);
                nulls.append_null();
            }
        })?;
        let values = ScalarBuffer::<T::Native>::from(Buffer::from(values));
        PrimitiveArray::try_new(values, nulls.finish()).map_err(refused)
    }

    fn boolean(&self) -> Result<ArrayRef, ScanError> {
        let mut builder = BooleanBuilder::with_capacity(self.batch.num_rows());
        self.each(|cell: Option<bool>| builder.append_option(cell))?;
        Ok(Arc::new(builder.finish()))
    }
}
