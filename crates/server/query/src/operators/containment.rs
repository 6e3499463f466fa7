//! IN and WITHIN, and the walk through all parts of a value.

use crate::ast::Relation;
use crate::error::Result;
use crate::limits::VALUE_DEPTH_MAX;
use crate::runtime::Runtime;
use crate::value::QueryValue;

use super::logic::relate;

pub fn is_in(value: &QueryValue, list: &QueryValue, rt: &Runtime<'_>) -> Result<QueryValue> {
    if value.is_missing() || list.is_missing() {
        return Ok(QueryValue::Missing);
    }
    let Some(items) = list.elements() else { return Ok(QueryValue::Null) };
    if value.is_null() && !items.is_empty() {
        return Ok(QueryValue::Null);
    }
    let mut result = QueryValue::Bool(false);
    for item in items.iter() {
        rt.turn()?;
        match relate(Relation::Equal, value, item) {
            QueryValue::Bool(true) => return Ok(QueryValue::Bool(true)),
            QueryValue::Bool(false) => {}
            unknown if !result.is_null() => result = unknown,
            _ => {}
        }
    }
    Ok(result)
}

pub fn is_within(value: &QueryValue, list: &QueryValue, rt: &Runtime<'_>) -> Result<QueryValue> {
    if value.is_missing() || list.is_missing() {
        return Ok(QueryValue::Missing);
    }
    if !list.is_array() && !list.is_object() {
        return Ok(QueryValue::Null);
    }
    let mut result = QueryValue::Bool(false);
    let mut found = false;
    descend(list, &mut |_, item| {
        rt.turn()?;
        match relate(Relation::Equal, value, item) {
            QueryValue::Bool(true) => found = true,
            QueryValue::Bool(false) => {}
            unknown if !result.is_null() => result = unknown,
            _ => {}
        }
        Ok(!found)
    })?;
    Ok(if found { QueryValue::Bool(true) } else { result })
}

/// Visits all parts of a value, each before its own parts, until `visit` answers false.
pub fn descend(
    value: &QueryValue,
    visit: &mut dyn FnMut(QueryValue, &QueryValue) -> Result<bool>,
) -> Result<bool> {
    descend_at(value, visit, 0)
}

fn descend_at(
    value: &QueryValue,
    visit: &mut dyn FnMut(QueryValue, &QueryValue) -> Result<bool>,
    depth: usize,
) -> Result<bool> {
    if depth > VALUE_DEPTH_MAX {
        return Ok(true);
    }
    for (position, part) in parts(value, true) {
        if !visit(position, &part)? || !descend_at(&part, visit, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The elements with their positions; with `objects`, also fields with their names.
pub fn parts(value: &QueryValue, objects: bool) -> Vec<(QueryValue, QueryValue)> {
    if let Some(items) = value.elements() {
        let items = items.iter().enumerate();
        return items.map(|(index, item)| (QueryValue::from(index), item.clone())).collect();
    }
    match value.object() {
        Some(object) if objects => {
            let fields = object.fields().iter();
            fields.map(|(name, field)| (QueryValue::Str(name.clone()), field.clone())).collect()
        }
        _ => Vec::new(),
    }
}
