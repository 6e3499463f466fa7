//! Arrays of fixed-width columns: one table of types for both layouts.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_schema::ArrowError;

use crate::scan_error::ScanError;
use crate::scanner::projection::ProjectedColumn;
use crate::schema::DataType;

/// Time zone of UNIXTIME_MICROS.
pub(super) const UTC: &str = "UTC";

/// Precision and scale of a decimal column; 38 and 0 if the server did not say.
pub(super) fn precision_and_scale(column: &ProjectedColumn) -> (u8, i8) {
    let attributes = column.schema().type_attributes();
    // A scale is at most the precision, which is at most 38.
    (attributes.precision.unwrap_or(38), attributes.scale.unwrap_or(0) as i8)
}

/// Builds the array of a fixed-width column from one of the layouts.
pub(super) trait FixedWidthSource {
    fn primitive<T: ArrowPrimitiveType>(&self) -> Result<PrimitiveArray<T>, ScanError>;
    fn boolean(&self) -> Result<ArrayRef, ScanError>;
}

/// The array of a fixed-width column; `None` for a type of variable length.
pub(super) fn fixed_width(
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

/// Arrow's refusal as an error of the scan.
pub(super) fn refused(error: ArrowError) -> ScanError {
    ScanError::Arrow { reason: error.to_string() }
}
