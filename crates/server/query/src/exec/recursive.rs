//! `WITH RECURSIVE`: rounds that read the rows of the round before.

use std::collections::HashSet;

use crate::error::{QueryError, Result};
use crate::limits::RECURSION_LEVELS_MAX;
use crate::plan::{FrameSlot, QueryPlan, RecursivePlan};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{QueryValue, json, key};

use super::flow::Flow;

impl Runtime<'_> {
    /// The rows of all rounds.
    pub fn recursive_rows(
        &self,
        plan: &RecursivePlan,
        slot: FrameSlot,
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let options = match &plan.options {
            Some(options) => self.eval(options, frame)?,
            None => QueryValue::Missing,
        };
        let bound =
            |name: &str| options.field(name.as_bytes()).as_int().filter(|count| *count >= 0);
        let levels = bound("levels").map_or(RECURSION_LEVELS_MAX, |levels| levels as usize);
        let documents = bound("documents").map_or(usize::MAX, |count| count as usize);
        let mut state =
            Rounds { plan, rows: Vec::new(), seen: HashSet::new(), cycles: HashSet::new() };
        let mut round = state.round(&plan.first, self, frame)?;
        let mut level = 0;
        while !round.is_empty() && state.rows.len() < documents && level < levels {
            self.check_deadline()?;
            frame[slot] = QueryValue::from(round);
            round = state.round(&plan.step, self, frame)?;
            level += 1;
        }
        if level == RECURSION_LEVELS_MAX {
            return Err(QueryError::new(5010, "A recursive WITH does not end"));
        }
        state.rows.truncate(documents);
        Ok(QueryValue::from(state.rows))
    }
}

struct Rounds<'p> {
    plan: &'p RecursivePlan,
    rows: Vec<QueryValue>,
    seen: HashSet<Box<[u8]>>,
    cycles: HashSet<Box<[u8]>>,
}

impl Rounds<'_> {
    /// The new rows of a round.
    fn round(
        &mut self,
        query: &QueryPlan,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
    ) -> Result<Vec<QueryValue>> {
        let mut new = Vec::new();
        rt.run_query(query, frame, &mut |row, frame| {
            // As text, so that no round makes a deeper tree than the one before.
            let value = json::flattened(row.into_value().or_null());
            let mut bytes = Vec::new();
            key::append(&value, &mut bytes);
            if !self.plan.all && !self.seen.insert(bytes.into()) {
                return Ok(Flow::More);
            }
            if !self.plan.cycle.is_empty() {
                frame[self.plan.row] = value.clone();
                let mut bytes = Vec::new();
                for part in &self.plan.cycle {
                    key::append(&rt.eval(part, frame)?, &mut bytes);
                }
                if !self.cycles.insert(bytes.into()) {
                    return Ok(Flow::More);
                }
            }
            rt.keep(3 * value.byte_count())?;
            new.push(value);
            Ok(Flow::More)
        })?;
        self.rows.extend(new.iter().cloned());
        Ok(new)
    }
}
