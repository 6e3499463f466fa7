//! A plain evaluator of expressions over serde_json's values.
//!
//! It shares nothing with the engine. `None` is MISSING.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::expression::{Binary, Expression, Function, IsOperator, Loop, LoopKind};

pub type ModelValue = Option<Value>;

/// MISSING as an element of an array, where it stays what it is until a row is shown.
const MISSING_ELEMENT: &str = "\u{0}missing";

fn element(value: &Value) -> ModelValue {
    if value == MISSING_ELEMENT { None } else { Some(value.clone()) }
}

fn as_element(value: ModelValue) -> Value {
    value.unwrap_or_else(|| Value::from(MISSING_ELEMENT))
}

/// The value as a row shows it.
pub fn shown(value: Value) -> Value {
    match value {
        Value::String(text) if text == MISSING_ELEMENT => Value::Null,
        Value::Array(items) => Value::from(items.into_iter().map(shown).collect::<Vec<_>>()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, shown(value))).collect())
        }
        other => other,
    }
}

/// What an expression reads.
pub struct Row<'d> {
    pub document: &'d Value,
    pub variables: Vec<ModelValue>,
}

fn boolean(flag: bool) -> ModelValue {
    Some(Value::Bool(flag))
}

/// A number: a whole float within 64 bits is an integer.
fn float(number: f64) -> ModelValue {
    let whole = number.fract() == 0.0
        && (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&number);
    match whole {
        true => Some(Value::from(number as i64)),
        false => Number::from_f64(number).map(Value::Number),
    }
}

/// The number with whole floats as integers.
pub fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            float(number.as_f64().unwrap_or_default()).unwrap_or(Value::Null)
        }
        Value::Array(items) => Value::from(items.iter().map(normal).collect::<Vec<_>>()),
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        ),
        other => other.clone(),
    }
}

pub fn truth(value: &ModelValue) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
    }
}

fn rank(value: &ModelValue) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(_)) => 2,
        Some(Value::Number(_)) => 3,
        Some(Value::String(_)) => 4,
        Some(Value::Array(_)) => 5,
        Some(Value::Object(_)) => 6,
    }
}

fn numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => {
            let (left, right) = (left.as_f64(), right.as_f64());
            left.partial_cmp(&right).unwrap_or(Ordering::Equal)
        }
    }
}

/// The total order of values.
pub fn collate(left: &ModelValue, right: &ModelValue) -> Ordering {
    let by_type = rank(left).cmp(&rank(right));
    if by_type.is_ne() {
        return by_type;
    }
    match (left, right) {
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => left.cmp(right),
        (Some(Value::Number(left)), Some(Value::Number(right))) => numbers(left, right),
        (Some(Value::String(left)), Some(Value::String(right))) => {
            left.as_bytes().cmp(right.as_bytes())
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for (left, right) in left.iter().zip(right) {
                let order = collate(&element(left), &element(right));
                if order.is_ne() {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let by_count = left.len().cmp(&right.len());
            if by_count.is_ne() {
                return by_count;
            }
            for ((left_name, left), (right_name, right)) in sorted(left).iter().zip(sorted(right)) {
                let order = left_name
                    .cmp(&right_name)
                    .then_with(|| collate(&Some((*left).clone()), &Some(right.clone())));
                if order.is_ne() {
                    return order;
                }
            }
            Ordering::Equal
        }
        _ => Ordering::Equal,
    }
}

fn sorted(fields: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut list: Vec<_> = fields.iter().collect();
    list.sort_by(|(left, _), (right, _)| left.as_bytes().cmp(right.as_bytes()));
    list
}

/// The comparison of operators: an order, or null or missing for what cannot be compared.
fn compare(left: &ModelValue, right: &ModelValue) -> Result<Ordering, ModelValue> {
    let null = || Err(Some(Value::Null));
    match (left, right) {
        (None, _) | (_, None) => Err(None),
        (Some(Value::Null), _) | (_, Some(Value::Null)) => null(),
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for (left, right) in left.iter().zip(right) {
                match compare(&element(left), &element(right))? {
                    Ordering::Equal => {}
                    order => return Ok(order),
                }
            }
            Ok(left.len().cmp(&right.len()))
        }
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            if left.len() != right.len() {
                return Ok(left.len().cmp(&right.len()));
            }
            for ((left_name, left), (right_name, right)) in sorted(left).iter().zip(sorted(right)) {
                let by_name = left_name.cmp(&right_name);
                if by_name.is_ne() {
                    return Ok(by_name);
                }
                match compare(&Some((*left).clone()), &Some(right.clone()))? {
                    Ordering::Equal => {}
                    order => return Ok(order),
                }
            }
            Ok(Ordering::Equal)
        }
        _ => Ok(collate(left, right)),
    }
}

