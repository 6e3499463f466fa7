//! Converts a value to the bytes of a column's cell, and refuses a value that the column cannot
//! hold.

use super::column::ColumnSchema;
use super::data_type::DataType;
use super::value::{Value, ValueError};

/// Days since 1970-01-01 of 0001-01-01, Kudu's first date.
const DATE_DAYS_MIN: i32 = -719_162;
/// Days since 1970-01-01 of 9999-12-31, Kudu's last date.
const DATE_DAYS_MAX: i32 = 2_932_896;

impl Value<'_> {
    /// The bytes of a cell of `column`: little-endian fixed width, or the bytes of the string. It
    /// refuses NULL, which has no bytes, and values that the column cannot hold.
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
                // The type has space for the precision checked above, so this cuts off only sign
                // bits.
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
}

/// The first `characters_max` characters of `text`. It truncates a long varchar instead of refusing
/// it, as in SQL and in Kudu's other clients.
pub(crate) fn truncate_to_characters(text: &str, characters_max: Option<u16>) -> &str {
    let Some(characters_max) = characters_max.map(usize::from) else { return text };
    // A character has at least one byte, so most texts need no scan of their characters.
    if text.len() <= characters_max {
        return text;
    }
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Refuses a date outside Kudu's range.
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
