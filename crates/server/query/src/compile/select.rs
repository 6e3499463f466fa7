//! SELECT: its clauses in the order in which they are evaluated.

use crate::ast::{self, ResultTerm};
use crate::error::Result;
use crate::plan::expr::conjuncts;
use crate::plan::{
    AccessPath, ExprPlan, FrameSlot, FromPlan, KeyspacePlan, OrderKey, ProjectionPlan,
    ProjectionTerm, SelectPlan, SourceKind,
};
use crate::value::Text;

use super::index_access::serve_order;
use super::scope_names::ScopeNames;
use super::{Compiler, DocumentUse, LoopPlan, Scope, SelectState};

pub use crate::parser::implicit_name;

/// The parts of a SELECT that see groups.
pub struct GroupedParts {
    pub keys: Vec<(FrameSlot, ExprPlan)>,
    pub letting: Vec<(FrameSlot, ExprPlan)>,
    pub having: Option<ExprPlan>,
    pub projection: ProjectionPlan,
    pub order: Vec<OrderKey>,
}

impl Compiler<'_> {
    pub fn select(
        &mut self,
        select: &ast::Select,
        order: &[ast::OrderTerm],
    ) -> Result<(SelectPlan, Vec<OrderKey>)> {
        let state = std::mem::take(&mut self.select);
        let scope = Scope { names: ScopeNames::default(), sources: Some(Vec::new()) };
        let result = self.scoped(scope, |compiler| compiler.select_in_scope(select, order));
        self.select = state;
        result
    }

    fn select_in_scope(
        &mut self,
        select: &ast::Select,
        order: &[ast::OrderTerm],
    ) -> Result<(SelectPlan, Vec<OrderKey>)> {
        let first_slot = self.next_slot;
        let mut from = select.from.as_ref().map(|from| self.from(from)).transpose()?;
        let mut lets = Vec::with_capacity(select.lets.len());
        for (name, value) in &select.lets {
            let value = self.expr(value)?;
            lets.push((self.add_variable(name)?, value));
        }
        let mut filters = self.optional(&select.condition)?.map(conjuncts).unwrap_or_default();
        let end_slot = self.next_slot;
        self.select.named_windows.clone_from(&select.windows);
        let grouped = self.grouped_parts(select, order)?;
        let SelectState { aggregates, windows, .. } = std::mem::take(&mut self.select);
        let sources = first_slot..end_slot;
        let (group, windows, projection, mut order) =
            self.group(select.group.is_some(), grouped, aggregates, windows, sources)?;
        if let Some(from) = &mut from {
            self.place_filters(from, !lets.is_empty(), &mut filters);
            self.mark_meta(from);
            if group.is_none() && windows.is_empty() && is_in_order(from, &order) {
                order.clear();
            }
        } else {
            // Without FROM there is one row, whatever the condition.
            filters.clear();
        }
        let plan = SelectPlan { from, lets, filters, group, windows, projection };
        Ok((plan, order))
    }

    fn grouped_parts(
        &mut self,
        select: &ast::Select,
        order: &[ast::OrderTerm],
    ) -> Result<GroupedParts> {
        let mut keys = Vec::new();
        let mut letting = Vec::new();
        let mut having = None;
        if let Some(group) = &select.group {
            self.select.aggregate_error = Some(4000);
            for (value, alias) in &group.terms {
                let value = self.expr(value)?;
                let slot = self.allocate(1);
                if let Some(alias) = alias {
                    self.bind(alias.clone(), LoopPlan::Value(slot));
                }
                keys.push((slot, value));
            }
            self.select.aggregate_error = None;
            for (name, value) in &group.letting {
                let value = self.expr(value)?;
                let slot = self.add_variable(name)?;
                self.select.letting.push(slot);
                letting.push((slot, value));
            }
            having = self.optional(&group.having)?;
        }
        self.select.aggregate_error = None;
        let projection = self.projection(&select.projection)?;
        let order = self.order(&select.projection, &projection, order)?;
        Ok(GroupedParts { keys, letting, having, projection, order })
    }

    pub fn projection(&mut self, projection: &ast::ProjectionClause) -> Result<ProjectionPlan> {
        let mut terms = Vec::with_capacity(projection.terms.len());
        let mut unnamed = 0;
        for term in &projection.terms {
            terms.push(match term {
                ResultTerm::All => {
                    let scopes = self.scopes.iter().rev();
                    let mut sources = scopes.filter_map(|scope| scope.sources.as_ref());
                    let sources = sources.next().cloned().unwrap_or_default();
                    sources.iter().for_each(|source| self.note_field(None, source.slot));
                    let slots = sources.into_iter().map(|source| (source.alias, source.slot));
                    ProjectionTerm::All(slots.collect())
                }
                ResultTerm::AllOf(value) => ProjectionTerm::AllOf(self.expr(value)?),
                ResultTerm::Value { value, alias } => {
                    let name = alias.clone().or_else(|| implicit_name(value));
                    let name = name.unwrap_or_else(|| {
                        unnamed += 1;
                        Text::from(format!("${unnamed}"))
                    });
                    ProjectionTerm::Value(name, self.expr(value)?)
                }
            });
        }
        Ok(ProjectionPlan {
            distinct: projection.distinct,
            raw: projection.raw,
            terms,
            excluded: projection.excluded.clone(),
        })
    }

    /// ORDER BY sees the result names before those of the sources. A result without AS does not
    /// hide an alias of FROM.
    fn order(
        &mut self,
        projection: &ast::ProjectionClause,
        plan: &ProjectionPlan,
        order: &[ast::OrderTerm],
    ) -> Result<Vec<OrderKey>> {
        assert!(projection.terms.len() == plan.terms.len(), "each term is compiled");
        let mut scope = Scope::default();
        for (term, compiled) in projection.terms.iter().zip(&plan.terms) {
            if let (ResultTerm::Value { alias, .. }, ProjectionTerm::Value(name, expr)) =
                (term, compiled)
                && (alias.is_some() || self.binding(name).is_none())
            {
                scope.names.push(name.clone(), LoopPlan::Result(expr.clone()));
            }
        }
        self.scoped(scope, |compiler| compiler.sort_keys(order))
    }

    /// Marks the documents whose `META()` object is read.
    pub fn mark_meta(&self, from: &mut FromPlan) {
        from.for_each_source_mut(&mut |source| {
            if let SourceKind::Keyspace(plan) = &mut source.kind {
                plan.meta = self.meta_slots.contains(&source.slot);
                if let Some(hints) = &mut plan.hints {
                    hints.fields = match self.document_uses.get(&source.slot) {
                        // The type and the flags of a document come with its body.
                        None if plan.meta => None,
                        None => Some(Vec::new()),
                        Some(DocumentUse::Fields(fields)) => Some(fields.iter().cloned().collect()),
                        Some(DocumentUse::Whole) => None,
                    };
                }
            }
        });
    }
}

/// Whether the first source gives its rows in an order. Joins keep it.
fn is_in_order(from: &mut FromPlan, order: &[OrderKey]) -> bool {
    match &mut from.first.kind {
        SourceKind::Keyspace(KeyspacePlan { access: AccessPath::Indexes(scans), .. })
            if !order.is_empty() && scans.len() == 1 =>
        {
            serve_order(&mut scans[0], from.first.slot, order)
        }
        _ => false,
    }
}
