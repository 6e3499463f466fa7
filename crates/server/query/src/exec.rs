//! Runs plans.
//!
//! Rows are pushed: a source calls the next step for each row with the frame filled in, so a chain
//! of joins and filters copies nothing. Only groups, sorts, DISTINCT, set operations and windows
//! keep rows, and they reserve memory for them. The steps are methods of the runtime.

mod catalog;
pub mod change;
pub mod flow;
pub mod from;
mod group;
mod index_scan;
mod path_edit;
mod recursive;
pub mod row;
mod select;
mod sets;
mod sort;
mod window;

use crate::error::Result;
use crate::plan::{BodyPlan, QueryPlan, WithValue};
use crate::runtime::memory::GrowingMemory;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::QueryValue;

use flow::{Consumer, Flow, RowBounds};
use row::ResultRow;

impl Runtime<'_> {
    pub fn run_query(
        &self,
        plan: &QueryPlan,
        frame: &mut SlotFrame,
        consumer: &mut Consumer<'_>,
    ) -> Result<()> {
        debug_assert!(plan.row + 3 <= frame.len(), "the slots of a row are in the frame");
        for term in &plan.with {
            frame[term.slot] = match &term.value {
                WithValue::Value(value) => self.eval(value, frame)?,
                WithValue::Recursive(recursive) => {
                    self.recursive_rows(recursive, term.slot, frame)?
                }
            };
        }
        let bounds = RowBounds::new(&plan.limit, &plan.offset, self, frame)?;
        if bounds.count == 0 {
            return Ok(());
        }
        match &plan.body {
            BodyPlan::Select(select) => {
                self.run_select(select, &plan.order, bounds, frame, consumer)
            }
            body if plan.order.is_empty() => {
                let mut bounds = bounds;
                self.run_body(body, frame, &mut |row, frame| bounds.pass(row, frame, consumer))
            }
            body => {
                let mut sorter = sort::Sorter::new(&plan.order, bounds);
                self.run_body(body, frame, &mut |row, frame| {
                    let value = row.into_value();
                    frame[plan.row] = value.clone();
                    let keys = sort::keys(&plan.order, self, frame)?;
                    sorter.add(keys, self, || Ok(ResultRow::Value(value)))?;
                    Ok(Flow::More)
                })?;
                sorter.finish(self, frame, consumer)
            }
        }
    }

    pub fn run_body(
        &self,
        body: &BodyPlan,
        frame: &mut SlotFrame,
        consumer: &mut Consumer<'_>,
    ) -> Result<()> {
        match body {
            BodyPlan::Select(select) => {
                self.run_select(select, &[], RowBounds::ALL, frame, consumer)
            }
            BodyPlan::Nested(query) => self.run_query(query, frame, consumer),
            BodyPlan::Sets(first, rest) => self.run_sets(first, rest, frame, consumer),
        }
    }

    /// The rows of a query as an array.
    pub fn collect_rows(&self, plan: &QueryPlan, frame: &mut SlotFrame) -> Result<QueryValue> {
        let mut rows = Vec::new();
        let mut memory = GrowingMemory::default();
        self.run_query(plan, frame, &mut |row, _| {
            let value = row.into_value().or_null();
            memory.add(2 * size_of::<QueryValue>() + value.byte_count(), self)?;
            rows.push(value);
            Ok(Flow::More)
        })?;
        Ok(memory.array(rows))
    }

    /// Whether a query has a row.
    pub fn has_rows(&self, plan: &QueryPlan, frame: &mut SlotFrame) -> Result<bool> {
        let mut found = false;
        self.run_query(plan, frame, &mut |_, _| {
            found = true;
            Ok(Flow::Stop)
        })?;
        Ok(found)
    }
}
