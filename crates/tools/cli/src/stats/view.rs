//! A group of statistics for people: related figures are shown together.
//!
//! It owns the meaning of names: `vb_12:high_seqno` is a figure of vbucket 12,
//! `vb_12:persistence:cursor_seqno` one of its cursors', `0x0:0x8:items` one of a collection in a
//! scope. Names without a colon are figures of the whole. JSON values become histograms and tables.
//! [`layout`] lays the view out.
//!
//! It keeps all figures in memory, up to a limit, and only counts those beyond. Larger groups are
//! for programs, which do not read this form.

mod layout;

use std::collections::HashMap;

use oribi_client::Stat;
use serde_json::{Map, Value};

use super::histogram::Histogram;
use super::text::clean;

/// Figures to keep: more than a person reads, and still drawn in less than a second.
const FIGURES_MAX: usize = 100_000;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Figure {
    name: String,
    value: String,
}

/// Something that has figures: the whole, a vbucket, a cursor, a collection.
#[derive(Clone, Default, Debug)]
struct Entity {
    name: String,
    figures: Vec<Figure>,
    parts: Vec<Entity>,
    /// The index of each part, by name.
    index: HashMap<String, usize>,
}

impl Entity {
    fn named(name: &str) -> Entity {
        Entity { name: name.to_owned(), ..Entity::default() }
    }

    /// The part of this name, created if it is missing.
    fn part(&mut self, name: &str) -> &mut Entity {
        let position = match self.index.get(name) {
            Some(position) => *position,
            None => {
                self.parts.push(Entity::named(name));
                self.index.insert(name.to_owned(), self.parts.len() - 1);
                self.parts.len() - 1
            }
        };
        &mut self.parts[position]
    }

    /// Sets a figure; some groups send the name of a collection twice.
    fn set(&mut self, name: &str, value: String) {
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.value = value,
            None => self.figures.push(Figure { name: name.to_owned(), value }),
        }
    }

    /// The object's fields as figures.
    fn set_fields(&mut self, fields: &Map<String, Value>) {
        for (name, value) in fields {
            let text = match value {
                Value::String(text) => clean(text.as_bytes()),
                other => clean(other.to_string().as_bytes()),
            };
            self.set(&clean(name.as_bytes()), text);
        }
    }
}

/// See the module text.
#[derive(Clone, Default, Debug)]
pub struct StatsView {
    whole: Entity,
    /// Titles and rows of figures that were lists of objects.
    lists: Vec<(String, Vec<Entity>)>,
    /// Figures that were objects.
    objects: Vec<Entity>,
    histograms: Vec<(String, Histogram)>,
    figures: usize,
    left_out: u64,
}

impl StatsView {
    pub fn add(&mut self, stat: &Stat<'_>) {
        if self.figures == FIGURES_MAX {
            self.left_out += 1;
            return;
        }
        self.figures += 1;
        let (name, value) = (clean(stat.name), clean(stat.value));
        if value.starts_with(['{', '[']) && self.add_document(&name, &value) {
            return;
        }
        let (owner, figure) = owner_of(&name);
        match owner {
            Owner::Whole => self.whole.figures.push(Figure { name: figure.to_owned(), value }),
            Owner::Entity(entity) => self.whole.part(entity).set(figure, value),
            Owner::Part(entity, part) => self.whole.part(entity).part(part).set(figure, value),
        }
    }

    /// Figures beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// False when the value is not a document with a special form.
    fn add_document(&mut self, name: &str, value: &str) -> bool {
        if let Some(histogram) = Histogram::parse(value) {
            self.histograms.push((name.to_owned(), histogram));
            return true;
        }
        match serde_json::from_str(value) {
            Ok(Value::Object(fields)) => {
                let mut entity = Entity::named(name);
                entity.set_fields(&fields);
                self.objects.push(entity);
                true
            }
            Ok(Value::Array(elements)) if elements.iter().all(Value::is_object) => {
                let mut rows = Vec::with_capacity(elements.len());
                for fields in elements.iter().filter_map(Value::as_object) {
                    let mut entity = Entity::default();
                    entity.set_fields(fields);
                    rows.push(entity);
                }
                self.lists.push((name.to_owned(), rows));
                true
            }
            _ => false,
        }
    }
}

/// The owner of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner<'a> {
    Whole,
    Entity(&'a str),
    /// Of the first, the second.
    Part(&'a str, &'a str),
}

/// The owner in a figure's full name, and the figure's own name.
fn owner_of(name: &str) -> (Owner<'_>, &str) {
    let name = name.trim_end_matches(':');
    if let Some(entity) = name.strip_suffix(":manifest:uid") {
        return (Owner::Entity(entity), "manifest:uid");
    }
    match (name.split_once(':'), name.rsplit_once(':')) {
        (Some((outer, rest)), Some((_, figure))) if !outer.starts_with("ep_") => {
            match rest.strip_suffix(figure).map(|inner| inner.trim_end_matches(':')) {
                Some(inner) if !inner.is_empty() => (Owner::Part(outer, inner), figure),
                _ => (Owner::Entity(outer), figure),
            }
        }
        _ if is_vbucket(name) => (Owner::Entity(name), "state"),
        _ => (Owner::Whole, name),
    }
}

fn is_vbucket(name: &str) -> bool {
    name.strip_prefix("vb_").is_some_and(|id| id.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests;
