//! The order of encodings is the order of values.

use super::append;
use crate::value::order::collate;
use crate::value::{Object, QueryValue, Text};

fn encoded(value: &QueryValue, descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    append(value, descending, &mut out);
    out
}

/// Numbers of a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0 >> 11
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn number(numbers: &mut Numbers) -> QueryValue {
    let near = |numbers: &mut Numbers| numbers.next() as i64 % 5 - 2;
    match numbers.below(8) {
        0 => QueryValue::Int(near(numbers)),
        1 => QueryValue::Int((1 << 53) + near(numbers)),
        2 => QueryValue::Int(-(1 << 53) + near(numbers)),
        3 => QueryValue::Int(i64::MAX - 1_000 - numbers.next() as i64 % 3),
        4 => QueryValue::Int(i64::MIN + numbers.next() as i64 % 3),
        5 => QueryValue::number(near(numbers) as f64 / 4.0),
        6 => {
            let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 5e-324];
            QueryValue::Float(floats[numbers.below(floats.len())])
        }
        _ => QueryValue::number((1u64 << 63) as f64 * [1.0, -1.0, 2.0][numbers.below(3)]),
    }
}

fn value(numbers: &mut Numbers, depth: usize) -> QueryValue {
    match numbers.below(if depth > 2 { 6 } else { 9 }) {
        0 => QueryValue::Null,
        1 => QueryValue::Bool(numbers.below(2) == 0),
        2 | 3 => number(numbers),
        4 | 5 => {
            let bytes: Vec<u8> = (0..numbers.below(4))
                .map(|_| [0, 1, 2, b'a', 254, 255][numbers.below(6)])
                .collect();
            QueryValue::Str(Text::from_bytes(bytes.into()))
        }
        6 | 7 => {
            let items: Vec<QueryValue> =
                (0..numbers.below(3)).map(|_| value(numbers, depth + 1)).collect();
            QueryValue::from(items)
        }
        _ => {
            let fields = (0..numbers.below(3))
                .map(|_| (Text::from(["", "a", "b"][numbers.below(3)]), value(numbers, depth + 1)));
            QueryValue::from(Object::new(fields.collect()))
        }
    }
}

#[test]
fn encodings_have_the_order_of_values() {
    let mut numbers = Numbers(45);
    let mut values: Vec<QueryValue> = (0..600).map(|_| value(&mut numbers, 0)).collect();
    values.push(QueryValue::Missing);
    values.extend((0..300).map(|_| number(&mut numbers)));
    for left in &values {
        for right in &values {
            let order = collate(left, right);
            let (a, b) = (encoded(left, false), encoded(right, false));
            assert_eq!(a.cmp(&b), order, "{left:?} {right:?}");
            assert_eq!(encoded(left, true).cmp(&encoded(right, true)), order.reverse());
            assert!(a == b || !b.starts_with(&a), "{left:?} is a beginning of {right:?}");
        }
    }
}

#[test]
fn integers_are_exact_to_64_bits() {
    for number in [1 << 53, (1 << 62) + 1, i64::MAX - 1_000, i64::MIN, -(1 << 53) - 1, -1] {
        let (low, high) = (QueryValue::Int(number), QueryValue::Int(number + 1));
        assert!(encoded(&low, false) < encoded(&high, false), "{number}");
    }
}

#[test]
fn deep_values_have_an_order_too() {
    let deep =
        |end: i64| (0..300).fold(QueryValue::Int(end), |value, _| QueryValue::from(vec![value]));
    assert!(encoded(&deep(1), false) < encoded(&deep(2), false));
}
