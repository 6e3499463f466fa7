//! Chooses the index by which a keyspace is read, and the conditions that bound its entries.
//!
//! The index with the longest prefix of keys that equal known values wins, then one with a bound
//! on the next key. There is no cost model. All conditions are still checked on each document.

use std::sync::Arc;

use crate::ast::{Quantifier, Relation, Test};
use crate::bindings::IndexReference;
use crate::datastore::KeyspaceIndex;
use crate::entries::value_range::ValueRange;
use crate::plan::normal_form::relocated;
use crate::plan::{ArrayKeyParts, IndexComponent, IndexKeys, IndexScanPlan, KeyTerm};
use crate::plan::{ExprPlan, FrameSlot, KeyspacePlan, OrderKey};
use crate::value::{QueryValue, ValueType};

use super::Compiler;
use crate::plan::expr::conjuncts;

/// Branches of an OR that are read by index.
const BRANCHES_MAX: usize = 32;

/// A condition: the expression in the index's form, and what holds for it.
type Term = (ExprPlan, KeyTerm);

/// How well an index fits: equal keys, a bound on the next one, a condition, fewer keys.
type Fit = (usize, u8, bool, std::cmp::Reverse<usize>);

/// An index that may serve the keyspace.
#[derive(Clone)]
struct Candidate {
    index: Arc<IndexReference>,
    keys: Arc<IndexKeys>,
}

impl Compiler<'_> {
    /// The index scans that together have every document that meets all filters.
    pub(super) fn index_scans(
        &mut self,
        plan: &KeyspacePlan,
        document: FrameSlot,
        filters: &[ExprPlan],
    ) -> Option<Vec<IndexScanPlan>> {
        let indexes = self.candidates(plan);
        if indexes.is_empty() {
            return None;
        }
        let filters: Vec<&ExprPlan> = filters.iter().filter(|one| !one.has_subquery()).collect();
        let best = best_scan(&indexes, document, &filters);
        if let Some((fit, scan)) = &best
            && fit.0 > 0
        {
            return Some(vec![scan.clone()]);
        }
        let bounded = best.as_ref().is_some_and(|(fit, _)| fit.1 > 1);
        let by_branches = || any_branch(&indexes, document, &filters);
        let branches = if bounded { None } else { by_branches() };
        branches.or_else(|| best.map(|(_, scan)| vec![scan]))
    }

    /// Online indexes, or those that USE INDEX names.
    fn candidates(&mut self, plan: &KeyspacePlan) -> Vec<Candidate> {
        let usable = self.bound.keyspace(&plan.keyspace).map(|keyspace| keyspace.indexes());
        let candidate = |index: Arc<dyn KeyspaceIndex>| {
            let keys = index.keys().downcast::<IndexKeys>().ok()?;
            let index = self.sources.use_index(&plan.keyspace, index, &mut self.bound);
            Some(Candidate { index, keys })
        };
        let all: Vec<Candidate> =
            usable.unwrap_or_default().into_iter().filter_map(candidate).collect();
        if plan.index_names.is_empty() {
            return all;
        }
        let is_named = |index: &&Candidate| {
            let name = index.index.name.as_bytes();
            plan.index_names.iter().any(|hint| hint.as_bytes() == name)
        };
        let named: Vec<_> = all.iter().filter(is_named).cloned().collect();
        let is_primary = plan.index_names.iter().any(|hint| hint.as_bytes() == b"#primary");
        if named.is_empty() && !is_primary { all } else { named }
    }
}

/// The scans of an OR each of whose branches has an index.
fn any_branch(
    indexes: &[Candidate],
    document: FrameSlot,
    filters: &[&ExprPlan],
) -> Option<Vec<IndexScanPlan>> {
    filters.iter().find_map(|filter| {
        let ExprPlan::Or(branches) = filter else { return None };
        if branches.len() > BRANCHES_MAX {
            return None;
        }
        let scans = branches.iter().map(|branch| {
            let parts = conjuncts(branch.clone());
            let all: Vec<&ExprPlan> = parts.iter().chain(filters.iter().copied()).collect();
            let (fit, scan) = best_scan(indexes, document, &all)?;
            (fit.0 > 0 || fit.1 > 1).then_some(scan)
        });
        scans.collect()
    })
}

