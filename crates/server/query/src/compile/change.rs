//! INSERT, UPDATE, DELETE and MERGE.

use std::sync::Arc;

use crate::ast::statement::{
    Assignment, Delete, Insert, InsertRows, KeyspaceTarget, Merge, MergeAction, Update,
};
use crate::ast::{self, FromTerm};
use crate::bindings::KeyspaceReference;
use crate::error::{QueryError, Result};
use crate::plan::change::{
    AssignmentLoop, AssignmentPlan, AssignmentTarget, DeletePlan, InsertPlan, InsertRowsPlan,
    LoopSource, MergeInsert, MergePlan, UpdatePlan,
};
use crate::plan::{
    AccessPath, BodyPlan, ExprPlan, FrameSlot, FromPlan, HintPlan, JoinPlan, JoinPlanKind,
    KeyspacePlan, ProjectionPlan, ProjectionTerm, QueryPlan, SourceKind, SourcePlan, StepPlan,
};
use crate::value::Text;

use super::scope_names::ScopeNames;
use super::{Compiler, FromSource, LoopPlan, Scope};
use crate::plan::expr::conjuncts;

impl Compiler<'_> {
    fn target(&mut self, target: &KeyspaceTarget) -> Result<(Arc<KeyspaceReference>, Text)> {
        let name = self.keyspace_name(&target.keyspace)?;
        let system = target.keyspace.namespace.as_ref();
        if system.is_some_and(|namespace| namespace.as_bytes() == b"system") {
            return Err(QueryError::unsupported("a change of a system keyspace"));
        }
        let keyspace = self.use_keyspace(name)?;
        let alias = target.alias.clone().or_else(|| target.keyspace.parts.last().cloned());
        Ok((keyspace, alias.unwrap_or_default()))
    }

    /// The target of UPDATE and DELETE as a FROM with its conditions.
    fn target_from(
        &mut self,
        target: &KeyspaceTarget,
        condition: &Option<ast::Expr>,
    ) -> Result<(Arc<KeyspaceReference>, FromPlan)> {
        let (keyspace, alias) = self.target(target)?;
        let access = match &target.keys {
            Some(keys) => AccessPath::Keys(self.expr(keys)?),
            None => AccessPath::Scan(Vec::new()),
        };
        let plan = KeyspacePlan {
            keyspace: keyspace.clone(),
            access,
            meta: false,
            index_names: Vec::new(),
            hints: None,
        };
        let source = self.add_source(alias, true)?;
        let first =
            SourcePlan { alias: source.alias, slot: source.slot, kind: SourceKind::Keyspace(plan) };
        let mut from = FromPlan { first, filters: Vec::new(), joins: Vec::new() };
        let mut filters = self.optional(condition)?.map(conjuncts).unwrap_or_default();
        self.place_filters(&mut from, false, &mut filters);
        Ok((keyspace, from))
    }

    fn returning(
        &mut self,
        returning: &Option<ast::ProjectionClause>,
    ) -> Result<Option<ProjectionPlan>> {
        returning.as_ref().map(|projection| self.projection(projection)).transpose()
    }

    pub fn insert(&mut self, insert: &Insert) -> Result<InsertPlan> {
        let (keyspace, alias) = self.target(&insert.target)?;
        let rows = match &insert.rows {
            InsertRows::Values(rows) => {
                let row = |(key, value, options): &(ast::Expr, ast::Expr, Option<ast::Expr>)| {
                    Ok((self.expr(key)?, self.expr(value)?, self.optional(options)?))
                };
                InsertRowsPlan::Values(rows.iter().map(row).collect::<Result<_>>()?)
            }
            InsertRows::Select { key, value, options, query } => {
                let query = self.query(query)?;
                let row = self.allocate(3);
                let source = FromSource { alias: Text::default(), slot: row, is_document: false };
                let names = projected_documents(&query);
                let scope = Scope { names: names.into(), sources: Some(vec![source]) };
                self.scoped(scope, |compiler| {
                    let key = compiler.expr(key)?;
                    let value = compiler.optional(value)?;
                    let options = compiler.optional(options)?;
                    Ok(InsertRowsPlan::Select { query: Box::new(query), row, key, value, options })
                })?
            }
        };
        self.scoped(Scope::default(), |compiler| {
            let document = compiler.add_source(alias, true)?.slot;
            let returning = compiler.returning(&insert.returning)?;
            Ok(InsertPlan { upsert: insert.upsert, keyspace, rows, document, returning })
        })
    }

    pub fn update(&mut self, update: &Update) -> Result<UpdatePlan> {
        self.scoped(Scope::default(), |compiler| {
            let (keyspace, mut from) = compiler.target_from(&update.target, &update.condition)?;
            let document = from.first.slot;
            let assignments = compiler.assignments(&update.set, &update.unset, document)?;
            assert!(!assignments.is_empty(), "UPDATE changes something");
            let (limit, offset) = compiler.bounds(&update.limit, &update.offset)?;
            let returning = compiler.returning(&update.returning)?;
            // The document's CAS.
            compiler.meta_slots.insert(document);
            compiler.mark_meta(&mut from);
            Ok(UpdatePlan { keyspace, from, assignments, limit, offset, returning })
        })
    }

    pub fn delete(&mut self, delete: &Delete) -> Result<DeletePlan> {
        self.scoped(Scope::default(), |compiler| {
            let (keyspace, mut from) = compiler.target_from(&delete.target, &delete.condition)?;
            let (limit, offset) = compiler.bounds(&delete.limit, &delete.offset)?;
            let returning = compiler.returning(&delete.returning)?;
            let reads_document = compiler.reads_document(from.first.slot);
            // The document's CAS.
            compiler.meta_slots.insert(from.first.slot);
            compiler.mark_meta(&mut from);
            if !reads_document {
                compiler.leave_bodies(&mut from);
            }
            Ok(DeletePlan { keyspace, from, limit, offset, returning })
        })
    }

    /// Whether more of a document is read than its key.
    fn reads_document(&self, slot: FrameSlot) -> bool {
        self.document_uses.contains_key(&slot) || self.meta_slots.contains(&slot)
    }

    /// Has a scan leave out the bodies of documents.
    fn leave_bodies(&self, from: &mut FromPlan) {
        if let SourceKind::Keyspace(plan) = &mut from.first.kind
            && self.takes_hints(&plan.keyspace)
        {
            let fields = Some(Vec::new());
            plan.hints = Some(Box::new(HintPlan { conditions: Vec::new(), fields }));
        }
    }

    fn assignments(
        &mut self,
        set: &[Assignment],
        unset: &[Assignment],
        document: FrameSlot,
    ) -> Result<Vec<AssignmentPlan>> {
        let both = set.iter().chain(unset);
        both.map(|assignment| {
            self.scoped(Scope::default(), |compiler| compiler.assignment(assignment, document))
        })
        .collect()
    }

    fn assignment(
        &mut self,
        assignment: &Assignment,
        document: FrameSlot,
    ) -> Result<AssignmentPlan> {
        let mut loops = Vec::with_capacity(assignment.loops.len());
        for list in &assignment.loops {
            loops.push(self.assignment_loops(list, document)?);
        }
        let target = if assignment.meta {
            AssignmentTarget::Expiration
        } else {
            let (variable, steps) = self.place(&assignment.path, document)?;
            AssignmentTarget::Path { variable, steps }
        };
        let value = self.optional(&assignment.value)?;
        let condition = self.optional(&assignment.condition)?;
        Ok(AssignmentPlan { target, value, loops, condition })
    }

    fn assignment_loops(
        &mut self,
        list: &[ast::LoopBinding],
        document: FrameSlot,
    ) -> Result<Vec<AssignmentLoop>> {
        let mut sources = Vec::with_capacity(list.len());
        for binding in list {
            sources.push(match is_place(&binding.source) {
                true => {
                    let (variable, steps) = self.place(&binding.source, document)?;
                    LoopSource::Place { variable, steps }
                }
                false => LoopSource::Value(self.expr(&binding.source)?),
            });
        }
        debug_assert!(sources.len() == list.len(), "each variable has a source");
        let mut loops = Vec::with_capacity(list.len());
        for (binding, source) in list.iter().zip(sources) {
            let position = match &binding.position {
                Some(name) => Some(self.add_variable(name)?),
                None => None,
            };
            let variable = self.add_variable(&binding.variable)?;
            loops.push(AssignmentLoop { position, variable, within: binding.within, source });
        }
        Ok(loops)
    }

    /// Where a path is: from a loop variable, or from the document.
    fn place(
        &mut self,
        path: &ast::Expr,
        document: FrameSlot,
    ) -> Result<(Option<FrameSlot>, Vec<StepPlan>)> {
        let (base, steps) = match path {
            ast::Expr::Path(base, steps) => (&**base, &steps[..]),
            other => (other, &[][..]),
        };
        let ast::Expr::Name(name) = base else {
            return Err(QueryError::new(3000, "SET needs a path of the document"));
        };
        let mut steps = self.steps(steps)?;
        match self.binding(&name.text) {
            Some(LoopPlan::Value(slot)) => Ok((Some(*slot), steps)),
            Some(LoopPlan::Source(source)) if source.slot == document => Ok((None, steps)),
            _ => {
                steps.insert(0, StepPlan::Field(name.text.clone()));
                Ok((None, steps))
            }
        }
    }

    pub fn merge(&mut self, merge: &Merge) -> Result<MergePlan> {
        let scope = Scope { names: ScopeNames::default(), sources: Some(Vec::new()) };
        self.scoped(scope, |compiler| compiler.merge_in_scope(merge))
    }

    fn merge_in_scope(&mut self, merge: &Merge) -> Result<MergePlan> {
        let (keyspace, alias) = self.target(&merge.target)?;
        let start = self.next_slot;
        let first = self.source(&merge.source)?;
        let key = match merge.by_key {
            true => Some(self.expr(&merge.on)?),
            false => None,
        };
        let join = self.merge_join(merge, &alias, key.clone(), start)?;
        let target = join.source.slot;
        assert!(first.slot < target, "the target is joined to the source");
        self.meta_slots.insert(target);
        let mut plan = MergePlan {
            keyspace,
            from: FromPlan { first, filters: Vec::new(), joins: vec![join] },
            target,
            key,
            update: None,
            delete: None,
            insert: None,
            limit: self.bounds(&merge.limit, &None)?.0,
            returning: None,
        };
        for action in &merge.actions {
            self.merge_action(action, &mut plan)?;
        }
        plan.returning = self.returning(&merge.returning)?;
        self.mark_meta(&mut plan.from);
        Ok(plan)
    }

    fn merge_join(
        &mut self,
        merge: &Merge,
        alias: &Text,
        key: Option<ExprPlan>,
        start: FrameSlot,
    ) -> Result<JoinPlan> {
        let term = FromTerm {
            source: ast::FromSource::Keyspace(merge.target.keyspace.clone()),
            alias: Some(alias.clone()),
            keys: merge.target.keys.clone(),
            indexes: Vec::new(),
            hash: false,
            at: 0,
        };
        match key {
            Some(key) => {
                let source = self.source(&term)?;
                let kind = JoinPlanKind::Keys(key);
                Ok(JoinPlan { outer: true, nest: false, source, kind })
            }
            None => {
                let join = ast::Join {
                    kind: ast::JoinKind::Left,
                    nest: false,
                    term,
                    with: ast::JoinWith::On(merge.on.clone()),
                };
                self.join(&join, start)
            }
        }
    }

    fn merge_action(&mut self, action: &MergeAction, plan: &mut MergePlan) -> Result<()> {
        match action {
            MergeAction::Update { set, unset, condition } if plan.update.is_none() => {
                let assignments = self.assignments(set, unset, plan.target)?;
                plan.update = Some((assignments, self.optional(condition)?));
            }
            MergeAction::Delete { condition } if plan.delete.is_none() => {
                plan.delete = Some(self.optional(condition)?);
            }
            MergeAction::Insert { key, value, options, condition } if plan.insert.is_none() => {
                if key.is_some() == plan.key.is_some() {
                    let msg = "MERGE INSERT needs a KEY exactly if its ON is no KEY";
                    return Err(QueryError::new(3160, msg));
                }
                plan.insert = Some(MergeInsert {
                    key: self.optional(key)?,
                    value: self.optional(value)?,
                    options: self.optional(options)?,
                    condition: self.optional(condition)?,
                });
            }
            _ => return Err(QueryError::new(3000, "MERGE has the same action twice")),
        }
        Ok(())
    }
}

