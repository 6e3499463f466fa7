//! INSERT, UPSERT, UPDATE, DELETE and MERGE.
//!
//! Each document is changed on the condition that it is still the one that was read. The failure
//! of one document is noted and the statement continues; the answer's status is then `errors`.

use std::collections::HashSet;

use bytes::Bytes;

use crate::datastore::{DocumentMutation, Keyspace, Precondition, QueryDocument};
use crate::error::{QueryError, Result};
use crate::plan::change::{
    AssignmentPlan, DeletePlan, InsertPlan, InsertRowsPlan, MergePlan, UpdatePlan,
};
use crate::plan::{ExprPlan, FrameSlot, ProjectionPlan};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{QueryValue, Text, write};

use super::flow::{Consumer, Flow, RowBounds};
use super::from::meta;
use super::path_edit;
use super::row::ResultRow;

/// Passes the row of RETURNING on.
fn returned(
    returning: &Option<ProjectionPlan>,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    consumer: &mut Consumer<'_>,
) -> Result<Flow> {
    match returning {
        Some(projection) => {
            let row = ResultRow::project(projection, rt, frame)?;
            consumer(row, frame)
        }
        None => Ok(Flow::More),
    }
}

/// Applies a change; a refusal of this document is noted. Answers the new CAS.
fn mutate(
    keyspace: &dyn Keyspace,
    mutation: DocumentMutation,
    rt: &Runtime<'_>,
) -> Result<Option<u64>> {
    match keyspace.mutate(mutation) {
        Ok(cas) => {
            rt.mutations.set(rt.mutations.get() + 1);
            Ok(Some(cas))
        }
        Err(error) if error.code == 12009 => {
            rt.row_failed(*error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A new document's text, and its bytes that the statement keeps until the change is done.
struct DocumentText {
    text: Bytes,
    kept_bytes: usize,
}

impl DocumentText {
    fn of(value: &QueryValue, rt: &Runtime<'_>) -> Result<DocumentText> {
        let kept_bytes = write::text_bytes(value);
        rt.keep(kept_bytes)?;
        let mut out = Vec::with_capacity(kept_bytes);
        write::write(value, &mut out);
        // The store may keep the text.
        out.shrink_to_fit();
        Ok(DocumentText { text: out.into(), kept_bytes })
    }
}

pub fn insert(
    plan: &InsertPlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    consumer: &mut Consumer<'_>,
) -> Result<()> {
    match &plan.rows {
        InsertRowsPlan::Values(rows) => {
            for (key, value, options) in rows {
                rt.turn()?;
                let key = rt.eval(key, frame)?;
                let value = rt.eval(value, frame)?;
                let options = optional(options, rt, frame)?;
                if insert_one(plan, key, value, &options, rt, frame, consumer)? == Flow::Stop {
                    break;
                }
            }
            Ok(())
        }
        InsertRowsPlan::Select { query, row, key, value, options } => {
            // The query has ended before the first change, whatever it reads.
            let mut rows = Vec::new();
            rt.run_query(query, frame, &mut |result, frame| {
                let result = result.into_value();
                frame[*row] = result.clone();
                let key = rt.eval(key, frame)?;
                let value = match value {
                    Some(value) => rt.eval(value, frame)?,
                    None => result,
                };
                let options = optional(options, rt, frame)?;
                rt.keep(key.byte_count() + value.byte_count() + options.byte_count())?;
                rows.push((key, value, options));
                Ok(Flow::More)
            })?;
            for (key, value, options) in rows {
                rt.turn()?;
                if insert_one(plan, key, value, &options, rt, frame, consumer)? == Flow::Stop {
                    break;
                }
            }
            Ok(())
        }
    }
}

fn optional(
    expr: &Option<ExprPlan>,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<QueryValue> {
    expr.as_ref().map_or(Ok(QueryValue::Missing), |expr| rt.eval(expr, frame))
}

fn expiration(options: &QueryValue) -> Option<u32> {
    options.field(b"expiration").as_int().and_then(|seconds| u32::try_from(seconds).ok())
}

fn insert_one(
    plan: &InsertPlan,
    key: QueryValue,
    value: QueryValue,
    options: &QueryValue,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    consumer: &mut Consumer<'_>,
) -> Result<Flow> {
    let QueryValue::Str(key) = key else {
        let code = if plan.upsert { 5078 } else { 5070 };
        return Err(QueryError::new(code, "The key of a new document is no text"));
    };
    let value = value.or_null();
    let precondition = if plan.upsert { Precondition::None } else { Precondition::Absent };
    let kept = plan.upsert && rt.preserve_expiry;
    let expiration = expiration(options).or(if kept { None } else { Some(0) });
    let text = DocumentText::of(&value, rt)?;
    let mutation = DocumentMutation {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(text.text.clone()),
        expiration,
        precondition,
    };
    let changed = mutate(rt.keyspace(&plan.keyspace)?, mutation, rt)?;
    rt.give_back(text.kept_bytes);
    let Some(cas) = changed else { return Ok(Flow::More) };
    let document = new_document(&key, text, cas, expiration.unwrap_or(0));
    set_document(rt.keyspace(&plan.keyspace)?, plan.document, &document, value, frame);
    returned(&plan.returning, rt, frame, consumer)
}

fn new_document(key: &Text, text: DocumentText, cas: u64, expiration: u32) -> QueryDocument {
    let key = Bytes::copy_from_slice(key.as_bytes());
    QueryDocument { key, value: text.text, is_json: true, cas, flags: 0, expiration }
}

fn set_document(
    keyspace: &dyn Keyspace,
    slot: FrameSlot,
    document: &QueryDocument,
    value: QueryValue,
    frame: &mut SlotFrame,
) {
    debug_assert!(slot + 3 <= frame.len(), "the slots of a document are in the frame");
    frame[slot] = value;
    frame[slot + 1] = QueryValue::Str(Text::from_bytes(document.key.clone()));
    frame[slot + 2] = meta(&keyspace.name(), document);
}

/// The CAS of the document in the frame.
fn cas_of(frame: &SlotFrame, document: FrameSlot) -> Precondition {
    let cas = frame[document + 2].field(b"cas").as_int();
    cas.map_or(Precondition::None, |cas| Precondition::Cas(cas as u64))
}

fn key_of(frame: &SlotFrame, document: FrameSlot) -> Option<Text> {
    frame[document + 1].as_text().cloned()
}

pub fn update(
    plan: &UpdatePlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    consumer: &mut Consumer<'_>,
) -> Result<()> {
    let mut bounds = RowBounds::new(&plan.limit, &plan.offset, rt, frame)?;
    if bounds.count == 0 {
        return Ok(());
    }
    let document = plan.from.first.slot;
    rt.run_from(&plan.from, frame, &mut |frame| {
        bounds.pass(ResultRow::Fields(Vec::new()), frame, &mut |_, frame| {
            update_one(rt.keyspace(&plan.keyspace)?, document, &plan.assignments, rt, frame)?
                .map_or(Ok(Flow::More), |()| returned(&plan.returning, rt, frame, consumer))
        })
    })?;
    Ok(())
}

fn update_one(
    keyspace: &dyn Keyspace,
    document: FrameSlot,
    assignments: &[AssignmentPlan],
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<Option<()>> {
    let Some(key) = key_of(frame, document) else { return Ok(None) };
    let edited = path_edit::apply(assignments, document, rt, frame)?;
    let expiration = match edited.expiration {
        None if rt.preserve_expiry => None,
        expiration => Some(expiration.unwrap_or(0)),
    };
    let text = DocumentText::of(&edited.value, rt)?;
    let mutation = DocumentMutation {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(text.text.clone()),
        expiration,
        precondition: cas_of(frame, document),
    };
    let changed = mutate(keyspace, mutation, rt)?;
    rt.give_back(text.kept_bytes);
    let Some(cas) = changed else { return Ok(None) };
    let new = new_document(&key, text, cas, expiration.unwrap_or(0));
    set_document(keyspace, document, &new, edited.value, frame);
    Ok(Some(()))
}

pub fn delete(
    plan: &DeletePlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    consumer: &mut Consumer<'_>,
) -> Result<()> {
    let mut bounds = RowBounds::new(&plan.limit, &plan.offset, rt, frame)?;
    if bounds.count == 0 {
        return Ok(());
    }
    let document = plan.from.first.slot;
    rt.run_from(&plan.from, frame, &mut |frame| {
        bounds.pass(ResultRow::Fields(Vec::new()), frame, &mut |_, frame| match delete_one(
            rt.keyspace(&plan.keyspace)?,
            document,
            rt,
            frame,
        )? {
            true => returned(&plan.returning, rt, frame, consumer),
            false => Ok(Flow::More),
        })
    })?;
    Ok(())
}

fn delete_one(
    keyspace: &dyn Keyspace,
    document: FrameSlot,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<bool> {
    let Some(key) = key_of(frame, document) else { return Ok(false) };
    let mutation = DocumentMutation {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: None,
        expiration: None,
        precondition: cas_of(frame, document),
    };
    Ok(mutate(keyspace, mutation, rt)?.is_some())
}

/// What MERGE does with one row, decided before the first change.
enum Action {
    Update,
    Delete,
    Insert { key: Text, value: QueryValue, options: QueryValue },
}

pub fn merge(
    plan: &MergePlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    consumer: &mut Consumer<'_>,
) -> Result<()> {
    let bounds = RowBounds::new(&plan.limit, &None, rt, frame)?;
    let mut actions: Vec<(SlotFrame, Action)> = Vec::new();
    let mut seen = HashSet::new();
    rt.run_from(&plan.from, frame, &mut |frame| {
        if actions.len() as u64 >= bounds.count {
            return Ok(Flow::Stop);
        }
        if let Some(action) = merge_action(plan, &mut seen, rt, frame)? {
            rt.keep(frame.iter().map(QueryValue::byte_count).sum())?;
            actions.push((frame.clone(), action));
        }
        Ok(Flow::More)
    })?;
    for (mut row, action) in actions {
        rt.turn()?;
        let frame = &mut row;
        let done = match action {
            Action::Update => {
                let assignments = plan.update.as_ref().map(|(list, _)| &list[..]);
                let assignments = assignments.unwrap_or_default();
                update_one(rt.keyspace(&plan.keyspace)?, plan.target, assignments, rt, frame)?
                    .is_some()
            }
            Action::Delete => delete_one(rt.keyspace(&plan.keyspace)?, plan.target, rt, frame)?,
            Action::Insert { key, value, options } => {
                merge_insert(plan, &key, value, &options, rt, frame)?
            }
        };
        if done && returned(&plan.returning, rt, frame, consumer)? == Flow::Stop {
            break;
        }
    }
    Ok(())
}

fn accepts(condition: &Option<ExprPlan>, rt: &Runtime<'_>, frame: &mut SlotFrame) -> Result<bool> {
    condition.as_ref().map_or(Ok(true), |condition| rt.holds(condition, frame))
}

fn merge_action(
    plan: &MergePlan,
    seen: &mut HashSet<Text>,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<Option<Action>> {
    let key = match &plan.key {
        Some(key) => match rt.eval(key, frame)? {
            QueryValue::Str(key) => Some(key),
            _ => return Err(QueryError::new(5030, "The key of MERGE is no text")),
        },
        None => None,
    };
    let twice = |key: &Text| {
        QueryError::new(5320, format!("MERGE changes the document {key} more than once"))
    };
    if let Some(target) = key_of(frame, plan.target) {
        let mut action = None;
        if let Some((_, condition)) = &plan.update
            && accepts(condition, rt, frame)?
        {
            action = Some(Action::Update);
        }
        if let Some(condition) = &plan.delete
            && accepts(condition, rt, frame)?
            && action.replace(Action::Delete).is_some()
        {
            return Err(twice(&target));
        }
        if action.is_some() && !seen.insert(target.clone()) {
            return Err(twice(&target));
        }
        return Ok(action);
    }
    let Some(insert) = &plan.insert else { return Ok(None) };
    if !accepts(&insert.condition, rt, frame)? {
        return Ok(None);
    }
    let key = match (key, &insert.key) {
        (Some(key), _) => key,
        (None, Some(key)) => match rt.eval(key, frame)? {
            QueryValue::Str(key) => key,
            _ => return Err(QueryError::new(5070, "The key of a new document is no text")),
        },
        (None, None) => return Ok(None),
    };
    if !seen.insert(key.clone()) {
        return Err(twice(&key));
    }
    let value = optional(&insert.value, rt, frame)?;
    let options = optional(&insert.options, rt, frame)?;
    Ok(Some(Action::Insert { key, value, options }))
}

fn merge_insert(
    plan: &MergePlan,
    key: &Text,
    value: QueryValue,
    options: &QueryValue,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<bool> {
    let value = value.or_null();
    let expiration = expiration(options);
    let text = DocumentText::of(&value, rt)?;
    let mutation = DocumentMutation {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(text.text.clone()),
        expiration: Some(expiration.unwrap_or(0)),
        precondition: Precondition::Absent,
    };
    let changed = mutate(rt.keyspace(&plan.keyspace)?, mutation, rt)?;
    rt.give_back(text.kept_bytes);
    let Some(cas) = changed else { return Ok(false) };
    let document = new_document(key, text, cas, expiration.unwrap_or(0));
    set_document(rt.keyspace(&plan.keyspace)?, plan.target, &document, value, frame);
    Ok(true)
}
