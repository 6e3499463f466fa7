//! Arithmetic: exact on 64-bit integers, else on floats.

use crate::ast::Operator;
use crate::runtime::Runtime;
use crate::value::Value;

/// The result of an operator. A missing side gives missing, one that is no number null.
pub fn apply(operator: Operator, left: &Value, right: &Value, rt: &Runtime<'_>) -> Value {
    if left.is_missing() || right.is_missing() {
        return Value::Missing;
    }
    let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) else { return Value::Null };
    let exact = match (operator, left, right) {
        (Operator::Add, Value::Int(a), Value::Int(b)) => a.checked_add(*b),
        (Operator::Subtract, Value::Int(a), Value::Int(b)) => a.checked_sub(*b),
        (Operator::Multiply, Value::Int(a), Value::Int(b)) => a.checked_mul(*b),
        _ => None,
    };
    if let Some(exact) = exact {
        return Value::Int(exact);
    }
    match operator {
        Operator::Add => inexact(a + b),
        Operator::Subtract => inexact(a - b),
        Operator::Multiply => inexact(a * b),
        Operator::Divide | Operator::Modulo if b == 0.0 => {
            rt.warn(5036, "Division by 0.");
            Value::Null
        }
        Operator::Divide => Value::number(a / b),
        Operator::Modulo => Value::number(a % b),
        Operator::Power => Value::number(a.powf(b)),
    }
}

/// A sum or product of floats. A large one keeps that it is not exact, which shows when printed.
fn inexact(number: f64) -> Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if number.abs() <= EXACT_MAX { Value::number(number) } else { Value::Float(number) }
}

pub fn negate(value: &Value) -> Value {
    match value {
        Value::Int(number) => match number.checked_neg() {
            Some(number) => Value::Int(number),
            None => Value::Float(-(*number as f64)),
        },
        Value::Float(number) => match -number {
            // The negative of 2^63 would be the smallest integer; it stays a float.
            number if number == i64::MIN as f64 => Value::Float(number),
            number => Value::number(number),
        },
        Value::Missing => Value::Missing,
        _ => Value::Null,
    }
}