fn best_scan(
    indexes: &[Candidate],
    document: FrameSlot,
    filters: &[&ExprPlan],
) -> Option<(Fit, IndexScanPlan)> {
    let forms: Vec<ExprPlan> =
        filters.iter().map(|filter| relocated(filter, document, None)).collect();
    let terms: Vec<Term> = filters
        .iter()
        .flat_map(|filter| terms(filter, document, &|expr| relocated(expr, document, None)))
        .collect();
    let scans = indexes.iter().filter_map(|index| {
        let implied = |condition: &ExprPlan| is_implied(condition, &forms, &terms);
        if !index.keys.condition.iter().all(implied) {
            return None;
        }
        let has_array = index.keys.has_array();
        let elements = filters.iter().filter(|_| has_array);
        let elements = elements.filter_map(|filter| element_terms(filter, document, index));
        let elements = std::iter::once(Vec::new()).chain(elements);
        let scans = elements.filter_map(|elements| fitted(index, &terms, &elements));
        scans.max_by_key(|(fit, _)| *fit)
    });
    // The first of equals.
    scans.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

/// The bounds of an index by conditions on the document and on one element of its array.
fn fitted(index: &Candidate, terms: &[Term], elements: &[Term]) -> Option<(Fit, IndexScanPlan)> {
    let mut scan = IndexScanPlan {
        index: index.index.clone(),
        keys: index.keys.clone(),
        prefix: Vec::new(),
        range: Vec::new(),
        ordered: None,
    };
    let mut equal = 0;
    for component in index.keys.components() {
        let terms = if component.array.is_some() { elements } else { terms };
        let own = terms.iter().filter(|(value, _)| value == component.value);
        let own: Vec<&KeyTerm> = own.map(|(_, term)| term).collect();
        let find = |is: fn(&KeyTerm) -> bool| own.iter().find(|term| is(term));
        let exact = find(|term| matches!(term, KeyTerm::Equal(_) | KeyTerm::IsNull))
            .or_else(|| find(|term| matches!(term, KeyTerm::In(_))));
        match exact {
            Some(term) => {
                equal += 1;
                scan.prefix.push((*term).clone());
            }
            None => {
                scan.range = own.into_iter().cloned().collect();
                break;
            }
        }
    }
    if scan.prefix.is_empty() && scan.range.is_empty() {
        return None;
    }
    let bound = match scan.range.iter().any(KeyTerm::is_bound) {
        true => 2,
        false => u8::from(!scan.range.is_empty()),
    };
    let keys = std::cmp::Reverse(index.keys.components().count());
    assert!(equal <= keys.0, "a prefix is no longer than the keys");
    let partial = !index.keys.condition.is_empty();
    Some(((equal, bound, partial, keys), scan))
}

/// Whether an expression is known before the document is read.
fn is_known(expr: &ExprPlan, document: FrameSlot) -> bool {
    !expr.has_subquery() && !expr.reads(&|slot| slot >= document)
}

/// The conditions of a filter.
fn terms(
    filter: &ExprPlan,
    document: FrameSlot,
    form: &dyn Fn(&ExprPlan) -> ExprPlan,
) -> Vec<Term> {
    let known = |expr: &ExprPlan| is_known(expr, document);
    match filter {
        ExprPlan::Compare(relation, sides) => {
            let (left, right) = &**sides;
            let mut found = Vec::new();
            if known(right) && !known(left) {
                found.extend(related(*relation, right).map(|term| (form(left), term)));
            } else if known(left) && !known(right) {
                let relation = relation.mirrored();
                found.extend(related(relation, left).map(|term| (form(right), term)));
            }
            found
        }
        ExprPlan::Between { negated: false, parts } if known(&parts[1]) && known(&parts[2]) => {
            let value = form(&parts[0]);
            let low = KeyTerm::Above { value: parts[1].clone(), inclusive: true };
            let high = KeyTerm::Below { value: parts[2].clone(), inclusive: true };
            vec![(value.clone(), low), (value, high)]
        }
        ExprPlan::In { negated: false, within: false, parts } if known(&parts.1) => {
            vec![(form(&parts.0), KeyTerm::In(parts.1.clone()))]
        }
        ExprPlan::Like { negated: false, parts }
            if known(&parts[1]) && parts[2] == ExprPlan::Const(QueryValue::from("\\")) =>
        {
            vec![(form(&parts[0]), KeyTerm::Like(parts[1].clone()))]
        }
        ExprPlan::Is { test, negated, value } => {
            let term = match (test, negated) {
                (Test::Null, false) => KeyTerm::IsNull,
                (Test::Missing, true) => KeyTerm::IsNotMissing,
                (Test::Null, true) | (Test::Valued, false) => KeyTerm::IsValued,
                (Test::Missing, false) | (Test::Valued, true) => return Vec::new(),
            };
            vec![(form(value), term)]
        }
        // Only a value is true.
        ExprPlan::Path { .. } | ExprPlan::Slot(_) => vec![(form(filter), KeyTerm::IsValued)],
        _ => Vec::new(),
    }
}

fn related(relation: Relation, value: &ExprPlan) -> Option<KeyTerm> {
    let value = value.clone();
    Some(match relation {
        Relation::Equal => KeyTerm::Equal(value),
        Relation::Less => KeyTerm::Below { value, inclusive: false },
        Relation::LessEqual => KeyTerm::Below { value, inclusive: true },
        Relation::Greater => KeyTerm::Above { value, inclusive: false },
        Relation::GreaterEqual => KeyTerm::Above { value, inclusive: true },
        Relation::NotEqual => return None,
    })
}

/// The conditions on an element of the index's array, if a filter is about one.
fn element_terms(filter: &ExprPlan, document: FrameSlot, index: &Candidate) -> Option<Vec<Term>> {
    let is_array = |component: &IndexComponent<'_>| component.array.is_some();
    let array = index.keys.components().find(is_array)?.array?;
    let source = |expr: &ExprPlan| relocated(expr, document, None) == array.source;
    match filter {
        ExprPlan::Quantified { quantifier, bindings, condition } => {
            let [binding] = &bindings[..] else { return None };
            let is_wanted = *quantifier != Quantifier::Every
                && binding.position.is_none()
                && binding.within == array.within
                && source(&binding.source);
            is_wanted.then_some(())?;
            let element = Some((binding.variable, array.variable));
            any_terms(&conjuncts((**condition).clone()), array, document, &|expr| {
                relocated(expr, document, element)
            })
        }
        // `value IN array`
        ExprPlan::In { negated: false, within, parts }
            if *within == array.within
                && array.condition.is_empty()
                && is_known(&parts.0, document)
                && source(&parts.1) =>
        {
            Some(vec![(ExprPlan::Slot(array.variable), KeyTerm::Equal(parts.0.clone()))])
        }
        _ => None,
    }
}

fn any_terms(
    parts: &[ExprPlan],
    array: &ArrayKeyParts,
    document: FrameSlot,
    form: &dyn Fn(&ExprPlan) -> ExprPlan,
) -> Option<Vec<Term>> {
    let forms: Vec<ExprPlan> = parts.iter().map(form).collect();
    let found: Vec<Term> = parts.iter().flat_map(|part| terms(part, document, form)).collect();
    let is_implied = |condition: &ExprPlan| is_implied(condition, &forms, &found);
    array.condition.iter().all(is_implied).then_some(found)
}

/// Whether an index's condition holds wherever the filters do: one of them is the condition, or
/// bounds the same value more narrowly.
fn is_implied(condition: &ExprPlan, forms: &[ExprPlan], found: &[Term]) -> bool {
    if forms.contains(condition) {
        return true;
    }
    if matches!(condition, ExprPlan::Path { .. } | ExprPlan::Slot(_)) {
        return false;
    }
    let own = terms(condition, 0, &|expr| expr.clone());
    let [(value, term)] = &own[..] else { return false };
    let is_exact = match term.value() {
        Some(ExprPlan::Const(value)) => {
            let kind = value.kind();
            matches!(kind, ValueType::Boolean | ValueType::Number | ValueType::String)
                && !matches!(term, KeyTerm::In(_) | KeyTerm::Like(_))
        }
        Some(_) => false,
        None => true,
    };
    let range = constant_range(term);
    let narrower = found.iter().filter(|(other, _)| other == value);
    let mut narrower = narrower.map(|(_, term)| constant_range(term));
    is_exact && narrower.any(|other| range.contains(&other))
}

/// The values that a term allows, as far as its constant says; it may allow fewer.
fn constant_range(term: &KeyTerm) -> ValueRange {
    let constant = term.value().and_then(|value| match value {
        ExprPlan::Const(value) if value.is_valued() => Some(value),
        _ => None,
    });
    match (term, constant) {
        (KeyTerm::IsNull, _) => ValueRange::point(&QueryValue::Null),
        (KeyTerm::IsNotMissing, _) => ValueRange::not_missing(),
        (KeyTerm::Equal(_), Some(value)) => ValueRange::point(value),
        (KeyTerm::Above { inclusive, .. }, Some(value)) => ValueRange::above(value, *inclusive),
        (KeyTerm::Below { inclusive, .. }, Some(value)) => ValueRange::below(value, *inclusive),
        _ => ValueRange::valued(),
    }
}

/// Lets a scan give the order of its entries, if that is the one asked for.
pub fn serve_order(scan: &mut IndexScanPlan, document: FrameSlot, order: &[OrderKey]) -> bool {
    if scan.keys.has_array() || order.iter().any(|key| key.nulls_last.is_some()) {
        return false;
    }
    let components: Vec<IndexComponent<'_>> = scan.keys.components().collect();
    let is_single = |term: &KeyTerm| matches!(term, KeyTerm::Equal(_) | KeyTerm::IsNull);
    let fixed = scan.prefix.iter().take_while(|term| is_single(term)).count();
    assert!(fixed <= components.len(), "a prefix is no longer than the keys");
    let mut next = fixed;
    let mut reverse = None;
    for key in order {
        if key.value.has_subquery() {
            return false;
        }
        let form = relocated(&key.value, document, None);
        if components[..fixed].iter().any(|component| *component.value == form) {
            continue;
        }
        let descending = match components.get(next) {
            Some(component) if *component.value == form => component.key.descending,
            // Entries with equal keys are in the order of the documents' keys.
            None if form == ExprPlan::Slot(1) && next == components.len() => false,
            _ => return false,
        };
        next += 1;
        if *reverse.get_or_insert(key.descending != descending) != (key.descending != descending) {
            return false;
        }
    }
    // Ranges of an IN follow each other in the order of their values.
    scan.ordered = Some(reverse.unwrap_or(false));
    true
}
