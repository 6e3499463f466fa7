//! Comparison operators, NOT and the tests of IS, on values.

use std::cmp::Ordering;

use crate::ast::{Relation, Test};
use crate::value::QueryValue;
use crate::value::order::{Comparison, compare, element_count};

/// NOT: missing and null stay.
pub fn not(value: QueryValue) -> QueryValue {
    match value {
        QueryValue::Missing | QueryValue::Null => value,
        other => QueryValue::Bool(!other.truth()),
    }
}

pub fn relate(relation: Relation, left: &QueryValue, right: &QueryValue) -> QueryValue {
    if matches!(relation, Relation::Equal | Relation::NotEqual) && never_equal(left, right) {
        return QueryValue::Bool(relation == Relation::NotEqual);
    }
    let order = match compare(left, right) {
        Comparison::Missing => return QueryValue::Missing,
        Comparison::Null => return QueryValue::Null,
        Comparison::Order(order) => order,
    };
    QueryValue::Bool(match relation {
        Relation::Equal => order == Ordering::Equal,
        Relation::NotEqual => order != Ordering::Equal,
        Relation::Less => order == Ordering::Less,
        Relation::LessEqual => order != Ordering::Greater,
        Relation::Greater => order == Ordering::Greater,
        Relation::GreaterEqual => order != Ordering::Less,
    })
}

/// Arrays of different lengths differ, whatever they hold. NaN differs from itself.
fn never_equal(left: &QueryValue, right: &QueryValue) -> bool {
    match (left, right) {
        (QueryValue::Float(number), QueryValue::Float(_)) => number.is_nan(),
        (
            QueryValue::Array(_) | QueryValue::Json(_),
            QueryValue::Array(_) | QueryValue::Json(_),
        ) if left.is_array() && right.is_array() => element_count(left) != element_count(right),
        _ => false,
    }
}

/// A test of IS.
pub fn is(test: Test, negated: bool, value: &QueryValue) -> QueryValue {
    let found = match test {
        // A missing value is neither null nor not null.
        Test::Null if value.is_missing() => return QueryValue::Missing,
        Test::Null => value.is_null(),
        Test::Missing => value.is_missing(),
        Test::Valued => value.is_valued(),
    };
    QueryValue::Bool(found != negated)
}
