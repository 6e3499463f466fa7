//! FROM: sources and joins.

use std::ops::Range;

use crate::ast::{self, FromTerm, JoinKind, JoinWith};
use crate::catalog::SystemKeyspace;
use crate::error::{QueryError, Result};
use crate::plan::{
    AccessPath, ExprPlan, FrameSlot, FromPlan, JoinPlan, JoinPlanKind, KeyspacePlan, SourceKind,
    SourcePlan,
};
use crate::value::Text;

use super::{Compiler, FromSource};
use crate::plan::expr::conjuncts;

/// Joins of one FROM.
const JOINS_MAX: usize = 64;

impl Compiler<'_> {
    pub(super) fn from(&mut self, from: &ast::From) -> Result<FromPlan> {
        if from.joins.len() > JOINS_MAX {
            return Err(QueryError::new(3000, format!("More than {JOINS_MAX} joins")));
        }
        let start = self.next_slot;
        self.joined(&from.first, &from.joins, start)
    }

    /// Sources joined from left to right. A RIGHT JOIN is a LEFT JOIN with its sides swapped: what
    /// stands before it is one source, which is read once.
    fn joined(
        &mut self,
        first: &FromTerm,
        joins: &[ast::Join],
        start: FrameSlot,
    ) -> Result<FromPlan> {
        let last = joins.iter().rposition(|join| join.kind == JoinKind::Right);
        let (mut plan, rest) = match last {
            Some(last) => {
                let right = &joins[last];
                (self.right_join(first, &joins[..last], right)?, &joins[last + 1..])
            }
            None => {
                let first = self.source(first)?;
                (FromPlan { first, filters: Vec::new(), joins: Vec::new() }, joins)
            }
        };
        for join in rest {
            plan.joins.push(self.join(join, start)?);
        }
        assert!(plan.joins.len() <= joins.len(), "each join is one of the statement");
        Ok(plan)
    }

    fn right_join(
        &mut self,
        first: &FromTerm,
        joins: &[ast::Join],
        right: &ast::Join,
    ) -> Result<FromPlan> {
        let start = self.next_slot;
        let outer = self.source(&right.term)?;
        let is_captured = match &first.source {
            ast::FromSource::Keyspace(_) => false,
            ast::FromSource::Path(names) => names[0].text == outer.alias,
            ast::FromSource::Value(_) | ast::FromSource::Subquery(_) => true,
        };
        let mut plan = FromPlan { first: outer, filters: Vec::new(), joins: Vec::new() };
        if joins.is_empty() && !is_captured {
            let swapped = ast::Join {
                kind: JoinKind::Left,
                nest: right.nest,
                term: first.clone(),
                with: right.with.clone(),
            };
            plan.joins.push(self.join(&swapped, start)?);
            return Ok(plan);
        }
        let inner_start = self.next_slot;
        // Names of what stands before the join do not see what comes after it.
        let hidden = self.scope().names.pop();
        let inner = self.joined(first, joins, inner_start)?;
        if let Some((alias, binding)) = hidden {
            let is_taken = |(name, bound): &(Text, super::LoopPlan)| {
                *name == alias && !matches!(bound, super::LoopPlan::With { .. })
            };
            if self.scope().names.iter().any(is_taken) {
                return Err(QueryError::new(4020, format!("Duplicate alias {alias}")));
            }
            self.bind(alias, binding);
        }
        let count = self.next_slot - inner_start;
        assert!(count > 0, "a joined side has slots");
        let alias = inner.first.alias.clone();
        let kind = SourceKind::Joined(Box::new(inner), count);
        let source = SourcePlan { alias, slot: inner_start, kind };
        let JoinWith::On(condition) = &right.with else {
            return Err(QueryError::unsupported("a RIGHT JOIN without ON"));
        };
        let condition = self.expr(condition)?;
        let equal = equalities(&condition, &(start..inner_start), &source.slots());
        let kind = JoinPlanKind::On { condition: Some(condition), equal, lateral: false };
        plan.joins.push(JoinPlan { outer: true, nest: false, source, kind });
        Ok(plan)
    }

    fn alias(term: &FromTerm) -> Result<Text> {
        let missing = || QueryError::new(4010, "A FROM expression term must have a name or alias");
        term.alias.clone().ok_or_else(missing)
    }

    /// A source without a condition.
    pub(super) fn source(&mut self, term: &FromTerm) -> Result<SourcePlan> {
        let (kind, is_document) = self.source_kind(term)?;
        let alias = Self::alias(term)?;
        let FromSource { alias, slot, .. } = self.add_source(alias, is_document)?;
        Ok(SourcePlan { alias, slot, kind })
    }

    fn source_kind(&mut self, term: &FromTerm) -> Result<(SourceKind, bool)> {
        match &term.source {
            ast::FromSource::Value(value) => Ok((SourceKind::Value(self.expr(value)?), false)),
            ast::FromSource::Subquery(query) => {
                Ok((SourceKind::Subquery(self.subquery(query)?), false))
            }
            ast::FromSource::Keyspace(path) => self.keyspace_kind(path, term),
            ast::FromSource::Path(names) => {
                assert!(!names.is_empty(), "a path has a name");
                if term.keys.is_none() && self.binding(&names[0].text).is_some() {
                    let base = self.resolve(&names[0])?;
                    let fields = names[1..].iter();
                    let fields = fields.map(|name| crate::plan::StepPlan::Field(name.text.clone()));
                    let fields: Vec<_> = fields.collect();
                    let value = if fields.is_empty() { base } else { ExprPlan::path(base, fields) };
                    return Ok((SourceKind::Value(value), false));
                }
                let parts = names.iter().map(|name| name.text.clone()).collect();
                self.keyspace_kind(&ast::KeyspacePath { namespace: None, parts }, term)
            }
        }
    }

    fn keyspace_kind(
        &mut self,
        path: &ast::KeyspacePath,
        term: &FromTerm,
    ) -> Result<(SourceKind, bool)> {
        if path.namespace.as_ref().is_some_and(|name| name.as_bytes() == b"system") {
            let name = path.parts[0].to_string();
            let catalog = SystemKeyspace::named(&name);
            let catalog = catalog.filter(|_| path.parts.len() == 1);
            let missing = || QueryError::keyspace_missing(&format!("system:{name}"));
            return Ok((SourceKind::Catalog(catalog.ok_or_else(missing)?), true));
        }
        let keyspace = self.use_keyspace(self.keyspace_name(path)?)?;
        let access = match &term.keys {
            Some(keys) => AccessPath::Keys(self.expr(keys)?),
            None => AccessPath::Scan(Vec::new()),
        };
        let hints = self.takes_hints(&keyspace).then(Box::default);
        let index_names = term.indexes.clone();
        let plan = KeyspacePlan { keyspace, access, index_names, meta: false, hints };
        Ok((SourceKind::Keyspace(plan), true))
    }

    pub(super) fn join(&mut self, join: &ast::Join, start: FrameSlot) -> Result<JoinPlan> {
        let outer = join.kind == JoinKind::Left;
        let nest = join.nest;
        match &join.with {
            JoinWith::Unnest => {
                let ast::FromSource::Value(value) = &join.term.source else {
                    return Err(QueryError::unsupported("UNNEST of a subquery"));
                };
                let value = self.expr(value)?;
                let alias = Self::alias(&join.term)?;
                let FromSource { alias, slot, .. } = self.add_source(alias, false)?;
                let kind = SourceKind::Value(ExprPlan::Slot(slot));
                let source = SourcePlan { alias, slot, kind };
                Ok(JoinPlan { outer, nest, source, kind: JoinPlanKind::Unnest(value) })
            }
            JoinWith::Keys(keys) => {
                let keys = self.expr(keys)?;
                let source = self.keyspace_source(&join.term, nest)?;
                Ok(JoinPlan { outer, nest, source, kind: JoinPlanKind::Keys(keys) })
            }
            JoinWith::KeyFor(key, parent) => {
                let source = self.keyspace_source(&join.term, nest)?;
                let key = self.expr(key)?;
                let Some(super::LoopPlan::Source(parent)) = self.binding(parent).cloned() else {
                    return Err(QueryError::new(3080, format!("{parent} is no source")));
                };
                let kind = JoinPlanKind::KeyFor { key, parent: parent.slot };
                Ok(JoinPlan { outer, nest, source, kind })
            }
            JoinWith::Comma => self.join_on(join, None, start),
            JoinWith::On(condition) => self.join_on(join, Some(condition), start),
        }
    }

    /// The keyspace of a join by keys.
    fn keyspace_source(&mut self, term: &FromTerm, nest: bool) -> Result<SourcePlan> {
        let source = self.source(term)?;
        if nest {
            self.no_document(source.slot);
        }
        match source.kind {
            SourceKind::Keyspace(_) => Ok(source),
            _ => Err(QueryError::unsupported("a join ON KEYS with what is no keyspace")),
        }
    }

    /// A nested source is an array of documents.
    fn no_document(&mut self, slot: FrameSlot) {
        let scope = self.scope();
        for source in scope.sources.iter_mut().flatten() {
            source.is_document &= source.slot != slot;
        }
        for (_, binding) in scope.names.iter_mut() {
            if let super::LoopPlan::Source(source) = binding {
                source.is_document &= source.slot != slot;
            }
        }
    }

    fn join_on(
        &mut self,
        join: &ast::Join,
        condition: Option<&ast::Expr>,
        start: FrameSlot,
    ) -> Result<JoinPlan> {
        let mut source = self.source(&join.term)?;
        assert!(start <= source.slot, "a source comes after the row so far");
        let earlier = start..source.slot;
        let own = source.slot..source.slot + 3;
        let condition = condition.map(|condition| self.expr(condition)).transpose()?;
        if join.nest {
            self.no_document(source.slot);
        }
        let lateral = match &source.kind {
            SourceKind::Value(value) => value.reads(&|slot| earlier.contains(&slot)),
            SourceKind::Subquery(inner) => inner.outer.iter().any(|slot| earlier.contains(slot)),
            SourceKind::Keyspace(KeyspacePlan { access: AccessPath::Keys(keys), .. }) => {
                keys.reads(&|slot| earlier.contains(&slot))
            }
            _ => false,
        };
        let equal = condition.as_ref().map(|condition| equalities(condition, &earlier, &own));
        let equal = equal.unwrap_or_default();
        by_key(&mut source, &equal);
        if !join.term.hash {
            self.by_index(&mut source, condition.as_ref());
        }
        let lateral = lateral || is_by_row(&source);
        let kind = JoinPlanKind::On { condition, equal, lateral };
        let outer = join.kind == JoinKind::Left;
        Ok(JoinPlan { outer, nest: join.nest, source, kind })
    }

    /// Reads a joined keyspace by an index one of whose keys equals a value of the row so far.
    fn by_index(&mut self, source: &mut SourcePlan, condition: Option<&ExprPlan>) {
        if let SourceKind::Keyspace(plan) = &mut source.kind
            && matches!(plan.access, AccessPath::Scan(_))
            && let Some(condition) = condition
            && let Some(scans) = self.index_scans(plan, source.slot, &conjuncts(condition.clone()))
            && scans.iter().all(|scan| !scan.prefix.is_empty())
        {
            plan.access = AccessPath::Indexes(scans);
        }
    }
}

