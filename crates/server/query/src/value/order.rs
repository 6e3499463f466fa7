//! How values compare: one total order for sorting, and the comparison of operators.
//!
//! The total order is that of types, then of values. The operators' comparison is missing or null
//! when either side is, also for parts of arrays and objects that decide it.

use std::cmp::Ordering;

use super::{Object, QueryValue, ValueType, json};
use crate::limits::VALUE_DEPTH_MAX;

/// The result of an operator's comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    Missing,
    Null,
    Order(Ordering),
}

/// The total order of values.
pub fn collate(left: &QueryValue, right: &QueryValue) -> Ordering {
    collate_at(left, right, 0)
}

fn collate_at(left: &QueryValue, right: &QueryValue, depth: usize) -> Ordering {
    match (left, right) {
        (QueryValue::Int(a), QueryValue::Int(b)) => return a.cmp(b),
        (QueryValue::Str(a), QueryValue::Str(b)) => return a.cmp(b),
        _ => {}
    }
    let kind = left.kind();
    let by_type = kind.cmp(&right.kind());
    if by_type.is_ne() {
        return by_type;
    }
    match kind {
        ValueType::Missing | ValueType::Null => Ordering::Equal,
        ValueType::Boolean => left.truth().cmp(&right.truth()),
        ValueType::Number => collate_numbers(left, right),
        ValueType::String => left.as_text().cmp(&right.as_text()),
        ValueType::Array | ValueType::Object if depth > VALUE_DEPTH_MAX => by_text(left, right),
        ValueType::Array => {
            let (mut a, mut b) = (Elements::of(left), Elements::of(right));
            loop {
                let order = match (a.next(), b.next()) {
                    (Some(a), Some(b)) => collate_at(&a, &b, depth + 1),
                    (None, None) => return Ordering::Equal,
                    (a, _) => return if a.is_none() { Ordering::Less } else { Ordering::Greater },
                };
                if order.is_ne() {
                    return order;
                }
            }
        }
        ValueType::Object => {
            let (a, b) = (left.object().unwrap_or_default(), right.object().unwrap_or_default());
            let order = |a: &QueryValue, b: &QueryValue| collate_at(a, b, depth + 1);
            collate_objects(&a, &b, order)
        }
        ValueType::Binary => match (left, right) {
            (QueryValue::Binary(a), QueryValue::Binary(b)) => a.cmp(b),
            _ => Ordering::Equal,
        },
    }
}

fn collate_objects(
    a: &Object,
    b: &Object,
    mut order: impl FnMut(&QueryValue, &QueryValue) -> Ordering,
) -> Ordering {
    let by_length = a.len().cmp(&b.len());
    if by_length.is_ne() {
        return by_length;
    }
    for ((a_name, a_value), (b_name, b_value)) in a.fields().iter().zip(b.fields()) {
        let by_name = a_name.cmp(b_name);
        let by_field = if by_name.is_ne() { by_name } else { order(a_value, b_value) };
        if by_field.is_ne() {
            return by_field;
        }
    }
    Ordering::Equal
}

fn collate_numbers(left: &QueryValue, right: &QueryValue) -> Ordering {
    debug_assert!(left.as_f64().is_some() && right.as_f64().is_some(), "both are numbers");
    match (left, right) {
        (QueryValue::Int(a), QueryValue::Int(b)) => a.cmp(b),
        _ => {
            let a = left.as_f64().unwrap_or(f64::NAN);
            let b = right.as_f64().unwrap_or(f64::NAN);
            // NaN sorts before every number and equals itself.
            a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
        }
    }
}

fn by_text(left: &QueryValue, right: &QueryValue) -> Ordering {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    super::write::write(left, &mut a);
    super::write::write(right, &mut b);
    a.cmp(&b)
}

/// The comparison of `=`, `<` and their kin.
pub fn compare(left: &QueryValue, right: &QueryValue) -> Comparison {
    compare_at(left, right, 0)
}

fn compare_at(left: &QueryValue, right: &QueryValue, depth: usize) -> Comparison {
    match (left, right) {
        (QueryValue::Int(a), QueryValue::Int(b)) => return Comparison::Order(a.cmp(b)),
        (QueryValue::Str(a), QueryValue::Str(b)) => return Comparison::Order(a.cmp(b)),
        (QueryValue::Missing, _) | (_, QueryValue::Missing) => return Comparison::Missing,
        (QueryValue::Null, _) | (_, QueryValue::Null) => return Comparison::Null,
        _ => {}
    }
    let kind = left.kind();
    if kind != right.kind() || depth > VALUE_DEPTH_MAX {
        return Comparison::Order(collate_at(left, right, depth));
    }
    match kind {
        ValueType::Array => {
            let (mut a, mut b) = (Elements::of(left), Elements::of(right));
            loop {
                let found = match (a.next(), b.next()) {
                    (Some(a), Some(b)) => compare_at(&a, &b, depth + 1),
                    (None, None) => return Comparison::Order(Ordering::Equal),
                    (None, _) => return Comparison::Order(Ordering::Less),
                    _ => return Comparison::Order(Ordering::Greater),
                };
                if found != Comparison::Order(Ordering::Equal) {
                    return found;
                }
            }
        }
        ValueType::Object => {
            let (a, b) = (left.object().unwrap_or_default(), right.object().unwrap_or_default());
            let mut unknown = None;
            let order = collate_objects(&a, &b, |a, b| match compare_at(a, b, depth + 1) {
                Comparison::Order(order) => order,
                other => {
                    unknown.get_or_insert(other);
                    Ordering::Less
                }
            });
            unknown.unwrap_or(Comparison::Order(order))
        }
        _ => Comparison::Order(collate_at(left, right, depth)),
    }
}

/// The elements of an array one by one. Those of a stored array are read when they are needed, so a
/// walk takes no memory.
pub enum Elements<'v> {
    List(std::slice::Iter<'v, QueryValue>),
    Stored(json::JsonItems),
}

impl<'v> Elements<'v> {
    /// `None` for a value that is no array.
    pub fn of(value: &'v QueryValue) -> Elements<'v> {
        match value {
            QueryValue::Array(items) => Elements::List(items.iter()),
            QueryValue::Json(json) if json.is_array() => Elements::Stored(json.items()),
            _ => Elements::List([].iter()),
        }
    }
}

impl Iterator for Elements<'_> {
    type Item = QueryValue;

    fn next(&mut self) -> Option<QueryValue> {
        match self {
            Elements::List(items) => items.next().cloned(),
            Elements::Stored(items) => items.next(),
        }
    }
}

/// The number of elements of an array.
pub fn element_count(value: &QueryValue) -> usize {
    match Elements::of(value) {
        Elements::List(items) => items.len(),
        Elements::Stored(items) => items.count(),
    }
}

/// Whether two values are the same one: null equals null, missing equals missing.
pub fn identical(left: &QueryValue, right: &QueryValue) -> bool {
    collate(left, right).is_eq()
}

impl PartialEq for QueryValue {
    fn eq(&self, other: &QueryValue) -> bool {
        identical(self, other)
    }
}
