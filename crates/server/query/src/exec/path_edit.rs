//! SET and UNSET: changes of one document at computed places.
//!
//! Expressions see the document as it was; the changes go to a copy. A place that does not exist
//! is left alone, but for the last field of an object, and for an index after the end of an array.

use std::sync::Arc;

use crate::error::{QueryError, Result};
use crate::limits::VALUE_DEPTH_MAX;
use crate::plan::change::{AssignmentLoop, AssignmentPlan, AssignmentTarget, LoopSource};
use crate::plan::{FrameSlot, StepPlan};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{ArrayItems, Object, QueryValue, Text};

/// The largest array that SET extends.
const ITEMS_MAX: usize = 1 << 20;

/// One step to a place.
#[derive(Clone, Debug)]
enum Key {
    Field(Text),
    Index(i64),
}

/// The edits of a document by an UPDATE.
pub struct DocumentEdit {
    pub value: QueryValue,
    pub expiration: Option<u32>,
}

/// Applies assignments to the document in `frame[document]`.
pub fn apply(
    assignments: &[AssignmentPlan],
    document: FrameSlot,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<DocumentEdit> {
    let mut editor = Editor {
        document,
        rt,
        places: Vec::new(),
        edited: DocumentEdit { value: frame[document].clone(), expiration: None },
    };
    for assignment in assignments {
        editor.run_loops(assignment, &assignment.loops, frame)?;
    }
    debug_assert!(editor.places.is_empty(), "every loop has ended");
    Ok(editor.edited)
}

struct Editor<'r, 's> {
    document: FrameSlot,
    rt: &'r Runtime<'s>,
    /// Where the current values of loop variables are.
    places: Vec<(FrameSlot, Option<Vec<Key>>)>,
    edited: DocumentEdit,
}

/// An element of a loop: where it is, its position and its value.
struct Element {
    place: Option<Vec<Key>>,
    position: QueryValue,
    value: QueryValue,
}

impl Editor<'_, '_> {
    fn run_loops(
        &mut self,
        plan: &AssignmentPlan,
        loops: &[Vec<AssignmentLoop>],
        frame: &mut SlotFrame,
    ) -> Result<()> {
        let Some((list, inner)) = loops.split_first() else {
            return self.assign(plan, frame);
        };
        let used = self.rt.used();
        let mut turns = Vec::with_capacity(list.len());
        for one in list {
            let Some(elements) = self.elements(one, frame)? else {
                self.rt.release_to(used);
                return Ok(());
            };
            turns.push(elements);
        }
        let count = turns.iter().map(Vec::len).min().unwrap_or(0);
        for turn in 0..count {
            self.rt.turn()?;
            for (one, elements) in list.iter().zip(&turns) {
                let element = &elements[turn];
                frame[one.variable] = element.value.clone();
                if let Some(slot) = one.position {
                    frame[slot] = element.position.clone();
                }
                self.places.push((one.variable, element.place.clone()));
            }
            self.run_loops(plan, inner, frame)?;
            debug_assert!(self.places.len() >= list.len(), "each variable has a place");
            self.places.truncate(self.places.len() - list.len());
        }
        self.rt.release_to(used);
        Ok(())
    }

    fn elements(
        &mut self,
        one: &AssignmentLoop,
        frame: &mut SlotFrame,
    ) -> Result<Option<Vec<Element>>> {
        let (place, value) = match &one.source {
            LoopSource::Value(value) => (None, self.rt.eval(value, frame)?),
            LoopSource::Place { variable, steps } => {
                let base = frame[variable.unwrap_or(self.document)].clone();
                let Some(keys) = self.keys(steps, frame)? else { return Ok(None) };
                let value = get(base, &keys);
                (self.place(*variable, keys), value)
            }
        };
        let mut elements = Vec::new();
        if one.within {
            parts(&value, place.as_deref(), true, 0, &mut elements, self.rt)?;
        } else if value.is_array() {
            parts(&value, place.as_deref(), false, 0, &mut elements, self.rt)?;
        } else {
            return Ok(None);
        }
        Ok(Some(elements))
    }

    /// The full place of a path from the document or a loop variable.
    fn place(&self, variable: Option<FrameSlot>, mut keys: Vec<Key>) -> Option<Vec<Key>> {
        let Some(variable) = variable else { return Some(keys) };
        let known = self.places.iter().rev().find(|(slot, _)| *slot == variable)?;
        let mut place = known.1.clone()?;
        place.append(&mut keys);
        Some(place)
    }

    fn keys(&self, steps: &[StepPlan], frame: &mut SlotFrame) -> Result<Option<Vec<Key>>> {
        let mut keys = Vec::with_capacity(steps.len());
        for step in steps {
            keys.push(match step {
                StepPlan::Field(name) | StepPlan::Folded(name) => Key::Field(name.clone()),
                StepPlan::Computed(name) => match self.rt.eval(name, frame)? {
                    QueryValue::Str(name) => Key::Field(name),
                    _ => return Ok(None),
                },
                StepPlan::Index(index) => match self.rt.eval(index, frame)?.as_int() {
                    Some(index) => Key::Index(index),
                    None => return Ok(None),
                },
                StepPlan::Slice(..) | StepPlan::Star => return Ok(None),
            });
        }
        Ok(Some(keys))
    }

    fn assign(&mut self, plan: &AssignmentPlan, frame: &mut SlotFrame) -> Result<()> {
        if let Some(condition) = &plan.condition
            && !self.rt.holds(condition, frame)?
        {
            return Ok(());
        }
        let value = match &plan.value {
            Some(value) => self.rt.eval(value, frame)?,
            None => QueryValue::Missing,
        };
        let (variable, steps) = match &plan.target {
            AssignmentTarget::Path { variable, steps } => (*variable, steps),
            AssignmentTarget::Expiration => {
                let seconds = value.as_int().and_then(|seconds| u32::try_from(seconds).ok());
                self.edited.expiration = Some(seconds.unwrap_or(0));
                return Ok(());
            }
        };
        let Some(keys) = self.keys(steps, frame)? else { return Ok(()) };
        match self.place(variable, keys) {
            Some(place) => set(&mut self.edited.value, &place, value, self.rt),
            None => Ok(()),
        }
    }
}

fn get(mut value: QueryValue, keys: &[Key]) -> QueryValue {
    for key in keys {
        value = match key {
            Key::Field(name) => value.field(name.as_bytes()),
            Key::Index(index) => value.item(*index),
        };
    }
    value
}

fn parts(
    value: &QueryValue,
    place: Option<&[Key]>,
    deep: bool,
    depth: usize,
    out: &mut Vec<Element>,
    rt: &Runtime<'_>,
) -> Result<()> {
    if depth > VALUE_DEPTH_MAX {
        return Ok(());
    }
    let mut add = |key: Key, position: QueryValue, part: &QueryValue| -> Result<()> {
        rt.turn()?;
        // The list grows by doubling; a place is copied to the parts of its element.
        let keys = place.map_or(0, <[Key]>::len) + 1;
        rt.keep(3 * size_of::<Element>() + 2 * keys * size_of::<Key>())?;
        let place = place.map(|place| [place, std::slice::from_ref(&key)].concat());
        out.push(Element { place: place.clone(), position, value: part.clone() });
        if deep {
            parts(part, place.as_deref(), true, depth + 1, out, rt)?;
        }
        Ok(())
    };
    if let Some(items) = rt.elements(value)? {
        for (index, item) in items.iter().enumerate() {
            add(Key::Index(index as i64), QueryValue::from(index), item)?;
        }
    } else if deep && let Some(object) = rt.fields_of(value)? {
        for (name, field) in object.fields() {
            add(Key::Field(name.clone()), QueryValue::Str(name.clone()), field)?;
        }
    }
    Ok(())
}

/// The elements for a change. A copy of elements that others share is reserved.
fn own_items<'v>(items: &'v mut Arc<ArrayItems>, rt: &Runtime<'_>) -> Result<&'v mut ArrayItems> {
    if Arc::strong_count(items) > 1 {
        let memory = rt.reserve_value(items.len() * size_of::<QueryValue>())?;
        Arc::make_mut(items).hold(memory);
    }
    Ok(Arc::make_mut(items))
}

/// The same for the fields of an object.
fn own_fields<'v>(object: &'v mut Arc<Object>, rt: &Runtime<'_>) -> Result<&'v mut Object> {
    if Arc::strong_count(object) > 1 {
        let memory = rt.reserve_value(object.len() * size_of::<(Text, QueryValue)>())?;
        Arc::make_mut(object).hold(memory);
    }
    Ok(Arc::make_mut(object))
}

/// Sets the value at a place, or removes the field there if the value is missing.
fn set(root: &mut QueryValue, place: &[Key], value: QueryValue, rt: &Runtime<'_>) -> Result<()> {
    let Some((key, rest)) = place.split_first() else {
        // The whole document.
        if !value.is_missing() {
            *root = value;
        }
        return Ok(());
    };
    if let Some(items) = rt.elements(root)? {
        *root = QueryValue::Array(items);
    } else if let Some(object) = rt.fields_of(root)? {
        *root = QueryValue::Object(object);
    }
    match (root, key) {
        (QueryValue::Object(object), Key::Field(name)) => {
            let object = own_fields(object, rt)?;
            if rest.is_empty() {
                object.set(name.clone(), value);
            } else if let Some(mut part) = object.remove(name.as_bytes()) {
                set(&mut part, rest, value, rt)?;
                object.set(name.clone(), part);
            }
        }
        (QueryValue::Array(items), Key::Index(index)) => {
            let items = own_items(items, rt)?;
            let at = if *index < 0 { *index + items.len() as i64 } else { *index };
            let Ok(at) = usize::try_from(at) else { return Ok(()) };
            if !rest.is_empty() {
                return items.get_mut(at).map_or(Ok(()), |part| set(part, rest, value, rt));
            }
            if value.is_missing() {
                return Ok(());
            }
            if at >= ITEMS_MAX.max(items.len()) {
                return Err(QueryError::evaluation("SET makes the array too long"));
            }
            if at >= items.len() {
                items.hold(rt.reserve_value(2 * (at + 1) * size_of::<QueryValue>())?);
                items.resize(at + 1, QueryValue::Null);
            }
            items[at] = value;
        }
        _ => {}
    }
    Ok(())
}
