//! Walks over resolved expressions: their parts, the slots they read.

use super::{ExprPlan, FrameSlot, StepPlan};
use crate::error::Result;

impl ExprPlan {
    /// A path, merged with the one that `base` may be.
    pub fn path(base: ExprPlan, steps: Vec<StepPlan>) -> ExprPlan {
        let (base, mut names, mut rest) = match base {
            ExprPlan::Path { base, names, rest } => (base, names, rest),
            other => (Box::new(other), Vec::new(), Vec::new()),
        };
        for step in steps {
            match step {
                StepPlan::Field(name) if rest.is_empty() => names.push(name),
                step => rest.push(step),
            }
        }
        debug_assert!(!names.is_empty() || !rest.is_empty(), "a path has a step");
        debug_assert!(!matches!(rest.first(), Some(StepPlan::Field(_))), "plain names come first");
        ExprPlan::Path { base, names, rest }
    }

    /// Calls `visit` for each direct part.
    pub fn for_each_part<'e>(&'e self, visit: &mut dyn FnMut(&'e ExprPlan)) {
        match self {
            ExprPlan::Const(_)
            | ExprPlan::Slot(_)
            | ExprPlan::Param(_)
            | ExprPlan::Aggregate(_) => {}
            ExprPlan::Subquery(_) => {}
            ExprPlan::Path { base, rest, .. } => {
                visit(base);
                rest.iter().for_each(|step| step.for_each_part(visit));
            }
            ExprPlan::Array(items)
            | ExprPlan::And(items)
            | ExprPlan::Or(items)
            | ExprPlan::Concat(items) => {
                items.iter().for_each(visit);
            }
            ExprPlan::Call(_, args) => args.iter().for_each(visit),
            ExprPlan::Object(fields) => fields.iter().for_each(|(key, value)| {
                visit(key);
                visit(value);
            }),
            ExprPlan::Not(inner) | ExprPlan::Negate(inner) | ExprPlan::Exists(inner) => {
                visit(inner)
            }
            ExprPlan::Is { value, .. } => visit(value),
            ExprPlan::Arithmetic(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, right)| visit(right));
            }
            ExprPlan::Compare(_, sides) | ExprPlan::In { parts: sides, .. } => {
                visit(&sides.0);
                visit(&sides.1);
            }
            ExprPlan::Between { parts, .. } | ExprPlan::Like { parts, .. } => {
                parts.iter().for_each(visit)
            }
            ExprPlan::Case { operand, whens, otherwise } => {
                operand.iter().for_each(|operand| visit(operand));
                whens.iter().for_each(|(when, then)| {
                    visit(when);
                    visit(then);
                });
                otherwise.iter().for_each(|otherwise| visit(otherwise));
            }
            ExprPlan::Quantified { bindings, condition, .. } => {
                bindings.iter().for_each(|binding| visit(&binding.source));
                visit(condition);
            }
            ExprPlan::Collection { key, value, bindings, condition, .. } => {
                bindings.iter().for_each(|binding| visit(&binding.source));
                key.iter().chain(condition).for_each(|part| visit(part));
                visit(value);
            }
        }
    }

    /// Calls `visit` for each direct part, to change it.
    pub fn for_each_part_mut(
        &mut self,
        visit: &mut dyn FnMut(&mut ExprPlan) -> Result<()>,
    ) -> Result<()> {
        match self {
            ExprPlan::Const(_)
            | ExprPlan::Slot(_)
            | ExprPlan::Param(_)
            | ExprPlan::Aggregate(_) => Ok(()),
            ExprPlan::Subquery(_) => Ok(()),
            ExprPlan::Path { base, rest, .. } => {
                visit(base)?;
                rest.iter_mut().try_for_each(|step| step.for_each_part_mut(visit))
            }
            ExprPlan::Array(items)
            | ExprPlan::And(items)
            | ExprPlan::Or(items)
            | ExprPlan::Concat(items) => items.iter_mut().try_for_each(visit),
            ExprPlan::Call(_, args) => args.iter_mut().try_for_each(visit),
            ExprPlan::Object(fields) => fields.iter_mut().try_for_each(|(key, value)| {
                visit(key)?;
                visit(value)
            }),
            ExprPlan::Not(inner) | ExprPlan::Negate(inner) | ExprPlan::Exists(inner) => {
                visit(inner)
            }
            ExprPlan::Is { value, .. } => visit(value),
            ExprPlan::Arithmetic(first, rest) => {
                visit(first)?;
                rest.iter_mut().try_for_each(|(_, right)| visit(right))
            }
            ExprPlan::Compare(_, sides) | ExprPlan::In { parts: sides, .. } => {
                visit(&mut sides.0)?;
                visit(&mut sides.1)
            }
            ExprPlan::Between { parts, .. } | ExprPlan::Like { parts, .. } => {
                parts.iter_mut().try_for_each(visit)
            }
            ExprPlan::Case { operand, whens, otherwise } => {
                operand.iter_mut().chain(otherwise).try_for_each(|part| visit(part))?;
                whens.iter_mut().try_for_each(|(when, then)| {
                    visit(when)?;
                    visit(then)
                })
            }
            ExprPlan::Quantified { bindings, condition, .. } => {
                bindings.iter_mut().try_for_each(|binding| visit(&mut binding.source))?;
                visit(condition)
            }
            ExprPlan::Collection { key, value, bindings, condition, .. } => {
                bindings.iter_mut().try_for_each(|binding| visit(&mut binding.source))?;
                key.iter_mut().chain(condition).try_for_each(|part| visit(part))?;
                visit(value)
            }
        }
    }

    /// Whether some slot that the expression reads meets a condition.
    pub fn reads(&self, is_wanted: &dyn Fn(FrameSlot) -> bool) -> bool {
        let mut found = match self {
            ExprPlan::Slot(slot) => is_wanted(*slot),
            ExprPlan::Subquery(subquery) => subquery.outer.iter().any(|slot| is_wanted(*slot)),
            _ => false,
        };
        self.for_each_part(&mut |part| found = found || part.reads(is_wanted));
        found
    }

    pub fn has_subquery(&self) -> bool {
        let mut found = matches!(self, ExprPlan::Subquery(_));
        self.for_each_part(&mut |part| found = found || part.has_subquery());
        found
    }
}

impl StepPlan {
    fn for_each_part<'e>(&'e self, visit: &mut dyn FnMut(&'e ExprPlan)) {
        match self {
            StepPlan::Computed(part) | StepPlan::Index(part) => visit(part),
            StepPlan::Slice(start, end) => start.iter().chain(end).for_each(visit),
            StepPlan::Field(_) | StepPlan::Folded(_) | StepPlan::Star => {}
        }
    }

    fn for_each_part_mut(
        &mut self,
        visit: &mut dyn FnMut(&mut ExprPlan) -> Result<()>,
    ) -> Result<()> {
        match self {
            StepPlan::Computed(part) | StepPlan::Index(part) => visit(part),
            StepPlan::Slice(start, end) => start.iter_mut().chain(end).try_for_each(visit),
            StepPlan::Field(_) | StepPlan::Folded(_) | StepPlan::Star => Ok(()),
        }
    }
}

/// The parts of a condition that all must hold.
pub fn conjuncts(condition: ExprPlan) -> Vec<ExprPlan> {
    match condition {
        ExprPlan::And(parts) => parts.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}