pub fn relate(operator: Binary, left: &ModelValue, right: &ModelValue) -> ModelValue {
    if let (Some(Value::Array(left)), Some(Value::Array(right))) = (left, right)
        && left.len() != right.len()
        && matches!(operator, Binary::Equal | Binary::NotEqual)
    {
        return boolean(operator == Binary::NotEqual);
    }
    match compare(left, right) {
        Err(unknown) => unknown,
        Ok(order) => boolean(match operator {
            Binary::Equal => order.is_eq(),
            Binary::NotEqual => order.is_ne(),
            Binary::Less => order.is_lt(),
            Binary::LessEqual => order.is_le(),
            Binary::Greater => order.is_gt(),
            _ => order.is_ge(),
        }),
    }
}

fn not(value: ModelValue) -> ModelValue {
    match value {
        None | Some(Value::Null) => value,
        other => boolean(!truth(&other)),
    }
}

fn and(left: &ModelValue, right: &ModelValue) -> ModelValue {
    let is_false = |value: &ModelValue| !matches!(value, None | Some(Value::Null)) && !truth(value);
    if is_false(left) || is_false(right) {
        boolean(false)
    } else if left.is_none() || right.is_none() {
        None
    } else if *left == Some(Value::Null) || *right == Some(Value::Null) {
        Some(Value::Null)
    } else {
        boolean(true)
    }
}

fn or(left: &ModelValue, right: &ModelValue) -> ModelValue {
    if truth(left) || truth(right) {
        boolean(true)
    } else if *left == Some(Value::Null) || *right == Some(Value::Null) {
        Some(Value::Null)
    } else if left.is_none() || right.is_none() {
        None
    } else {
        boolean(false)
    }
}

fn arithmetic(operator: Binary, left: &ModelValue, right: &ModelValue) -> ModelValue {
    let (Some(left), Some(right)) = (left, right) else { return None };
    let (Value::Number(left), Value::Number(right)) = (left, right) else {
        return Some(Value::Null);
    };
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        let exact = match operator {
            Binary::Add => left.checked_add(right),
            Binary::Subtract => left.checked_sub(right),
            Binary::Multiply => left.checked_mul(right),
            _ => None,
        };
        if let Some(exact) = exact {
            return Some(Value::from(exact));
        }
    }
    let (left, right) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0));
    match operator {
        Binary::Add => float(left + right),
        Binary::Subtract => float(left - right),
        Binary::Multiply => float(left * right),
        _ if right == 0.0 => Some(Value::Null),
        Binary::Divide => float(left / right),
        _ => float(left % right),
    }
}

/// Whether a text is like a pattern, by trying every way.
fn is_like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| is_like(&text[skip..], rest)),
        ['_', rest @ ..] => !text.is_empty() && is_like(&text[1..], rest),
        ['\\', escaped, rest @ ..] => text.first() == Some(escaped) && is_like(&text[1..], rest),
        [first, rest @ ..] => text.first() == Some(first) && is_like(&text[1..], rest),
    }
}

/// An integer of the model; other numbers are none.
fn integer(value: &Value) -> Option<i64> {
    match normal(value) {
        Value::Number(number) => number.as_i64(),
        _ => None,
    }
}

fn slice(base: ModelValue, start: ModelValue, end: Option<ModelValue>) -> ModelValue {
    let (Some(base), Some(start)) = (base, start) else { return None };
    let end = match end {
        Some(None) => return None,
        Some(Some(end)) => Some(end),
        None => None,
    };
    let Value::Array(items) = base else { return Some(Value::Null) };
    let count = items.len() as i64;
    let position =
        |value: &Value| integer(value).map(|at| if at < 0 { at.saturating_add(count) } else { at });
    let is_open = end.is_none();
    let (Some(start), Some(end)) = (position(&start), end.as_ref().map_or(Some(count), position))
    else {
        return Some(Value::Null);
    };
    let is_outside = start < 0 || end > count || start > end;
    if is_outside || (is_open && start == count && count > 0) {
        return None;
    }
    Some(Value::from(items[start as usize..end as usize].to_vec()))
}

