//! Number functions, over floats but for the integer ones.

use super::function::{Function, free, strict};
use crate::ast::ArithmeticOperator;
use crate::error::Result;
use crate::operators::arithmetic;
use crate::runtime::Runtime;
use crate::value::QueryValue;

pub const TABLE: &[Function] = &[
    strict("ABS", 1, 1, |args, _| Ok(unary(args, f64::abs))),
    strict("ACOS", 1, 1, |args, _| Ok(unary(args, f64::acos))),
    strict("ASIN", 1, 1, |args, _| Ok(unary(args, f64::asin))),
    strict("ATAN", 1, 1, |args, _| Ok(unary(args, f64::atan))),
    strict("ATAN2", 2, 2, |args, _| Ok(binary(args, f64::atan2))),
    strict("CEIL", 1, 1, |args, _| Ok(unary(args, f64::ceil))),
    strict("COS", 1, 1, |args, _| Ok(unary(args, f64::cos))),
    strict("DEGREES", 1, 1, |args, _| Ok(unary(args, |x| x * 180.0 / std::f64::consts::PI))),
    free("E", 0, 0, |_, _| Ok(QueryValue::Float(std::f64::consts::E))),
    strict("EXP", 1, 1, |args, _| Ok(unary(args, f64::exp))),
    strict("FLOOR", 1, 1, |args, _| Ok(unary(args, f64::floor))),
    free("INF", 0, 0, |_, _| Ok(QueryValue::Float(f64::INFINITY))),
    strict("LN", 1, 1, |args, _| Ok(unary(args, f64::ln))),
    strict("LOG", 1, 1, |args, _| Ok(unary(args, f64::log10))),
    free("NAN", 0, 0, |_, _| Ok(QueryValue::Float(f64::NAN))),
    free("NEGINF", 0, 0, |_, _| Ok(QueryValue::Float(f64::NEG_INFINITY))),
    free("PI", 0, 0, |_, _| Ok(QueryValue::Float(std::f64::consts::PI))),
    strict("POWER", 2, 2, |args, _| Ok(binary(args, f64::powf))),
    strict("RADIANS", 1, 1, |args, _| Ok(unary(args, |x| x * std::f64::consts::PI / 180.0))),
    free("RANDOM", 0, 1, random),
    strict("ROUND", 1, 2, |args, _| Ok(rounded(args, f64::round_ties_even))),
    strict("ROUND_EVEN", 1, 2, |args, _| Ok(rounded(args, f64::round_ties_even))),
    strict("ROUND_NEAREST", 1, 2, |args, _| Ok(rounded(args, f64::round))),
    strict("SIGN", 1, 1, |args, _| Ok(unary(args, sign))),
    strict("SIN", 1, 1, |args, _| Ok(unary(args, f64::sin))),
    strict("SQRT", 1, 1, |args, _| Ok(unary(args, f64::sqrt))),
    strict("TAN", 1, 1, |args, _| Ok(unary(args, f64::tan))),
    strict("TRUNC", 1, 2, |args, _| Ok(rounded(args, f64::trunc))),
    strict("DIV", 2, 2, |args, rt| {
        Ok(arithmetic::apply(ArithmeticOperator::Divide, &args[0], &args[1], rt))
    }),
    strict("MOD", 2, 2, |args, rt| {
        Ok(arithmetic::apply(ArithmeticOperator::Modulo, &args[0], &args[1], rt))
    }),
    strict("IDIV", 2, 2, |args, _| Ok(integers(args, wrapping_div))),
    strict("IMOD", 2, 2, |args, _| Ok(integers(args, wrapping_rem))),
];

fn unary(args: &[QueryValue], run: impl Fn(f64) -> f64) -> QueryValue {
    args[0].as_f64().map_or(QueryValue::Null, |number| QueryValue::number(run(number)))
}

fn binary(args: &[QueryValue], run: impl Fn(f64, f64) -> f64) -> QueryValue {
    match (args[0].as_f64(), args[1].as_f64()) {
        (Some(left), Some(right)) => QueryValue::number(run(left, right)),
        _ => QueryValue::Null,
    }
}

fn sign(number: f64) -> f64 {
    if number == 0.0 || number.is_nan() { 0.0 } else { number.signum() }
}

/// Rounds at a number of digits after the point, or before it if negative.
fn rounded(args: &[QueryValue], round: impl Fn(f64) -> f64) -> QueryValue {
    let Some(number) = args[0].as_f64() else { return QueryValue::Null };
    let digits = match args.get(1).map(QueryValue::as_int) {
        None => 0,
        Some(Some(digits)) => digits,
        Some(None) => return QueryValue::Null,
    };
    if digits == 0 || !number.is_finite() {
        return QueryValue::number(round(number));
    }
    let scale = 10f64.powi(digits.unsigned_abs().min(308) as i32);
    let scaled = if digits > 0 { number * scale } else { number / scale };
    if !scaled.is_finite() {
        return QueryValue::number(number);
    }
    let result = if digits > 0 { round(scaled) / scale } else { round(scaled) * scale };
    QueryValue::number(result)
}

/// The whole part. What 64 bits do not hold is the smallest integer, as in the reference.
fn integer(value: &QueryValue) -> Option<i64> {
    let number = value.as_f64()?;
    let whole = value.as_int().or_else(|| QueryValue::number(number.trunc()).as_int());
    Some(whole.unwrap_or(i64::MIN))
}

fn wrapping_div(left: i64, right: i64) -> Option<i64> {
    (right != 0).then(|| left.wrapping_div(right))
}

fn wrapping_rem(left: i64, right: i64) -> Option<i64> {
    (right != 0).then(|| left.wrapping_rem(right))
}

fn integers(args: &[QueryValue], run: impl Fn(i64, i64) -> Option<i64>) -> QueryValue {
    match (integer(&args[0]), integer(&args[1])) {
        (Some(left), Some(right)) => run(left, right).map_or(QueryValue::Null, QueryValue::Int),
        _ => QueryValue::Null,
    }
}

/// A number from 0 up to 1; a seed makes it repeatable.
fn random(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let seed = match args.first() {
        None => u64::from(rt.now_nanoseconds() as u32) ^ (rt.next_number() << 20),
        Some(QueryValue::Missing) => return Ok(QueryValue::Missing),
        Some(seed) => match seed.as_int() {
            Some(seed) => seed as u64,
            None => return Ok(QueryValue::Null),
        },
    };
    // SplitMix64.
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    let number = (mixed >> 11) as f64 / (1u64 << 53) as f64;
    debug_assert!((0.0..1.0).contains(&number), "the number is from 0 up to 1");
    Ok(QueryValue::Float(number))
}
