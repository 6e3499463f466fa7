//! Queries: WITH, set operations, bounds and subqueries.

use std::sync::Arc;

use crate::ast::{self, Body, SetKind};
use crate::error::{QueryError, Result};
use crate::plan::{
    BodyPlan, ExprPlan, FrameSlot, OrderKey, QueryPlan, RecursivePlan, Subquery, WithPlan,
    WithValue,
};
use crate::value::Text;

use super::scope_names::ScopeNames;
use super::{Compiler, FromSource, LoopPlan, OpenSubquery, Scope};

impl Compiler<'_> {
    /// A query of the statement or of FROM.
    pub fn query(&mut self, query: &ast::QueryExpr) -> Result<QueryPlan> {
        let select = std::mem::take(&mut self.select);
        let result = self.scoped(Scope::default(), |compiler| compiler.query_in_scope(query));
        self.select = select;
        result
    }

    fn query_in_scope(&mut self, query: &ast::QueryExpr) -> Result<QueryPlan> {
        let mut with = Vec::with_capacity(query.with.len());
        for term in &query.with {
            with.push(self.with_term(term, query.recursive)?);
        }
        let row = self.allocate(3);
        let (body, order) = match &query.body {
            Body::Select(select) => {
                let (plan, order) = self.select(select, &query.order)?;
                (BodyPlan::Select(Box::new(plan)), order)
            }
            body => {
                let plan = self.body(body)?;
                (plan, self.outer_order(body, row, &query.order)?)
            }
        };
        let (limit, offset) = self.bounds(&query.limit, &query.offset)?;
        Ok(QueryPlan { with, body, order, limit, offset, row })
    }

    fn body(&mut self, body: &Body) -> Result<BodyPlan> {
        Ok(match body {
            Body::Select(select) => {
                let state = std::mem::take(&mut self.select);
                let plan = self.select(select, &[]);
                self.select = state;
                BodyPlan::Select(Box::new(plan?.0))
            }
            Body::Nested(query) => BodyPlan::Nested(Box::new(self.query(query)?)),
            Body::Sets(first, rest) => {
                let first = Box::new(self.body(first)?);
                let rest = rest.iter();
                let rest = rest.map(|(operator, body)| Ok((*operator, self.body(body)?)));
                BodyPlan::Sets(first, rest.collect::<Result<_>>()?)
            }
        })
    }

    /// The order of a set operation: its names are fields of the result rows.
    fn outer_order(
        &mut self,
        body: &Body,
        row: FrameSlot,
        terms: &[ast::OrderTerm],
    ) -> Result<Vec<OrderKey>> {
        let mut scope = Scope::default();
        let source = FromSource { alias: Text::default(), slot: row, is_document: false };
        if let Some(name) = raw_name(body) {
            scope.names.push(name, LoopPlan::Source(source.clone()));
        }
        scope.sources = Some(vec![source]);
        self.scoped(scope, |compiler| compiler.sort_keys(terms))
    }

    /// LIMIT and OFFSET see no row.
    pub fn bounds(
        &mut self,
        limit: &Option<ast::Expr>,
        offset: &Option<ast::Expr>,
    ) -> Result<(Option<ExprPlan>, Option<ExprPlan>)> {
        let scopes = std::mem::take(&mut self.scopes);
        let bounds = self.optional(limit).and_then(|limit| Ok((limit, self.optional(offset)?)));
        self.scopes = scopes;
        bounds
    }

    fn with_term(&mut self, term: &ast::WithTerm, recursive: bool) -> Result<WithPlan> {
        if self.binding(&term.name).is_some() {
            return Err(QueryError::new(4020, format!("Duplicate WITH alias {}", term.name)));
        }
        let constant = self.open_subqueries.is_empty();
        if recursive
            && let ast::Expr::Subquery(query) = &term.value
            && let Body::Sets(first, rest) = &query.body
            && let [(operator, step)] = &rest[..]
            && operator.kind == SetKind::Union
        {
            return self.recursive_term(term, (first, step), operator.all, constant);
        }
        let value = self.expr(&term.value)?;
        let slot = self.allocate(1);
        self.bind(term.name.clone(), LoopPlan::With { slot, constant });
        Ok(WithPlan { slot, value: WithValue::Value(value) })
    }

    fn recursive_term(
        &mut self,
        term: &ast::WithTerm,
        (first, step): (&Body, &Body),
        all: bool,
        constant: bool,
    ) -> Result<WithPlan> {
        let as_query = |body: &Body| ast::QueryExpr {
            recursive: false,
            with: Vec::new(),
            body: body.clone(),
            order: Vec::new(),
            limit: None,
            offset: None,
        };
        let first = self.query(&as_query(first))?;
        let slot = self.allocate(1);
        self.bind(term.name.clone(), LoopPlan::With { slot, constant });
        let step = self.query(&as_query(step))?;
        let row = self.allocate(3);
        let source = FromSource { alias: Text::default(), slot: row, is_document: false };
        let scope = Scope { names: ScopeNames::default(), sources: Some(vec![source]) };
        let cycle = self.scoped(scope, |compiler| compiler.exprs(&term.cycle))?;
        let options = self.optional(&term.options)?;
        let plan = RecursivePlan { first, step, all, cycle, row, options };
        Ok(WithPlan { slot, value: WithValue::Recursive(Box::new(plan)) })
    }

    /// A query in an expression.
    pub fn subquery(&mut self, query: &ast::QueryExpr) -> Result<Arc<Subquery>> {
        let number = self.subquery_count;
        self.subquery_count += 1;
        let depth = self.open_subqueries.len();
        self.open_subqueries.push(OpenSubquery { start: self.next_slot, outer: Vec::new() });
        let select = std::mem::take(&mut self.select);
        let plan = self.query(query);
        self.select = select;
        let outer = self.open_subqueries.pop().map(|open| open.outer).unwrap_or_default();
        assert!(self.open_subqueries.len() == depth, "subqueries close in turn");
        Ok(Arc::new(Subquery { plan: plan?, outer, number }))
    }
}

/// The result name of a body whose first SELECT is RAW.
fn raw_name(body: &Body) -> Option<Text> {
    match body {
        Body::Select(select) if select.projection.raw => match select.projection.terms.first()? {
            ast::ResultTerm::Value { value, alias } => {
                alias.clone().or_else(|| super::select::implicit_name(value))
            }
            _ => None,
        },
        Body::Select(_) => None,
        Body::Nested(query) => raw_name(&query.body),
        Body::Sets(first, _) => raw_name(first),
    }
}
