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
//! Invariants: a columnar batch becomes arrays over the very bytes that came from the server. Only two
//! things are copied: BOOL, which Arrow packs into bits, and a piece that does not lie in memory as its
//! type demands, because a sidecar may begin anywhere in its frame. A rowwise batch is transposed. Offsets and UTF-8 are
//! checked here, once per batch, because Arrow does not check them when it reads. Kudu sends little-endian
//! numbers, which are read in place, so this module is for little-endian machines.

mod columnar;
mod rowwise;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Schema, SchemaRef, TimeUnit};

use crate::schema::DataType;

use super::batch::{Block, ScanBatch};
use super::error::ScanError;
use super::projection::{ProjectedColumn, Projection};

#[cfg(target_endian = "big")]
compile_error!("the feature `arrow` reads little-endian numbers in place");

/// Time zone of UNIXTIME_MICROS.
const UTC: &str = "UTC";

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
    /// The rows as an Arrow record batch, which shares the memory of this one as far as possible.
    ///
    /// Best with a scan in the columnar layout, see [`ScannerBuilder::layout`](super::ScannerBuilder::layout).
    pub fn to_record_batch(&self) -> Result<RecordBatch, ScanError> {
        let projection = self.projection();
        let schema = projection.arrow_schema();
        let num_rows = self.num_rows();
        if num_rows == 0 {
            return Ok(RecordBatch::new_empty(schema));
        }
        let array = |(index, column): (usize, &ProjectedColumn)| match self.block() {
            Block::Columnar(block) => columnar::array(block, column, index),
            Block::Rowwise(_) => rowwise::array(self, column, index),
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

/// Digits of a decimal column, all and after the point; 38 and 0 if the server did not say.
fn precision_and_scale(column: &ProjectedColumn) -> (u8, i8) {
    let attributes = column.schema().type_attributes();
    // A scale is at most the precision, which is at most 38.
    (attributes.precision.unwrap_or(38), attributes.scale.unwrap_or(0) as i8)
}

/// Something that builds the array of a fixed-width column from one of the layouts.
trait FixedWidthSource {
    fn primitive<T: ArrowPrimitiveType>(&self) -> Result<PrimitiveArray<T>, ScanError>;
    fn boolean(&self) -> Result<ArrayRef, ScanError>;
}

/// The array of a fixed-width column; `None` for a type of variable length.
fn fixed_width(
    source: &impl FixedWidthSource,
    column: &ProjectedColumn,
) -> Result<Option<ArrayRef>, ScanError> {
    let (precision, scale) = precision_and_scale(column);
    let array: ArrayRef = match column.data_type() {
        DataType::Int8 => Arc::new(source.primitive::<Int8Type>()?),
        DataType::Int16 => Arc::new(source.primitive::<Int16Type>()?),
        DataType::Int32 => Arc::new(source.primitive::<Int32Type>()?),
        DataType::Int64 => Arc::new(source.primitive::<Int64Type>()?),
        DataType::Float => Arc::new(source.primitive::<Float32Type>()?),
        DataType::Double => Arc::new(source.primitive::<Float64Type>()?),
        DataType::Bool => source.boolean()?,
        DataType::Date => Arc::new(source.primitive::<Date32Type>()?),
        DataType::UnixtimeMicros => {
            Arc::new(source.primitive::<TimestampMicrosecondType>()?.with_timezone(UTC))
        }
        DataType::Decimal32 => {
            let array = source.primitive::<Decimal32Type>()?;
            Arc::new(array.with_precision_and_scale(precision, scale).map_err(refused)?)
        }
        DataType::Decimal64 => {
            let array = source.primitive::<Decimal64Type>()?;
            Arc::new(array.with_precision_and_scale(precision, scale).map_err(refused)?)
        }
        DataType::Decimal128 => {
            let array = source.primitive::<Decimal128Type>()?;
            Arc::new(array.with_precision_and_scale(precision, scale).map_err(refused)?)
        }
        DataType::String | DataType::Varchar | DataType::Binary => return Ok(None),
    };
    Ok(Some(array))
}

fn refused(error: ArrowError) -> ScanError {
    ScanError::Arrow { reason: error.to_string() }
}
