//! Expressions: names, paths, calls, loops, aggregates and windows.

use std::collections::hash_map::Entry;

use crate::ast::{self, CollectionKind, FunctionCall};
use crate::error::{QueryError, Result};
use crate::functions;
use crate::plan::Aggregate;
use crate::plan::LoopPlan as PlanBinding;
use crate::plan::{ExprPlan, OrderKey, StepPlan, WindowFrame, WindowPlan};
use crate::value::QueryValue;
use crate::windows::WindowFunction;

use super::{Compiler, LoopPlan, Scope};

impl Compiler<'_> {
    pub fn expr(&mut self, expr: &ast::Expr) -> Result<ExprPlan> {
        use ast::Expr as Ast;
        (self.turn)()?;
        Ok(match expr {
            Ast::Literal(value) => ExprPlan::Const(value.clone()),
            Ast::Param(param) => ExprPlan::Param(param.clone()),
            Ast::Name(name) => self.resolve(name)?,
            Ast::Path(base, steps) => self.path(base, steps)?,
            Ast::Array(items) => constant_array(self.exprs(items)?),
            Ast::Object(fields) => ExprPlan::Object(self.pairs(fields)?),
            Ast::Not(inner) => ExprPlan::Not(self.boxed(inner)?),
            Ast::Negate(inner) => match self.expr(inner)? {
                ExprPlan::Const(value @ (QueryValue::Int(_) | QueryValue::Float(_))) => {
                    ExprPlan::Const(crate::operators::arithmetic::negate(&value))
                }
                other => ExprPlan::Negate(Box::new(other)),
            },
            Ast::And(items) => ExprPlan::And(self.exprs(items)?),
            Ast::Or(items) => ExprPlan::Or(self.exprs(items)?),
            Ast::Concat(items) => ExprPlan::Concat(self.exprs(items)?),
            Ast::Arithmetic(first, rest) => {
                let first = self.boxed(first)?;
                let rest = rest.iter();
                let rest = rest.map(|(operator, right)| Ok((*operator, self.expr(right)?)));
                ExprPlan::Arithmetic(first, rest.collect::<Result<_>>()?)
            }
            Ast::Compare(relation, sides) => ExprPlan::Compare(*relation, self.sides(sides)?),
            Ast::Is { test, negated, value } => {
                ExprPlan::Is { test: *test, negated: *negated, value: self.boxed(value)? }
            }
            Ast::Between { negated, parts } => {
                let [value, low, high] = &**parts;
                let parts = [self.expr(value)?, self.expr(low)?, self.expr(high)?];
                ExprPlan::Between { negated: *negated, parts: Box::new(parts) }
            }
            Ast::Like { negated, value, pattern, escape } => {
                let escape = match escape {
                    Some(escape) => self.expr(escape)?,
                    None => ExprPlan::Const(QueryValue::from("\\")),
                };
                let parts = [self.expr(value)?, self.expr(pattern)?, escape];
                ExprPlan::Like { negated: *negated, parts: Box::new(parts) }
            }
            Ast::In { negated, within, parts } => {
                ExprPlan::In { negated: *negated, within: *within, parts: self.sides(parts)? }
            }
            Ast::Exists(inner) => ExprPlan::Exists(self.boxed(inner)?),
            Ast::Case(case) => self.case(case)?,
            Ast::Call(call) => self.call(call)?,
            Ast::Quantified(inner) => self.scoped(Scope::default(), |compiler| {
                let bindings = compiler.bindings(&inner.bindings)?;
                let condition = compiler.boxed(&inner.condition)?;
                Ok(ExprPlan::Quantified { quantifier: inner.quantifier, bindings, condition })
            })?,
            Ast::Collection(inner) => self.collection(inner)?,
            Ast::Subquery(query) => ExprPlan::Subquery(self.subquery(query)?),
        })
    }

    fn boxed(&mut self, expr: &ast::Expr) -> Result<Box<ExprPlan>> {
        Ok(Box::new(self.expr(expr)?))
    }

    pub fn exprs(&mut self, list: &[ast::Expr]) -> Result<Vec<ExprPlan>> {
        list.iter().map(|expr| self.expr(expr)).collect()
    }

    pub fn optional(&mut self, expr: &Option<ast::Expr>) -> Result<Option<ExprPlan>> {
        expr.as_ref().map(|expr| self.expr(expr)).transpose()
    }

    fn sides(&mut self, sides: &(ast::Expr, ast::Expr)) -> Result<Box<(ExprPlan, ExprPlan)>> {
        Ok(Box::new((self.expr(&sides.0)?, self.expr(&sides.1)?)))
    }

    fn pairs(&mut self, pairs: &[(ast::Expr, ast::Expr)]) -> Result<Vec<(ExprPlan, ExprPlan)>> {
        pairs.iter().map(|(left, right)| Ok((self.expr(left)?, self.expr(right)?))).collect()
    }

    fn path(&mut self, base: &ast::Expr, steps: &[ast::PathStep]) -> Result<ExprPlan> {
        if let ast::Expr::Call(call) = base
            && call.name == "META"
            && let Some(ast::PathStep::Field { name, .. }) = steps.first()
            && name.as_bytes() == b"id"
        {
            let Some(source) = self.meta_source(call)? else {
                return Ok(ExprPlan::Const(QueryValue::Missing));
            };
            let key = self.slot(source + 1);
            return match self.steps(&steps[1..])? {
                rest if rest.is_empty() => Ok(key),
                rest => Ok(ExprPlan::path(key, rest)),
            };
        }
        let base = match (base, steps.first()) {
            (ast::Expr::Name(name), Some(ast::PathStep::Field { name: field, folded: false }))
                if !name.folded
                    && let Some(LoopPlan::Source(source)) = self.binding(&name.text) =>
            {
                let slot = source.slot;
                self.note_field(Some(field), slot);
                self.slot(slot)
            }
            _ => self.expr(base)?,
        };
        let steps = self.steps(steps)?;
        Ok(ExprPlan::path(base, steps))
    }

    pub fn steps(&mut self, steps: &[ast::PathStep]) -> Result<Vec<StepPlan>> {
        let step = |step: &ast::PathStep| {
            Ok(match step {
                ast::PathStep::Field { name, folded: false } => StepPlan::Field(name.clone()),
                ast::PathStep::Field { name, folded: true } => StepPlan::Folded(name.clone()),
                ast::PathStep::Computed(inner) => StepPlan::Computed(self.expr(inner)?),
                ast::PathStep::Index(inner) => StepPlan::Index(self.expr(inner)?),
                ast::PathStep::Slice(start, end) => {
                    StepPlan::Slice(self.optional(start)?, self.optional(end)?)
                }
                ast::PathStep::Star => StepPlan::Star,
            })
        };
        steps.iter().map(step).collect()
    }

    fn case(&mut self, case: &ast::CaseExpr) -> Result<ExprPlan> {
        let operand = self.optional(&case.operand)?.map(Box::new);
        let whens = self.pairs(&case.whens)?;
        let otherwise = self.optional(&case.otherwise)?.map(Box::new);
        Ok(ExprPlan::Case { operand, whens, otherwise })
    }

    fn collection(&mut self, inner: &ast::Comprehension) -> Result<ExprPlan> {
        self.scoped(Scope::default(), |compiler| {
            let bindings = compiler.bindings(&inner.bindings)?;
            let key = compiler.optional(&inner.key)?.map(Box::new);
            let value = compiler.boxed(&inner.value)?;
            let condition = compiler.optional(&inner.condition)?.map(Box::new);
            let kind: CollectionKind = inner.kind;
            Ok(ExprPlan::Collection { kind, key, value, bindings, condition })
        })
    }

    /// Loop variables. The sources do not see the variables of the same list.
    pub fn bindings(&mut self, list: &[ast::LoopBinding]) -> Result<Vec<PlanBinding>> {
        for binding in list {
            *self.open_variables.entry(binding.variable.clone()).or_default() += 1;
        }
        let sources: Result<Vec<ExprPlan>> =
            list.iter().map(|binding| self.expr(&binding.source)).collect();
        for binding in list {
            if let Entry::Occupied(mut open) = self.open_variables.entry(binding.variable.clone()) {
                *open.get_mut() -= 1;
                if *open.get() == 0 {
                    open.remove();
                }
            }
        }
        let sources = sources?;
        debug_assert!(sources.len() == list.len(), "each variable has a source");
        let bind = |(binding, source): (&ast::LoopBinding, ExprPlan)| {
            let position = match &binding.position {
                Some(name) => Some(self.add_variable(name)?),
                None => None,
            };
            let variable = self.add_variable(&binding.variable)?;
            Ok(PlanBinding { position, variable, within: binding.within, source })
        };
        list.iter().zip(sources).map(bind).collect()
    }

    /// The slot of the document in `META(..)`; `None` for an expression that is no document.
    fn meta_source(&mut self, call: &FunctionCall) -> Result<Option<usize>> {
        match call.args.first() {
            Some(ast::Expr::Name(name)) => match self.binding(&name.text) {
                Some(LoopPlan::Source(source)) if source.is_document => Ok(Some(source.slot)),
                _ => Ok(None),
            },
            Some(_) => Ok(None),
            None => {
                let scopes = self.scopes.iter().rev();
                let mut sources = scopes.filter_map(|scope| scope.sources.as_ref());
                match sources.find(|sources| !sources.is_empty()).map(|list| &list[..]) {
                    Some([source]) => Ok(source.is_document.then_some(source.slot)),
                    _ => Err(QueryError::new(4310, "META() needs the alias of a keyspace here")),
                }
            }
        }
    }

    fn call(&mut self, call: &FunctionCall) -> Result<ExprPlan> {
        if let Some(window) = &call.over {
            return self.window_call(call, window);
        }
        if let Some(kind) = functions::aggregate(&call.name) {
            let aggregate = self.aggregate(call, kind)?;
            if let Some(code) = self.select.aggregate_error {
                return Err(QueryError::new(code, format!("{} may not be here", call.name)));
            }
            let aggregates = &mut self.select.aggregates;
            let number = aggregates.iter().position(|known| *known == aggregate);
            return Ok(ExprPlan::Aggregate(number.unwrap_or_else(|| {
                aggregates.push(aggregate);
                aggregates.len() - 1
            })));
        }
        match (call.name.as_str(), call.args.first()) {
            ("META", _) => Ok(match self.meta_source(call)? {
                Some(source) => {
                    self.meta_slots.insert(source);
                    self.slot(source + 2)
                }
                None => ExprPlan::Const(QueryValue::Null),
            }),
            ("UNNEST_POS" | "UNNEST_POSITION", Some(ast::Expr::Name(name))) => {
                match self.binding(&name.text) {
                    Some(LoopPlan::Source(source)) if !source.is_document => {
                        let position = source.slot + 1;
                        Ok(self.slot(position))
                    }
                    _ => Ok(ExprPlan::Const(QueryValue::Missing)),
                }
            }
            _ => {
                let args = self.exprs(&call.args)?;
                match functions::function(&call.name) {
                    Some(function) => Ok(ExprPlan::Call(function, args)),
                    None => Err(QueryError::unsupported(&format!("the function {}", call.name))),
                }
            }
        }
    }

    /// An aggregate's parts, in which no other aggregate may be.
    fn aggregate(
        &mut self,
        call: &FunctionCall,
        kind: crate::aggregates::AggregateKind,
    ) -> Result<Aggregate> {
        let allowed = self.select.aggregate_error.replace(4000);
        let arg = match call.args.first() {
            Some(arg) => self.expr(arg).map(Some),
            None => Ok(None),
        };
        let filter = self.optional(&call.filter);
        self.select.aggregate_error = allowed;
        let (arg, filter) = (arg?, filter?);
        let letting = &self.select.letting;
        if arg.as_ref().is_some_and(|arg| arg.reads(&|slot| letting.contains(&slot))) {
            return Err(QueryError::new(4000, "An aggregate may not use a LETTING variable"));
        }
        Ok(Aggregate { kind, arg, distinct: call.distinct, filter })
    }

    fn window_call(&mut self, call: &FunctionCall, window: &ast::WindowClause) -> Result<ExprPlan> {
        if self.select.aggregate_error.is_some() {
            return Err(QueryError::new(4000, "A window function may not be here"));
        }
        let window = self.merged_window(window)?;
        let allowed = self.select.aggregate_error;
        let aggregate = match functions::aggregate(&call.name) {
            // Its parts may hold aggregates of the group.
            Some(kind) => {
                let arg = call.args.first().map(|arg| self.expr(arg)).transpose()?;
                let filter = self.optional(&call.filter)?;
                Some(Aggregate { kind, arg, distinct: call.distinct, filter })
            }
            None => None,
        };
        let function = match (&aggregate, WindowFunction::named(&call.name)) {
            (Some(_), _) => WindowFunction::Aggregate,
            (None, Some(function)) => function,
            _ => return Err(QueryError::unsupported(&call.name)),
        };
        let args = if aggregate.is_some() { Vec::new() } else { self.exprs(&call.args)? };
        let partition = self.exprs(&window.partition)?;
        let order = self.sort_keys(&window.order)?;
        let frame = self.window_frame(&window)?;
        self.select.aggregate_error = allowed;
        let slot = self.allocate(1);
        self.select.windows.push(WindowPlan {
            slot,
            function,
            args,
            aggregate,
            ignore_nulls: call.ignore_nulls,
            from_last: call.from_last,
            partition,
            order,
            frame,
        });
        Ok(ExprPlan::Slot(slot))
    }

    /// A window with the parts of the named one that it refers to.
    fn merged_window(&self, window: &ast::WindowClause) -> Result<ast::WindowClause> {
        let mut merged = window.clone();
        let mut rounds = 0;
        while let Some(base) = merged.base.take() {
            let named = self.select.named_windows.iter().find(|(name, _)| *name == base);
            let Some((_, named)) = named.filter(|_| rounds < 32) else {
                return Err(QueryError::new(4000, format!("The window {base} does not exist")));
            };
            rounds += 1;
            if merged.partition.is_empty() {
                merged.partition.clone_from(&named.partition);
            }
            if merged.order.is_empty() {
                merged.order.clone_from(&named.order);
            }
            merged.frame = merged.frame.or_else(|| named.frame.clone());
            merged.base.clone_from(&named.base);
        }
        Ok(merged)
    }

    fn window_frame(&mut self, window: &ast::WindowClause) -> Result<Option<WindowFrame>> {
        let Some(shape) = &window.frame else { return Ok(None) };
        let mut distance = |bound: &ast::FrameBound| match bound {
            ast::FrameBound::Preceding(distance) | ast::FrameBound::Following(distance) => {
                self.expr(distance).map(Some)
            }
            _ => Ok(None),
        };
        let (start, end) = (distance(&shape.start)?, distance(&shape.end)?);
        Ok(Some(WindowFrame { shape: shape.clone(), start, end }))
    }

    pub fn sort_keys(&mut self, terms: &[ast::OrderTerm]) -> Result<Vec<OrderKey>> {
        let key = |term: &ast::OrderTerm| {
            Ok(OrderKey {
                value: self.expr(&term.value)?,
                descending: term.descending == ast::Descending::Yes,
                nulls_last: term.nulls_last,
            })
        };
        terms.iter().map(key).collect()
    }
}

/// An array of constants is one constant.
fn constant_array(items: Vec<ExprPlan>) -> ExprPlan {
    let value = |item: &ExprPlan| match item {
        ExprPlan::Const(value) => Some(value.clone()),
        _ => None,
    };
    match items.iter().map(value).collect::<Option<Vec<QueryValue>>>() {
        Some(values) => ExprPlan::Const(QueryValue::from(values)),
        None => ExprPlan::Array(items),
    }
}
