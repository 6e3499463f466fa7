//! Evaluates a resolved expression over a frame.
//!
//! Operators short-circuit, so an error in a part that is not needed does not fail the statement.
//! `eval::path` walks documents, `eval::repeat` runs loops.

pub mod path;
pub mod repeat;

use smallvec::SmallVec;

use crate::ast::Relation;
use crate::error::Result;
use crate::functions::function::{Function, Nulls, check_length, checked};
use crate::plan::{ExprPlan, FrameSlot, Subquery};
use crate::runtime::memory::GrowingMemory;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{Object, QueryValue};

use crate::operators::logic::{is, not, relate};
use crate::operators::{arithmetic, containment};

impl Runtime<'_> {
    /// The value of an expression.
    pub fn eval(&self, expr: &ExprPlan, frame: &mut SlotFrame) -> Result<QueryValue> {
        Ok(match expr {
            ExprPlan::Const(value) => value.clone(),
            ExprPlan::Slot(slot) => frame[*slot].clone(),
            ExprPlan::Path { base, names, rest } => self.path(base, names, rest, frame)?,
            ExprPlan::Compare(relation, sides) => {
                let (left, right) = (self.eval(&sides.0, frame)?, self.eval(&sides.1, frame)?);
                self.work(left.walked_bytes().min(right.walked_bytes()))?;
                relate(*relation, &left, &right)
            }
            ExprPlan::Call(function, args) => self.call(function, args, frame)?,
            ExprPlan::Param(param) => self.param(param)?,
            ExprPlan::And(parts) => self.and(parts, frame)?,
            ExprPlan::Or(parts) => self.or(parts, frame)?,
            ExprPlan::Not(inner) => not(self.eval(inner, frame)?),
            ExprPlan::Is { test, negated, value } => is(*test, *negated, &self.eval(value, frame)?),
            ExprPlan::Arithmetic(first, rest) => {
                let mut left = self.eval(first, frame)?;
                for (operator, right) in rest {
                    left = arithmetic::apply(*operator, &left, &self.eval(right, frame)?, self);
                }
                left
            }
            ExprPlan::Negate(inner) => arithmetic::negate(&self.eval(inner, frame)?),
            ExprPlan::Concat(parts) => self.concat(parts, frame)?,
            ExprPlan::In { negated, within, parts } => {
                let value = self.eval(&parts.0, frame)?;
                let list = self.eval(&parts.1, frame)?;
                let found = match within {
                    true => containment::is_within(&value, &list, self)?,
                    false => containment::is_in(&value, &list, self)?,
                };
                if *negated { not(found) } else { found }
            }
            ExprPlan::Between { negated, parts } => self.between(*negated, parts, frame)?,
            ExprPlan::Like { negated, parts } => self.is_like(*negated, parts, frame)?,
            ExprPlan::Array(items) => {
                let mut memory = GrowingMemory::default();
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    let value = self.eval(item, frame)?;
                    memory.add_item(&value, self)?;
                    list.push(value);
                }
                checked(memory.array(list))?
            }
            ExprPlan::Object(fields) => self.object(fields, frame)?,
            ExprPlan::Case { operand, whens, otherwise } => {
                self.case(operand.as_deref(), whens, otherwise.as_deref(), frame)?
            }
            ExprPlan::Exists(inner) => self.exists(inner, frame)?,
            ExprPlan::Quantified { quantifier, bindings, condition } => {
                self.quantified(*quantifier, bindings, condition, frame)?
            }
            ExprPlan::Collection { kind, key, value, bindings, condition } => {
                let parts = repeat::CollectionParts {
                    kind: *kind,
                    key: key.as_deref(),
                    value,
                    condition: condition.as_deref(),
                };
                checked(self.collection(parts, bindings, frame)?)?
            }
            ExprPlan::Subquery(inner) => self.subquery(inner, frame)?,
            ExprPlan::Aggregate(_) => QueryValue::Missing,
        })
    }

    /// Whether a condition holds.
    #[inline]
    pub fn holds(&self, condition: &ExprPlan, frame: &mut SlotFrame) -> Result<bool> {
        Ok(self.eval(condition, frame)?.truth())
    }

    /// Whether all conditions hold.
    pub fn all_hold(&self, conditions: &[ExprPlan], frame: &mut SlotFrame) -> Result<bool> {
        for condition in conditions {
            if !self.holds(condition, frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// False if a part is; else missing, else null if a part is; else true.
    fn and(&self, parts: &[ExprPlan], frame: &mut SlotFrame) -> Result<QueryValue> {
        let mut result = QueryValue::Bool(true);
        for part in parts {
            match self.eval(part, frame)? {
                QueryValue::Missing => result = QueryValue::Missing,
                QueryValue::Null if !result.is_missing() => result = QueryValue::Null,
                QueryValue::Null => {}
                value if value.truth() => {}
                _ => return Ok(QueryValue::Bool(false)),
            }
        }
        Ok(result)
    }

    /// True if a part is; else null, else missing if a part is; else false.
    fn or(&self, parts: &[ExprPlan], frame: &mut SlotFrame) -> Result<QueryValue> {
        let mut result = QueryValue::Bool(false);
        for part in parts {
            match self.eval(part, frame)? {
                QueryValue::Null => result = QueryValue::Null,
                QueryValue::Missing if !result.is_null() => result = QueryValue::Missing,
                QueryValue::Missing => {}
                value if value.truth() => return Ok(QueryValue::Bool(true)),
                _ => {}
            }
        }
        Ok(result)
    }

    fn concat(&self, parts: &[ExprPlan], frame: &mut SlotFrame) -> Result<QueryValue> {
        debug_assert!(parts.len() > 1, "a chain has two parts");
        let mut out = Vec::new();
        let mut memory = GrowingMemory::default();
        let mut result = QueryValue::Bool(true);
        for part in parts {
            match self.eval(part, frame)? {
                QueryValue::Str(text) => {
                    self.work(text.as_bytes().len())?;
                    // A text that grows may be in memory twice.
                    memory.add(2 * text.as_bytes().len(), self)?;
                    check_length(out.len() + text.as_bytes().len())?;
                    out.extend_from_slice(text.as_bytes());
                }
                QueryValue::Missing => result = QueryValue::Missing,
                _ if result.is_missing() => {}
                _ => result = QueryValue::Null,
            }
        }
        match result {
            QueryValue::Bool(_) => Ok(memory.text(out)),
            other => Ok(other),
        }
    }

    fn between(
        &self,
        negated: bool,
        parts: &[ExprPlan; 3],
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let value = self.eval(&parts[0], frame)?;
        let low = self.eval(&parts[1], frame)?;
        let high = self.eval(&parts[2], frame)?;
        let parts = [&value, &low, &high];
        if parts.iter().any(|part| part.is_missing()) {
            return Ok(QueryValue::Missing);
        }
        if parts.iter().any(|part| part.is_null()) {
            return Ok(QueryValue::Null);
        }
        let above = relate(Relation::GreaterEqual, &value, &low);
        let below = relate(Relation::LessEqual, &value, &high);
        let result = match (above, below) {
            (QueryValue::Bool(false), _) | (_, QueryValue::Bool(false)) => QueryValue::Bool(false),
            (QueryValue::Missing, _) | (_, QueryValue::Missing) => QueryValue::Missing,
            (QueryValue::Null, _) | (_, QueryValue::Null) => QueryValue::Null,
            _ => QueryValue::Bool(true),
        };
        Ok(if negated { not(result) } else { result })
    }

    fn is_like(
        &self,
        negated: bool,
        parts: &[ExprPlan; 3],
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let value = self.eval(&parts[0], frame)?;
        let pattern = self.eval(&parts[1], frame)?;
        let escape = self.eval(&parts[2], frame)?;
        if value.is_missing() || pattern.is_missing() || escape.is_missing() {
            return Ok(QueryValue::Missing);
        }
        let (QueryValue::Str(value), QueryValue::Str(pattern), QueryValue::Str(escape)) =
            (value, pattern, escape)
        else {
            return Ok(QueryValue::Null);
        };
        let found = self
            .like(&pattern, &escape)?
            .matches(value.as_bytes(), &mut |bytes| self.work(bytes))?;
        Ok(QueryValue::Bool(found != negated))
    }

    fn object(&self, fields: &[(ExprPlan, ExprPlan)], frame: &mut SlotFrame) -> Result<QueryValue> {
        let mut memory = GrowingMemory::default();
        let mut list = Vec::with_capacity(fields.len());
        for (key, value) in fields {
            let key = self.eval(key, frame)?;
            let value = self.eval(value, frame)?;
            memory.add_item(&key, self)?;
            memory.add_item(&value, self)?;
            if let QueryValue::Str(key) = key {
                list.push((key, value));
            }
        }
        checked(memory.object(Object::new(list)))
    }

    fn case(
        &self,
        operand: Option<&ExprPlan>,
        whens: &[(ExprPlan, ExprPlan)],
        otherwise: Option<&ExprPlan>,
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        debug_assert!(!whens.is_empty(), "CASE has a WHEN");
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
        otherwise.map_or(Ok(QueryValue::Null), |otherwise| self.eval(otherwise, frame))
    }

    fn exists(&self, inner: &ExprPlan, frame: &mut SlotFrame) -> Result<QueryValue> {
        if let ExprPlan::Subquery(inner) = inner
            && !inner.outer.is_empty()
        {
            return Ok(QueryValue::Bool(self.has_rows(&inner.plan, frame)?));
        }
        let value = self.eval(inner, frame)?;
        Ok(match &value {
            QueryValue::Missing => QueryValue::Missing,
            value if value.is_array() => QueryValue::Bool(value.truth()),
            _ => QueryValue::Null,
        })
    }

    /// The rows of a subquery. They are cached unless the subquery reads outer rows.
    fn subquery(&self, inner: &Subquery, frame: &mut SlotFrame) -> Result<QueryValue> {
        let once = inner.outer.is_empty();
        if once && let Some(value) = self.cached_subquery(inner.number) {
            return Ok(value);
        }
        let rows = self.collect_rows(&inner.plan, frame)?;
        if once {
            self.cache_subquery(inner.number, rows.clone());
        }
        Ok(rows)
    }

    fn call(
        &self,
        function: &Function,
        args: &[ExprPlan],
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let takes = function.min..=function.max;
        debug_assert!(takes.contains(&args.len()), "a call has the arguments of its function");
        let mut values: SmallVec<[QueryValue; 4]> = SmallVec::with_capacity(args.len());
        for arg in args {
            let value = self.eval(arg, frame)?;
            self.work(value.walked_bytes())?;
            values.push(value);
        }
        if function.nulls == Nulls::Propagate {
            if values.iter().any(QueryValue::is_missing) {
                return Ok(QueryValue::Missing);
            }
            if values.iter().any(QueryValue::is_null) {
                return Ok(QueryValue::Null);
            }
        }
        checked(self.with_scratch(|| (function.run)(&values, self))?)
    }

    /// Computes LET or LETTING.
    pub fn assign(&self, lets: &[(FrameSlot, ExprPlan)], frame: &mut SlotFrame) -> Result<()> {
        for (slot, value) in lets {
            frame[*slot] = self.eval(value, frame)?;
        }
        Ok(())
    }
}
