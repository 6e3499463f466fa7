//! The entries of a document: the values of an index's keys, encoded.
//!
//! Owns: the limits of their evaluation. The feed has no statement and no deadline, and a document
//! must have the same entries when it is inserted and when it is read. So the amount of work and
//! memory is limited, and a document beyond that is rejected as a whole. Memory is the index's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::compile::index_keys::NoDocuments;
use crate::datastore::{KeyspaceName, QueryDocument};
use crate::entries::encoding;
use crate::exec::from::{document_value, meta};
use crate::limits::{INDEX_CHECKS_MAX, INDEX_EVALUATION_BYTES_MAX};
use crate::memory_budget::MemoryBudget;
use crate::plan::{ArrayKeyParts, ExprPlan, IndexKeyValue, IndexKeys};
use crate::prepared::PreparedStatements;
use crate::runtime::memory::GrowingMemory;
use crate::runtime::{QueryParameters, Runtime, SlotFrame};
use crate::value::{QueryValue, Text};

/// Bytes of an entry apart from its content, while the entries of a document are collected.
const ENTRY_BYTES: usize = 64;

/// Bytes of most encoded keys, for which an entry is allocated once.
const KEY_BYTES_USUAL: usize = 32;

/// Why an index does not take a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertRejection {
    /// The memory of the index is used up.
    Full,
    /// Its keys take more work or memory than one document may.
    TooCostly,
    /// The index has ended.
    Cancelled,
}

type KeysResult<T> = Result<T, InsertRejection>;

/// What the evaluation of one document may use.
pub struct EvaluationLimits<'a> {
    /// The budget of the index for insertions. Statements and sweeps read entries whether or not
    /// the index has memory left; the limit for one document holds for them as well.
    pub memory: &'a dyn MemoryBudget,
    /// Set by another thread, it ends the evaluation.
    pub cancelled: Option<&'a AtomicBool>,
}

/// For readers of entries: only the limit for one document holds.
pub struct DocumentLimit;

impl MemoryBudget for DocumentLimit {
    fn reserve(&self, _bytes: usize) -> bool {
        true
    }

    fn release(&self, _bytes: usize) {}
}

/// A document whose text was read, once for all indexes that take it.
pub struct IndexableDocument<'d> {
    document: &'d QueryDocument,
    value: QueryValue,
    key: Text,
}

impl<'d> From<&'d QueryDocument> for IndexableDocument<'d> {
    fn from(document: &'d QueryDocument) -> IndexableDocument<'d> {
        let key = Text::from_bytes(document.key.clone());
        IndexableDocument { document, value: document_value(document), key }
    }
}

impl IndexableDocument<'_> {
    pub fn key(&self) -> &[u8] {
        &self.document.key
    }
}

/// The encoded keys of a document, one for each of its entries.
pub fn encoded_keys(
    keys: &IndexKeys,
    keyspace: &KeyspaceName,
    document: &IndexableDocument<'_>,
    limits: &EvaluationLimits<'_>,
) -> KeysResult<Vec<Vec<u8>>> {
    static PREPARED: LazyLock<PreparedStatements> = LazyLock::new(PreparedStatements::default);
    static PARAMETERS: LazyLock<QueryParameters> = LazyLock::new(QueryParameters::default);
    let memory = EvaluationMemory::new(limits.memory);
    // No key of an index depends on the time.
    let now = SystemTime::UNIX_EPOCH;
    let mut rt = Runtime::at(now, &NoDocuments, &*PREPARED, &PARAMETERS, &memory);
    rt.limit_work(INDEX_CHECKS_MAX);
    rt.cancelled = limits.cancelled;
    let kept = RefCell::default();
    let evaluation = Evaluation { rt: &rt, memory: &memory, limits, kept };
    let entries = evaluation.entries(keys, keyspace, document)?;
    // An operator may have dropped an error.
    evaluation.rejection().map_or(Ok(entries), Err)
}

struct Evaluation<'e> {
    rt: &'e Runtime<'e>,
    memory: &'e EvaluationMemory<'e>,
    limits: &'e EvaluationLimits<'e>,
    /// Reserved for the entries that are collected.
    kept: RefCell<GrowingMemory>,
}

