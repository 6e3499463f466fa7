//! Steps of a path: fields, elements, slices and `[*]`.

use crate::error::Result;
use crate::plan::{Expr, Step};
use crate::runtime::{Frame, Runtime};
use crate::value::{Object, Text, Value};

impl Runtime<'_> {
    /// The value at a path.
    pub fn path(
        &self,
        base: &Expr,
        names: &[Text],
        rest: &[Step],
        frame: &mut Frame,
    ) -> Result<Value> {
        let mut value = match base {
            Expr::Slot(slot) => fields(&frame[*slot], names),
            other => fields(&self.eval(other, frame)?, names),
        };
        let mut steps = rest.iter();
        while let Some(next) = steps.next() {
            value = match (next, steps.as_slice().first()) {
                (Step::Star, Some(Step::Field(name))) => {
                    steps.next();
                    star_field(&value, name)
                }
                _ => self.step(value, next, frame)?,
            };
        }
        Ok(value)
    }

    fn step(&self, value: Value, step: &Step, frame: &mut Frame) -> Result<Value> {
        Ok(match step {
            Step::Field(name) => value.field(name.as_bytes()),
            Step::Folded(name) => value.folded_field(name),
            Step::Computed(name) => match (&value, self.eval(name, frame)?) {
                (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
                (_, Value::Str(name)) => value.field(name.as_bytes()),
                _ => Value::Null,
            },
            Step::Index(index) => item(&value, &self.eval(index, frame)?),
            Step::Slice(start, end) => {
                let mut bound = |bound: &Option<Expr>| {
                    bound.as_ref().map(|bound| self.eval(bound, frame)).transpose()
                };
                let (start, end) = (bound(start)?, bound(end)?);
                slice(&value, start, end)
            }
            Step::Star => star(&value),
        })
    }
}

/// Follows plain names without copying what is between.
fn fields(value: &Value, names: &[Text]) -> Value {
    let mut value = value;
    for (index, name) in names.iter().enumerate() {
        match value {
            Value::Json(json) => return json.path(&names[index..]),
            Value::Object(object) => match object.get(name.as_bytes()) {
                Some(field) => value = field,
                None => return Value::Missing,
            },
            _ => return Value::Missing,
        }
    }
    value.clone()
}

fn item(value: &Value, index: &Value) -> Value {
    if value.is_missing() || index.is_missing() {
        return Value::Missing;
    }
    match (index.as_int(), index) {
        (Some(index), _) => value.item(index),
        // A whole number that is no index of any array.
        (None, Value::Float(number)) if number.fract() == 0.0 => Value::Missing,
        _ => Value::Null,
    }
}

fn slice(value: &Value, start: Option<Value>, end: Option<Value>) -> Value {
    let bounds = [start, end];
    if value.is_missing() || bounds.iter().flatten().any(Value::is_missing) {
        return Value::Missing;
    }
    let Some(items) = value.elements() else { return Value::Null };
    let length = items.len() as i64;
    let position = |bound: &Option<Value>, default: i64| match bound {
        Some(bound) => bound.as_int().map(|at| if at < 0 { at.saturating_add(length) } else { at }),
        None => Some(default),
    };
    let (Some(start), Some(end)) = (position(&bounds[0], 0), position(&bounds[1], length)) else {
        return Value::Null;
    };
    let open = bounds[1].is_none() && start == length && length > 0;
    if start < 0 || end > length || start > end || open {
        return Value::Missing;
    }
    Value::from(items[start as usize..end as usize].to_vec())
}

/// An object with an array of values for each field that some element has.
pub fn star(value: &Value) -> Value {
    if value.is_missing() {
        return Value::Missing;
    }
    let Some(items) = value.elements() else { return Value::Null };
    let objects: Vec<_> = items.iter().map(Value::object).collect();
    let mut names: Vec<Text> = Vec::new();
    for object in objects.iter().flatten() {
        names.extend(object.fields().iter().map(|(name, _)| name.clone()));
    }
    names.sort();
    names.dedup();
    let column = |name: Text| {
        let field = |object: &Option<std::sync::Arc<Object>>| {
            let field = object.as_ref().and_then(|object| object.get(name.as_bytes()));
            field.cloned().unwrap_or(Value::Null)
        };
        let values: Vec<Value> = objects.iter().map(field).collect();
        (name.clone(), Value::from(values))
    };
    Value::from(Object::new(names.into_iter().map(column).collect()))
}

/// `[*].name` without the other fields.
fn star_field(value: &Value, name: &Text) -> Value {
    let Some(items) = value.elements() else {
        return Value::Missing;
    };
    let values: Vec<Value> = items.iter().map(|item| item.field(name.as_bytes())).collect();
    if values.iter().all(Value::is_missing) {
        return Value::Missing;
    }
    Value::from(values.into_iter().map(Value::or_null).collect::<Vec<_>>())
}
