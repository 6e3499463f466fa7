//! The entries of a document: the values of an index's keys, encoded.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::compile::index_keys::NoDocuments;
use crate::datastore::{KeyspaceName, QueryDocument};
use crate::entries::encoding;
use crate::exec::from::{document_value, meta};
use crate::memory_budget::MemoryBudget;
use crate::plan::{ArrayKeyParts, IndexKeyValue, IndexKeys};
use crate::prepared::PreparedStatements;
use crate::runtime::{QueryParameters, Runtime, SlotFrame};
use crate::value::{QueryValue, Text};

/// The encoded keys of a document, one for each of its entries.
pub fn encoded_keys(
    keys: &IndexKeys,
    keyspace: &KeyspaceName,
    document: &QueryDocument,
) -> Vec<Vec<u8>> {
    static PREPARED: LazyLock<PreparedStatements> = LazyLock::new(PreparedStatements::default);
    static PARAMETERS: LazyLock<QueryParameters> = LazyLock::new(QueryParameters::default);
    let rt = Runtime::new(&NoDocuments, &PREPARED, &PARAMETERS, &Unbounded);
    let mut frame: SlotFrame = vec![QueryValue::Missing; keys.slot_count];
    frame[0] = document_value(document);
    frame[1] = QueryValue::Str(Text::from_bytes(document.key.clone()));
    if keys.needs_meta {
        frame[2] = meta(keyspace, document);
    }
    // A key that fails has no value. A statement without the index would fail.
    if !rt.all_hold(&keys.condition, &mut frame).unwrap_or(false) {
        return Vec::new();
    }
    let mut entries = vec![Vec::new()];
    for (position, key) in keys.keys.iter().enumerate() {
        let is_absent =
            |value: &QueryValue| value.is_missing() && position == 0 && !key.include_missing;
        match &key.value {
            IndexKeyValue::Value { expr, .. } => {
                let value = rt.eval(expr, &mut frame).unwrap_or_default();
                if is_absent(&value) {
                    return Vec::new();
                }
                for entry in &mut entries {
                    encoding::append(&value, key.descending, entry);
                }
            }
            IndexKeyValue::Array { list, parts } => {
                let list = rt.eval(list, &mut frame).unwrap_or_default();
                let before = entries.pop().unwrap_or_default();
                let mut distinct = BTreeSet::new();
                let items = list.elements().unwrap_or_default();
                for item in items.iter() {
                    let first = if parts.flattened { &item.item(0) } else { item };
                    if is_absent(first) {
                        continue;
                    }
                    let mut entry = before.clone();
                    append_element(parts, item, key.descending, &mut entry);
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
    entries
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

/// The memory of one document's keys, which is not counted.
struct Unbounded;

impl MemoryBudget for Unbounded {
    fn reserve(&self, _: usize) -> bool {
        true
    }

    fn release(&self, _: usize) {}
}
