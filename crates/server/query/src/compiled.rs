//! A compiled statement of any kind.

use crate::ast::statement::Statement;
use crate::bindings::{Bindings, PlanSources};
use crate::compile::Compiler;
use crate::context::QueryContext;
use crate::datastore::Datastore;
use crate::error::{QueryError, Result};
use crate::explain;
use crate::plan::QueryPlan;
use crate::plan::change::{DeletePlan, InsertPlan, MergePlan, UpdatePlan};
use crate::runtime::Runtime;

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
        rt: &Runtime<'_>,
    ) -> Result<(StatementPlan, Bindings)> {
        let turn = || rt.turn();
        let mut compiler = Compiler::new(rt.store, context, &turn);
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
        let signature = explain::signature(&kind);
        Ok((StatementPlan { kind, slot_count, signature, sources }, bound))
    }

    /// What another run reads. None if the statement has to be compiled again.
    pub fn bind(&self, store: &dyn Datastore) -> Result<Option<Bindings>> {
        self.sources.bind(store)
    }
}
