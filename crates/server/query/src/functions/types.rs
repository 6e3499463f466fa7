//! Tests and conversions of types.

use super::function::{Function, free, strict};
use crate::runtime::Runtime;
use crate::value::{Object, Type, Value, json, write};

pub const TABLE: &[Function] = &[
    strict("IS_ARRAY", 1, 1, |args, _| Ok(Value::Bool(args[0].is_array()))),
    strict("IS_ATOM", 1, 1, |args, _| Ok(Value::Bool(is_atom(&args[0])))),
    strict("IS_BINARY", 1, 1, |args, _| Ok(Value::Bool(args[0].kind() == Type::Binary))),
    strict("IS_BOOLEAN", 1, 1, |args, _| Ok(Value::Bool(args[0].kind() == Type::Boolean))),
    strict("IS_NUMBER", 1, 1, |args, _| Ok(Value::Bool(args[0].kind() == Type::Number))),
    strict("IS_OBJECT", 1, 1, |args, _| Ok(Value::Bool(args[0].is_object()))),
    strict("IS_STRING", 1, 1, |args, _| Ok(Value::Bool(args[0].kind() == Type::String))),
    free("TYPE", 1, 1, |args, _| Ok(Value::from(args[0].kind().name()))),
    strict("TO_ARRAY", 1, 1, |args, _| {
        Ok(if args[0].is_array() { args[0].clone() } else { Value::from(vec![args[0].clone()]) })
    }),
    strict("TO_ATOM", 1, 1, |args, _| Ok(to_atom(&args[0]))),
    strict("TO_BOOLEAN", 1, 1, |args, _| Ok(Value::Bool(args[0].truth()))),
    free("TO_NUMBER", 1, 2, to_number),
    strict("TO_OBJECT", 1, 1, |args, _| {
        let is_object = args[0].is_object();
        Ok(if is_object { args[0].clone() } else { Value::from(Object::default()) })
    }),
    strict("TO_STRING", 1, 1, |args, _| Ok(to_string(&args[0]))),
];

fn is_atom(value: &Value) -> bool {
    matches!(value.kind(), Type::Boolean | Type::Number | Type::String)
}

/// The only part of an array or object, however deep.
fn to_atom(value: &Value) -> Value {
    let mut value = value.clone();
    loop {
        if let Some(items) = value.elements() {
            let [item] = &items[..] else { return Value::Null };
            value = item.clone();
        } else if let Some(object) = value.object() {
            let [(_, field)] = object.fields() else { return Value::Null };
            value = field.clone();
        } else {
            return value;
        }
    }
}

fn to_number(args: &[Value], _: &Runtime<'_>) -> crate::error::Result<Value> {
    Ok(match (&args[0], args.get(1)) {
        (Value::Missing, _) => Value::Missing,
        (Value::Bool(flag), _) => Value::Int(i64::from(*flag)),
        (Value::Int(_) | Value::Float(_), _) => args[0].clone(),
        (Value::Str(_), Some(Value::Missing)) => Value::Missing,
        (Value::Str(text), None) => parse_number(&text.to_str()),
        (Value::Str(text), Some(Value::Str(dropped))) => {
            let dropped = dropped.to_str();
            let kept = text.to_str().chars().filter(|c| !dropped.contains(*c)).collect::<String>();
            parse_number(&kept)
        }
        _ => Value::Null,
    })
}

fn parse_number(text: &str) -> Value {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Value::Null;
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::Int(number);
    }
    json::number(text.as_bytes())
        .or_else(|| text.parse::<f64>().ok().map(Value::number))
        .unwrap_or(Value::Null)
}

fn to_string(value: &Value) -> Value {
    match value {
        Value::Str(_) => value.clone(),
        Value::Bool(flag) => Value::from(flag.to_string()),
        Value::Int(number) => Value::from(number.to_string()),
        Value::Float(number) if number.is_infinite() => {
            Value::from(if *number > 0.0 { "+Inf" } else { "-Inf" })
        }
        Value::Float(number) => Value::from(write::float_text(*number)),
        _ => Value::Null,
    }
}