impl Expression {
    pub fn value(&self, row: &mut Row<'_>) -> ModelValue {
        match self {
            Expression::Missing => None,
            Expression::Literal(value) => Some(normal(value)),
            Expression::Name(name) => row.document.get(name).map(normal),
            Expression::Variable(number) => row.variables[*number].clone(),
            Expression::Field(base, name) => match base.value(row) {
                Some(Value::Object(fields)) => fields.get(name).cloned(),
                _ => None,
            },
            Expression::Index(base, index) => {
                let (base, index) = (base.value(row)?, index.value(row)?);
                let Some(at) = integer(&index) else {
                    let is_whole = index.as_f64().is_some_and(|number| number.fract() == 0.0);
                    return if is_whole { None } else { Some(Value::Null) };
                };
                let Value::Array(items) = base else { return None };
                let at = if at < 0 { at.saturating_add(items.len() as i64) } else { at };
                usize::try_from(at).ok().and_then(|at| items.get(at)).and_then(element)
            }
            Expression::Slice(base, start, end) => {
                let base = base.value(row);
                let start = start.value(row);
                slice(base, start, end.as_ref().map(|end| end.value(row)))
            }
            Expression::Binary(operator, left, right) => {
                let (left, right) = (left.value(row), right.value(row));
                match operator {
                    Binary::And => and(&left, &right),
                    Binary::Or => or(&left, &right),
                    Binary::Concat => match (left, right) {
                        (None, _) | (_, None) => None,
                        (Some(Value::String(left)), Some(Value::String(right))) => {
                            Some(Value::String(left + &right))
                        }
                        _ => Some(Value::Null),
                    },
                    operator if Binary::RELATIONS.contains(operator) => {
                        relate(*operator, &left, &right)
                    }
                    operator => arithmetic(*operator, &left, &right),
                }
            }
            Expression::Not(inner) => not(inner.value(row)),
            Expression::Negate(inner) => match inner.value(row)? {
                Value::Number(number) => match number.as_i64() {
                    Some(number) if number != i64::MIN => Some(Value::from(-number)),
                    _ => Number::from_f64(-number.as_f64().unwrap_or_default()).map(Value::Number),
                },
                _ => Some(Value::Null),
            },
            Expression::Is(test, negated, inner) => {
                let value = inner.value(row);
                let found = match test {
                    IsOperator::Null if value.is_none() => return None,
                    IsOperator::Null => value == Some(Value::Null),
                    IsOperator::Missing => value.is_none(),
                    IsOperator::Valued => !matches!(value, None | Some(Value::Null)),
                };
                boolean(found != *negated)
            }
            Expression::Between(negated, parts) => {
                let [value, low, high] = &**parts;
                let (value, low, high) = (value.value(row), low.value(row), high.value(row));
                if value.is_none() || low.is_none() || high.is_none() {
                    return None;
                }
                if [&value, &low, &high].contains(&&Some(Value::Null)) {
                    return Some(Value::Null);
                }
                let above = relate(Binary::GreaterEqual, &value, &low);
                let below = relate(Binary::LessEqual, &value, &high);
                let found = and(&above, &below);
                if *negated { not(found) } else { found }
            }
            Expression::In(negated, value, list) => {
                let found = is_in(value.value(row), list.value(row));
                if *negated { not(found) } else { found }
            }
            Expression::Like(negated, value, pattern) => match value.value(row)? {
                Value::String(text) => {
                    let text: Vec<char> = text.chars().collect();
                    let pattern: Vec<char> = pattern.chars().collect();
                    boolean(is_like(&text, &pattern) != *negated)
                }
                _ => Some(Value::Null),
            },
            Expression::Case(operand, whens, otherwise) => {
                let operand = operand.as_ref().map(|operand| operand.value(row));
                for (when, then) in whens {
                    let when = when.value(row);
                    let holds = match &operand {
                        Some(operand) => truth(&relate(Binary::Equal, operand, &when)),
                        None => truth(&when),
                    };
                    if holds {
                        return then.value(row);
                    }
                }
                otherwise.as_ref().map_or(Some(Value::Null), |otherwise| otherwise.value(row))
            }
            Expression::Array(items) => {
                let items = items.iter().map(|item| as_element(item.value(row)));
                Some(Value::from(items.collect::<Vec<_>>()))
            }
            Expression::Object(fields) => {
                let mut object = serde_json::Map::new();
                for (name, value) in fields {
                    if let Some(value) = value.value(row) {
                        object.insert(name.clone(), value);
                    }
                }
                Some(Value::Object(object))
            }
            Expression::Loop(inner) => inner.value(row),
            Expression::Call(function, args) => {
                let args: Vec<ModelValue> = args.iter().map(|arg| arg.value(row)).collect();
                call(*function, &args)
            }
        }
    }
}

