//! Conditions of a statement as predicates that Kudu checks, and Kudu's cells as values of SQLite.
//!
//! Invariants: a predicate holds for every row for which the condition holds. Where SQLite would
//! convert a value before it compares (a text with a number, say), there is no predicate. Cells are
//! lent, not copied.

use anyhow::Result;
use oribi_kudu::{ColumnSchema, DataType, Operand, Predicate, Row};
use oribi_sql::ValueRef;
use oribi_sql::source::{Argument, Condition, Conditions, Operator};

/// Most values of an `IN` that are sent to the servers; with more, SQLite chooses.
const LIST_VALUES_MAX: usize = 1024;

/// Which conditions on a column can become predicates.
pub fn takes(data_type: DataType) -> Conditions {
    match data_type {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UnixtimeMicros
        | DataType::Date
        | DataType::String
        | DataType::Varchar
        | DataType::Binary => Conditions::Comparisons,
        // Booleans and decimals are numbers in SQL, and floats have zeros and NaNs that compare
        // differently.
        _ => Conditions::Nullness,
    }
}

/// The declared type of a column, which decides how SQLite compares it.
pub fn declared(data_type: DataType) -> &'static str {
    match data_type {
        DataType::String | DataType::Varchar => "TEXT",
        DataType::Binary => "BLOB",
        DataType::Float | DataType::Double => "REAL",
        DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128 => "NUMERIC",
        _ => "INTEGER",
    }
}

/// The predicate on the column `name` for a condition, if there is one.
pub fn predicate(name: &str, data_type: DataType, condition: &Condition) -> Option<Predicate> {
    let one = || condition.values.first().and_then(|value| operand(data_type, value));
    Some(match condition.operator {
        Operator::IsNull => Predicate::is_null(name),
        Operator::IsNotNull => Predicate::is_not_null(name),
        Operator::Equal => Predicate::equal(name, one()?),
        Operator::Less => Predicate::less(name, one()?),
        Operator::LessOrEqual => Predicate::less_or_equal(name, one()?),
        Operator::Greater => Predicate::greater(name, one()?),
        Operator::GreaterOrEqual => Predicate::greater_or_equal(name, one()?),
        Operator::In => Predicate::in_list(name, list(data_type, &condition.values)?),
    })
}

/// The values of an `IN` without NULL, which is equal to nothing.
fn list(data_type: DataType, values: &[Argument]) -> Option<Vec<Operand>> {
    if values.len() > LIST_VALUES_MAX {
        return None;
    }
    let values = values.iter().filter(|value| **value != Argument::Null);
    values.map(|value| operand(data_type, value)).collect()
}

/// The value as one of a column of this type; none where SQLite would convert one of the two.
fn operand(data_type: DataType, value: &Argument) -> Option<Operand> {
    match (data_type, value) {
        // The client refuses other texts for columns of text.
        (DataType::String | DataType::Varchar, Argument::Text(bytes)) => {
            std::str::from_utf8(bytes).ok().map(Operand::from)
        }
        (DataType::Binary, Argument::Blob(bytes)) => Some(Operand::from(bytes.as_slice())),
        (DataType::Int8, Argument::Integer(number)) => i8::try_from(*number).ok().map(Into::into),
        (DataType::Int16, Argument::Integer(number)) => i16::try_from(*number).ok().map(Into::into),
        (DataType::Int32 | DataType::Date, Argument::Integer(number)) => {
            i32::try_from(*number).ok().map(Into::into)
        }
        (DataType::Int64 | DataType::UnixtimeMicros, Argument::Integer(number)) => {
            Some((*number).into())
        }
        _ => None,
    }
}

/// The cell at a position of a row, as the declared type has it.
pub fn cell<'a>(row: Row<'a>, at: usize, column: &ColumnSchema) -> Result<ValueRef<'a>> {
    let data_type = column.data_type();
    if row.is_null(at)? {
        return Ok(ValueRef::Null);
    }
    Ok(match data_type {
        DataType::String | DataType::Varchar => ValueRef::Text(row.get(at)?),
        DataType::Bool => ValueRef::Integer(row.get::<bool>(at)?.into()),
        DataType::Int8 => ValueRef::Integer(row.get::<i8>(at)?.into()),
        DataType::Int16 => ValueRef::Integer(row.get::<i16>(at)?.into()),
        DataType::Int32 | DataType::Date => ValueRef::Integer(row.get::<i32>(at)?.into()),
        DataType::Int64 | DataType::UnixtimeMicros => ValueRef::Integer(row.get(at)?),
        DataType::Float => ValueRef::Real(row.get::<f32>(at)?.into()),
        DataType::Double => ValueRef::Real(row.get(at)?),
        DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128 => {
            decimal(row.get(at)?, column.type_attributes().scale.unwrap_or(0))
        }
        // Of a type that is not known here, it cannot be read as bytes either.
        _ => ValueRef::Blob(row.get(at)?),
    })
}

/// A decimal as the number it is, or the nearest one that SQLite has.
fn decimal(digits: i128, scale: u8) -> ValueRef<'static> {
    match i64::try_from(digits) {
        Ok(whole) if scale == 0 => ValueRef::Integer(whole),
        _ => ValueRef::Real(digits as f64 / 10_f64.powi(scale.into())),
    }
}

#[cfg(test)]
mod tests {
    //! Which conditions become predicates.

    use super::*;

    fn has_predicate(data_type: DataType, operator: Operator, values: Vec<Argument>) -> bool {
        predicate("c", data_type, &Condition { column: 0, operator, values }).is_some()
    }

    #[test]
    fn nothing_is_sent_that_sqlite_would_convert() {
        let text = || vec![Argument::Text(b"5".to_vec())];
        let number = || vec![Argument::Integer(5)];
        assert!(has_predicate(DataType::String, Operator::Equal, text()));
        assert!(!has_predicate(DataType::String, Operator::Equal, number()));
        assert!(!has_predicate(DataType::Binary, Operator::Equal, text()));
        assert!(has_predicate(DataType::Int64, Operator::Less, number()));
        assert!(!has_predicate(DataType::Int64, Operator::Less, text()));
        assert!(!has_predicate(DataType::Int64, Operator::Less, vec![Argument::Real(5.0)]));
        assert!(!has_predicate(DataType::Int8, Operator::Less, vec![Argument::Integer(300)]));
        assert!(!has_predicate(DataType::Double, Operator::Equal, vec![Argument::Real(0.0)]));
    }

    #[test]
    fn a_list_is_sent_whole_or_not_at_all() {
        let list = |last| vec![Argument::Integer(1), Argument::Null, last];
        assert!(has_predicate(DataType::Int16, Operator::In, list(Argument::Integer(2))));
        assert!(!has_predicate(DataType::Int16, Operator::In, list(Argument::Integer(1 << 20))));
        let long = vec![Argument::Integer(1); LIST_VALUES_MAX + 1];
        assert!(!has_predicate(DataType::Int16, Operator::In, long));
    }

    #[test]
    fn decimals_are_numbers() {
        assert_eq!(decimal(-7, 0), ValueRef::Integer(-7));
        assert_eq!(decimal(-725, 2), ValueRef::Real(-7.25));
        assert_eq!(
            decimal(i128::from(i64::MAX) + 1, 0),
            ValueRef::Real(9_223_372_036_854_775_808.0)
        );
    }
}
