//! Evaluates a resolved expression over a frame.
//!
//! Operators short-circuit, so an error in a part that is not needed does not fail the statement.
//! `eval::path` walks documents, `eval::repeat` runs loops.

pub mod arithmetic;
pub mod like;
pub mod logic;
pub mod path;
pub mod repeat;

use smallvec::SmallVec;

use crate::ast::Relation;
use crate::error::Result;
use crate::functions::function::{Function, Nulls, check_size};
use crate::plan::{Expr, Slot, Subquery};
use crate::runtime::{Frame, Runtime};
use crate::value::{Object, Text, Value};

use logic::{is, not, relate};

impl Runtime<'_> {
    /// The value of an expression.
    pub fn eval(&self, expr: &Expr, frame: &mut Frame) -> Result<Value> {
        Ok(match expr {
            Expr::Const(value) => value.clone(),
            Expr::Slot(slot) => frame[*slot].clone(),
            Expr::Path { base, names, rest } => self.path(base, names, rest, frame)?,
            Expr::Compare(relation, sides) => {
                let (left, right) = (self.eval(&sides.0, frame)?, self.eval(&sides.1, frame)?);
                relate(*relation, &left, &right)
            }
            Expr::Call(function, args) => self.call(function, args, frame)?,
            Expr::Param(param) => self.param(param)?,
            Expr::And(parts) => self.and(parts, frame)?,
            Expr::Or(parts) => self.or(parts, frame)?,
            Expr::Not(inner) => not(self.eval(inner, frame)?),
            Expr::Is { test, negated, value } => is(*test, *negated, &self.eval(value, frame)?),
            Expr::Arithmetic(first, rest) => {
                let mut left = self.eval(first, frame)?;
                for (operator, right) in rest {
                    left = arithmetic::apply(*operator, &left, &self.eval(right, frame)?, self);
                }
                left
            }
            Expr::Negate(inner) => arithmetic::negate(&self.eval(inner, frame)?),
            Expr::Concat(parts) => self.concat(parts, frame)?,
            Expr::In { negated, within, parts } => {
                let value = self.eval(&parts.0, frame)?;
                let list = self.eval(&parts.1, frame)?;
                let found = match within {
                    true => repeat::is_within(&value, &list, self)?,
                    false => repeat::is_in(&value, &list, self)?,
                };
                if *negated { not(found) } else { found }
            }
            Expr::Between { negated, parts } => self.between(*negated, parts, frame)?,
            Expr::Like { negated, parts } => self.is_like(*negated, parts, frame)?,
            Expr::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.push(self.eval(item, frame)?);
                }
                Value::from(list)
            }
            Expr::Object(fields) => self.object(fields, frame)?,
            Expr::Case { operand, whens, otherwise } => {
                self.case(operand.as_deref(), whens, otherwise.as_deref(), frame)?
            }
            Expr::Exists(inner) => self.exists(inner, frame)?,
            Expr::Quantified { quantifier, bindings, condition } => {
                self.quantified(*quantifier, bindings, condition, frame)?
            }
            Expr::Collection { kind, key, value, bindings, condition } => {
                let parts = repeat::CollectionParts {
                    kind: *kind,
                    key: key.as_deref(),
                    value,
                    condition: condition.as_deref(),
                };
                self.collection(parts, bindings, frame)?
            }
            Expr::Subquery(inner) => self.subquery(inner, frame)?,
            Expr::Aggregate(_) => Value::Missing,
        })
    }

    /// Whether a condition holds.
    #[inline]
    pub fn holds(&self, condition: &Expr, frame: &mut Frame) -> Result<bool> {
        Ok(self.eval(condition, frame)?.truth())
    }

    /// Whether all conditions hold.
    pub fn all_hold(&self, conditions: &[Expr], frame: &mut Frame) -> Result<bool> {
        for condition in conditions {
            if !self.holds(condition, frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// False if a part is; else missing, else null if a part is; else true.
    fn and(&self, parts: &[Expr], frame: &mut Frame) -> Result<Value> {
        let mut result = Value::Bool(true);
        for part in parts {
            match self.eval(part, frame)? {
                Value::Missing => result = Value::Missing,
                Value::Null if !result.is_missing() => result = Value::Null,
                Value::Null => {}
                value if value.truth() => {}
                _ => return Ok(Value::Bool(false)),
            }
        }
        Ok(result)
    }

    /// True if a part is; else null, else missing if a part is; else false.
    fn or(&self, parts: &[Expr], frame: &mut Frame) -> Result<Value> {
        let mut result = Value::Bool(false);
        for part in parts {
            match self.eval(part, frame)? {
                Value::Null => result = Value::Null,
                Value::Missing if !result.is_null() => result = Value::Missing,
                Value::Missing => {}
                value if value.truth() => return Ok(Value::Bool(true)),
                _ => {}
            }
        }
        Ok(result)
    }

    fn concat(&self, parts: &[Expr], frame: &mut Frame) -> Result<Value> {
        let mut out = Vec::new();
        let mut result = Value::Bool(true);
        for part in parts {
            match self.eval(part, frame)? {
                Value::Str(text) => out.extend_from_slice(text.as_bytes()),
                Value::Missing => result = Value::Missing,
                _ if result.is_missing() => {}
                _ => result = Value::Null,
            }
        }
        check_size(out.len())?;
        match result {
            Value::Bool(_) => Ok(Value::Str(Text::from_bytes(out.into()))),
            other => Ok(other),
        }
    }

    fn between(&self, negated: bool, parts: &[Expr; 3], frame: &mut Frame) -> Result<Value> {
        let value = self.eval(&parts[0], frame)?;
        let low = self.eval(&parts[1], frame)?;
        let high = self.eval(&parts[2], frame)?;
        let parts = [&value, &low, &high];
        if parts.iter().any(|part| part.is_missing()) {
            return Ok(Value::Missing);
        }
        if parts.iter().any(|part| part.is_null()) {
            return Ok(Value::Null);
        }
        let above = relate(Relation::GreaterEqual, &value, &low);
        let below = relate(Relation::LessEqual, &value, &high);
        let result = match (above, below) {
            (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
            (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
            (Value::Null, _) | (_, Value::Null) => Value::Null,
            _ => Value::Bool(true),
        };
        Ok(if negated { not(result) } else { result })
    }

    fn is_like(&self, negated: bool, parts: &[Expr; 3], frame: &mut Frame) -> Result<Value> {
        let value = self.eval(&parts[0], frame)?;
        let pattern = self.eval(&parts[1], frame)?;
        let escape = self.eval(&parts[2], frame)?;
        if value.is_missing() || pattern.is_missing() || escape.is_missing() {
            return Ok(Value::Missing);
        }
        let (Value::Str(value), Value::Str(pattern), Value::Str(escape)) = (value, pattern, escape)
        else {
            return Ok(Value::Null);
        };
        let found = self.like(&pattern, &escape)?.matches(value.as_bytes());
        Ok(Value::Bool(found != negated))
    }

    fn object(&self, fields: &[(Expr, Expr)], frame: &mut Frame) -> Result<Value> {
        let mut list = Vec::with_capacity(fields.len());
        for (key, value) in fields {
            let key = self.eval(key, frame)?;
            let value = self.eval(value, frame)?;
            if let Value::Str(key) = key {
                list.push((key, value));
            }
        }
        Ok(Value::from(Object::new(list)))
    }

    fn case(
        &self,
        operand: Option<&Expr>,
        whens: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
        frame: &mut Frame,
    ) -> Result<Value> {
        let operand = operand.map(|operand| self.eval(operand, frame)).transpose()?;
        for (when, then) in whens {
            let when = self.eval(when, frame)?;
            let found = match &operand {
                Some(operand) => relate(Relation::Equal, operand, &when).truth(),
                None => when.truth(),
            };
            if found {
                return self.eval(then, frame);
            }
        }
        otherwise.map_or(Ok(Value::Null), |otherwise| self.eval(otherwise, frame))
    }

    fn exists(&self, inner: &Expr, frame: &mut Frame) -> Result<Value> {
        if let Expr::Subquery(inner) = inner
            && !inner.outer.is_empty()
        {
            return Ok(Value::Bool(self.has_rows(&inner.plan, frame)?));
        }
        let value = self.eval(inner, frame)?;
        Ok(match &value {
            Value::Missing => Value::Missing,
            value if value.is_array() => Value::Bool(value.truth()),
            _ => Value::Null,
        })
    }

    /// The rows of a subquery. What it reads from outer rows decides whether they are kept.
    fn subquery(&self, inner: &Subquery, frame: &mut Frame) -> Result<Value> {
        let once = inner.outer.is_empty();
        if once && let Some(value) = self.cached_subquery(inner.number) {
            return Ok(value);
        }
        let used = self.used();
        let rows = self.collect_rows(&inner.plan, frame)?;
        if once {
            self.cache_subquery(inner.number, rows.clone());
        } else {
            self.release_to(used);
        }
        Ok(rows)
    }

    fn call(&self, function: &Function, args: &[Expr], frame: &mut Frame) -> Result<Value> {
        let mut values: SmallVec<[Value; 4]> = SmallVec::with_capacity(args.len());
        for arg in args {
            values.push(self.eval(arg, frame)?);
        }
        if function.nulls == Nulls::Propagate {
            if values.iter().any(Value::is_missing) {
                return Ok(Value::Missing);
            }
            if values.iter().any(Value::is_null) {
                return Ok(Value::Null);
            }
        }
        (function.run)(&values, self)
    }

    /// Computes LET or LETTING.
    pub fn assign(&self, lets: &[(Slot, Expr)], frame: &mut Frame) -> Result<()> {
        for (slot, value) in lets {
            frame[*slot] = self.eval(value, frame)?;
        }
        Ok(())
    }
}
