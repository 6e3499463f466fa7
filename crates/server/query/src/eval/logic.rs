//! Comparison operators, NOT and the tests of IS, on values.

use std::cmp::Ordering;

use crate::ast::{Relation, Test};
use crate::value::Value;
use crate::value::order::{Comparison, compare};

/// NOT: missing and null stay.
pub fn not(value: Value) -> Value {
    match value {
        Value::Missing | Value::Null => value,
        other => Value::Bool(!other.truth()),
    }
}

/// A comparison operator.
pub fn relate(relation: Relation, left: &Value, right: &Value) -> Value {
    if matches!(relation, Relation::Equal | Relation::NotEqual) && never_equal(left, right) {
        return Value::Bool(relation == Relation::NotEqual);
    }
    let order = match compare(left, right) {
        Comparison::Missing => return Value::Missing,
        Comparison::Null => return Value::Null,
        Comparison::Order(order) => order,
    };
    Value::Bool(match relation {
        Relation::Equal => order == Ordering::Equal,
        Relation::NotEqual => order != Ordering::Equal,
        Relation::Less => order == Ordering::Less,
        Relation::LessEqual => order != Ordering::Greater,
        Relation::Greater => order == Ordering::Greater,
        Relation::GreaterEqual => order != Ordering::Less,
    })
}

/// Arrays of different lengths differ, whatever they hold. NaN differs from itself.
fn never_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(number), Value::Float(_)) => number.is_nan(),
        (Value::Array(_) | Value::Json(_), Value::Array(_) | Value::Json(_)) => {
            match (left.elements(), right.elements()) {
                (Some(left), Some(right)) => left.len() != right.len(),
                _ => false,
            }
        }
        _ => false,
    }
}

/// A test of IS.
pub fn is(test: Test, negated: bool, value: &Value) -> Value {
    let found = match test {
        // A missing value is neither null nor not null.
        Test::Null if value.is_missing() => return Value::Missing,
        Test::Null => value.is_null(),
        Test::Missing => value.is_missing(),
        Test::Valued => value.is_valued(),
    };
    Value::Bool(found != negated)
}
