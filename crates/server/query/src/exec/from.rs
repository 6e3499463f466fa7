//! FROM: reads sources and joins them, row by row.
//!
//! A joined source that does not depend on the row so far is read once and kept; with equal values
//! in its condition it is kept in a hash table.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use crate::datastore::{KeyRange, KeyspaceName, QueryDocument};
use crate::error::{QueryError, Result};
use crate::functions::function::checked;
use crate::plan::{
    AccessPath, ExprPlan, FrameSlot, FromPlan, HintPlan, JoinPlan, JoinPlanKind, KeyRangeBound,
    KeyspacePlan, SourceKind, SourcePlan,
};
use crate::runtime::memory::GrowingMemory;
use crate::runtime::{Runtime, SlotFrame};
use crate::scan_hints::{FieldCondition, FieldOperator, FieldValue, ScanHints};
use crate::value::{Object, QueryValue, Text, json, key};

use super::catalog::catalog_rows;
use super::flow::Flow;
use super::index_scan;

type RowStep<'e> = dyn FnMut(&mut SlotFrame) -> Result<Flow> + 'e;

impl Runtime<'_> {
    /// Calls `each` for every joined row.
    pub fn run_from(
        &self,
        plan: &FromPlan,
        frame: &mut SlotFrame,
        each: &mut RowStep<'_>,
    ) -> Result<Flow> {
        let mut states: Vec<JoinState> = plan.joins.iter().map(|_| JoinState::default()).collect();
        source(&plan.first, self, frame, &mut |frame| {
            self.turn()?;
            if !self.all_hold(&plan.filters, frame)? {
                return Ok(Flow::More);
            }
            joins(&plan.joins, &mut states, self, frame, each)
        })
    }
}

fn joins(
    plans: &[JoinPlan],
    states: &mut [JoinState],
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut RowStep<'_>,
) -> Result<Flow> {
    debug_assert!(plans.len() == states.len(), "each join has its state");
    let (Some((plan, plans)), Some((state, states))) =
        (plans.split_first(), states.split_first_mut())
    else {
        return each(frame);
    };
    let slot = plan.source.slot;
    let mut matched = false;
    let mut nested = Vec::new();
    let mut memory = GrowingMemory::default();
    let flow = matches(plan, state, rt, frame, &mut |frame| {
        rt.turn()?;
        matched = true;
        if plan.nest {
            let value = std::mem::take(&mut frame[slot]);
            memory.add(2 * size_of::<QueryValue>() + value.byte_count(), rt)?;
            nested.push(value);
            return Ok(Flow::More);
        }
        joins(plans, states, rt, frame, each)
    })?;
    if matched && !plan.nest {
        return Ok(flow);
    }
    if !matched && !plan.outer {
        return Ok(Flow::More);
    }
    frame[plan.source.slots()].fill(QueryValue::Missing);
    // A LEFT NEST on a condition gives an empty array, one on keys gives nothing.
    if plan.nest && (matched || matches!(plan.kind, JoinPlanKind::On { .. })) {
        frame[slot] = checked(memory.array(nested))?;
    }
    joins(plans, states, rt, frame, each)
}

