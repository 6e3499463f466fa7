//! Arithmetic: exact on 64-bit integers, else on floats.

use crate::ast::ArithmeticOperator;
use crate::runtime::Runtime;
use crate::value::QueryValue;

/// The result of an operator. A missing side gives missing, one that is no number null.
pub fn apply(
    operator: ArithmeticOperator,
    left: &QueryValue,
    right: &QueryValue,
    rt: &Runtime<'_>,
) -> QueryValue {
    if left.is_missing() || right.is_missing() {
        return QueryValue::Missing;
    }
    let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) else { return QueryValue::Null };
    let exact = match (operator, left, right) {
        (ArithmeticOperator::Add, QueryValue::Int(a), QueryValue::Int(b)) => a.checked_add(*b),
        (ArithmeticOperator::Subtract, QueryValue::Int(a), QueryValue::Int(b)) => a.checked_sub(*b),
        (ArithmeticOperator::Multiply, QueryValue::Int(a), QueryValue::Int(b)) => a.checked_mul(*b),
        _ => None,
    };
    if let Some(exact) = exact {
        return QueryValue::Int(exact);
    }
    match operator {
        ArithmeticOperator::Add => inexact(a + b),
        ArithmeticOperator::Subtract => inexact(a - b),
        ArithmeticOperator::Multiply => inexact(a * b),
        ArithmeticOperator::Divide | ArithmeticOperator::Modulo if b == 0.0 => {
            rt.warn(5036, "Division by 0.");
            QueryValue::Null
        }
        ArithmeticOperator::Divide => QueryValue::number(a / b),
        ArithmeticOperator::Modulo => QueryValue::number(a % b),
        ArithmeticOperator::Power => QueryValue::number(a.powf(b)),
    }
}

/// A sum or product of floats. A large one keeps that it is not exact, which shows when printed.
fn inexact(number: f64) -> QueryValue {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if number.abs() <= EXACT_MAX { QueryValue::number(number) } else { QueryValue::Float(number) }
}

pub fn negate(value: &QueryValue) -> QueryValue {
    match value {
        QueryValue::Int(number) => match number.checked_neg() {
            Some(number) => QueryValue::Int(number),
            None => QueryValue::Float(-(*number as f64)),
        },
        QueryValue::Float(number) => match -number {
            // The negative of 2^63 would be the smallest integer; it stays a float.
            number if number == i64::MIN as f64 => QueryValue::Float(number),
            number => QueryValue::number(number),
        },
        QueryValue::Missing => QueryValue::Missing,
        _ => QueryValue::Null,
    }
}
