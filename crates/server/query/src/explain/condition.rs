//! Compiled expressions as text, for people: names again instead of slots.

use crate::ast::{
    CaseExpr, Comprehension, Expr, FunctionCall, LoopBinding, Name, PathStep, QuantifiedExpr,
};
use crate::plan::{ExprPlan, FrameSlot, LoopPlan, StepPlan};
use crate::printer::print;
use crate::value::Text;

/// The aliases of a query's sources.
pub type SourceNames = Vec<(FrameSlot, Text)>;

/// The canonical text of an expression.
pub fn text(expr: &ExprPlan, names: &SourceNames) -> String {
    print(&named(expr, names))
}

/// The text of conditions that all must hold.
pub fn all_text(parts: &[ExprPlan], names: &SourceNames) -> String {
    match parts {
        [one] => text(one, names),
        _ => print(&Expr::And(list(parts, names))),
    }
}

fn list(parts: &[ExprPlan], names: &SourceNames) -> Vec<Expr> {
    parts.iter().map(|part| named(part, names)).collect()
}

fn name(text: Text) -> Expr {
    Expr::Name(Name { text, folded: false, at: 0 })
}

fn call(function: &str, args: Vec<Expr>) -> Expr {
    Expr::Call(Box::new(FunctionCall {
        name: function.to_owned(),
        args,
        distinct: false,
        star: false,
        filter: None,
        over: None,
        ignore_nulls: false,
        from_last: false,
        at: 0,
    }))
}

fn field(name: &Text) -> PathStep {
    PathStep::Field { name: name.clone(), folded: false }
}

fn slot(slot: FrameSlot, names: &SourceNames) -> Expr {
    for (start, alias) in names {
        let meta = || call("meta", vec![name(alias.clone())]);
        match slot.checked_sub(*start) {
            Some(0) => return name(alias.clone()),
            Some(1) => return Expr::Path(Box::new(meta()), vec![field(&"id".into())]),
            Some(2) => return meta(),
            _ => {}
        }
    }
    variable(slot)
}

/// A variable whose name is not kept.
fn variable(slot: FrameSlot) -> Expr {
    name(variable_name(slot))
}

fn variable_name(slot: FrameSlot) -> Text {
    Text::from(format!("v{slot}"))
}

fn named(expr: &ExprPlan, names: &SourceNames) -> Expr {
    let one = |part: &ExprPlan| Box::new(named(part, names));
    let pair =
        |parts: &(ExprPlan, ExprPlan)| Box::new((named(&parts.0, names), named(&parts.1, names)));
    let pairs = |parts: &[(ExprPlan, ExprPlan)]| {
        parts.iter().map(|(left, right)| (named(left, names), named(right, names))).collect()
    };
    match expr {
        ExprPlan::Const(value) => Expr::Literal(value.clone()),
        ExprPlan::Slot(at) => slot(*at, names),
        ExprPlan::Param(param) => Expr::Param(param.clone()),
        ExprPlan::Path { base, names: fields, rest } => {
            let steps = fields.iter().map(field);
            Expr::Path(one(base), steps.chain(rest.iter().map(|one| step(one, names))).collect())
        }
        ExprPlan::Array(items) => Expr::Array(list(items, names)),
        ExprPlan::Object(fields) => Expr::Object(pairs(fields)),
        ExprPlan::Not(inner) => Expr::Not(one(inner)),
        ExprPlan::Negate(inner) => Expr::Negate(one(inner)),
        ExprPlan::And(parts) => Expr::And(list(parts, names)),
        ExprPlan::Or(parts) => Expr::Or(list(parts, names)),
        ExprPlan::Arithmetic(first, rest) => {
            let rest = rest.iter().map(|(operator, right)| (*operator, named(right, names)));
            Expr::Arithmetic(one(first), rest.collect())
        }
        ExprPlan::Concat(parts) => Expr::Concat(list(parts, names)),
        ExprPlan::Compare(relation, sides) => Expr::Compare(*relation, pair(sides)),
        ExprPlan::Is { test, negated, value } => {
            Expr::Is { test: *test, negated: *negated, value: one(value) }
        }
        ExprPlan::Between { negated, parts } => Expr::Between {
            negated: *negated,
            parts: Box::new(parts.each_ref().map(|part| named(part, names))),
        },
        ExprPlan::Like { negated, parts } => Expr::Like {
            negated: *negated,
            value: one(&parts[0]),
            pattern: one(&parts[1]),
            escape: None,
        },
        ExprPlan::In { negated, within, parts } => {
            Expr::In { negated: *negated, within: *within, parts: pair(parts) }
        }
        ExprPlan::Exists(inner) => Expr::Exists(one(inner)),
        ExprPlan::Case { operand, whens, otherwise } => Expr::Case(Box::new(CaseExpr {
            operand: operand.as_ref().map(|operand| named(operand, names)),
            whens: pairs(whens),
            otherwise: otherwise.as_ref().map(|otherwise| named(otherwise, names)),
        })),
        ExprPlan::Call(function, args) => call(function.name, list(args, names)),
        ExprPlan::Quantified { quantifier, bindings, condition } => {
            Expr::Quantified(Box::new(QuantifiedExpr {
                quantifier: *quantifier,
                bindings: loops(bindings, names),
                condition: named(condition, names),
            }))
        }
        ExprPlan::Collection { kind, key, value, bindings, condition } => {
            Expr::Collection(Box::new(Comprehension {
                kind: *kind,
                key: key.as_ref().map(|key| named(key, names)),
                value: named(value, names),
                bindings: loops(bindings, names),
                condition: condition.as_ref().map(|condition| named(condition, names)),
            }))
        }
        ExprPlan::Subquery(_) => name("subquery".into()),
        ExprPlan::Aggregate(_) => name("aggregate".into()),
    }
}

fn loops(bindings: &[LoopPlan], names: &SourceNames) -> Vec<LoopBinding> {
    let binding = |binding: &LoopPlan| LoopBinding {
        position: binding.position.map(variable_name),
        variable: variable_name(binding.variable),
        within: binding.within,
        source: named(&binding.source, names),
    };
    bindings.iter().map(binding).collect()
}

fn step(step: &StepPlan, names: &SourceNames) -> PathStep {
    let optional = |part: &Option<ExprPlan>| part.as_ref().map(|part| named(part, names));
    match step {
        StepPlan::Field(name) => field(name),
        StepPlan::Folded(name) => PathStep::Field { name: name.clone(), folded: true },
        StepPlan::Computed(part) => PathStep::Computed(named(part, names)),
        StepPlan::Index(part) => PathStep::Index(named(part, names)),
        StepPlan::Slice(start, end) => PathStep::Slice(optional(start), optional(end)),
        StepPlan::Star => PathStep::Star,
    }
}
