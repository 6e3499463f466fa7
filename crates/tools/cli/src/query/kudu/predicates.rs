//! Conditions of a statement as predicates that Kudu checks, and Kudu's cells as JSON.
//!
//! Invariants: a predicate holds for every row for which the condition holds. Where the types of
//! column and value differ, there is no predicate.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_kudu::{ColumnSchema, DataType, Operand, Predicate, Row};
use oribi_query::{FieldCondition, FieldOperator, FieldValue};

use crate::stats::text::push_json_string;

/// Most values of an `IN` that are sent to the servers.
const LIST_VALUES_MAX: usize = 1024;

/// The predicate on a column for a condition on its field, if there is one.
pub fn predicate(column: &ColumnSchema, condition: &FieldCondition) -> Option<Predicate> {
    let (name, data_type) = (column.name(), column.data_type());
    let one = || condition.values.first().and_then(|value| operand(data_type, value));
    Some(match condition.operator {
        FieldOperator::IsNull => Predicate::is_null(name),
        FieldOperator::IsValued => Predicate::is_not_null(name),
        FieldOperator::Equal => Predicate::equal(name, one()?),
        FieldOperator::Less => Predicate::less(name, one()?),
        FieldOperator::LessOrEqual => Predicate::less_or_equal(name, one()?),
        FieldOperator::Greater => Predicate::greater(name, one()?),
        FieldOperator::GreaterOrEqual => Predicate::greater_or_equal(name, one()?),
        FieldOperator::In => Predicate::in_list(name, list(data_type, &condition.values)?),
    })
}

fn list(data_type: DataType, values: &[FieldValue]) -> Option<Vec<Operand>> {
    if values.len() > LIST_VALUES_MAX {
        return None;
    }
    values.iter().map(|value| operand(data_type, value)).collect()
}

/// The value as one of a column of this type; none where the two differ. Bytes are base64 in
/// statements, and floats have zeros and NaNs that compare differently.
fn operand(data_type: DataType, value: &FieldValue) -> Option<Operand> {
    match (data_type, value) {
        // The client refuses other texts for columns of text.
        (DataType::String | DataType::Varchar, FieldValue::Text(bytes)) => {
            std::str::from_utf8(bytes).ok().map(Operand::from)
        }
        (DataType::Bool, FieldValue::Bool(value)) => Some((*value).into()),
        (DataType::Int8, FieldValue::Int(number)) => i8::try_from(*number).ok().map(Into::into),
        (DataType::Int16, FieldValue::Int(number)) => i16::try_from(*number).ok().map(Into::into),
        (DataType::Int32 | DataType::Date, FieldValue::Int(number)) => {
            i32::try_from(*number).ok().map(Into::into)
        }
        (DataType::Int64 | DataType::UnixtimeMicros, FieldValue::Int(number)) => {
            Some((*number).into())
        }
        _ => None,
    }
}

/// Appends the cell at a position of a row as JSON.
///
/// # Errors
/// When the row has no such cell.
pub fn push_cell(out: &mut Vec<u8>, row: Row<'_>, at: usize, column: &ColumnSchema) -> Result<()> {
    if row.is_null(at)? {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    let text = match column.data_type() {
        DataType::String | DataType::Varchar => {
            push_json_string(out, row.get::<&[u8]>(at)?);
            return Ok(());
        }
        DataType::Bool => row.get::<bool>(at)?.to_string(),
        DataType::Int8 => row.get::<i8>(at)?.to_string(),
        DataType::Int16 => row.get::<i16>(at)?.to_string(),
        DataType::Int32 | DataType::Date => row.get::<i32>(at)?.to_string(),
        DataType::Int64 | DataType::UnixtimeMicros => row.get::<i64>(at)?.to_string(),
        DataType::Float => float(row.get::<f32>(at)?.into()),
        DataType::Double => float(row.get(at)?),
        DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128 => {
            decimal(row.get(at)?, column.type_attributes().scale.unwrap_or(0))
        }
        // Of a type that is not known here, it cannot be read as bytes either.
        _ => format!("\"{}\"", STANDARD.encode(row.get::<&[u8]>(at)?)),
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// A float as statements print it.
fn float(number: f64) -> String {
    match number.is_finite() {
        true => format!("{number:?}"),
        false if number.is_nan() => "\"NaN\"".to_owned(),
        false if number > 0.0 => "\"+Infinity\"".to_owned(),
        false => "\"-Infinity\"".to_owned(),
    }
}

/// A decimal with all its digits.
fn decimal(digits: i128, scale: u8) -> String {
    let (sign, scale) = (if digits < 0 { "-" } else { "" }, usize::from(scale));
    let digits = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    match digits.split_at(digits.len() - scale) {
        (whole, "") => format!("{sign}{whole}"),
        (whole, fraction) => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    //! Which conditions become predicates, and numbers.

    use super::*;

    fn has_predicate(
        data_type: DataType,
        operator: FieldOperator,
        values: Vec<FieldValue>,
    ) -> bool {
        let column = ColumnSchema::builder("c", data_type);
        let schema = oribi_kudu::Schema::builder()
            .column(ColumnSchema::builder("k", DataType::Int8).key())
            .column(column)
            .build()
            .unwrap();
        let condition = FieldCondition { field: "c".to_owned(), operator, values };
        predicate(&schema.columns()[1], &condition).is_some()
    }

    #[test]
    fn values_of_another_type_are_not_sent() {
        let text = || vec![FieldValue::Text(b"5".to_vec())];
        let number = || vec![FieldValue::Int(5)];
        assert!(has_predicate(DataType::String, FieldOperator::Equal, text()));
        assert!(!has_predicate(DataType::String, FieldOperator::Equal, number()));
        assert!(!has_predicate(DataType::Binary, FieldOperator::Equal, text()));
        assert!(has_predicate(DataType::Int64, FieldOperator::Less, number()));
        assert!(!has_predicate(DataType::Int64, FieldOperator::Less, text()));
        assert!(!has_predicate(DataType::Int64, FieldOperator::Less, vec![FieldValue::Float(5.5)]));
        assert!(!has_predicate(DataType::Int8, FieldOperator::Less, vec![FieldValue::Int(300)]));
        assert!(!has_predicate(DataType::Double, FieldOperator::Equal, number()));
        assert!(has_predicate(DataType::Double, FieldOperator::IsNull, Vec::new()));
    }

    #[test]
    fn a_list_is_sent_whole_or_not_at_all() {
        let list = |last| vec![FieldValue::Int(1), last];
        assert!(has_predicate(DataType::Int16, FieldOperator::In, list(FieldValue::Int(2))));
        assert!(!has_predicate(DataType::Int16, FieldOperator::In, list(FieldValue::Int(1 << 20))));
        assert!(!has_predicate(DataType::Int16, FieldOperator::In, list(FieldValue::Other)));
        let long = vec![FieldValue::Int(1); LIST_VALUES_MAX + 1];
        assert!(!has_predicate(DataType::Int16, FieldOperator::In, long));
    }

    #[test]
    fn numbers_keep_all_digits() {
        assert_eq!(decimal(-7, 0), "-7");
        assert_eq!(decimal(-725, 2), "-7.25");
        assert_eq!(decimal(5, 3), "0.005");
        assert_eq!(decimal(i128::from(i64::MAX) + 1, 0), "9223372036854775808");
        assert_eq!((float(0.5), float(f64::NAN)), ("0.5".to_owned(), "\"NaN\"".to_owned()));
    }
}
