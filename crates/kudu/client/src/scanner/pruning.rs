//! The tablets of a table that a scan can skip.
//!
//! Pruning examines each tablet separately. It compares the tablet's hash buckets with the buckets
//! of equality and in-list predicates. It compares the tablet's range with the bounds that
//! predicates and primary-key bounds set on the range columns. That costs a few comparisons per
//! tablet, which is negligible compared with the request that a skipped tablet saves. Invariant:
//! pruning never skips a tablet with a row of the result; a property test compares with rows. An
//! unnecessary tablet only costs its request. Scans and scan tokens call it, with the tablets of a
//! snapshot of the meta cache.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::key_encoding::{KeyCells, encode_key_cell, encode_least};
use crate::partition::{HashDimension, KeyColumn, Partition, PartitionSchema};
use crate::schema::Schema;

use super::key_bound::KeyBound;
use super::operand::Operand;
use super::predicate::{ColumnPredicate, PredicateCondition};

/// Most combinations of in-list values to hash for one dimension; with more, every bucket is
/// likely.
const COMBINATIONS_MAX: usize = 1 << 14;

/// Selects the tablets of one scan.
#[derive(Debug)]
pub(crate) struct PartitionPruner<'a> {
    schema: &'a PartitionSchema,
    predicates: &'a [ColumnPredicate],
    /// Range keys of the result are at least this.
    range_lower: Vec<u8>,
    /// Range keys of the result are less than this; empty for no bound.
    range_upper: Vec<u8>,
    /// The buckets of each dimension, for every hash schema met so far.
    buckets: Vec<(&'a [HashDimension], Vec<Buckets>)>,
    /// No row can be in the result.
    nothing: bool,
}

/// The buckets that can hold rows of the result.
#[derive(Debug)]
enum Buckets {
    All,
    /// By bucket number.
    Some(Vec<bool>),
}

impl<'a> PartitionPruner<'a> {
    pub(crate) fn new(
        schema: &'a PartitionSchema,
        table_schema: &Schema,
        predicates: &'a [ColumnPredicate],
        lower: Option<&KeyBound>,
        upper: Option<&KeyBound>,
    ) -> PartitionPruner<'a> {
        let columns = schema.range_columns();
        let (mut range_lower, mut range_upper) = range_of_predicates(columns, predicates);
        // Bounds of the primary key limit the ranges only if the range columns are a prefix of the
        // key.
        let is_prefix = columns.iter().enumerate().all(|(at, column)| column.index == at);
        if is_prefix && !columns.is_empty() {
            if let Some(bound) = lower {
                range_lower = range_lower.max(encode(columns, bound));
            }
            if let Some(end) = upper.and_then(|bound| range_end_of(columns, table_schema, bound)) {
                range_upper = least_end(range_upper, end);
            }
        }
        let nothing = predicates
            .iter()
            .any(|predicate| matches!(predicate.condition, PredicateCondition::Nothing));
        PartitionPruner {
            schema,
            predicates,
            range_lower,
            range_upper,
            buckets: Vec::new(),
            nothing,
        }
    }

    /// Whether the tablet may hold rows of the result.
    pub(crate) fn may_contain(&mut self, partition: &Partition) -> bool {
        !self.nothing && self.range_may_contain(partition) && self.buckets_may_contain(partition)
    }

    fn range_may_contain(&self, partition: &Partition) -> bool {
        let (start, end) = (partition.range_start(), partition.range_end());
        let ends_before = !end.is_empty() && end <= self.range_lower.as_slice();
        let starts_behind = !self.range_upper.is_empty() && start >= self.range_upper.as_slice();
        !ends_before && !starts_behind
    }

    fn buckets_may_contain(&mut self, partition: &Partition) -> bool {
        let dimensions = self.schema.hash_dimensions_of_range(partition.range_start());
        let known = self.buckets.iter().position(|(known, _)| std::ptr::eq(*known, dimensions));
        let known = known.unwrap_or_else(|| {
            let buckets =
                dimensions.iter().map(|dimension| buckets_of(dimension, self.predicates)).collect();
            self.buckets.push((dimensions, buckets));
            self.buckets.len() - 1
        });
        let allowed = &self.buckets[known].1;
        partition.hash_buckets.iter().zip(allowed).all(|(bucket, allowed)| match allowed {
            Buckets::All => true,
            // A bucket that the schema does not have is no reason to skip the tablet.
            Buckets::Some(allowed) => allowed.get(*bucket as usize).copied().unwrap_or(true),
        })
    }
}

/// The least and, exclusively, the greatest range key that the predicates allow; empty for no
/// bound.
///
/// Leading columns with a single value come first in both. The bounds of the next column follow.
/// Later columns add nothing, because they restart with every value of that one.
/// and columns after that say nothing, because they start anew with every value of that one.
fn range_of_predicates(
    columns: &[KeyColumn],
    predicates: &[ColumnPredicate],
) -> (Vec<u8>, Vec<u8>) {
    let bounds: Vec<ColumnBounds> =
        columns.iter().map(|column| ColumnBounds::of(column, predicates)).collect();
    let mut values: Vec<Operand> = bounds.iter().map_while(|bounds| bounds.value.clone()).collect();
    let next = bounds.get(values.len());
    let mut lower = values.clone();
    lower.extend(next.and_then(|bounds| bounds.lower.clone()));
    match next.and_then(|bounds| bounds.end.clone()) {
        Some(end) => values.push(end),
        // Without a later bound the values themselves are allowed, so the end is their successor.
        None => match values.pop().and_then(|last| last.successor(columns[values.len()].data_type))
        {
            Some(end) => values.push(end),
            None => values.clear(),
        },
    }
    (encode_prefix(columns, &lower), encode_prefix(columns, &values))
}