/// Calls `each` for the rows of a joined source that match the row so far.
fn matches(
    plan: &JoinPlan,
    state: &mut JoinState,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut RowStep<'_>,
) -> Result<Flow> {
    let slot = plan.source.slot;
    match &plan.kind {
        JoinPlanKind::Unnest(value) => {
            let value = rt.eval(value, frame)?;
            let Some(items) = rt.elements(&value)? else { return Ok(Flow::More) };
            for (index, item) in items.iter().enumerate() {
                rt.turn()?;
                frame[slot] = item.clone();
                frame[slot + 1] = QueryValue::from(index);
                if each(frame)? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            Ok(Flow::More)
        }
        JoinPlanKind::Keys(keys) => {
            let keys = rt.eval(keys, frame)?;
            let SourceKind::Keyspace(keyspace) = &plan.source.kind else { return Ok(Flow::More) };
            by_keys(keyspace, slot, &keys, false, rt, frame, each)
        }
        JoinPlanKind::KeyFor { key, parent } => {
            let wanted = frame[parent + 1].clone();
            kept(plan, state, rt, frame)?;
            state.each(plan.source.slots(), None, frame, &mut |frame| {
                let value = rt.eval(key, frame)?;
                let found = match rt.elements(&value)? {
                    Some(items) => items.contains(&wanted),
                    None => value.is_valued() && value == wanted,
                };
                if found { each(frame) } else { Ok(Flow::More) }
            })
        }
        JoinPlanKind::On { condition, equal, lateral } => {
            let mut checked = |frame: &mut SlotFrame| match condition {
                Some(condition) if !rt.holds(condition, frame)? => Ok(Flow::More),
                _ => each(frame),
            };
            if *lateral {
                return source(&plan.source, rt, frame, &mut checked);
            }
            kept(plan, state, rt, frame)?;
            let probe = match equal.is_empty() {
                true => None,
                false => match join_key(equal.iter().map(|(probe, _)| probe), rt, frame)? {
                    Some(key) => Some(key),
                    None => return Ok(Flow::More),
                },
            };
            state.each(plan.source.slots(), probe.as_deref(), frame, &mut checked)
        }
    }
}

/// The values of a source's slots, row after row.
#[derive(Default)]
struct KeptRows {
    values: Vec<QueryValue>,
    count: u32,
}

/// A joined source's rows, kept for all rows of the left side.
#[derive(Default)]
struct JoinState {
    rows: Option<KeptRows>,
    /// The rows of each value of the join's equalities.
    table: HashMap<Box<[u8]>, Vec<u32>>,
}

impl JoinState {
    /// Calls `each` for the rows, or for those with a key.
    fn each(
        &self,
        slots: Range<FrameSlot>,
        key: Option<&[u8]>,
        frame: &mut SlotFrame,
        each: &mut RowStep<'_>,
    ) -> Result<Flow> {
        let Some(rows) = &self.rows else { return Ok(Flow::More) };
        let width = slots.len();
        debug_assert!(rows.values.len() == rows.count as usize * width, "rows are whole");
        let mut visit = |row: u32| {
            let start = row as usize * width;
            frame[slots.clone()].clone_from_slice(&rows.values[start..start + width]);
            each(frame)
        };
        match key {
            None => {
                for row in 0..rows.count {
                    if visit(row)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
            Some(key) => {
                for row in self.table.get(key).into_iter().flatten() {
                    if visit(*row)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
        }
        Ok(Flow::More)
    }
}

/// Reads a joined source into its state, once.
fn kept(
    plan: &JoinPlan,
    state: &mut JoinState,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<()> {
    if state.rows.is_some() {
        return Ok(());
    }
    let slots = plan.source.slots();
    let equal = match &plan.kind {
        JoinPlanKind::On { equal, .. } => &equal[..],
        _ => &[],
    };
    let mut rows = KeptRows::default();
    let table = &mut state.table;
    source(&plan.source, rt, frame, &mut |frame| {
        rt.turn()?;
        if !equal.is_empty() {
            let key = join_key(equal.iter().map(|(_, own)| own), rt, frame)?;
            let Some(key) = key else { return Ok(Flow::More) };
            rt.keep(key.len() + 48)?;
            table.entry(key).or_default().push(rows.count);
        }
        let row = &frame[slots.clone()];
        // The list grows by doubling.
        rt.keep(size_of_val(row) + row.iter().map(QueryValue::byte_count).sum::<usize>())?;
        rows.values.extend_from_slice(row);
        rows.count = rows.count.checked_add(1).ok_or_else(QueryError::out_of_memory)?;
        Ok(Flow::More)
    })?;
    debug_assert!(table.len() <= rows.count as usize, "each key has a row");
    state.rows = Some(rows);
    Ok(())
}

/// The key of values in a hash table. None if one is missing or null, which equals nothing.
fn join_key<'e>(
    values: impl Iterator<Item = &'e ExprPlan>,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<Option<Box<[u8]>>> {
    let mut out = Vec::new();
    for value in values {
        let value = rt.eval(value, frame)?;
        if !value.is_valued() {
            return Ok(None);
        }
        key::append(&value, &mut out);
    }
    Ok(Some(out.into()))
}

/// Calls `each` for every row of a source.
fn source(
    plan: &SourcePlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut RowStep<'_>,
) -> Result<Flow> {
    let slot = plan.slot;
    match &plan.kind {
        SourceKind::Keyspace(keyspace) => documents(keyspace, slot, rt, frame, each),
        SourceKind::Value(value) => values(rt.eval(value, frame)?, slot, rt, frame, each),
        SourceKind::Subquery(inner) if !inner.outer.is_empty() || !is_cached(inner, rt) => {
            let mut flow = Flow::More;
            rt.run_query(&inner.plan, frame, &mut |row, frame| {
                frame[slot] = row.into_value();
                flow = each(frame)?;
                Ok(flow)
            })?;
            Ok(flow)
        }
        SourceKind::Subquery(inner) => {
            let rows = rt.cached_subquery(inner.number).unwrap_or_default();
            values(rows, slot, rt, frame, each)
        }
        SourceKind::Catalog(catalog) => {
            for (key, row) in catalog_rows(catalog, rt)? {
                frame[slot] = row;
                frame[slot + 1] = key;
                if each(frame)? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            Ok(Flow::More)
        }
        SourceKind::Joined(from, _) => rt.run_from(from, frame, each),
    }
}

fn is_cached(inner: &crate::plan::Subquery, rt: &Runtime<'_>) -> bool {
    rt.cached_subquery(inner.number).is_some()
}

fn values(
    value: QueryValue,
    slot: FrameSlot,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut RowStep<'_>,
) -> Result<Flow> {
    if value.is_missing() {
        return Ok(Flow::More);
    }
    let Some(items) = rt.elements(&value)? else {
        frame[slot] = value;
        return each(frame);
    };
    for item in items.iter() {
        rt.turn()?;
        frame[slot] = item.clone();
        if each(frame)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::More)
}

fn documents(
    plan: &KeyspacePlan,
    slot: FrameSlot,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut RowStep<'_>,
) -> Result<Flow> {
    let range = match &plan.access {
        AccessPath::Keys(keys) => {
            let keys = rt.eval(keys, frame)?;
            return by_keys(plan, slot, &keys, false, rt, frame, each);
        }
        AccessPath::KeySet(keys) => {
            let keys = rt.eval(keys, frame)?;
            return by_keys(plan, slot, &keys, true, rt, frame, each);
        }
        AccessPath::Indexes(scans) => {
            return index_scan::documents(plan, scans, rt, frame, &mut |document, frame| {
                put(plan, slot, document, frame);
                each(frame)
            });
        }
        AccessPath::Scan(bounds) => match key_range(bounds, rt, frame)? {
            Some(range) => range,
            None => return Ok(Flow::More),
        },
    };
    let hints = plan.hints.as_ref().map(|hints| scan_hints(hints, rt, frame)).transpose()?;
    let keyspace = rt.keyspace(&plan.keyspace)?;
    let mut result = Ok(Flow::More);
    let mut visit = |document| {
        put(plan, slot, document, frame);
        result = each(frame);
        match result {
            Ok(Flow::More) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    };
    match &hints {
        None => keyspace.scan(&range, &mut visit)?,
        Some(hints) => keyspace.scan_hinted(&range, hints, &mut visit)?,
    }
    result
}

fn scan_hints(plan: &HintPlan, rt: &Runtime<'_>, frame: &mut SlotFrame) -> Result<ScanHints> {
    let value = |value: &QueryValue| match value {
        QueryValue::Bool(value) => FieldValue::Bool(*value),
        QueryValue::Int(number) => FieldValue::Int(*number),
        QueryValue::Float(number) => FieldValue::Float(*number),
        QueryValue::Str(text) => FieldValue::Text(text.as_bytes().to_vec()),
        _ => FieldValue::Other,
    };
    let mut conditions = Vec::with_capacity(plan.conditions.len());
    for (field, operator, operand) in &plan.conditions {
        let operand = operand.as_ref().map(|operand| rt.eval(operand, frame)).transpose()?;
        let values = match (operator, &operand) {
            (_, None) => Vec::new(),
            (FieldOperator::In, Some(list)) => match rt.elements(list)? {
                Some(items) => items.iter().map(value).collect(),
                None => continue,
            },
            (_, Some(operand)) => vec![value(operand)],
        };
        let (field, operator) = (field.to_string(), *operator);
        conditions.push(FieldCondition { field, operator, values });
    }
    Ok(ScanHints { conditions, fields: plan.fields.clone() })
}

/// Documents by a key or an array of keys. Keys that are no text have no document.
fn by_keys(
    plan: &KeyspacePlan,
    slot: FrameSlot,
    keys: &QueryValue,
    distinct: bool,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut RowStep<'_>,
) -> Result<Flow> {
    let listed = keys.elements();
    let keys = listed.as_ref().map_or(std::slice::from_ref(keys), |keys| keys.as_slice());
    let keyspace = rt.keyspace(&plan.keyspace)?;
    let mut seen = HashSet::new();
    for key in keys.iter() {
        let QueryValue::Str(key) = key else { continue };
        if distinct && !seen.insert(key.clone()) {
            continue;
        }
        if let Some(document) = keyspace.get(key.as_bytes())? {
            put(plan, slot, document, frame);
            if each(frame)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
    }
    Ok(Flow::More)
}

/// The range of keys within all bounds. None if a bound is no text: then no key compares.
fn key_range(
    bounds: &[KeyRangeBound],
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<Option<KeyRange>> {
    let mut range = KeyRange::default();
    for bound in bounds {
        let QueryValue::Str(text) = rt.eval(&bound.key, frame)? else {
            // Other types sort before or after all texts: leave it to the condition.
            continue;
        };
        if bound.pattern {
            let prefix = rt.like(&text, &Text::from("\\"))?.prefix();
            narrow(&mut range.high, after_prefix(&prefix).map(|key| (key, false)), false);
            narrow(&mut range.low, Some((prefix.into(), true)), true);
            continue;
        }
        let key = Some((Bytes::copy_from_slice(text.as_bytes()), bound.inclusive));
        match bound.lower {
            true => narrow(&mut range.low, key, true),
            false => narrow(&mut range.high, key, false),
        }
    }
    Ok(Some(range))
}

fn narrow(end: &mut Option<(Bytes, bool)>, key: Option<(Bytes, bool)>, lower: bool) {
    let Some(key) = key else { return };
    let narrows = match end {
        None => true,
        Some(known) if known.0 == key.0 => !key.1,
        Some(known) => (key.0 > known.0) == lower,
    };
    if narrows {
        *end = Some(key);
    }
}

/// The first key after all that begin with a prefix.
fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    debug_assert!(*key > *prefix, "the bound is after the prefix");
    Some(key.into())
}

/// Puts a document into its slots.
fn put(plan: &KeyspacePlan, slot: FrameSlot, document: QueryDocument, frame: &mut SlotFrame) {
    debug_assert!(slot + 3 <= frame.len(), "the slots of a document are in the frame");
    if plan.meta {
        frame[slot + 2] = meta(&plan.keyspace.name, &document);
    }
    frame[slot] = document_value(&document);
    frame[slot + 1] = QueryValue::Str(Text::from_bytes(document.key));
}

pub fn document_value(document: &QueryDocument) -> QueryValue {
    match document.is_json.then(|| json::parse(&document.value)).flatten() {
        Some(value) => value,
        None => QueryValue::Binary(document.value.clone()),
    }
}

/// The object of `META()`.
pub fn meta(name: &KeyspaceName, document: &QueryDocument) -> QueryValue {
    let path = match &name.collection {
        Some((scope, collection)) => format!("default:{}.{scope}.{collection}", name.bucket),
        None => format!("default:{}", name.bucket),
    };
    let cas =
        i64::try_from(document.cas).map_or(QueryValue::Float(document.cas as f64), QueryValue::Int);
    let kind = if document.is_json { "json" } else { "base64" };
    QueryValue::from(Object::new(vec![
        ("cas".into(), cas),
        ("expiration".into(), QueryValue::Int(i64::from(document.expiration))),
        ("flags".into(), QueryValue::Int(i64::from(document.flags))),
        ("id".into(), QueryValue::Str(Text::from_bytes(document.key.clone()))),
        ("keyspace".into(), QueryValue::from(path)),
        ("type".into(), QueryValue::from(kind)),
    ]))
}
