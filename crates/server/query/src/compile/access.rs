//! Chooses how the first keyspace is read: by keys, if conditions on `META().id` allow it, by an
//! index, or by a range of keys. The conditions are still checked on each document.

use crate::ast::{Relation, Test};
use crate::plan::{AccessPath, ExprPlan, FrameSlot, FromPlan, KeyRangeBound, SourceKind};
use crate::scan_hints::FieldOperator;
use crate::value::{QueryValue, Text};

use super::Compiler;

impl Compiler<'_> {
    /// Moves conditions to the first source where they read nothing else. Loop variables have slots
    /// after all sources, so a condition with a loop moves only if the source is alone.
    pub(super) fn place_filters(
        &mut self,
        from: &mut FromPlan,
        has_lets: bool,
        filters: &mut Vec<ExprPlan>,
    ) {
        assert!(from.filters.is_empty(), "conditions are placed once");
        let (first, count) = (from.first.slot, filters.len());
        if from.joins.is_empty() && !has_lets {
            from.filters = std::mem::take(filters);
        } else {
            let is_early = |filter: &ExprPlan| {
                !filter.has_subquery() && !filter.reads(&|slot| slot >= first + 3)
            };
            (from.filters, *filters) = std::mem::take(filters).into_iter().partition(is_early);
        }
        assert!(from.filters.len() + filters.len() == count, "each condition has a place");
        let SourceKind::Keyspace(plan) = &mut from.first.kind else { return };
        if matches!(plan.access, AccessPath::Scan(_)) {
            let by_key = key_access(&from.filters, first);
            plan.access = match by_key {
                Some(access @ AccessPath::KeySet(_)) => access,
                other => match self.index_scans(plan, first, &from.filters) {
                    Some(scans) => {
                        assert!(!scans.is_empty(), "an access by index has a scan");
                        AccessPath::Indexes(scans)
                    }
                    None => other.unwrap_or(AccessPath::Scan(Vec::new())),
                },
            };
        }
        if let Some(hints) = &mut plan.hints {
            hints.conditions =
                from.filters.iter().filter_map(|one| condition(one, first)).collect();
        }
    }
}

/// Whether an expression has its value before documents are read.
fn is_known(expr: &ExprPlan, document: FrameSlot) -> bool {
    !expr.has_subquery() && !expr.reads(&|slot| slot >= document)
}

/// A field's name and its condition, if a filter is one.
fn condition(
    filter: &ExprPlan,
    document: FrameSlot,
) -> Option<(Text, FieldOperator, Option<ExprPlan>)> {
    let field = |expr: &ExprPlan| match expr {
        ExprPlan::Path { base, names, rest }
            if **base == ExprPlan::Slot(document) && names.len() == 1 && rest.is_empty() =>
        {
            Some(names[0].clone())
        }
        _ => None,
    };
    let known = |expr: &ExprPlan| is_known(expr, document).then(|| expr.clone());
    match filter {
        ExprPlan::Compare(relation, sides) => {
            let (left, right) = &**sides;
            let (name, relation, value) = match (field(left), field(right)) {
                (Some(name), _) => (name, *relation, right),
                (None, Some(name)) => (name, relation.mirrored(), left),
                _ => return None,
            };
            let operator = match relation {
                Relation::Equal => FieldOperator::Equal,
                Relation::Less => FieldOperator::Less,
                Relation::LessEqual => FieldOperator::LessOrEqual,
                Relation::Greater => FieldOperator::Greater,
                Relation::GreaterEqual => FieldOperator::GreaterOrEqual,
                Relation::NotEqual => return None,
            };
            Some((name, operator, Some(known(value)?)))
        }
        ExprPlan::In { negated: false, within: false, parts } => {
            Some((field(&parts.0)?, FieldOperator::In, Some(known(&parts.1)?)))
        }
        ExprPlan::Is { test: Test::Null, negated: false, value } => {
            Some((field(value)?, FieldOperator::IsNull, None))
        }
        ExprPlan::Is { test: Test::Valued, negated: false, value }
        | ExprPlan::Is { test: Test::Null, negated: true, value } => {
            Some((field(value)?, FieldOperator::IsValued, None))
        }
        _ => None,
    }
}

/// Keys or bounds of keys that a document must have to meet all conditions.
fn key_access(filters: &[ExprPlan], document: FrameSlot) -> Option<AccessPath> {
    let key = ExprPlan::Slot(document + 1);
    let is_known = |expr: &ExprPlan| {
        !expr.has_subquery()
            && !expr.reads(&|slot| (document..document + 3).contains(&slot))
            && !expr.reads(&|slot| slot > document)
    };
    let mut bounds = Vec::new();
    let mut bound = |lower, inclusive, key: &ExprPlan, pattern| {
        bounds.push(KeyRangeBound { lower, inclusive, key: key.clone(), pattern });
    };
    for filter in filters {
        match filter {
            ExprPlan::Compare(relation, sides) => {
                let (left, right) = &**sides;
                let (relation, value) = if *left == key && is_known(right) {
                    (*relation, right)
                } else if *right == key && is_known(left) {
                    (relation.mirrored(), left)
                } else {
                    continue;
                };
                match relation {
                    Relation::Equal => return Some(AccessPath::KeySet(value.clone())),
                    Relation::Less => bound(false, false, value, false),
                    Relation::LessEqual => bound(false, true, value, false),
                    Relation::Greater => bound(true, false, value, false),
                    Relation::GreaterEqual => bound(true, true, value, false),
                    Relation::NotEqual => {}
                }
            }
            ExprPlan::Between { negated: false, parts }
                if parts[0] == key && is_known(&parts[1]) && is_known(&parts[2]) =>
            {
                bound(true, true, &parts[1], false);
                bound(false, true, &parts[2], false);
            }
            ExprPlan::In { negated: false, within: false, parts }
                if parts.0 == key && is_known(&parts.1) =>
            {
                return Some(AccessPath::KeySet(parts.1.clone()));
            }
            ExprPlan::Like { negated: false, parts }
                if parts[0] == key
                    && is_known(&parts[1])
                    && parts[2] == ExprPlan::Const(QueryValue::from("\\")) =>
            {
                bound(true, true, &parts[1], true);
            }
            _ => {}
        }
    }
    (!bounds.is_empty()).then_some(AccessPath::Scan(bounds))
}
