//! GROUP BY by hash.
//!
//! A group keeps its key values and the states of its aggregates. It keeps its first row only if a
//! subquery reads it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::aggregates::AggregateState;
use crate::error::Result;
use crate::plan::GroupPlan;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{QueryValue, key};

use super::flow::Flow;

/// Bytes of a group apart from its keys and states.
const GROUP_BYTES: usize = 96;

pub struct GroupTable<'p> {
    plan: &'p GroupPlan,
    numbers: HashMap<Box<[u8]>, usize>,
    groups: Vec<GroupBy>,
    key: Vec<u8>,
}

struct GroupBy {
    keys: Vec<QueryValue>,
    states: Vec<AggregateState>,
    row: Option<SlotFrame>,
}

impl<'p> GroupTable<'p> {
    pub fn new(plan: &'p GroupPlan) -> GroupTable<'p> {
        GroupTable { plan, numbers: HashMap::new(), groups: Vec::new(), key: Vec::new() }
    }

    /// Adds the row of the frame to its group.
    pub fn add(&mut self, frame: &mut SlotFrame, rt: &Runtime<'_>) -> Result<()> {
        let mut keys: smallvec::SmallVec<[QueryValue; 2]> = smallvec::SmallVec::new();
        self.key.clear();
        for (_, expr) in &self.plan.keys {
            let value = rt.eval(expr, frame)?;
            key::append(&value, &mut self.key);
            keys.push(value);
        }
        let number = match self.numbers.get(&self.key[..]) {
            Some(number) => *number,
            None => self.new_group(keys.into_vec(), frame, rt)?,
        };
        let group = &mut self.groups[number];
        debug_assert!(
            group.states.len() == self.plan.aggregates.len(),
            "each aggregate has a state"
        );
        for ((_, aggregate), state) in self.plan.aggregates.iter().zip(&mut group.states) {
            if let Some(filter) = &aggregate.filter
                && !rt.holds(filter, frame)?
            {
                continue;
            }
            match &aggregate.arg {
                Some(arg) => {
                    let kept = state.add(&rt.eval(arg, frame)?);
                    if kept > 0 {
                        rt.keep(kept)?;
                    }
                }
                None => state.add_row(),
            }
        }
        Ok(())
    }

    fn new_group(
        &mut self,
        keys: Vec<QueryValue>,
        frame: &mut SlotFrame,
        rt: &Runtime<'_>,
    ) -> Result<usize> {
        let row = self.plan.keeps_row.then(|| frame.clone());
        let row_bytes: usize = row.iter().flatten().map(QueryValue::byte_count).sum();
        let states_bytes = self.plan.aggregates.len() * size_of::<AggregateState>();
        let key_bytes: usize = keys.iter().map(QueryValue::byte_count).sum();
        rt.keep(GROUP_BYTES + self.key.len() + key_bytes + states_bytes + row_bytes)?;
        let states = self
            .plan
            .aggregates
            .iter()
            .map(|(_, aggregate)| AggregateState::new(aggregate.kind, aggregate.distinct));
        // A key of a document would keep the whole document in memory.
        let keys = keys.into_iter().map(detached).collect();
        self.groups.push(GroupBy { keys, states: states.collect(), row });
        let number = self.groups.len() - 1;
        if let Entry::Vacant(vacant) = self.numbers.entry(self.key.as_slice().into()) {
            vacant.insert(number);
        }
        debug_assert!(self.numbers.len() == self.groups.len(), "each group has a key");
        Ok(number)
    }

    /// The only group has that many rows.
    pub fn add_count(&mut self, count: u64) {
        let states = self.plan.aggregates.iter().map(|(_, aggregate)| {
            let mut state = AggregateState::new(aggregate.kind, aggregate.distinct);
            state.add_rows(count);
            state
        });
        self.groups.push(GroupBy { keys: Vec::new(), states: states.collect(), row: None });
    }

    /// Calls `each` for every group that HAVING accepts.
    pub fn finish(
        mut self,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
        each: &mut dyn FnMut(&mut SlotFrame) -> Result<Flow>,
    ) -> Result<()> {
        if self.plan.single && self.groups.is_empty() {
            self.add_count(0);
        }
        let is_one = self.groups.len() == 1;
        debug_assert!(!self.plan.single || is_one, "without GROUP BY there is one group");
        self.numbers = HashMap::new();
        for group in self.groups {
            rt.turn()?;
            debug_assert!(group.keys.len() == self.plan.keys.len(), "each key has a value");
            if let Some(row) = group.row {
                *frame = row;
            }
            for ((slot, _), value) in self.plan.keys.iter().zip(group.keys) {
                frame[*slot] = value;
            }
            for ((slot, _), mut state) in self.plan.aggregates.iter().zip(group.states) {
                frame[*slot] = state.finish(rt)?;
            }
            rt.assign(&self.plan.letting, frame)?;
            if let Some(having) = &self.plan.having
                && !rt.holds(having, frame)?
            {
                continue;
            }
            if each(frame)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

/// A value that shares no memory with a document.
fn detached(value: QueryValue) -> QueryValue {
    match value {
        QueryValue::Str(text) => QueryValue::Str(crate::value::Text::from_bytes(
            bytes::Bytes::copy_from_slice(text.as_bytes()),
        )),
        other => other,
    }
}
