//! Functions that choose among their arguments.

use super::function::{Function, MANY, free, strict};
use crate::ast::Relation;
use crate::operators::logic::relate;
use crate::value::QueryValue;
use crate::value::order::{collate, identical};

pub const TABLE: &[Function] = &[
    free("IFMISSING", 2, MANY, |args, _| Ok(first(args, |value| !value.is_missing()))),
    free("IFNULL", 2, MANY, |args, _| Ok(first(args, |value| !value.is_null()))),
    free("IFMISSINGORNULL", 2, MANY, |args, _| Ok(first(args, QueryValue::is_valued))),
    free("IFINF", 2, MANY, |args, _| Ok(first_number(args, |number| !number.is_infinite()))),
    free("IFNAN", 2, MANY, |args, _| Ok(first_number(args, |number| !number.is_nan()))),
    free("IFNANORINF", 2, MANY, |args, _| Ok(first_number(args, f64::is_finite))),
    strict("MISSINGIF", 2, 2, |args, _| Ok(if_equal(args, QueryValue::Missing))),
    strict("NULLIF", 2, 2, |args, _| Ok(if_equal(args, QueryValue::Null))),
    strict("NANIF", 2, 2, |args, _| Ok(if_equal(args, QueryValue::Float(f64::NAN)))),
    strict("POSINFIF", 2, 2, |args, _| Ok(if_equal(args, QueryValue::Float(f64::INFINITY)))),
    strict("NEGINFIF", 2, 2, |args, _| Ok(if_equal(args, QueryValue::Float(f64::NEG_INFINITY)))),
    free("NVL", 2, 2, |args, _| Ok(args[usize::from(!args[0].is_valued())].clone())),
    free("NVL2", 3, 3, |args, _| Ok(args[if args[0].is_valued() { 1 } else { 2 }].clone())),
    free("DECODE", 3, MANY, |args, _| Ok(decode(args))),
    free("GREATEST", 2, MANY, |args, _| Ok(extreme(args, true))),
    free("LEAST", 2, MANY, |args, _| Ok(extreme(args, false))),
];

fn first(args: &[QueryValue], is_wanted: impl Fn(&QueryValue) -> bool) -> QueryValue {
    args.iter().find(|value| is_wanted(value)).cloned().unwrap_or(QueryValue::Null)
}

/// The first number that is wanted. Anything else than a number before it is null.
fn first_number(args: &[QueryValue], is_wanted: impl Fn(f64) -> bool) -> QueryValue {
    for value in args {
        match value.as_f64() {
            Some(number) if is_wanted(number) => return value.clone(),
            None if !value.is_missing() => return QueryValue::Null,
            _ => {}
        }
    }
    QueryValue::Null
}

fn if_equal(args: &[QueryValue], result: QueryValue) -> QueryValue {
    match relate(Relation::Equal, &args[0], &args[1]) {
        QueryValue::Bool(true) => result,
        QueryValue::Bool(false) => args[0].clone(),
        unknown => unknown,
    }
}

/// `DECODE(value, search, result, .. [, default])`
fn decode(args: &[QueryValue]) -> QueryValue {
    let pairs = args[1..].chunks_exact(2);
    let default = pairs.remainder().first().cloned().unwrap_or(QueryValue::Null);
    let mut pairs = pairs;
    let found = pairs.find(|pair| identical(&args[0], &pair[0]));
    found.map_or(default, |pair| pair[1].clone())
}

fn extreme(args: &[QueryValue], greatest: bool) -> QueryValue {
    let valued = args.iter().filter(|value| value.is_valued());
    let best = match greatest {
        true => {
            valued.reduce(|best, value| if collate(value, best).is_gt() { value } else { best })
        }
        false => {
            valued.reduce(|best, value| if collate(value, best).is_lt() { value } else { best })
        }
    };
    best.cloned().unwrap_or(QueryValue::Null)
}
