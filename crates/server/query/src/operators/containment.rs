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
    let Some(items) = rt.elements(list)? else { return Ok(QueryValue::Null) };
    if value.is_null() && !items.is_empty() {
        return Ok(QueryValue::Null);
    }
    let mut result = QueryValue::Bool(false);
    for item in items.iter() {
        rt.turn()?;
        rt.work(value.walked_bytes().min(item.walked_bytes()))?;
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
    descend(list, rt, &mut |_, item| {
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
    rt: &Runtime<'_>,
    visit: &mut dyn FnMut(QueryValue, &QueryValue) -> Result<bool>,
) -> Result<bool> {
    descend_at(value, rt, visit, 0)
}

fn descend_at(
    value: &QueryValue,
    rt: &Runtime<'_>,
    visit: &mut dyn FnMut(QueryValue, &QueryValue) -> Result<bool>,
    depth: usize,
) -> Result<bool> {
    if depth > VALUE_DEPTH_MAX {
        return Ok(true);
    }
    let mut each = |position: QueryValue, part: &QueryValue| -> Result<bool> {
        Ok(visit(position, part)? && descend_at(part, rt, visit, depth + 1)?)
    };
    if let Some(items) = rt.elements(value)? {
        for (index, item) in items.iter().enumerate() {
            if !each(QueryValue::from(index), item)? {
                return Ok(false);
            }
        }
    } else if let Some(object) = rt.fields_of(value)? {
        for (name, field) in object.fields() {
            if !each(QueryValue::Str(name.clone()), field)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
