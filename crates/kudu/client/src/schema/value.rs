//! The value of one cell outside a row: a default, a bound of a range, the operand of a predicate,
//! a cell of a failed row.
//!
//! Invariants: a value and its cell's bytes convert into each other without loss for every column
//! type. A value that a column cannot hold is refused here and not by the server. A value borrows
//! its strings. Sessions build rows with typed setters instead of values; both use the same checks.

use super::data_type::DataType;

/// A value, or NULL.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// An 8-bit integer.
    Int8(i8),
    /// A 16-bit integer.
    Int16(i16),
    /// A 32-bit integer.
    Int32(i32),
    /// A 64-bit integer.
    Int64(i64),
    /// A 32-bit float.
    Float(f32),
    /// A 64-bit float.
    Double(f64),
    /// Text of a string or varchar column.
    String(&'a str),
    /// Bytes of a binary column, or of a string column whose content is not UTF-8.
    Binary(&'a [u8]),
    /// Microseconds since 1970-01-01T00:00:00Z.
    UnixtimeMicros(i64),
    /// Days since 1970-01-01.
    Date(i32),
    /// The digits of a decimal without its point: 1.23 of scale 2 is 123.
    Decimal(i128),
}

/// Why a column cannot hold a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value has another type than the column.
    #[error("column {column:?} is {expected}, the value is {given}")]
    WrongType {
        /// Name of the column.
        column: String,
        /// Its type.
        expected: DataType,
        /// The kind of the value.
        given: &'static str,
    },
    /// The column cannot be NULL.
    #[error("column {column:?} cannot be NULL")]
    NotNullable {
        /// Name of the column.
        column: String,
    },
    /// The value is out of the column's range.
    #[error("column {column:?} cannot hold {value}: {limit}")]
    OutOfRange {
        /// Name of the column.
        column: String,
        /// The value.
        value: i128,
        /// The column's range.
        limit: String,
    },
}

impl<'a> Value<'a> {
    /// The kind of value, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::Bool(_) => "BOOL",
            Value::Int8(_) => "INT8",
            Value::Int16(_) => "INT16",
            Value::Int32(_) => "INT32",
            Value::Int64(_) => "INT64",
            Value::Float(_) => "FLOAT",
            Value::Double(_) => "DOUBLE",
            Value::String(_) => "STRING",
            Value::Binary(_) => "BINARY",
            Value::UnixtimeMicros(_) => "UNIXTIME_MICROS",
            Value::Date(_) => "DATE",
            Value::Decimal(_) => "DECIMAL",
        }
    }

    /// Decodes a cell's bytes; `None` when their length does not match the type.
    pub fn from_cell(data_type: DataType, cell: &'a [u8]) -> Option<Value<'a>> {
        Some(match data_type {
            DataType::Bool => Value::Bool(u8::from_le_bytes(cell.try_into().ok()?) != 0),
            DataType::Int8 => Value::Int8(i8::from_le_bytes(cell.try_into().ok()?)),
            DataType::Int16 => Value::Int16(i16::from_le_bytes(cell.try_into().ok()?)),
            DataType::Int32 => Value::Int32(i32::from_le_bytes(cell.try_into().ok()?)),
            DataType::Int64 => Value::Int64(i64::from_le_bytes(cell.try_into().ok()?)),
            DataType::Float => Value::Float(f32::from_le_bytes(cell.try_into().ok()?)),
            DataType::Double => Value::Double(f64::from_le_bytes(cell.try_into().ok()?)),
            DataType::UnixtimeMicros => {
                Value::UnixtimeMicros(i64::from_le_bytes(cell.try_into().ok()?))
            }
            DataType::Date => Value::Date(i32::from_le_bytes(cell.try_into().ok()?)),
            DataType::Decimal32 => Value::Decimal(i32::from_le_bytes(cell.try_into().ok()?).into()),
            DataType::Decimal64 => Value::Decimal(i64::from_le_bytes(cell.try_into().ok()?).into()),
            DataType::Decimal128 => Value::Decimal(i128::from_le_bytes(cell.try_into().ok()?)),
            DataType::Binary => Value::Binary(cell),
            DataType::String | DataType::Varchar => match str::from_utf8(cell) {
                Ok(text) => Value::String(text),
                Err(_) => Value::Binary(cell),
            },
        })
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from(value: $from) -> Value<'a> {
                Value::$variant(value)
            }
        })*
    };
}

value_from! {
    bool => Bool,
    i8 => Int8,
    i16 => Int16,
    i32 => Int32,
    i64 => Int64,
    f32 => Float,
    f64 => Double,
    &'a str => String,
    &'a [u8] => Binary,
}