/// The pairs of equal values in a condition: of the row so far, of the joined source.
fn equalities(
    condition: &ExprPlan,
    earlier: &Range<FrameSlot>,
    own: &Range<FrameSlot>,
) -> Vec<(ExprPlan, ExprPlan)> {
    let mut equal = Vec::new();
    for part in conjuncts(condition.clone()) {
        let ExprPlan::Compare(ast::Relation::Equal, sides) = part else { continue };
        let is_own = |expr: &ExprPlan| {
            expr.reads(&|slot| own.contains(&slot)) && !expr.reads(&|slot| earlier.contains(&slot))
        };
        let is_probe = |expr: &ExprPlan| !expr.reads(&|slot| own.contains(&slot));
        match *sides {
            (left, right) if is_probe(&left) && is_own(&right) => equal.push((left, right)),
            (left, right) if is_own(&left) && is_probe(&right) => equal.push((right, left)),
            _ => {}
        }
    }
    equal
}

/// Reads a joined keyspace by key where the condition gives the key.
fn by_key(source: &mut SourcePlan, equal: &[(ExprPlan, ExprPlan)]) {
    let key = ExprPlan::Slot(source.slot + 1);
    if let SourceKind::Keyspace(plan) = &mut source.kind
        && matches!(plan.access, AccessPath::Scan(_))
        && let Some((probe, _)) = equal.iter().find(|(_, own)| *own == key)
    {
        plan.access = AccessPath::Keys(probe.clone());
    }
}

/// Whether each row so far reads other documents.
fn is_by_row(source: &SourcePlan) -> bool {
    match &source.kind {
        SourceKind::Keyspace(plan) => {
            matches!(plan.access, AccessPath::Keys(_) | AccessPath::Indexes(_))
        }
        _ => false,
    }
}
