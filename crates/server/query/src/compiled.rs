//! A compiled statement of any kind.

use crate::ast::statement::Statement;
use crate::bindings::{Bindings, PlanSources};
use crate::compile::Compiler;
use crate::context::QueryContext;
use crate::datastore::Datastore;
use crate::error::{QueryError, Result};
use crate::plan::change::{DeletePlan, InsertPlan, MergePlan, UpdatePlan};
use crate::plan::{BodyPlan, ProjectionPlan, QueryPlan};
use crate::signature::signature;

#[derive(Debug)]
pub struct StatementPlan {
    pub kind: PlanKind,
    pub slot_count: usize,
    /// The types of result fields, as JSON text.
    pub signature: String,
    sources: PlanSources,
}

#[derive(Debug)]
pub enum PlanKind {
    Query(Box<QueryPlan>),
    Insert(Box<InsertPlan>),
    Update(Box<UpdatePlan>),
    Delete(Box<DeletePlan>),
    Merge(Box<MergePlan>),
    Other,
}

impl StatementPlan {
    /// The plan, and what its first run reads.
    pub fn compile(
        statement: &Statement,
        context: &QueryContext,
        store: &dyn Datastore,
        turn: &dyn Fn() -> Result<()>,
    ) -> Result<(StatementPlan, Bindings)> {
        let mut compiler = Compiler::new(store, context, turn);
        let kind = match statement {
            Statement::Query(query) => PlanKind::Query(Box::new(compiler.query(query)?)),
            Statement::Insert(insert) => PlanKind::Insert(Box::new(compiler.insert(insert)?)),
            Statement::Update(update) => PlanKind::Update(Box::new(compiler.update(update)?)),
            Statement::Delete(delete) => PlanKind::Delete(Box::new(compiler.delete(delete)?)),
            Statement::Merge(merge) => PlanKind::Merge(Box::new(compiler.merge(merge)?)),
            Statement::Expression => {
                return Err(QueryError::new(3083, "A statement is no bare expression"));
            }
            Statement::Unsupported(name) => return Err(QueryError::unsupported(name)),
            _ => PlanKind::Other,
        };
        let slot_count = compiler.sizes().0;
        let (sources, bound) = compiler.into_sources();
        let signature = signature(projection_of(&kind));
        Ok((StatementPlan { kind, slot_count, signature, sources }, bound))
    }

    /// What another run reads. None if the statement has to be compiled again.
    pub fn bind(&self, store: &dyn Datastore) -> Result<Option<Bindings>> {
        self.sources.bind(store)
    }
}

/// The projection that makes the rows of the answer.
fn projection_of(kind: &PlanKind) -> Option<&ProjectionPlan> {
    match kind {
        PlanKind::Query(query) => first_projection(&query.body),
        PlanKind::Insert(plan) => plan.returning.as_ref(),
        PlanKind::Update(plan) => plan.returning.as_ref(),
        PlanKind::Delete(plan) => plan.returning.as_ref(),
        PlanKind::Merge(plan) => plan.returning.as_ref(),
        PlanKind::Other => None,
    }
}

fn first_projection(body: &BodyPlan) -> Option<&ProjectionPlan> {
    match body {
        BodyPlan::Select(select) => Some(&select.projection),
        BodyPlan::Nested(query) => first_projection(&query.body),
        BodyPlan::Sets(first, _) => first_projection(first),
    }
}
