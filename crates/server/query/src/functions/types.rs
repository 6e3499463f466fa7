//! Tests and conversions of types.

use super::function::{Function, free, strict};
use crate::runtime::Runtime;
use crate::value::{Object, QueryValue, ValueType, json, write};

pub const TABLE: &[Function] = &[
    strict("IS_ARRAY", 1, 1, |args, _| Ok(QueryValue::Bool(args[0].is_array()))),
    strict("IS_ATOM", 1, 1, |args, _| Ok(QueryValue::Bool(is_atom(&args[0])))),
    strict("IS_BINARY", 1, 1, |args, _| Ok(QueryValue::Bool(args[0].kind() == ValueType::Binary))),
    strict("IS_BOOLEAN", 1, 1, |args, _| {
        Ok(QueryValue::Bool(args[0].kind() == ValueType::Boolean))
    }),
    strict("IS_NUMBER", 1, 1, |args, _| Ok(QueryValue::Bool(args[0].kind() == ValueType::Number))),
    strict("IS_OBJECT", 1, 1, |args, _| Ok(QueryValue::Bool(args[0].is_object()))),
    strict("IS_STRING", 1, 1, |args, _| Ok(QueryValue::Bool(args[0].kind() == ValueType::String))),
    free("TYPE", 1, 1, |args, _| Ok(QueryValue::from(args[0].kind().name()))),
    strict("TO_ARRAY", 1, 1, |args, _| {
        Ok(if args[0].is_array() {
            args[0].clone()
        } else {
            QueryValue::from(vec![args[0].clone()])
        })
    }),
    strict("TO_ATOM", 1, 1, |args, _| Ok(to_atom(&args[0]))),
    strict("TO_BOOLEAN", 1, 1, |args, _| Ok(QueryValue::Bool(args[0].truth()))),
    free("TO_NUMBER", 1, 2, to_number),
    strict("TO_OBJECT", 1, 1, |args, _| {
        let is_object = args[0].is_object();
        Ok(if is_object { args[0].clone() } else { QueryValue::from(Object::default()) })
    }),
    strict("TO_STRING", 1, 1, |args, _| Ok(to_string(&args[0]))),
];

fn is_atom(value: &QueryValue) -> bool {
    matches!(value.kind(), ValueType::Boolean | ValueType::Number | ValueType::String)
}

/// The only part of an array or object, however deep.
fn to_atom(value: &QueryValue) -> QueryValue {
    let mut value = value.clone();
    loop {
        if let Some(items) = value.elements() {
            let [item] = &items[..] else { return QueryValue::Null };
            value = item.clone();
        } else if let Some(object) = value.object() {
            let [(_, field)] = object.fields() else { return QueryValue::Null };
            value = field.clone();
        } else {
            return value;
        }
    }
}

fn to_number(args: &[QueryValue], _: &Runtime<'_>) -> crate::error::Result<QueryValue> {
    Ok(match (&args[0], args.get(1)) {
        (QueryValue::Missing, _) => QueryValue::Missing,
        (QueryValue::Bool(flag), _) => QueryValue::Int(i64::from(*flag)),
        (QueryValue::Int(_) | QueryValue::Float(_), _) => args[0].clone(),
        (QueryValue::Str(_), Some(QueryValue::Missing)) => QueryValue::Missing,
        (QueryValue::Str(text), None) => parse_number(&text.to_str()),
        (QueryValue::Str(text), Some(QueryValue::Str(dropped))) => {
            let dropped = dropped.to_str();
            let kept = text.to_str().chars().filter(|c| !dropped.contains(*c)).collect::<String>();
            parse_number(&kept)
        }
        _ => QueryValue::Null,
    })
}

fn parse_number(text: &str) -> QueryValue {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return QueryValue::Null;
    }
    if let Ok(number) = text.parse::<i64>() {
        return QueryValue::Int(number);
    }
    json::number(text.as_bytes())
        .or_else(|| text.parse::<f64>().ok().map(QueryValue::number))
        .unwrap_or(QueryValue::Null)
}

fn to_string(value: &QueryValue) -> QueryValue {
    match value {
        QueryValue::Str(_) => value.clone(),
        QueryValue::Bool(flag) => QueryValue::from(flag.to_string()),
        QueryValue::Int(number) => QueryValue::from(number.to_string()),
        QueryValue::Float(number) if number.is_infinite() => {
            QueryValue::from(if *number > 0.0 { "+Inf" } else { "-Inf" })
        }
        QueryValue::Float(number) => QueryValue::from(write::float_text(*number)),
        _ => QueryValue::Null,
    }
}
