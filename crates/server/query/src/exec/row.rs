//! A result row before it is text or a value: its fields in the order of the SELECT.

use crate::error::Result;
use crate::plan::{ProjectionPlan, ProjectionTerm};
use crate::runtime::{Frame, Runtime};
use crate::value::{Object, Text, Value, key, write};

/// A result row.
#[derive(Clone, Debug)]
pub enum Row {
    /// Of `SELECT RAW`.
    Value(Value),
    /// Names in their order; of equal ones the last counts.
    Fields(Vec<(Text, Value)>),
}

impl Row {
    /// The row of the current frame.
    pub fn project(plan: &ProjectionPlan, rt: &Runtime<'_>, frame: &mut Frame) -> Result<Row> {
        if plan.raw
            && let [ProjectionTerm::Value(_, value)] = &plan.terms[..]
        {
            return Ok(Row::Value(rt.eval(value, frame)?));
        }
        let mut fields: Vec<(Text, Value)> = Vec::with_capacity(plan.terms.len());
        let has_star = plan.terms.iter().any(|term| !matches!(term, ProjectionTerm::Value(..)));
        let mut add = |name: Text, value: Value| {
            if value.is_missing() {
                return;
            }
            if has_star && let Some(known) = fields.iter_mut().find(|(known, _)| *known == name) {
                known.1 = value;
            } else {
                fields.push((name, value));
            }
        };
        for term in &plan.terms {
            match term {
                ProjectionTerm::Value(name, value) => add(name.clone(), rt.eval(value, frame)?),
                ProjectionTerm::All(slots) => {
                    slots.iter().for_each(|(name, slot)| add(name.clone(), frame[*slot].clone()));
                }
                ProjectionTerm::AllOf(value) => {
                    let object = rt.eval(value, frame)?.object().unwrap_or_default();
                    let all = object.fields().iter();
                    all.for_each(|(name, value)| add(name.clone(), value.clone()));
                }
            }
        }
        Ok(Row::Fields(fields))
    }

    /// The row as a value.
    pub fn into_value(self) -> Value {
        match self {
            Row::Value(value) => value,
            Row::Fields(fields) => Value::from(Object::new(fields)),
        }
    }

    /// Appends the row's JSON text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Row::Value(value) => write::write(value, out),
            Row::Fields(fields) => {
                out.push(b'{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write::write_field(&name.to_str(), value, out);
                }
                out.push(b'}');
            }
        }
    }

    /// The key by which equal rows are found.
    pub fn key(&self) -> Box<[u8]> {
        let mut out = Vec::new();
        match self {
            Row::Value(value) => key::append(value, &mut out),
            Row::Fields(fields) => {
                key::append(&Value::from(Object::new(fields.clone())), &mut out);
            }
        }
        out.into()
    }

    pub fn byte_count(&self) -> usize {
        match self {
            Row::Value(value) => value.byte_count(),
            Row::Fields(fields) => {
                fields.iter().map(|(_, value)| size_of::<Text>() + value.byte_count()).sum()
            }
        }
    }
}