/// The predicates' constraints on one column of the range.
#[derive(Debug, Default)]
struct ColumnBounds {
    /// The only allowed value.
    value: Option<Operand>,
    lower: Option<Operand>,
    /// Exclusive.
    end: Option<Operand>,
}

impl ColumnBounds {
    fn of(column: &KeyColumn, predicates: &[ColumnPredicate]) -> ColumnBounds {
        let mut bounds = ColumnBounds::default();
        for predicate in
            predicates.iter().filter(|predicate| predicate.column_index == column.index)
        {
            let (lower, end) = match &predicate.condition {
                PredicateCondition::Equality(value) => {
                    // Either of two different values will do: no row has both.
                    bounds.value = Some(value.clone());
                    (Some(value.clone()), value.successor(column.data_type))
                }
                PredicateCondition::InList(values) => (
                    values.first().cloned(),
                    values.last().and_then(|last| last.successor(column.data_type)),
                ),
                PredicateCondition::Range(lower, end) => (lower.clone(), end.clone()),
                _ => (None, None),
            };
            bounds.lower = tighter(bounds.lower, lower, Ordering::Greater);
            bounds.end = tighter(bounds.end, end, Ordering::Less);
        }
        bounds
    }
}

/// Of two optional bounds, the one that compares as asked.
fn tighter(one: Option<Operand>, other: Option<Operand>, wanted: Ordering) -> Option<Operand> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one.compare(&other) == wanted { one } else { other }),
        (one, other) => one.or(other),
    }
}

/// A range key that starts with these values and continues with the least ones; empty for no
/// values.
fn encode_prefix(columns: &[KeyColumn], values: &[Operand]) -> Vec<u8> {
    let cells: Vec<Bytes> =
        values.iter().zip(columns).map(|(value, column)| value.to_wire(column.data_type)).collect();
    let mut key = Vec::new();
    if !cells.is_empty() {
        encode_cells(columns, |at, _| cells.get(at).map(|cell| &cell[..]), &mut key);
    }
    key
}

fn encode(columns: &[KeyColumn], cells: &impl KeyCells) -> Vec<u8> {
    let mut key = Vec::new();
    encode_cells(columns, |_, column| cells.cell(column.index), &mut key);
    key
}

fn encode_cells<'c>(
    columns: &[KeyColumn],
    cell: impl Fn(usize, &KeyColumn) -> Option<&'c [u8]>,
    key: &mut Vec<u8>,
) {
    for (at, column) in columns.iter().enumerate() {
        let is_last = at + 1 == columns.len();
        match cell(at, column) {
            Some(cell) => encode_key_cell(cell, column.data_type, is_last, key),
            None => encode_least(column.data_type, is_last, key),
        }
    }
}

/// The end of the range keys of rows whose primary key is less than `bound`; `None` for no bound.
fn range_end_of(columns: &[KeyColumn], table_schema: &Schema, bound: &KeyBound) -> Option<Vec<u8>> {
    let mut key = encode(columns, bound);
    let covers_key = columns.len() == table_schema.num_key_columns();
    if !covers_key && bound.num_values() > columns.len() {
        // A row with the same range key as the bound can still be less than the bound, by the
        // columns that follow. No key lies between a key and the same key with a zero byte
        // appended.
        key.push(0);
    }
    (!key.is_empty()).then_some(key)
}

/// The lesser of two exclusive ends; an empty first one means no bound.
fn least_end(one: Vec<u8>, other: Vec<u8>) -> Vec<u8> {
    if one.is_empty() { other } else { one.min(other) }
}

/// The buckets of a dimension that can hold rows satisfying the predicates.
fn buckets_of(dimension: &HashDimension, predicates: &[ColumnPredicate]) -> Buckets {
    let Some(values) = dimension
        .columns
        .iter()
        .map(|column| Some((column.index, values_of(column, predicates)?)))
        .collect::<Option<Vec<_>>>()
    else {
        return Buckets::All;
    };
    let combinations =
        values.iter().try_fold(1_usize, |product, (_, values)| product.checked_mul(values.len()));
    let Some(combinations) = combinations.filter(|combinations| *combinations <= COMBINATIONS_MAX)
    else {
        return Buckets::All;
    };
    let mut buckets = vec![false; dimension.num_buckets as usize];
    let mut scratch = Vec::new();
    for number in 0..combinations {
        let bucket = dimension.bucket(&Combination { values: &values, number }, &mut scratch);
        buckets[bucket as usize] = true;
    }
    Buckets::Some(buckets)
}

/// The only values that predicates allow in a column, as cells; `None` if there are too many to
/// list.
fn values_of(column: &KeyColumn, predicates: &[ColumnPredicate]) -> Option<Vec<Bytes>> {
    predicates
        .iter()
        .filter(|predicate| predicate.column_index == column.index)
        .filter_map(|predicate| match &predicate.condition {
            PredicateCondition::Equality(value) => Some(std::slice::from_ref(value)),
            PredicateCondition::InList(values) => Some(&values[..]),
            _ => None,
        })
        .min_by_key(|values| values.len())
        .map(|values| values.iter().map(|value| value.to_wire(column.data_type)).collect())
}

/// One choice of a value for every column of a dimension, by its number among all choices.
struct Combination<'v> {
    values: &'v [(usize, Vec<Bytes>)],
    number: usize,
}

impl KeyCells for Combination<'_> {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        let mut number = self.number;
        for (index, values) in self.values {
            if *index == column {
                return values.get(number % values.len()).map(|cell| &cell[..]);
            }
            number /= values.len();
        }
        None
    }
}

#[cfg(test)]
mod tests;
