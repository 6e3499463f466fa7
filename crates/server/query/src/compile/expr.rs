//! Expressions: names, paths, calls, loops, aggregates and windows.

use crate::ast::{self, Call, CollectionKind};
use crate::error::{QueryError, Result};
use crate::functions;
use crate::plan::Aggregate;
use crate::plan::Binding as PlanBinding;
use crate::plan::{Expr, SortKey, Step, WindowFrame, WindowPlan};
use crate::value::Value;
use crate::windows::WindowFunction;

use super::{Binding, Compiler, Scope};

impl Compiler<'_> {
    pub fn expr(&mut self, expr: &ast::Expr) -> Result<Expr> {
        use ast::Expr as Ast;
        Ok(match expr {
            Ast::Literal(value) => Expr::Const(value.clone()),
            Ast::Param(param) => Expr::Param(param.clone()),
            Ast::Name(name) => self.resolve(name)?,
            Ast::Path(base, steps) => self.path(base, steps)?,
            Ast::Array(items) => constant_array(self.exprs(items)?),
            Ast::Object(fields) => Expr::Object(self.pairs(fields)?),
            Ast::Not(inner) => Expr::Not(self.boxed(inner)?),
            Ast::Negate(inner) => match self.expr(inner)? {
                Expr::Const(value @ (Value::Int(_) | Value::Float(_))) => {
                    Expr::Const(crate::eval::arithmetic::negate(&value))
                }
                other => Expr::Negate(Box::new(other)),
            },
            Ast::And(items) => Expr::And(self.exprs(items)?),
            Ast::Or(items) => Expr::Or(self.exprs(items)?),
            Ast::Concat(items) => Expr::Concat(self.exprs(items)?),
            Ast::Arithmetic(first, rest) => {
                let first = self.boxed(first)?;
                let rest = rest.iter();
                let rest = rest.map(|(operator, right)| Ok((*operator, self.expr(right)?)));
                Expr::Arithmetic(first, rest.collect::<Result<_>>()?)
            }
            Ast::Compare(relation, sides) => Expr::Compare(*relation, self.sides(sides)?),
            Ast::Is { test, negated, value } => {
                Expr::Is { test: *test, negated: *negated, value: self.boxed(value)? }
            }
            Ast::Between { negated, parts } => {
                let [value, low, high] = &**parts;
                let parts = [self.expr(value)?, self.expr(low)?, self.expr(high)?];
                Expr::Between { negated: *negated, parts: Box::new(parts) }
            }
            Ast::Like { negated, value, pattern, escape } => {
                let escape = match escape {
                    Some(escape) => self.expr(escape)?,
                    None => Expr::Const(Value::from("\\")),
                };
                let parts = [self.expr(value)?, self.expr(pattern)?, escape];
                Expr::Like { negated: *negated, parts: Box::new(parts) }
            }
            Ast::In { negated, within, parts } => {
                Expr::In { negated: *negated, within: *within, parts: self.sides(parts)? }
            }
            Ast::Exists(inner) => Expr::Exists(self.boxed(inner)?),
            Ast::Case(case) => self.case(case)?,
            Ast::Call(call) => self.call(call)?,
            Ast::Quantified(inner) => self.scoped(Scope::default(), |compiler| {
                let bindings = compiler.bindings(&inner.bindings)?;
                let condition = compiler.boxed(&inner.condition)?;
                Ok(Expr::Quantified { quantifier: inner.quantifier, bindings, condition })
            })?,
            Ast::Collection(inner) => self.collection(inner)?,
            Ast::Subquery(query) => Expr::Subquery(self.subquery(query)?),
        })
    }

    fn boxed(&mut self, expr: &ast::Expr) -> Result<Box<Expr>> {
        Ok(Box::new(self.expr(expr)?))
    }

    pub fn exprs(&mut self, list: &[ast::Expr]) -> Result<Vec<Expr>> {
        list.iter().map(|expr| self.expr(expr)).collect()
    }

    pub fn optional(&mut self, expr: &Option<ast::Expr>) -> Result<Option<Expr>> {
        expr.as_ref().map(|expr| self.expr(expr)).transpose()
    }

    fn sides(&mut self, sides: &(ast::Expr, ast::Expr)) -> Result<Box<(Expr, Expr)>> {
        Ok(Box::new((self.expr(&sides.0)?, self.expr(&sides.1)?)))
    }

    fn pairs(&mut self, pairs: &[(ast::Expr, ast::Expr)]) -> Result<Vec<(Expr, Expr)>> {
        pairs.iter().map(|(left, right)| Ok((self.expr(left)?, self.expr(right)?))).collect()
    }

    fn path(&mut self, base: &ast::Expr, steps: &[ast::Step]) -> Result<Expr> {
        if let ast::Expr::Call(call) = base
            && call.name == "META"
            && let Some(ast::Step::Field { name, .. }) = steps.first()
            && name.as_bytes() == b"id"
        {
            let Some(source) = self.meta_source(call)? else {
                return Ok(Expr::Const(Value::Missing));
            };
            let key = self.slot(source + 1);
            return match self.steps(&steps[1..])? {
                rest if rest.is_empty() => Ok(key),
                rest => Ok(Expr::path(key, rest)),
            };
        }
        let base = self.expr(base)?;
        let steps = self.steps(steps)?;
        Ok(Expr::path(base, steps))
    }

    pub fn steps(&mut self, steps: &[ast::Step]) -> Result<Vec<Step>> {
        let step = |step: &ast::Step| {
            Ok(match step {
                ast::Step::Field { name, folded: false } => Step::Field(name.clone()),
                ast::Step::Field { name, folded: true } => Step::Folded(name.clone()),
                ast::Step::Computed(inner) => Step::Computed(self.expr(inner)?),
                ast::Step::Index(inner) => Step::Index(self.expr(inner)?),
                ast::Step::Slice(start, end) => {
                    Step::Slice(self.optional(start)?, self.optional(end)?)
                }
                ast::Step::Star => Step::Star,
            })
        };
        steps.iter().map(step).collect()
    }

    fn case(&mut self, case: &ast::Case) -> Result<Expr> {
        let operand = self.optional(&case.operand)?.map(Box::new);
        let whens = self.pairs(&case.whens)?;
        let otherwise = self.optional(&case.otherwise)?.map(Box::new);
        Ok(Expr::Case { operand, whens, otherwise })
    }

    fn collection(&mut self, inner: &ast::Collection) -> Result<Expr> {
        self.scoped(Scope::default(), |compiler| {
            let bindings = compiler.bindings(&inner.bindings)?;
            let key = compiler.optional(&inner.key)?.map(Box::new);
            let value = compiler.boxed(&inner.value)?;
            let condition = compiler.optional(&inner.condition)?.map(Box::new);
            let kind: CollectionKind = inner.kind;
            Ok(Expr::Collection { kind, key, value, bindings, condition })
        })
    }

    /// Loop variables. The sources do not see the variables of the same list.
    pub fn bindings(&mut self, list: &[ast::Binding]) -> Result<Vec<PlanBinding>> {
        let open = self.open_variables.len();
        self.open_variables.extend(list.iter().map(|binding| binding.variable.clone()));
        let sources: Result<Vec<Expr>> =
            list.iter().map(|binding| self.expr(&binding.source)).collect();
        self.open_variables.truncate(open);
        let sources = sources?;
        let bind = |(binding, source): (&ast::Binding, Expr)| {
            let position = match &binding.position {
                Some(name) => Some(self.add_variable(name)?),
                None => None,
            };
            let variable = self.add_variable(&binding.variable)?;
            Ok(PlanBinding { position, variable, within: binding.within, source })
        };
        list.iter().zip(sources).map(bind).collect()
    }

    /// The document's slot that `META(..)` is about. None for what is no document.
    fn meta_source(&mut self, call: &Call) -> Result<Option<usize>> {
        match call.args.first() {
            Some(ast::Expr::Name(name)) => match self.binding(&name.text) {
                Some(Binding::Source(source)) if source.is_document => Ok(Some(source.slot)),
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

    fn call(&mut self, call: &Call) -> Result<Expr> {
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
            return Ok(Expr::Aggregate(number.unwrap_or_else(|| {
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
                None => Expr::Const(Value::Null),
            }),
            ("UNNEST_POS" | "UNNEST_POSITION", Some(ast::Expr::Name(name))) => {
                match self.binding(&name.text) {
                    Some(Binding::Source(source)) if !source.is_document => {
                        let position = source.slot + 1;
                        Ok(self.slot(position))
                    }
                    _ => Ok(Expr::Const(Value::Missing)),
                }
            }
            _ => {
                let args = self.exprs(&call.args)?;
                match functions::function(&call.name) {
                    Some(function) => Ok(Expr::Call(function, args)),
                    None => Err(QueryError::unsupported(&format!("the function {}", call.name))),
                }
            }
        }
    }

    /// An aggregate's parts, in which no other aggregate may be.
    fn aggregate(
        &mut self,
        call: &Call,
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

    fn window_call(&mut self, call: &Call, window: &ast::Window) -> Result<Expr> {
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
        Ok(Expr::Slot(slot))
    }

    /// A window with the parts of the named one that it refers to.
    fn merged_window(&self, window: &ast::Window) -> Result<ast::Window> {
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

    fn window_frame(&mut self, window: &ast::Window) -> Result<Option<WindowFrame>> {
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

    pub fn sort_keys(&mut self, terms: &[ast::OrderTerm]) -> Result<Vec<SortKey>> {
        let key = |term: &ast::OrderTerm| {
            Ok(SortKey {
                value: self.expr(&term.value)?,
                descending: term.descending == ast::Descending::Yes,
                nulls_last: term.nulls_last,
            })
        };
        terms.iter().map(key).collect()
    }
}

/// An array of constants is one constant.
fn constant_array(items: Vec<Expr>) -> Expr {
    let value = |item: &Expr| match item {
        Expr::Const(value) => Some(value.clone()),
        _ => None,
    };
    match items.iter().map(value).collect::<Option<Vec<Value>>>() {
        Some(values) => Expr::Const(Value::from(values)),
        None => Expr::Array(items),
    }
}
