//! States over small lists of values.

use super::{AggregateKind, AggregateState};
use crate::compile::index_keys::NoDocuments;
use crate::memory_budget::MemoryBudget;
use crate::prepared::PreparedStatements;
use crate::runtime::{QueryParameters, Runtime};
use crate::value::QueryValue;

struct UnboundedBudget;

impl MemoryBudget for UnboundedBudget {
    fn reserve(&self, _: usize) -> bool {
        true
    }

    fn release(&self, _: usize) {}
}

fn over(kind: AggregateKind, distinct: bool, values: &[QueryValue]) -> QueryValue {
    let mut state = AggregateState::new(kind, distinct);
    for value in values {
        state.add(value);
    }
    let (prepared, parameters) = (PreparedStatements::default(), QueryParameters::default());
    let rt = Runtime::new(&NoDocuments, &prepared, &parameters, &UnboundedBudget);
    state.finish(&rt).expect("a few values")
}

#[test]
fn sum_is_exact_until_64_bits_overflow() {
    let values = [QueryValue::Int(i64::MAX), QueryValue::Int(-1)];
    assert_eq!(over(AggregateKind::Sum, false, &values), QueryValue::Int(i64::MAX - 1));
    let values = [QueryValue::Int(i64::MAX), QueryValue::Int(1)];
    assert!(matches!(over(AggregateKind::Sum, false, &values), QueryValue::Float(_)));
}

#[test]
fn no_rows_give_null_and_a_count_of_zero() {
    assert_eq!(over(AggregateKind::Sum, false, &[QueryValue::Null]), QueryValue::Null);
    assert_eq!(over(AggregateKind::Count, false, &[QueryValue::Null]), QueryValue::Int(0));
}

#[test]
fn distinct_counts_equal_numbers_once() {
    let values = [QueryValue::Int(1), QueryValue::number(1.0), QueryValue::from("1")];
    assert_eq!(over(AggregateKind::Count, true, &values), QueryValue::Int(2));
}
