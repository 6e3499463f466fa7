//! States over small lists of values.

use super::{AggregateKind, State};
use crate::value::Value;

fn over(kind: AggregateKind, distinct: bool, values: &[Value]) -> Value {
    let mut state = State::new(kind, distinct);
    for value in values {
        state.add(value);
    }
    state.finish()
}

#[test]
fn sum_is_exact_until_64_bits_overflow() {
    let values = [Value::Int(i64::MAX), Value::Int(-1)];
    assert_eq!(over(AggregateKind::Sum, false, &values), Value::Int(i64::MAX - 1));
    let values = [Value::Int(i64::MAX), Value::Int(1)];
    assert!(matches!(over(AggregateKind::Sum, false, &values), Value::Float(_)));
}

#[test]
fn no_rows_give_null_and_a_count_of_zero() {
    assert_eq!(over(AggregateKind::Sum, false, &[Value::Null]), Value::Null);
    assert_eq!(over(AggregateKind::Count, false, &[Value::Null]), Value::Int(0));
}

#[test]
fn distinct_counts_equal_numbers_once() {
    let values = [Value::Int(1), Value::number(1.0), Value::from("1")];
    assert_eq!(over(AggregateKind::Count, true, &values), Value::Int(2));
}
