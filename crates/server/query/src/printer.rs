//! Prints expressions in the canonical form that EXPLAIN, `index_key` and `condition` show.
//!
//! Names are in backticks, operators in parentheses, and `>` is written as `<` with its sides
//! swapped.

use std::fmt::{self, Display, Formatter, Write};

use crate::ast::{
    ArithmeticOperator, CaseExpr, CollectionKind, Comprehension, Expr, FunctionCall, LoopBinding,
    Param, PathStep, QuantifiedExpr, Quantifier, Relation, Test,
};
use crate::value::{QueryValue, Text, write::to_json};

/// The canonical text of an expression.
pub fn print(expr: &Expr) -> String {
    Printed(expr).to_string()
}

struct Printed<'a>(&'a Expr);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        expr(f, self.0)
    }
}

fn name(f: &mut Formatter<'_>, text: &Text) -> fmt::Result {
    write!(f, "`{}`", text.to_str().replace('\\', "\\\\").replace('`', "``"))
}

fn list(f: &mut Formatter<'_>, items: &[Expr], between: &str) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        expr(f, item)?;
    }
    Ok(())
}

/// `((a op b) op c)`
fn chain(f: &mut Formatter<'_>, items: &[Expr], between: &str) -> fmt::Result {
    for _ in 1..items.len() {
        f.write_char('(')?;
    }
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        expr(f, item)?;
        if index > 0 {
            f.write_char(')')?;
        }
    }
    Ok(())
}

fn expr(f: &mut Formatter<'_>, e: &Expr) -> fmt::Result {
    match e {
        Expr::Literal(QueryValue::Missing) => f.write_str("missing"),
        Expr::Literal(value) => f.write_str(&to_json(value)),
        Expr::Param(Param::Position(position)) => write!(f, "${position}"),
        Expr::Param(Param::Name(text)) => write!(f, "${text}"),
        Expr::Name(n) => {
            name(f, &n.text)?;
            if n.folded { f.write_char('i') } else { Ok(()) }
        }
        Expr::Path(base, steps) => path(f, base, steps),
        Expr::Array(items) => {
            f.write_char('[')?;
            list(f, items, ", ")?;
            f.write_char(']')
        }
        Expr::Object(fields) => object(f, fields),
        Expr::Not(inner) => wrapped(f, "(not ", inner, ")"),
        Expr::Negate(inner) => wrapped(f, "(-", inner, ")"),
        Expr::And(items) => chain(f, items, " and "),
        Expr::Or(items) => chain(f, items, " or "),
        Expr::Concat(items) => chain(f, items, " || "),
        Expr::Arithmetic(first, rest) => arithmetic(f, first, rest),
        Expr::Compare(relation, sides) => compare(f, *relation, sides),
        Expr::Is { test, negated, value } => {
            wrapped(f, "(", value, " is ")?;
            f.write_str(if *negated { "not " } else { "" })?;
            f.write_str(match test {
                Test::Null => "null)",
                Test::Missing => "missing)",
                Test::Valued => "valued)",
            })
        }
        Expr::Between { negated, parts } => {
            let [value, low, high] = &**parts;
            f.write_str(if *negated { "(not " } else { "" })?;
            wrapped(f, "(", value, " between ")?;
            wrapped(f, "", low, " and ")?;
            wrapped(f, "", high, ")")?;
            f.write_str(if *negated { ")" } else { "" })
        }
        Expr::Like { negated, value, pattern, escape } => {
            f.write_str(if *negated { "(not " } else { "" })?;
            wrapped(f, "(", value, " like ")?;
            expr(f, pattern)?;
            if let Some(escape) = escape {
                wrapped(f, " escape ", escape, "")?;
            }
            f.write_str(if *negated { "))" } else { ")" })
        }
        Expr::In { negated, within, parts } => {
            f.write_str(if *negated { "(not " } else { "" })?;
            wrapped(f, "(", &parts.0, if *within { " within " } else { " in " })?;
            expr(f, &parts.1)?;
            f.write_str(if *negated { "))" } else { ")" })
        }
        Expr::Exists(inner) => wrapped(f, "exists ", inner, ""),
        Expr::Case(inner) => case(f, inner),
        Expr::Call(inner) => call(f, inner),
        Expr::Quantified(inner) => quantified(f, inner),
        Expr::Collection(inner) => collection(f, inner),
        Expr::Subquery(_) => f.write_str("(select ..)"),
    }
}

fn wrapped(f: &mut Formatter<'_>, before: &str, inner: &Expr, after: &str) -> fmt::Result {
    f.write_str(before)?;
    expr(f, inner)?;
    f.write_str(after)
}

fn object(f: &mut Formatter<'_>, fields: &[(Expr, Expr)]) -> fmt::Result {
    f.write_char('{')?;
    for (index, (key, value)) in fields.iter().enumerate() {
        f.write_str(if index > 0 { ", " } else { "" })?;
        wrapped(f, "", key, ": ")?;
        expr(f, value)?;
    }
    f.write_char('}')
}