fn is_in(value: ModelValue, list: ModelValue) -> ModelValue {
    let (Some(value), Some(list)) = (value, list) else { return None };
    let Value::Array(items) = list else { return Some(Value::Null) };
    if value.is_null() && !items.is_empty() {
        return Some(Value::Null);
    }
    let mut unknowns = Vec::new();
    for item in items {
        match relate(Binary::Equal, &Some(value.clone()), &element(&item)) {
            Some(Value::Bool(true)) => return boolean(true),
            Some(Value::Bool(false)) => {}
            unknown => unknowns.push(unknown),
        }
    }
    match unknowns.iter().find(|unknown| unknown.is_some()).or(unknowns.first()) {
        Some(unknown) => unknown.clone(),
        None => boolean(false),
    }
}

impl Loop {
    fn value(&self, row: &mut Row<'_>) -> ModelValue {
        let Value::Array(items) = self.source.value(row)? else { return Some(Value::Null) };
        let mut list = Vec::new();
        let count = items.len();
        let mut held = 0;
        for item in items {
            row.variables.resize(row.variables.len().max(self.variable + 1), None);
            row.variables[self.variable] = element(&item);
            let holds =
                self.condition.as_ref().is_none_or(|condition| truth(&condition.value(row)));
            if !holds {
                continue;
            }
            let value = self.value.value(row);
            if self.kind == LoopKind::First {
                return value;
            }
            held += usize::from(truth(&value));
            list.extend(value);
        }
        match self.kind {
            LoopKind::Array => Some(Value::from(list)),
            LoopKind::First => None,
            LoopKind::Any => boolean(held > 0),
            LoopKind::Every => boolean(held == count),
            LoopKind::AnyAndEvery => boolean(count > 0 && held == count),
        }
    }
}

fn call(function: Function, args: &[ModelValue]) -> ModelValue {
    match function {
        Function::IfMissing => {
            return args.iter().find(|arg| arg.is_some()).cloned().unwrap_or(Some(Value::Null));
        }
        Function::IfNull => {
            let found = args.iter().find(|arg| **arg != Some(Value::Null));
            return found.cloned().unwrap_or(Some(Value::Null));
        }
        Function::Type => {
            let names = ["missing", "null", "boolean", "number", "string", "array", "object"];
            return Some(Value::from(names[usize::from(rank(&args[0]))]));
        }
        _ => {}
    }
    let value = args[0].clone()?;
    Some(match (function, value) {
        (Function::ArrayLength, Value::Array(items)) => Value::from(items.len()),
        (Function::ArraySort, Value::Array(mut items)) => {
            items.sort_by(|left, right| collate(&element(left), &element(right)));
            Value::from(items)
        }
        (Function::ArrayDistinct, Value::Array(items)) => {
            let mut list: Vec<Value> = Vec::new();
            for item in items {
                let is_known = |known: &Value| collate(&element(known), &element(&item)).is_eq();
                if !list.iter().any(is_known) {
                    list.push(item);
                }
            }
            Value::from(list)
        }
        (Function::Length, Value::String(text)) => Value::from(text.len()),
        (Function::Reverse, Value::String(text)) => {
            Value::from(text.chars().rev().collect::<String>())
        }
        _ => Value::Null,
    })
}
