//! Loops of an expression: IN, WITHIN, ANY, EVERY, ARRAY, FIRST and OBJECT.

use std::sync::Arc;

use crate::ast::{CollectionKind, Quantifier, Relation};
use crate::error::Result;
use crate::limits::VALUE_DEPTH_MAX;
use crate::plan::Binding;
use crate::plan::Expr;
use crate::runtime::{Frame, Runtime};
use crate::value::{Object, Text, Value};

use super::logic::relate;

/// `value IN list`
pub fn is_in(value: &Value, list: &Value, rt: &Runtime<'_>) -> Result<Value> {
    if value.is_missing() || list.is_missing() {
        return Ok(Value::Missing);
    }
    let Some(items) = list.elements() else { return Ok(Value::Null) };
    if value.is_null() && !items.is_empty() {
        return Ok(Value::Null);
    }
    let mut result = Value::Bool(false);
    for item in items.iter() {
        rt.turn()?;
        match relate(Relation::Equal, value, item) {
            Value::Bool(true) => return Ok(Value::Bool(true)),
            Value::Bool(false) => {}
            unknown if !result.is_null() => result = unknown,
            _ => {}
        }
    }
    Ok(result)
}

/// `value WITHIN list`
pub fn is_within(value: &Value, list: &Value, rt: &Runtime<'_>) -> Result<Value> {
    if value.is_missing() || list.is_missing() {
        return Ok(Value::Missing);
    }
    if !list.is_array() && !list.is_object() {
        return Ok(Value::Null);
    }
    let mut result = Value::Bool(false);
    let mut found = false;
    descend(list, &mut |_, item| {
        rt.turn()?;
        match relate(Relation::Equal, value, item) {
            Value::Bool(true) => found = true,
            Value::Bool(false) => {}
            unknown if !result.is_null() => result = unknown,
            _ => {}
        }
        Ok(!found)
    })?;
    Ok(if found { Value::Bool(true) } else { result })
}

/// Visits all parts of a value, each before its own parts, until `visit` answers false.
pub fn descend(
    value: &Value,
    visit: &mut dyn FnMut(Value, &Value) -> Result<bool>,
) -> Result<bool> {
    descend_at(value, visit, 0)
}

fn descend_at(
    value: &Value,
    visit: &mut dyn FnMut(Value, &Value) -> Result<bool>,
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
fn parts(value: &Value, objects: bool) -> Vec<(Value, Value)> {
    if let Some(items) = value.elements() {
        let items = items.iter().enumerate();
        return items.map(|(index, item)| (Value::from(index), item.clone())).collect();
    }
    match value.object() {
        Some(object) if objects => {
            let fields = object.fields().iter();
            fields.map(|(name, field)| (Value::Str(name.clone()), field.clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// The turns of a loop: values of its variables.
struct Turns {
    /// Of each binding.
    lists: Vec<List>,
    count: usize,
}

enum List {
    Items(Arc<Vec<Value>>),
    Positioned(Vec<(Value, Value)>),
}

impl Turns {
    /// The turns, or the value of a loop over something else than lists.
    fn new(
        bindings: &[Binding],
        rt: &Runtime<'_>,
        frame: &mut Frame,
    ) -> Result<std::result::Result<Turns, Value>> {
        let mut lists = Vec::with_capacity(bindings.len());
        let mut wrong = None;
        for binding in bindings {
            let source = rt.eval(&binding.source, frame)?;
            let is_list = source.is_array()
                || (source.is_object() && (binding.within || binding.position.is_some()));
            if source.is_missing() {
                return Ok(Err(Value::Missing));
            }
            if !is_list {
                wrong = Some(Value::Null);
                continue;
            }
            lists.push(if binding.within {
                let mut list = Vec::new();
                descend(&source, &mut |position, part| {
                    rt.turn()?;
                    list.push((position, part.clone()));
                    Ok(true)
                })?;
                List::Positioned(list)
            } else {
                match source.elements() {
                    Some(items) => List::Items(items),
                    None => List::Positioned(parts(&source, true)),
                }
            });
        }
        if let Some(wrong) = wrong {
            return Ok(Err(wrong));
        }
        let count = lists.iter().map(List::len).min().unwrap_or(0);
        Ok(Ok(Turns { lists, count }))
    }

    fn set(&self, turn: usize, bindings: &[Binding], frame: &mut Frame) {
        for (binding, list) in bindings.iter().zip(&self.lists) {
            let (position, value) = list.get(turn);
            frame[binding.variable] = value;
            if let Some(slot) = binding.position {
                frame[slot] = position;
            }
        }
    }
}

impl List {
    fn len(&self) -> usize {
        match self {
            List::Items(items) => items.len(),
            List::Positioned(items) => items.len(),
        }
    }

    fn get(&self, index: usize) -> (Value, Value) {
        match self {
            List::Items(items) => (Value::from(index), items[index].clone()),
            List::Positioned(items) => items[index].clone(),
        }
    }
}

impl Runtime<'_> {
    pub fn quantified(
        &self,
        quantifier: Quantifier,
        bindings: &[Binding],
        condition: &Expr,
        frame: &mut Frame,
    ) -> Result<Value> {
        let turns = match Turns::new(bindings, self, frame)? {
            Ok(turns) => turns,
            Err(value) => return Ok(value),
        };
        let any = quantifier == Quantifier::Any;
        for turn in 0..turns.count {
            self.turn()?;
            turns.set(turn, bindings, frame);
            if self.holds(condition, frame)? == any {
                return Ok(Value::Bool(any));
            }
        }
        Ok(Value::Bool(match quantifier {
            Quantifier::Any => false,
            Quantifier::Every => true,
            Quantifier::AnyAndEvery => turns.count > 0,
        }))
    }
}

/// The parts of ARRAY, FIRST and OBJECT apart from their bindings.
pub struct CollectionParts<'a> {
    pub kind: CollectionKind,
    pub key: Option<&'a Expr>,
    pub value: &'a Expr,
    pub condition: Option<&'a Expr>,
}

impl Runtime<'_> {
    pub fn collection(
        &self,
        parts: CollectionParts<'_>,
        bindings: &[Binding],
        frame: &mut Frame,
    ) -> Result<Value> {
        let turns = match Turns::new(bindings, self, frame)? {
            Ok(turns) => turns,
            Err(value) => return Ok(value),
        };
        let mut items = Vec::new();
        let mut fields: Vec<(Text, Value)> = Vec::new();
        for turn in 0..turns.count {
            self.turn()?;
            turns.set(turn, bindings, frame);
            if let Some(condition) = parts.condition
                && !self.holds(condition, frame)?
            {
                continue;
            }
            if let Some(key) = parts.key {
                match self.eval(key, frame)? {
                    Value::Str(key) => fields.push((key, self.eval(parts.value, frame)?)),
                    Value::Missing => return Ok(Value::Missing),
                    _ => return Ok(Value::Null),
                }
                continue;
            }
            let value = self.eval(parts.value, frame)?;
            match parts.kind {
                CollectionKind::First => return Ok(value),
                _ if value.is_missing() => {}
                _ => items.push(value),
            }
        }
        Ok(match parts.kind {
            CollectionKind::Array => Value::from(items),
            CollectionKind::First => Value::Missing,
            CollectionKind::Object => Value::from(Object::new(fields)),
        })
    }
}
