//! One form for conditions that mean the same, so that the planner finds them by comparison.
//!
//! `>` becomes `<` with its sides swapped, `!=` becomes NOT of `=`, a constant of `=` is at the
//! right, and chains of one operator are flat. The printer writes definitions in a similar form.

use crate::ast::Relation;
use crate::plan::{ExprPlan, FrameSlot};

/// Slots that belong to no index.
const FOREIGN_SLOTS: FrameSlot = 1 << 40;

/// The normal form of an expression.
pub fn normal(mut expr: ExprPlan) -> ExprPlan {
    // Only an error of `visit` is one.
    let _ = expr.for_each_part_mut(&mut |part| {
        *part = normal(std::mem::replace(part, ExprPlan::Aggregate(0)));
        Ok(())
    });
    match expr {
        ExprPlan::Compare(relation, sides) => compare(relation, *sides),
        ExprPlan::And(parts) => ExprPlan::And(flat(parts, |part| match part {
            ExprPlan::And(inner) => Ok(inner),
            other => Err(other),
        })),
        ExprPlan::Or(parts) => ExprPlan::Or(flat(parts, |part| match part {
            ExprPlan::Or(inner) => Ok(inner),
            other => Err(other),
        })),
        ExprPlan::Concat(parts) => ExprPlan::Concat(flat(parts, |part| match part {
            ExprPlan::Concat(inner) => Ok(inner),
            other => Err(other),
        })),
        ExprPlan::Arithmetic(first, rest) => match *first {
            ExprPlan::Arithmetic(first, mut before) => {
                before.extend(rest);
                ExprPlan::Arithmetic(first, before)
            }
            first => ExprPlan::Arithmetic(Box::new(first), rest),
        },
        other => other,
    }
}

fn flat(
    parts: Vec<ExprPlan>,
    inner: impl Fn(ExprPlan) -> std::result::Result<Vec<ExprPlan>, ExprPlan>,
) -> Vec<ExprPlan> {
    let parts = parts.into_iter();
    parts.flat_map(|part| inner(part).unwrap_or_else(|part| vec![part])).collect()
}

fn compare(relation: Relation, (left, right): (ExprPlan, ExprPlan)) -> ExprPlan {
    let equal = |left, right| {
        let sides = match left {
            ExprPlan::Const(_) => (right, left),
            _ => (left, right),
        };
        ExprPlan::Compare(Relation::Equal, Box::new(sides))
    };
    match relation {
        Relation::Equal => equal(left, right),
        Relation::NotEqual => ExprPlan::Not(Box::new(equal(left, right))),
        Relation::Less | Relation::LessEqual => {
            ExprPlan::Compare(relation, Box::new((left, right)))
        }
        Relation::Greater => ExprPlan::Compare(Relation::Less, Box::new((right, left))),
        Relation::GreaterEqual => ExprPlan::Compare(Relation::LessEqual, Box::new((right, left))),
    }
}

/// A statement's expression as an index would have it: the document that begins at slot
/// `document` moves to slot 0, an element of an array from `element.0` to `element.1`.
pub fn relocated(
    expr: &ExprPlan,
    document: FrameSlot,
    element: Option<(FrameSlot, FrameSlot)>,
) -> ExprPlan {
    let mut expr = normal(expr.clone());
    relocate(&mut expr, &|slot| match element {
        Some((from, to)) if slot == from => to,
        _ if (document..document + 3).contains(&slot) => slot - document,
        _ => {
            debug_assert!(slot < FOREIGN_SLOTS, "an expression is relocated once");
            slot + FOREIGN_SLOTS
        }
    });
    expr
}

fn relocate(expr: &mut ExprPlan, place: &dyn Fn(FrameSlot) -> FrameSlot) {
    if let ExprPlan::Slot(slot) = expr {
        *slot = place(*slot);
    }
    let _ = expr.for_each_part_mut(&mut |part| {
        relocate(part, place);
        Ok(())
    });
}
