//! Walks over resolved expressions: their parts, the slots they read.

use super::{Expr, Slot, Step};
use crate::error::Result;

impl Expr {
    /// A path, merged with the one that `base` may be.
    pub fn path(base: Expr, steps: Vec<Step>) -> Expr {
        let (base, mut names, mut rest) = match base {
            Expr::Path { base, names, rest } => (base, names, rest),
            other => (Box::new(other), Vec::new(), Vec::new()),
        };
        for step in steps {
            match step {
                Step::Field(name) if rest.is_empty() => names.push(name),
                step => rest.push(step),
            }
        }
        Expr::Path { base, names, rest }
    }

    /// Calls `visit` for each direct part.
    pub fn for_each_part<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match self {
            Expr::Const(_) | Expr::Slot(_) | Expr::Param(_) | Expr::Aggregate(_) => {}
            Expr::Subquery(_) => {}
            Expr::Path { base, rest, .. } => {
                visit(base);
                rest.iter().for_each(|step| step.for_each_part(visit));
            }
            Expr::Array(items) | Expr::And(items) | Expr::Or(items) | Expr::Concat(items) => {
                items.iter().for_each(visit);
            }
            Expr::Call(_, args) => args.iter().for_each(visit),
            Expr::Object(fields) => fields.iter().for_each(|(key, value)| {
                visit(key);
                visit(value);
            }),
            Expr::Not(inner) | Expr::Negate(inner) | Expr::Exists(inner) => visit(inner),
            Expr::Is { value, .. } => visit(value),
            Expr::Arithmetic(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, right)| visit(right));
            }
            Expr::Compare(_, sides) | Expr::In { parts: sides, .. } => {
                visit(&sides.0);
                visit(&sides.1);
            }
            Expr::Between { parts, .. } | Expr::Like { parts, .. } => parts.iter().for_each(visit),
            Expr::Case { operand, whens, otherwise } => {
                operand.iter().for_each(|operand| visit(operand));
                whens.iter().for_each(|(when, then)| {
                    visit(when);
                    visit(then);
                });
                otherwise.iter().for_each(|otherwise| visit(otherwise));
            }
            Expr::Quantified { bindings, condition, .. } => {
                bindings.iter().for_each(|binding| visit(&binding.source));
                visit(condition);
            }
            Expr::Collection { key, value, bindings, condition, .. } => {
                bindings.iter().for_each(|binding| visit(&binding.source));
                key.iter().chain(condition).for_each(|part| visit(part));
                visit(value);
            }
        }
    }

    /// Calls `visit` for each direct part, to change it.
    pub fn for_each_part_mut(
        &mut self,
        visit: &mut dyn FnMut(&mut Expr) -> Result<()>,
    ) -> Result<()> {
        match self {
            Expr::Const(_) | Expr::Slot(_) | Expr::Param(_) | Expr::Aggregate(_) => Ok(()),
            Expr::Subquery(_) => Ok(()),
            Expr::Path { base, rest, .. } => {
                visit(base)?;
                rest.iter_mut().try_for_each(|step| step.for_each_part_mut(visit))
            }
            Expr::Array(items) | Expr::And(items) | Expr::Or(items) | Expr::Concat(items) => {
                items.iter_mut().try_for_each(visit)
            }
            Expr::Call(_, args) => args.iter_mut().try_for_each(visit),
            Expr::Object(fields) => fields.iter_mut().try_for_each(|(key, value)| {
                visit(key)?;
                visit(value)
            }),
            Expr::Not(inner) | Expr::Negate(inner) | Expr::Exists(inner) => visit(inner),
            Expr::Is { value, .. } => visit(value),
            Expr::Arithmetic(first, rest) => {
                visit(first)?;
                rest.iter_mut().try_for_each(|(_, right)| visit(right))
            }
            Expr::Compare(_, sides) | Expr::In { parts: sides, .. } => {
                visit(&mut sides.0)?;
                visit(&mut sides.1)
            }
            Expr::Between { parts, .. } | Expr::Like { parts, .. } => {
                parts.iter_mut().try_for_each(visit)
            }
            Expr::Case { operand, whens, otherwise } => {
                operand.iter_mut().chain(otherwise).try_for_each(|part| visit(part))?;
                whens.iter_mut().try_for_each(|(when, then)| {
                    visit(when)?;
                    visit(then)
                })
            }
            Expr::Quantified { bindings, condition, .. } => {
                bindings.iter_mut().try_for_each(|binding| visit(&mut binding.source))?;
                visit(condition)
            }
            Expr::Collection { key, value, bindings, condition, .. } => {
                bindings.iter_mut().try_for_each(|binding| visit(&mut binding.source))?;
                key.iter_mut().chain(condition).try_for_each(|part| visit(part))?;
                visit(value)
            }
        }
    }

    /// Whether some slot that the expression reads meets a condition.
    pub fn reads(&self, is_wanted: &dyn Fn(Slot) -> bool) -> bool {
        let mut found = match self {
            Expr::Slot(slot) => is_wanted(*slot),
            Expr::Subquery(subquery) => subquery.outer.iter().any(|slot| is_wanted(*slot)),
            _ => false,
        };
        self.for_each_part(&mut |part| found = found || part.reads(is_wanted));
        found
    }

    pub fn has_subquery(&self) -> bool {
        let mut found = matches!(self, Expr::Subquery(_));
        self.for_each_part(&mut |part| found = found || part.has_subquery());
        found
    }
}

impl Step {
    fn for_each_part<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match self {
            Step::Computed(part) | Step::Index(part) => visit(part),
            Step::Slice(start, end) => start.iter().chain(end).for_each(visit),
            Step::Field(_) | Step::Folded(_) | Step::Star => {}
        }
    }

    fn for_each_part_mut(&mut self, visit: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
        match self {
            Step::Computed(part) | Step::Index(part) => visit(part),
            Step::Slice(start, end) => start.iter_mut().chain(end).try_for_each(visit),
            Step::Field(_) | Step::Folded(_) | Step::Star => Ok(()),
        }
    }
}
