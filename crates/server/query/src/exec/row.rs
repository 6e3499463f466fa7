//! A result row before it is text or a value: its fields in the order of the SELECT.

use crate::error::Result;
use crate::functions::function::{check_values, checked};
use crate::plan::{ProjectionPlan, ProjectionTerm};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{Object, QueryValue, Text, key, write};

/// Removes the value at a path of EXCLUDE.
fn exclude(fields: &mut Vec<(Text, QueryValue)>, path: &[Text], rt: &Runtime<'_>) -> Result<()> {
    match path {
        [name] => fields.retain(|(known, _)| known != name),
        [name, rest @ ..] => {
            for (_, value) in fields.iter_mut().filter(|(known, _)| known == name) {
                *value = rt.with_scratch(|| without(value, rest, rt))?;
            }
        }
        [] => {}
    }
    Ok(())
}

/// The value without its part at a path.
fn without(value: &QueryValue, path: &[Text], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some((name, rest)), Some(object)) = (path.split_first(), rt.fields_of(value)?) else {
        return Ok(value.clone());
    };
    let Some(part) = object.get(name.as_bytes()) else { return Ok(value.clone()) };
    let part = if rest.is_empty() { QueryValue::Missing } else { without(part, rest, rt)? };
    rt.scratch(object.len() * size_of::<(Text, QueryValue)>())?;
    let mut object = (*object).clone();
    object.set(name.clone(), part);
    Ok(QueryValue::from(object))
}

#[derive(Clone, Debug)]
pub enum ResultRow {
    Value(QueryValue),
    /// Names in their order; of equal ones the last counts.
    Fields(Vec<(Text, QueryValue)>),
}

impl ResultRow {
    /// The row of the current frame.
    pub fn project(
        plan: &ProjectionPlan,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
    ) -> Result<ResultRow> {
        if plan.raw
            && let [ProjectionTerm::Value(_, value)] = &plan.terms[..]
        {
            return Ok(ResultRow::Value(checked(rt.eval(value, frame)?)?));
        }
        let mut fields: Vec<(Text, QueryValue)> = Vec::with_capacity(plan.terms.len());
        let has_star = plan.terms.iter().any(|term| !matches!(term, ProjectionTerm::Value(..)));
        let mut add = |name: Text, value: QueryValue| {
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
        for path in &plan.excluded {
            exclude(&mut fields, path, rt)?;
        }
        check_values(fields.iter().map(|(_, value)| value))?;
        Ok(ResultRow::Fields(fields))
    }

    /// The row as a value.
    pub fn into_value(self) -> QueryValue {
        match self {
            ResultRow::Value(value) => value,
            ResultRow::Fields(fields) => QueryValue::from(Object::new(fields)),
        }
    }

    /// Appends the row's JSON text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            ResultRow::Value(value) => write::write(value, out),
            ResultRow::Fields(fields) => {
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
            ResultRow::Value(value) => key::append(value, &mut out),
            ResultRow::Fields(fields) => {
                key::append(&QueryValue::from(Object::new(fields.clone())), &mut out);
            }
        }
        out.into()
    }

    pub fn byte_count(&self) -> usize {
        match self {
            ResultRow::Value(value) => value.byte_count(),
            ResultRow::Fields(fields) => {
                fields.iter().map(|(_, value)| size_of::<Text>() + value.byte_count()).sum()
            }
        }
    }
}
