//! Fields, elements and slices of values.

use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::{Object, QueryValue, Text};

/// Follows plain names without copying the values between.
pub fn fields(value: &QueryValue, names: &[Text]) -> QueryValue {
    let mut value = value;
    for (index, name) in names.iter().enumerate() {
        match value {
            QueryValue::Json(json) => return json.path(&names[index..]),
            QueryValue::Object(object) => match object.get(name.as_bytes()) {
                Some(field) => value = field,
                None => return QueryValue::Missing,
            },
            _ => return QueryValue::Missing,
        }
    }
    value.clone()
}

pub fn item(value: &QueryValue, index: &QueryValue) -> QueryValue {
    if value.is_missing() || index.is_missing() {
        return QueryValue::Missing;
    }
    match (index.as_int(), index) {
        (Some(index), _) => value.item(index),
        // A whole number that is no index of any array.
        (None, QueryValue::Float(number)) if number.fract() == 0.0 => QueryValue::Missing,
        _ => QueryValue::Null,
    }
}

pub fn slice(
    value: &QueryValue,
    start: Option<QueryValue>,
    end: Option<QueryValue>,
    rt: &Runtime<'_>,
) -> Result<QueryValue> {
    let bounds = [start, end];
    if value.is_missing() || bounds.iter().flatten().any(QueryValue::is_missing) {
        return Ok(QueryValue::Missing);
    }
    let Some(items) = rt.elements(value)? else { return Ok(QueryValue::Null) };
    let length = items.len() as i64;
    let position = |bound: &Option<QueryValue>, default: i64| match bound {
        Some(bound) => bound.as_int().map(|at| if at < 0 { at.saturating_add(length) } else { at }),
        None => Some(default),
    };
    let (Some(start), Some(end)) = (position(&bounds[0], 0), position(&bounds[1], length)) else {
        return Ok(QueryValue::Null);
    };
    let open = bounds[1].is_none() && start == length && length > 0;
    if start < 0 || end > length || start > end || open {
        return Ok(QueryValue::Missing);
    }
    let part = &items[start as usize..end as usize];
    rt.scratch(size_of_val(part))?;
    Ok(QueryValue::from(part.to_vec()))
}

/// An object with an array of values for each field that some element has.
pub fn star(value: &QueryValue, rt: &Runtime<'_>) -> Result<QueryValue> {
    if value.is_missing() {
        return Ok(QueryValue::Missing);
    }
    let Some(items) = rt.elements(value)? else { return Ok(QueryValue::Null) };
    rt.scratch(2 * size_of_val(&items[..]))?;
    let mut objects = Vec::with_capacity(items.len());
    for item in items.iter() {
        objects.push(rt.fields_of(item)?);
    }
    let mut names: Vec<Text> = Vec::new();
    for object in objects.iter().flatten() {
        // The names are sorted, then each has a column.
        rt.scratch(object.len() * 4 * size_of::<QueryValue>())?;
        names.extend(object.fields().iter().map(|(name, _)| name.clone()));
    }
    names.sort();
    names.dedup();
    rt.scratch(names.len() * objects.len() * size_of::<QueryValue>())?;
    let column = |name: Text| {
        let field = |object: &Option<std::sync::Arc<Object>>| {
            let field = object.as_ref().and_then(|object| object.get(name.as_bytes()));
            field.cloned().unwrap_or(QueryValue::Null)
        };
        let values: Vec<QueryValue> = objects.iter().map(field).collect();
        (name.clone(), QueryValue::from(values))
    };
    Ok(QueryValue::from(Object::new(names.into_iter().map(column).collect())))
}

/// `[*].name` without the other fields.
pub fn star_field(value: &QueryValue, name: &Text, rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(items) = rt.elements(value)? else {
        return Ok(QueryValue::Missing);
    };
    rt.scratch(2 * size_of_val(&items[..]))?;
    let values: Vec<QueryValue> = items.iter().map(|item| item.field(name.as_bytes())).collect();
    if values.iter().all(QueryValue::is_missing) {
        return Ok(QueryValue::Missing);
    }
    Ok(QueryValue::from(values.into_iter().map(QueryValue::or_null).collect::<Vec<_>>()))
}