impl Evaluation<'_> {
    fn entries(
        &self,
        keys: &IndexKeys,
        keyspace: &KeyspaceName,
        document: &IndexableDocument<'_>,
    ) -> KeysResult<Vec<Vec<u8>>> {
        let mut frame: SlotFrame = vec![QueryValue::Missing; keys.slot_count];
        assert!(frame.len() >= 3, "a document has three slots");
        frame[0] = document.value.clone();
        frame[1] = QueryValue::Str(document.key.clone());
        if keys.needs_meta {
            frame[2] = meta(keyspace, document.document);
        }
        // A key that fails has no value. A statement without the index would fail.
        if !self.known(self.rt.all_hold(&keys.condition, &mut frame))? {
            return Ok(Vec::new());
        }
        let mut entries = vec![Vec::with_capacity(KEY_BYTES_USUAL)];
        for (position, key) in keys.keys.iter().enumerate() {
            let is_absent =
                |value: &QueryValue| value.is_missing() && position == 0 && !key.include_missing;
            match &key.value {
                IndexKeyValue::Value { expr, .. } => {
                    let value = self.value(expr, &mut frame)?;
                    if is_absent(&value) {
                        return Ok(Vec::new());
                    }
                    for entry in &mut entries {
                        let before = entry.len();
                        encoding::append(&value, key.descending, entry);
                        self.keep(entry.len() - before)?;
                    }
                }
                IndexKeyValue::Array { list, parts } => {
                    let list = self.value(list, &mut frame)?;
                    let before = entries.pop().unwrap_or_default();
                    let mut distinct = BTreeSet::new();
                    let items = self.known(self.rt.elements(&list))?.unwrap_or_default();
                    for item in items.iter() {
                        let first = if parts.flattened { &item.item(0) } else { item };
                        if is_absent(first) {
                            continue;
                        }
                        let mut entry = before.clone();
                        append_element(parts, item, key.descending, &mut entry);
                        self.keep(ENTRY_BYTES + entry.len())?;
                        distinct.insert(entry);
                    }
                    entries.extend(distinct);
                    // A document without elements is found by its other keys.
                    if entries.is_empty() && (position > 0 || key.include_missing) {
                        let mut entry = before;
                        append_element(parts, &QueryValue::Missing, key.descending, &mut entry);
                        entries.push(entry);
                    }
                }
            }
        }
        debug_assert!(entries.is_sorted_by(|left, right| left < right), "entries ascend");
        Ok(entries)
    }

    fn value(&self, expr: &ExprPlan, frame: &mut SlotFrame) -> KeysResult<QueryValue> {
        self.known(self.rt.eval(expr, frame))
    }

    /// Counts the memory and the work of an entry.
    fn keep(&self, bytes: usize) -> KeysResult<()> {
        self.known(self.rt.turn())?;
        self.known(self.rt.work(bytes))?;
        self.known(self.kept.borrow_mut().add(bytes, self.rt))
    }

    /// The value, or none if its expression fails.
    fn known<T: Default>(&self, result: crate::error::Result<T>) -> KeysResult<T> {
        match result {
            Ok(value) => Ok(value),
            Err(_) => self.rejection().map_or_else(|| Ok(T::default()), Err),
        }
    }

    fn rejection(&self) -> Option<InsertRejection> {
        let is_cancelled = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if self.limits.cancelled.is_some_and(is_cancelled) {
            return Some(InsertRejection::Cancelled);
        }
        if self.rt.is_exhausted() {
            return Some(InsertRejection::TooCostly);
        }
        self.memory.rejection.get()
    }
}

/// Appends the components of an array's element.
fn append_element(parts: &ArrayKeyParts, item: &QueryValue, descending: bool, entry: &mut Vec<u8>) {
    if !parts.flattened {
        return encoding::append(item, descending, entry);
    }
    for at in 0..parts.values.len() {
        encoding::append(&item.item(at as i64), descending, entry);
    }
}

/// The memory of one document's keys: a bounded part of the index's.
struct EvaluationMemory<'a> {
    index: &'a dyn MemoryBudget,
    reserved: Cell<usize>,
    rejection: Cell<Option<InsertRejection>>,
}

impl<'a> EvaluationMemory<'a> {
    fn new(index: &'a dyn MemoryBudget) -> EvaluationMemory<'a> {
        EvaluationMemory { index, reserved: Cell::new(0), rejection: Cell::new(None) }
    }
}

impl MemoryBudget for EvaluationMemory<'_> {
    fn reserve(&self, bytes: usize) -> bool {
        let reserved = self.reserved.get().saturating_add(bytes);
        let rejection = match reserved <= INDEX_EVALUATION_BYTES_MAX {
            false => Some(InsertRejection::TooCostly),
            true if !self.index.reserve(bytes) => Some(InsertRejection::Full),
            true => None,
        };
        match rejection {
            Some(rejection) => self.rejection.set(Some(rejection)),
            None => self.reserved.set(reserved),
        }
        rejection.is_none()
    }

    fn release(&self, bytes: usize) {
        debug_assert!(bytes <= self.reserved.get(), "memory is given back once");
        self.reserved.set(self.reserved.get().saturating_sub(bytes));
        self.index.release(bytes);
    }
}
