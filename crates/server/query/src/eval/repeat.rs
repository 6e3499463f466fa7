//! Loops of an expression: IN, WITHIN, ANY, EVERY, ARRAY, FIRST and OBJECT.

use std::sync::Arc;

use crate::ast::{CollectionKind, Quantifier};
use crate::error::Result;
use crate::operators::containment::descend;
use crate::plan::{ExprPlan, LoopPlan};
use crate::runtime::memory::GrowingMemory;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::ArrayItems;
use crate::value::{Object, QueryValue, Text};

/// The turns of a loop: values of its variables.
struct Turns {
    lists: Vec<List>,
    count: usize,
}

enum List {
    Items(Arc<ArrayItems>),
    Positioned { items: Vec<(QueryValue, QueryValue)>, _memory: GrowingMemory },
}

impl Turns {
    /// The turns, or the value of a loop over something else than lists.
    fn new(
        bindings: &[LoopPlan],
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
    ) -> Result<std::result::Result<Turns, QueryValue>> {
        let mut lists = Vec::with_capacity(bindings.len());
        let mut wrong = None;
        for binding in bindings {
            let source = rt.eval(&binding.source, frame)?;
            let is_list = source.is_array()
                || (source.is_object() && (binding.within || binding.position.is_some()));
            if source.is_missing() {
                return Ok(Err(QueryValue::Missing));
            }
            if !is_list {
                wrong = Some(QueryValue::Null);
                continue;
            }
            lists.push(if binding.within {
                let mut list = Vec::new();
                let mut memory = GrowingMemory::default();
                descend(&source, rt, &mut |position, part| {
                    rt.turn()?;
                    memory.add(4 * size_of::<QueryValue>(), rt)?;
                    list.push((position, part.clone()));
                    Ok(true)
                })?;
                List::Positioned { items: list, _memory: memory }
            } else {
                match rt.elements(&source)? {
                    Some(items) => List::Items(items),
                    None => List::fields(&source, rt)?,
                }
            });
        }
        if let Some(wrong) = wrong {
            return Ok(Err(wrong));
        }
        debug_assert!(lists.len() == bindings.len(), "each variable has a list");
        let count = lists.iter().map(List::len).min().unwrap_or(0);
        Ok(Ok(Turns { lists, count }))
    }

    fn set(&self, turn: usize, bindings: &[LoopPlan], frame: &mut SlotFrame) {
        debug_assert!(turn < self.count, "each list has the turn's element");
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
    fn fields(source: &QueryValue, rt: &Runtime<'_>) -> Result<List> {
        let object = rt.fields_of(source)?.unwrap_or_default();
        let mut memory = GrowingMemory::default();
        memory.add(object.len() * 2 * size_of::<QueryValue>(), rt)?;
        let fields = object.fields().iter();
        let fields = fields.map(|(name, field)| (QueryValue::Str(name.clone()), field.clone()));
        Ok(List::Positioned { items: fields.collect(), _memory: memory })
    }

    fn len(&self) -> usize {
        match self {
            List::Items(items) => items.len(),
            List::Positioned { items, .. } => items.len(),
        }
    }

    fn get(&self, index: usize) -> (QueryValue, QueryValue) {
        match self {
            List::Items(items) => (QueryValue::from(index), items[index].clone()),
            List::Positioned { items, .. } => items[index].clone(),
        }
    }
}

impl Runtime<'_> {
    pub fn quantified(
        &self,
        quantifier: Quantifier,
        bindings: &[LoopPlan],
        condition: &ExprPlan,
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let turns = match Turns::new(bindings, self, frame)? {
            Ok(turns) => turns,
            Err(value) => return Ok(value),
        };
        let any = quantifier == Quantifier::Any;
        for turn in 0..turns.count {
            self.turn()?;
            turns.set(turn, bindings, frame);
            if self.holds(condition, frame)? == any {
                return Ok(QueryValue::Bool(any));
            }
        }
        Ok(QueryValue::Bool(match quantifier {
            Quantifier::Any => false,
            Quantifier::Every => true,
            Quantifier::AnyAndEvery => turns.count > 0,
        }))
    }
}

/// The parts of ARRAY, FIRST and OBJECT apart from their bindings.
pub struct CollectionParts<'a> {
    pub kind: CollectionKind,
    pub key: Option<&'a ExprPlan>,
    pub value: &'a ExprPlan,
    pub condition: Option<&'a ExprPlan>,
}

impl Runtime<'_> {
    pub fn collection(
        &self,
        parts: CollectionParts<'_>,
        bindings: &[LoopPlan],
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let turns = match Turns::new(bindings, self, frame)? {
            Ok(turns) => turns,
            Err(value) => return Ok(value),
        };
        let mut items = Vec::new();
        let mut memory = GrowingMemory::default();
        let mut fields: Vec<(Text, QueryValue)> = Vec::new();
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
                    QueryValue::Str(key) => {
                        let value = self.eval(parts.value, frame)?;
                        let key = QueryValue::Str(key);
                        memory.add_item(&key, self)?;
                        memory.add_item(&value, self)?;
                        if let QueryValue::Str(key) = key {
                            fields.push((key, value));
                        }
                    }
                    QueryValue::Missing => return Ok(QueryValue::Missing),
                    _ => return Ok(QueryValue::Null),
                }
                continue;
            }
            let value = self.eval(parts.value, frame)?;
            match parts.kind {
                CollectionKind::First => return Ok(value),
                _ if value.is_missing() => {}
                _ => {
                    memory.add_item(&value, self)?;
                    items.push(value);
                }
            }
        }
        Ok(match parts.kind {
            CollectionKind::Array => memory.array(items),
            CollectionKind::First => QueryValue::Missing,
            CollectionKind::Object => memory.object(Object::new(fields)),
        })
    }
}