fn path(f: &mut Formatter<'_>, base: &Expr, steps: &[PathStep]) -> fmt::Result {
    for _ in 0..steps.iter().filter(|step| !matches!(step, PathStep::Index(_))).count() {
        f.write_char('(')?;
    }
    expr(f, base)?;
    for step in steps {
        match step {
            PathStep::Field { name: text, folded } => {
                f.write_char('.')?;
                name(f, text)?;
                f.write_str(if *folded { "i)" } else { ")" })?;
            }
            PathStep::Computed(inner) => wrapped(f, ".[", inner, "])")?,
            PathStep::Index(inner) => wrapped(f, "[", inner, "]")?,
            PathStep::Slice(start, end) => {
                f.write_char('[')?;
                start.iter().try_for_each(|start| expr(f, start))?;
                f.write_str(" : ")?;
                end.iter().try_for_each(|end| expr(f, end))?;
                f.write_str("])")?;
            }
            PathStep::Star => f.write_str("[*])")?,
        }
    }
    Ok(())
}

fn arithmetic(
    f: &mut Formatter<'_>,
    first: &Expr,
    rest: &[(ArithmeticOperator, Expr)],
) -> fmt::Result {
    rest.iter().try_for_each(|_| f.write_char('('))?;
    expr(f, first)?;
    for (operator, right) in rest {
        f.write_str(match operator {
            ArithmeticOperator::Add => " + ",
            ArithmeticOperator::Subtract => " - ",
            ArithmeticOperator::Multiply => " * ",
            ArithmeticOperator::Divide => " / ",
            ArithmeticOperator::Modulo => " % ",
            ArithmeticOperator::Power => " ^ ",
        })?;
        wrapped(f, "", right, ")")?;
    }
    Ok(())
}

fn compare(f: &mut Formatter<'_>, relation: Relation, sides: &(Expr, Expr)) -> fmt::Result {
    let (left, right) = sides;
    let (left, sign, right) = match relation {
        Relation::Equal => (left, " = ", right),
        Relation::NotEqual => {
            f.write_str("(not ")?;
            wrapped(f, "(", left, " = ")?;
            return wrapped(f, "", right, "))");
        }
        Relation::Less => (left, " < ", right),
        Relation::LessEqual => (left, " <= ", right),
        Relation::Greater => (right, " < ", left),
        Relation::GreaterEqual => (right, " <= ", left),
    };
    wrapped(f, "(", left, sign)?;
    wrapped(f, "", right, ")")
}

fn case(f: &mut Formatter<'_>, case: &CaseExpr) -> fmt::Result {
    f.write_str("case")?;
    if let Some(operand) = &case.operand {
        wrapped(f, " ", operand, "")?;
    }
    for (when, then) in &case.whens {
        wrapped(f, " when ", when, " then ")?;
        expr(f, then)?;
    }
    if let Some(otherwise) = &case.otherwise {
        wrapped(f, " else ", otherwise, "")?;
    }
    f.write_str(" end")
}

fn call(f: &mut Formatter<'_>, call: &FunctionCall) -> fmt::Result {
    write!(f, "{}(", call.name.to_lowercase())?;
    f.write_str(if call.distinct { "distinct " } else { "" })?;
    f.write_str(if call.star { "*" } else { "" })?;
    list(f, &call.args, ", ")?;
    f.write_char(')')
}

fn bindings(f: &mut Formatter<'_>, items: &[LoopBinding]) -> fmt::Result {
    for (index, binding) in items.iter().enumerate() {
        f.write_str(if index > 0 { ", " } else { "" })?;
        if let Some(position) = &binding.position {
            name(f, position)?;
            f.write_str(" : ")?;
        }
        name(f, &binding.variable)?;
        f.write_str(if binding.within { " within " } else { " in " })?;
        expr(f, &binding.source)?;
    }
    Ok(())
}

fn quantified(f: &mut Formatter<'_>, inner: &QuantifiedExpr) -> fmt::Result {
    f.write_str(match inner.quantifier {
        Quantifier::Any => "any ",
        Quantifier::Every => "every ",
        Quantifier::AnyAndEvery => "any and every ",
    })?;
    bindings(f, &inner.bindings)?;
    wrapped(f, " satisfies ", &inner.condition, " end")
}

fn collection(f: &mut Formatter<'_>, inner: &Comprehension) -> fmt::Result {
    f.write_str(match inner.kind {
        CollectionKind::Array => "array ",
        CollectionKind::First => "first ",
        CollectionKind::Object => "object ",
    })?;
    if let Some(key) = &inner.key {
        wrapped(f, "", key, " : ")?;
    }
    wrapped(f, "", &inner.value, " for ")?;
    bindings(f, &inner.bindings)?;
    if let Some(condition) = &inner.condition {
        wrapped(f, " when ", condition, "")?;
    }
    f.write_str(" end")
}
