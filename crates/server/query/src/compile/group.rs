//! GROUP BY: after it, expressions may read group keys, aggregates and LETTING only.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::{QueryError, Result};
use crate::plan::Aggregate;
use crate::plan::{
    ExprPlan, FrameSlot, GroupPlan, OrderKey, ProjectionPlan, ProjectionTerm, StepPlan, WindowPlan,
};

use super::Compiler;
use super::select::GroupedParts;

type GroupParts = (Option<GroupPlan>, Vec<WindowPlan>, ProjectionPlan, Vec<OrderKey>);

impl Compiler<'_> {
    /// Rewrites the parts of a SELECT that see groups, if it has groups.
    pub(super) fn group(
        &mut self,
        explicit: bool,
        parts: GroupedParts,
        aggregates: Vec<Aggregate>,
        mut windows: Vec<WindowPlan>,
        sources: Range<FrameSlot>,
    ) -> Result<GroupParts> {
        let GroupedParts { keys, mut letting, mut having, mut projection, mut order } = parts;
        if !explicit && aggregates.is_empty() {
            return Ok((None, windows, projection, order));
        }
        let first = self.allocate(aggregates.len());
        let path_lengths = keys.iter().filter_map(|(_, key)| path_length(key)).collect();
        let turn = self.turn;
        let mut rewrite = Rewrite {
            keys: &keys,
            path_lengths,
            first_aggregate: first,
            sources,
            subquery: false,
            turn,
        };
        for (_, value) in &mut letting {
            rewrite.expr(value)?;
        }
        having.iter_mut().try_for_each(|having| rewrite.expr(having))?;
        for term in &mut projection.terms {
            match term {
                ProjectionTerm::All(slots) if slots.is_empty() => {}
                ProjectionTerm::All(_) => return not_grouped("*"),
                ProjectionTerm::AllOf(value) | ProjectionTerm::Value(_, value) => {
                    rewrite.expr(value)?;
                }
            }
        }
        order.iter_mut().try_for_each(|key| rewrite.expr(&mut key.value))?;
        windows.iter_mut().try_for_each(|window| rewrite.window(window))?;
        let keeps_row = rewrite.subquery;
        let single = keys.is_empty();
        let aggregates =
            aggregates.into_iter().enumerate().map(|(index, aggregate)| (first + index, aggregate));
        let group = GroupPlan {
            keys,
            aggregates: aggregates.collect(),
            letting,
            having,
            single,
            keeps_row,
        };
        Ok((Some(group), windows, projection, order))
    }
}

fn not_grouped<T>(what: &str) -> Result<T> {
    let msg = format!("The expression {what} must depend only on group keys or aggregates");
    Err(QueryError::new(4210, msg))
}

/// The number of steps, if this is a path.
fn path_length(expr: &ExprPlan) -> Option<usize> {
    match expr {
        ExprPlan::Path { names, rest, .. } => Some(names.len() + rest.len()),
        _ => None,
    }
}

struct Rewrite<'a> {
    keys: &'a [(FrameSlot, ExprPlan)],
    /// The numbers of steps of keys that are paths.
    path_lengths: BTreeSet<usize>,
    first_aggregate: FrameSlot,
    /// The slots of FROM and LET.
    sources: Range<FrameSlot>,
    subquery: bool,
    turn: &'a dyn Fn() -> Result<()>,
}

impl Rewrite<'_> {
    fn window(&mut self, window: &mut WindowPlan) -> Result<()> {
        let args = window.args.iter_mut().chain(&mut window.partition);
        let aggregate = window.aggregate.iter_mut();
        let parts =
            aggregate.flat_map(|aggregate| aggregate.arg.iter_mut().chain(&mut aggregate.filter));
        let order = window.order.iter_mut().map(|key| &mut key.value);
        args.chain(parts).chain(order).try_for_each(|expr| self.expr(expr))
    }

    fn expr(&mut self, expr: &mut ExprPlan) -> Result<()> {
        for (slot, key) in self.keys {
            (self.turn)()?;
            if key != expr {
                continue;
            }
            *expr = ExprPlan::Slot(*slot);
            return Ok(());
        }
        match expr {
            ExprPlan::Aggregate(number) => {
                *expr = ExprPlan::Slot(self.first_aggregate + *number);
                Ok(())
            }
            ExprPlan::Slot(slot) if self.sources.contains(slot) => not_grouped("of a source"),
            ExprPlan::Subquery(_) => {
                self.subquery = true;
                Ok(())
            }
            ExprPlan::Path { .. } => self.path(expr),
            _ => expr.for_each_part_mut(&mut |part| self.expr(part)),
        }
    }

    /// A path may begin with a group key.
    fn path(&mut self, expr: &mut ExprPlan) -> Result<()> {
        let ExprPlan::Path { base, names, rest } = expr else { return Ok(()) };
        let lengths = self.path_lengths.range(1..(names.len() + rest.len()).max(1));
        for count in lengths.rev().copied() {
            (self.turn)()?;
            let from_names = count.min(names.len());
            debug_assert!(count < names.len() + rest.len(), "a key is shorter than the path");
            let prefix = ExprPlan::Path {
                base: base.clone(),
                names: names[..from_names].to_vec(),
                rest: rest[..count - from_names].to_vec(),
            };
            if let Some((slot, _)) = self.keys.iter().find(|(_, key)| *key == prefix) {
                let fields = names[from_names..].iter().cloned().map(StepPlan::Field);
                let steps = fields.chain(rest[count - from_names..].iter().cloned()).collect();
                *expr = ExprPlan::path(ExprPlan::Slot(*slot), steps);
                return expr.for_each_part_mut(&mut |part| self.expr(part));
            }
        }
        let field = names.last().map(|name| format!("`{name}`")).unwrap_or_default();
        expr.for_each_part_mut(&mut |part| self.expr(part).or_else(|_| not_grouped(&field)))
    }
}
