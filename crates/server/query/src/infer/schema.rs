//! The schema of values seen at one place, in the form of JSON schema draft 6 with counts.
//!
//! Owns: counts, samples, fields and elements by type. A place with values of several types has
//! lists instead of single members, in the order of `type`.

use std::collections::BTreeMap;

use super::options::InferOptions;
use crate::error::Result;
use crate::limits::{INFER_DEPTH_MAX, INFER_FIELDS_MAX};
use crate::runtime::Runtime;
use crate::value::order::collate;
use crate::value::{Object, QueryValue, Text};

/// Longest text of a sample.
const SAMPLE_BYTES_MAX: usize = 256;

/// Elements of an array that are looked at.
const ELEMENTS_MAX: usize = 100;

/// Bytes of a place and of a type there.
const PLACE_BYTES: usize = 400;

/// Values seen at one place, by their type.
#[derive(Default)]
pub(super) struct ValueShape(BTreeMap<&'static str, TypeFigures>);

/// Values of one type.
#[derive(Default)]
struct TypeFigures {
    count: u64,
    samples: Vec<QueryValue>,
    /// Those of an object. A further one is not shown.
    fields: BTreeMap<Text, ValueShape>,
    /// The elements of arrays, and how many there are at least and at most.
    items: Option<Box<(ValueShape, usize, usize)>>,
}

impl ValueShape {
    pub fn add(
        &mut self,
        value: &QueryValue,
        options: &InferOptions,
        rt: &Runtime<'_>,
    ) -> Result<()> {
        self.add_at(value, 0, options, rt)
    }

    fn add_at(
        &mut self,
        value: &QueryValue,
        depth: usize,
        options: &InferOptions,
        rt: &Runtime<'_>,
    ) -> Result<()> {
        debug_assert!(depth <= INFER_DEPTH_MAX, "a schema has few levels");
        rt.turn()?;
        let name = match value {
            QueryValue::Int(_) => "integer",
            other => other.kind().name(),
        };
        if !self.0.contains_key(name) {
            rt.keep(PLACE_BYTES)?;
        }
        let figures = self.0.entry(name).or_default();
        figures.count += 1;
        figures.add_sample(value, options, rt)?;
        if depth >= INFER_DEPTH_MAX {
            return Ok(());
        }
        if let Some(items) = value.is_array().then(|| value.elements()).flatten() {
            let parts = figures
                .items
                .get_or_insert_with(|| Box::new((ValueShape::default(), usize::MAX, 0)));
            (parts.1, parts.2) = (parts.1.min(items.len()), parts.2.max(items.len()));
            for item in items.iter().take(ELEMENTS_MAX) {
                parts.0.add_at(item, depth + 1, options, rt)?;
            }
        } else if let Some(object) = value.object() {
            for (field, value) in object.fields() {
                if !figures.fields.contains_key(field) {
                    if figures.fields.len() >= INFER_FIELDS_MAX {
                        continue;
                    }
                    rt.keep(PLACE_BYTES + field.as_bytes().len())?;
                }
                // A copy: the name may share the memory of a whole document.
                let copy = || Text::from(field.to_string());
                let place = match figures.fields.get_mut(field) {
                    Some(place) => place,
                    None => figures.fields.entry(copy()).or_default(),
                };
                place.add_at(value, depth + 1, options, rt)?;
            }
        }
        Ok(())
    }

    pub fn count(&self) -> u64 {
        self.0.values().map(|figures| figures.count).sum()
    }

    /// The part of names and types at the top level that two shapes have in common, from 0 to 1.
    pub fn similarity(&self, other: &ValueShape) -> f64 {
        let mut pairs = (0_u32, 0_u32);
        for (name, figures) in &other.0 {
            let known = self.0.get(name);
            if figures.fields.is_empty() {
                pairs = (
                    pairs.0 + u32::from(known.is_some_and(|one| one.fields.is_empty())),
                    pairs.1 + 1,
                );
            }
            for (field, shape) in &figures.fields {
                let same = known.and_then(|known| known.fields.get(field));
                let is_same =
                    same.is_some_and(|same| shape.0.keys().all(|one| same.0.contains_key(one)));
                pairs = (pairs.0 + u32::from(is_same), pairs.1 + 1);
            }
        }
        debug_assert!(pairs.0 <= pairs.1, "a pair that both have is one of all");
        let own: usize = self.0.values().map(|figures| figures.fields.len().max(1)).sum();
        f64::from(pairs.0) / f64::from(pairs.1).max(own as f64)
    }

    /// The schema of a flavor, whose documents have these keys.
    pub fn schema(&self, keys: &ValueShape) -> QueryValue {
        let count = self.count();
        let mut members = self.members(count);
        members.retain(|(name, _)| !matches!(&*name.to_string(), "%docs" | "samples"));
        members.push(("$schema".into(), "http://json-schema.org/draft-06/schema".into()));
        members.push(("Flavor".into(), QueryValue::from(self.flavor(count))));
        for (name, value) in &mut members {
            if *name == Text::from("properties")
                && let Some(fields) = value.object()
            {
                let mut fields = (*fields).clone();
                let id = Object::new(vec![("id".into(), keys.described(count))]);
                let meta = vec![
                    ("#docs".into(), number(count)),
                    ("%docs".into(), QueryValue::Int(100)),
                    ("properties".into(), QueryValue::from(id)),
                    ("type".into(), "object".into()),
                ];
                fields.set("~meta".into(), QueryValue::from(Object::new(meta)));
                *value = QueryValue::from(fields);
            }
        }
        QueryValue::from(Object::new(members))
    }

    /// The fields that have one value in all documents.
    fn flavor(&self, count: u64) -> String {
        let Some(object) = self.0.get("object") else { return String::new() };
        let constant = object.fields.iter().filter_map(|(name, shape)| {
            let [figures] = &shape.0.values().collect::<Vec<_>>()[..] else { return None };
            let [value] = &figures.samples[..] else { return None };
            let is_scalar = !value.is_array() && !value.is_object();
            let is_constant = figures.count == count && count > 1 && is_scalar;
            is_constant.then(|| format!("`{name}` = {}", crate::value::write::to_json(value)))
        });
        constant.collect::<Vec<_>>().join(", ")
    }

    fn described(&self, count: u64) -> QueryValue {
        QueryValue::from(Object::new(self.members(count)))
    }

    /// The members of a schema, of `count` documents.
    fn members(&self, count: u64) -> Vec<(Text, QueryValue)> {
        let mut members: Vec<(Text, QueryValue)> = Vec::new();
        let mut listed = |name: &str, of: &dyn Fn(&TypeFigures) -> QueryValue| {
            let mut values: Vec<QueryValue> = self.0.values().map(of).collect();
            let value = match values.len() {
                1 => values.pop().unwrap_or_default(),
                _ => QueryValue::from(values),
            };
            members.push((name.into(), value));
        };
        listed("#docs", &|figures| number(figures.count));
        listed("%docs", &|figures| {
            let percent = figures.count as f64 * 100.0 / count.max(1) as f64;
            QueryValue::number((percent * 100.0).round() / 100.0)
        });
        listed("samples", &|figures| QueryValue::from(figures.samples.clone()));
        let types: Vec<QueryValue> = self.0.keys().map(|name| QueryValue::from(*name)).collect();
        let types = match &types[..] {
            [one] => one.clone(),
            _ => QueryValue::from(types),
        };
        members.push(("type".into(), types));
        for figures in self.0.values() {
            if !figures.fields.is_empty() {
                let fields = figures.fields.iter();
                let fields = fields.map(|(name, shape)| (name.clone(), shape.described(count)));
                let fields = QueryValue::from(Object::new(fields.collect()));
                members.push(("properties".into(), fields));
            }
            if let Some(items) = &figures.items {
                let (shape, least, most) = &**items;
                members.push(("minItems".into(), QueryValue::from(*least)));
                members.push(("maxItems".into(), QueryValue::from(*most)));
                if !shape.0.is_empty() {
                    members.push(("items".into(), shape.described(shape.count())));
                }
            }
        }
        members
    }
}

impl TypeFigures {
    /// Keeps some distinct values that are no objects, in their order.
    fn add_sample(
        &mut self,
        value: &QueryValue,
        options: &InferOptions,
        rt: &Runtime<'_>,
    ) -> Result<()> {
        let may_add = self.samples.len() < options.sample_values && !value.is_object();
        if !may_add || matches!(value, QueryValue::Binary(_)) {
            return Ok(());
        }
        let text = crate::value::write::to_json(value);
        if text.len() > SAMPLE_BYTES_MAX {
            return Ok(());
        }
        if let Err(at) = self.samples.binary_search_by(|one| collate(one, value)) {
            rt.keep(2 * text.len() + size_of::<QueryValue>())?;
            // A copy: the value may share the memory of a whole document.
            let copy = crate::value::json::parse(&text.into()).unwrap_or_default();
            self.samples.insert(at, copy);
            debug_assert!(self.samples.len() <= options.sample_values, "few samples are kept");
        }
        Ok(())
    }
}

fn number(count: u64) -> QueryValue {
    QueryValue::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
