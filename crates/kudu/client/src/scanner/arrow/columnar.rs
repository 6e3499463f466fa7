//! Arrow arrays over the pieces of a columnar batch.
//!
//! Invariants: an array uses a piece in place if its address is aligned for the type; otherwise it
//! copies the piece once. The server's bitmap has Arrow's meaning and needs no alignment, so it is
//! never copied.

use std::mem::align_of;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{ArrayRef, BooleanArray, GenericByteArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use bytes::Bytes;

use crate::scan_error::BlockFault;
use crate::scan_error::ScanError;
use crate::scanner::columnar::{ColumnPieces, ColumnarBlock};
use crate::scanner::projection::ProjectedColumn;
use crate::schema::DataType;

use super::fixed_width::{FixedWidthSource, fixed_width, refused};

/// The array of the column at this position.
pub(super) fn array(
    block: &ColumnarBlock,
    column: &ProjectedColumn,
    column_index: usize,
) -> Result<ArrayRef, ScanError> {
    let fault =
        BlockFault::ColumnCount { columns: column_index, columns_expected: column_index + 1 };
    let pieces = block.column(column_index).ok_or(fault)?;
    let source = Source { pieces, num_rows: block.num_rows() };
    if let Some(array) = fixed_width(&source, column)? {
        return Ok(array);
    }
    match column.data_type() {
        DataType::Binary => Ok(Arc::new(source.variable_length::<BinaryType>(column_index)?)),
        _ => Ok(Arc::new(source.variable_length::<Utf8Type>(column_index)?)),
    }
}

struct Source<'a> {
    pieces: &'a ColumnPieces,
    num_rows: usize,
}

impl Source<'_> {
    fn nulls(&self) -> Option<NullBuffer> {
        let bitmap = self.pieces.non_null.as_ref()?;
        // The decoder has checked that the bitmap has a bit for every row.
        Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(bitmap.clone()), 0, self.num_rows)))
    }

    fn variable_length<T: ByteArrayType<Offset = i32>>(
        &self,
        column_index: usize,
    ) -> Result<GenericByteArray<T>, ScanError> {
        self.pieces.check_offsets(column_index)?;
        if i32::try_from(self.pieces.content.len()).is_err() {
            return Err(BlockFault::Offsets { column: column_index }.into());
        }
        // The check above passed: the offsets ascend and stay below 2^31, so they are the same as
        // signed numbers.
        let offsets =
            OffsetBuffer::new(ScalarBuffer::<i32>::from(aligned::<i32>(&self.pieces.data)));
        let content = Buffer::from(self.pieces.content.clone());
        GenericByteArray::try_new(offsets, content, self.nulls())
            .map_err(|_| BlockFault::NotUtf8 { column: column_index }.into())
    }
}

impl FixedWidthSource for Source<'_> {
    fn primitive<T: ArrowPrimitiveType>(&self) -> Result<PrimitiveArray<T>, ScanError> {
        let values = ScalarBuffer::<T::Native>::from(aligned::<T::Native>(&self.pieces.data));
        PrimitiveArray::try_new(values, self.nulls()).map_err(refused)
    }

    fn boolean(&self) -> Result<ArrayRef, ScanError> {
        let values = BooleanBuffer::collect_bool(self.num_rows, |row| self.pieces.data[row] != 0);
        Ok(Arc::new(BooleanArray::new(values, self.nulls())))
    }
}

/// The bytes in place if they are aligned for a `T`, else a copy.
fn aligned<T>(bytes: &Bytes) -> Buffer {
    match bytes.as_ptr().align_offset(align_of::<T>()) {
        0 => Buffer::from(bytes.clone()),
        _ => Buffer::from_slice_ref(&bytes[..]),
    }
}
