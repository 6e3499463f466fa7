//! One cell's value, outside of any row: a default, a bound of a range, the operand of a predicate, a cell
//! of a row that is looked at again.
//!
//! Invariants: a value and its cell's bytes convert into each other without loss for every type that a
//! column can have; a value that a column cannot hold is refused here and not by the server. It borrows its
//! strings. Rows are not built from values but by typed setters, which end in the same checks.

use super::{ColumnSchema, DataType};

/// Days since 1970-01-01 of 0001-01-01, the first date that Kudu can hold.
pub(crate) const DATE_DAYS_MIN: i32 = -719_162;
/// Days since 1970-01-01 of 9999-12-31, the last one.
pub(crate) const DATE_DAYS_MAX: i32 = 2_932_896;

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
    /// Bytes of a binary column. Also what a string column holds when it is not UTF-8.
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
        /// The kind of value that was given.
        given: &'static str,
    },
    /// The column must have a value.
    #[error("column {column:?} cannot be NULL")]
    NotNullable {
        /// Name of the column.
        column: String,
    },
    /// The value is outside of what the column can hold.
    #[error("column {column:?} cannot hold {value}: {limit}")]
    OutOfRange {
        /// Name of the column.
        column: String,
        /// The value.
        value: i128,
        /// What the column can hold.
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

    /// The bytes of a cell of `column`: little-endian fixed width, or the bytes of the string. NULL has no
    /// bytes and is refused, and so is what the column cannot hold.
    pub fn to_cell(&self, column: &ColumnSchema) -> Result<Vec<u8>, ValueError> {
        let data_type = column.data_type();
        Ok(match (*self, data_type) {
            (Value::Null, _) => {
                return Err(ValueError::NotNullable { column: column.name().to_owned() });
            }
            (Value::Bool(value), DataType::Bool) => vec![u8::from(value)],
            (Value::Int8(value), DataType::Int8) => value.to_le_bytes().to_vec(),
            (Value::Int16(value), DataType::Int16) => value.to_le_bytes().to_vec(),
            (Value::Int32(value), DataType::Int32) => value.to_le_bytes().to_vec(),
            (Value::Int64(value), DataType::Int64)
            | (Value::UnixtimeMicros(value), DataType::UnixtimeMicros) => {
                value.to_le_bytes().to_vec()
            }
            (Value::Float(value), DataType::Float) => value.to_le_bytes().to_vec(),
            (Value::Double(value), DataType::Double) => value.to_le_bytes().to_vec(),
            (Value::String(value), DataType::String) => value.as_bytes().to_vec(),
            (Value::String(value), DataType::Varchar) => {
                truncate_to_characters(value, column.type_attributes().length).as_bytes().to_vec()
            }
            (Value::Binary(value), DataType::Binary) => value.to_vec(),
            (Value::Date(days), DataType::Date) => {
                check_date(days, column)?;
                days.to_le_bytes().to_vec()
            }
            (
                Value::Decimal(digits),
                DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128,
            ) => {
                check_decimal(digits, column)?;
                // The type has room for the precision that was just checked, so what is cut off is sign.
                digits.to_le_bytes()[..data_type.size()].to_vec()
            }
            _ => {
                return Err(ValueError::WrongType {
                    column: column.name().to_owned(),
                    expected: data_type,
                    given: self.kind(),
                });
            }
        })
    }

    /// The value of a cell's bytes, or nothing when their number does not fit the type.
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

/// The beginning of `text` that has at most `characters_max` characters. A varchar that is too long is cut
/// and not refused, as SQL has it and as Kudu's other clients do.
pub(crate) fn truncate_to_characters(text: &str, characters_max: Option<u16>) -> &str {
    let Some(characters_max) = characters_max.map(usize::from) else { return text };
    // A character has at least one byte, so most texts need no look at their characters.
    if text.len() <= characters_max {
        return text;
    }
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Refuses a date that Kudu has no room for.
pub(crate) fn check_date(days: i32, column: &ColumnSchema) -> Result<(), ValueError> {
    if (DATE_DAYS_MIN..=DATE_DAYS_MAX).contains(&days) {
        return Ok(());
    }
    Err(ValueError::OutOfRange {
        column: column.name().to_owned(),
        value: days.into(),
        limit: "dates go from 0001-01-01 to 9999-12-31".to_owned(),
    })
}

/// Refuses a decimal with more digits than the column's precision.
pub(crate) fn check_decimal(digits: i128, column: &ColumnSchema) -> Result<(), ValueError> {
    let precision = column.type_attributes().precision.unwrap_or(38).min(38);
    // 10^38 is below 2^127, so the power does not overflow.
    if digits.unsigned_abs() < 10_u128.pow(precision.into()) {
        return Ok(());
    }
    Err(ValueError::OutOfRange {
        column: column.name().to_owned(),
        value: digits,
        limit: format!("it has {precision} digits"),
    })
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
