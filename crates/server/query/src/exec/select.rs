//! SELECT: sources, LET, WHERE, groups, windows, projection, DISTINCT and order.

use std::collections::HashSet;

use crate::error::Result;
use crate::plan::{FrameSlot, OrderKey, SelectPlan, SourceKind};
use crate::runtime::{Runtime, SlotFrame};

use super::flow::{Consumer, Flow, RowBounds};
use super::row::ResultRow;
use super::{group, sort, window};

impl Runtime<'_> {
    /// Runs a SELECT with its order and bounds.
    pub fn run_select(
        &self,
        plan: &SelectPlan,
        order: &[OrderKey],
        bounds: RowBounds,
        frame: &mut SlotFrame,
        consumer: &mut Consumer<'_>,
    ) -> Result<()> {
        let mut output = Output {
            plan,
            order,
            rt: self,
            bounds,
            distinct: plan.projection.distinct.then(HashSet::new),
            sorter: (!order.is_empty()).then(|| sort::Sorter::new(order, bounds)),
        };
        if plan.windows.is_empty() {
            rows(plan, self, frame, &mut |frame| output.row(frame, consumer))?;
        } else {
            let mut table = window::WindowTable::new(&plan.windows);
            rows(plan, self, frame, &mut |frame| table.add(frame, self).map(|()| Flow::More))?;
            table.finish(self, frame, &mut |frame| output.row(frame, consumer))?;
        }
        match output.sorter {
            Some(sorter) => sorter.finish(self, frame, consumer),
            None => Ok(()),
        }
    }
}

/// What happens to a row after its values are known.
struct Output<'p, 'r, 's> {
    plan: &'p SelectPlan,
    order: &'p [OrderKey],
    rt: &'r Runtime<'s>,
    bounds: RowBounds,
    distinct: Option<HashSet<Box<[u8]>>>,
    sorter: Option<sort::Sorter<'p>>,
}

impl Output<'_, '_, '_> {
    fn row(&mut self, frame: &mut SlotFrame, consumer: &mut Consumer<'_>) -> Result<Flow> {
        let (rt, projection) = (self.rt, &self.plan.projection);
        let mut projected = None;
        if let Some(distinct) = &mut self.distinct {
            let row = ResultRow::project(projection, rt, frame)?;
            let key = row.key();
            rt.keep(key.len() + 32)?;
            if !distinct.insert(key) {
                return Ok(Flow::More);
            }
            projected = Some(row);
        }
        if let Some(sorter) = &mut self.sorter {
            let keys = sort::keys(self.order, rt, frame)?;
            sorter.add(keys, rt, || match projected {
                Some(row) => Ok(row),
                None => ResultRow::project(projection, rt, frame),
            })?;
            return Ok(Flow::More);
        }
        if self.bounds.skip > 0 {
            self.bounds.skip -= 1;
            return Ok(Flow::More);
        }
        let row = match projected {
            Some(row) => row,
            None => ResultRow::project(projection, rt, frame)?,
        };
        self.bounds.pass(row, frame, consumer)
    }
}

/// Calls `each` for every row or group.
fn rows(
    plan: &SelectPlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut dyn FnMut(&mut SlotFrame) -> Result<Flow>,
) -> Result<()> {
    let Some(group) = &plan.group else {
        return ungrouped(plan, rt, frame, each);
    };
    let mut groups = group::GroupTable::new(group);
    match counted(plan, rt) {
        Some(count) => groups.add_count(count),
        None => ungrouped(plan, rt, frame, &mut |frame| {
            groups.add(frame, rt)?;
            Ok(Flow::More)
        })?,
    }
    groups.finish(rt, frame, each)
}

/// The number of rows that a bare COUNT(*) of a keyspace counts, without reading any.
fn counted(plan: &SelectPlan, rt: &Runtime<'_>) -> Option<u64> {
    let group = plan.group.as_ref()?;
    let from = plan.from.as_ref()?;
    let SourceKind::Keyspace(source) = &from.first.kind else { return None };
    let counts_rows = |(_, aggregate): &(FrameSlot, crate::plan::Aggregate)| {
        aggregate.arg.is_none() && aggregate.filter.is_none()
    };
    let plain = group.single
        && !group.keeps_row
        && group.aggregates.iter().all(counts_rows)
        && from.joins.is_empty()
        && from.filters.is_empty()
        && plan.filters.is_empty()
        && matches!(&source.access, crate::plan::AccessPath::Scan(bounds) if bounds.is_empty());
    if plain { rt.keyspace(&source.keyspace).ok()?.count() } else { None }
}

fn ungrouped(
    plan: &SelectPlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut dyn FnMut(&mut SlotFrame) -> Result<Flow>,
) -> Result<()> {
    let mut row = |frame: &mut SlotFrame| {
        rt.turn()?;
        rt.assign(&plan.lets, frame)?;
        if !rt.all_hold(&plan.filters, frame)? {
            return Ok(Flow::More);
        }
        each(frame)
    };
    match &plan.from {
        Some(from) => rt.run_from(from, frame, &mut row).map(drop),
        None => row(frame).map(drop),
    }
}
