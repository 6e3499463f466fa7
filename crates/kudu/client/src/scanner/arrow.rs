//! Scan results as Arrow record batches.
//!
//! | column | Arrow type |
//! |---|---|
//! | INT8, INT16, INT32, INT64 | Int8, Int16, Int32, Int64 |
//! | FLOAT, DOUBLE, BOOL | Float32, Float64, Boolean |
//! | DATE, UNIXTIME_MICROS | Date32, Timestamp(Microsecond, "UTC") |
//! | DECIMAL up to 9, 18, 38 digits | Decimal32, Decimal64, Decimal128 |
//! | STRING, VARCHAR; BINARY | Utf8; Binary |
//!
//! Invariants: a columnar batch becomes arrays over the bytes of the server's answer. The
//! conversion copies only two things: BOOL, which Arrow packs into bits, and a misaligned piece,
//! because a sidecar may begin anywhere in its frame. It transposes a rowwise batch. It checks
//! offsets and UTF-8 once per batch, because Arrow does not check them on access. Kudu sends
//! little-endian numbers, which are read in place, so this module requires a little-endian machine.

mod columnar;
mod fixed_width;
mod rowwise;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType as ArrowType, Field, Schema, SchemaRef, TimeUnit};

use crate::schema::DataType;

use super::batch::{BatchBlock, ScanBatch};
use super::projection::{ProjectedColumn, Projection};
use crate::scan_error::ScanError;
use fixed_width::{UTC, precision_and_scale, refused};

#[cfg(target_endian = "big")]
compile_error!("the feature `arrow` reads little-endian numbers in place");

impl Projection {
    /// The Arrow schema of the batches of this projection.
    pub fn arrow_schema(&self) -> SchemaRef {
        self.arrow_schema
            .get_or_init(|| {
                let field = |column: &ProjectedColumn| {
                    Field::new(column.name(), arrow_type(column), column.is_nullable())
                };
                Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
            })
            .clone()
    }
}

impl ScanBatch {
    /// The rows as an Arrow record batch, which shares this batch's memory as far as possible.
    ///
    /// It is best with a scan in the columnar layout, see
    /// [`ScannerBuilder::layout`](super::ScannerBuilder::layout).
    pub fn to_record_batch(&self) -> Result<RecordBatch, ScanError> {
        let projection = self.projection();
        let schema = projection.arrow_schema();
        let num_rows = self.num_rows();
        if num_rows == 0 {
            return Ok(RecordBatch::new_empty(schema));
        }
        let array = |(index, column): (usize, &ProjectedColumn)| match self.block() {
            BatchBlock::Columnar(block) => columnar::array(block, column, index),
            BatchBlock::Rowwise(_) => rowwise::array(self, column, index),
        };
        let arrays = projection
            .columns()
            .iter()
            .enumerate()
            .map(array)
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(refused)
    }
}

/// The Arrow type of a column.
fn arrow_type(column: &ProjectedColumn) -> ArrowType {
    let (precision, scale) = precision_and_scale(column);
    match column.data_type() {
        DataType::Int8 => ArrowType::Int8,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::Float => ArrowType::Float32,
        DataType::Double => ArrowType::Float64,
        DataType::Bool => ArrowType::Boolean,
        DataType::Date => ArrowType::Date32,
        DataType::UnixtimeMicros => ArrowType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        DataType::Decimal32 => ArrowType::Decimal32(precision, scale),
        DataType::Decimal64 => ArrowType::Decimal64(precision, scale),
        DataType::Decimal128 => ArrowType::Decimal128(precision, scale),
        DataType::String | DataType::Varchar => ArrowType::Utf8,
        DataType::Binary => ArrowType::Binary,
    }
}
