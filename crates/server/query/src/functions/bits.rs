//! Functions on the 64 bits of an integer. Positions count from 1.

use super::function::{Function, MANY, strict};
use crate::runtime::Runtime;
use crate::value::QueryValue;

pub const TABLE: &[Function] = &[
    strict("BITAND", 2, MANY, |args, _| Ok(fold(args, |left, right| left & right))),
    strict("BITOR", 2, MANY, |args, _| Ok(fold(args, |left, right| left | right))),
    strict("BITXOR", 2, MANY, |args, _| Ok(fold(args, |left, right| left ^ right))),
    strict("BITNOT", 1, 1, |args, _| {
        Ok(args[0].as_int().map_or(QueryValue::Null, |n| QueryValue::Int(!n)))
    }),
    strict("BITSHIFT", 2, 3, |args, _| Ok(shift(args))),
    strict("BITSET", 2, 2, |args, _| Ok(change(args, |bits, mask| bits | mask))),
    strict("BITCLEAR", 2, 2, |args, _| Ok(change(args, |bits, mask| bits & !mask))),
    strict("BITTEST", 2, 3, test),
];

fn fold(args: &[QueryValue], run: impl Fn(i64, i64) -> i64) -> QueryValue {
    let numbers: Option<Vec<i64>> = args.iter().map(QueryValue::as_int).collect();
    numbers
        .and_then(|numbers| numbers.into_iter().reduce(run))
        .map_or(QueryValue::Null, QueryValue::Int)
}

/// To the left, or to the right by a negative distance.
fn shift(args: &[QueryValue]) -> QueryValue {
    let (Some(bits), Some(distance)) = (args[0].as_int(), args[1].as_int()) else {
        return QueryValue::Null;
    };
    let rotates = match args.get(2) {
        None => false,
        Some(QueryValue::Bool(rotates)) => *rotates,
        Some(_) => return QueryValue::Null,
    };
    let bits = bits as u64;
    let result = if rotates {
        bits.rotate_left(distance.rem_euclid(64) as u32)
    } else if distance.unsigned_abs() > 63 {
        0
    } else if distance >= 0 {
        bits << distance
    } else {
        bits >> distance.unsigned_abs()
    };
    QueryValue::Int(result as i64)
}

/// The mask of a position or an array of positions.
fn mask(positions: &QueryValue) -> Option<u64> {
    let bit = |position: &QueryValue| {
        let position = position.as_int().filter(|position| (1..=64).contains(position))?;
        Some(1u64 << (position - 1))
    };
    match positions.elements() {
        Some(items) => items.iter().try_fold(0, |mask, item| Some(mask | bit(item)?)),
        None => bit(positions),
    }
}

fn change(args: &[QueryValue], run: impl Fn(u64, u64) -> u64) -> QueryValue {
    match (args[0].as_int(), mask(&args[1])) {
        (Some(bits), Some(mask)) => QueryValue::Int(run(bits as u64, mask) as i64),
        _ => QueryValue::Null,
    }
}

fn test(args: &[QueryValue], _: &Runtime<'_>) -> crate::error::Result<QueryValue> {
    let all = match args.get(2) {
        None => false,
        Some(QueryValue::Bool(all)) => *all,
        Some(_) => return Ok(QueryValue::Null),
    };
    Ok(match (args[0].as_int(), mask(&args[1])) {
        (Some(bits), Some(mask)) if all => QueryValue::Bool(bits as u64 & mask == mask),
        (Some(bits), Some(mask)) => QueryValue::Bool(bits as u64 & mask != 0),
        _ => QueryValue::Null,
    })
}