/// The documents that a query projects under a name, for `META(name)`. Only a query whose rows
/// leave at once still has their keys in its frame.
fn projected_documents(query: &QueryPlan) -> Vec<(Text, LoopPlan)> {
    let BodyPlan::Select(select) = &query.body else { return Vec::new() };
    let plain = query.order.is_empty() && select.group.is_none() && select.windows.is_empty();
    let Some(from) = select.from.as_ref().filter(|_| plain) else { return Vec::new() };
    let joins = from.joins.iter().filter(|join| !join.nest).map(|join| &join.source);
    let sources: Vec<&SourcePlan> = std::iter::once(&from.first).chain(joins).collect();
    let mut names = Vec::new();
    for term in &select.projection.terms {
        let ProjectionTerm::Value(name, ExprPlan::Slot(slot)) = term else { continue };
        let is_document = |source: &&&SourcePlan| {
            source.slot == *slot && matches!(source.kind, SourceKind::Keyspace(_))
        };
        if let Some(source) = sources.iter().find(is_document) {
            let alias = name.clone();
            let source = FromSource { alias, slot: source.slot, is_document: true };
            names.push((name.clone(), LoopPlan::Source(source)));
        }
    }
    names
}

fn is_place(source: &ast::Expr) -> bool {
    match source {
        ast::Expr::Name(name) => !name.folded,
        ast::Expr::Path(base, _) => matches!(**base, ast::Expr::Name(_)),
        _ => false,
    }
}
