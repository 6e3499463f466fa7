//! ORDER BY: a sort in memory, or a bounded heap when LIMIT says how many rows are needed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::error::Result;
use crate::plan::OrderKey;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::QueryValue;
use crate::value::order::collate;

use super::flow::{Consumer, Flow, RowBounds};
use super::row::ResultRow;

/// The values of the sort keys in the current frame.
pub fn keys(keys: &[OrderKey], rt: &Runtime<'_>, frame: &mut SlotFrame) -> Result<SortValues> {
    keys.iter().map(|key| rt.eval(&key.value, frame)).collect()
}

/// Collects rows and passes them on in order.
pub struct Sorter<'p> {
    order: &'p [OrderKey],
    bounds: RowBounds,
    /// The last row in order is on top.
    heap: BinaryHeap<Entry<'p>>,
    added: u64,
}

struct Entry<'p> {
    order: &'p [OrderKey],
    keys: SortValues,
    /// Rows with equal keys keep their order.
    number: u64,
    row: ResultRow,
}

impl Entry<'_> {
    fn byte_count(&self) -> usize {
        let keys: usize = self.keys.iter().map(crate::value::QueryValue::byte_count).sum();
        // The heap grows by doubling.
        2 * size_of::<Self>() + keys + self.row.byte_count()
    }
}

impl Ord for Entry<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_keys(self.order, &self.keys, &other.keys).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Entry<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry<'_> {}

impl<'p> Sorter<'p> {
    pub fn new(order: &'p [OrderKey], bounds: RowBounds) -> Sorter<'p> {
        Sorter { order, bounds, heap: BinaryHeap::new(), added: 0 }
    }

    /// Adds a row, which is made only if it is among those needed.
    pub fn add(
        &mut self,
        keys: SortValues,
        rt: &Runtime<'_>,
        row: impl FnOnce() -> Result<ResultRow>,
    ) -> Result<()> {
        debug_assert!(keys.len() == self.order.len(), "each sort key has a value");
        self.added += 1;
        let full = self.heap.len() as u64 >= self.bounds.needed();
        if full
            && let Some(last) = self.heap.peek()
            && compare_keys(self.order, &keys, &last.keys).is_ge()
        {
            return Ok(());
        }
        if full && let Some(last) = self.heap.pop() {
            rt.give_back(last.byte_count());
        }
        let entry = Entry { order: self.order, keys, number: self.added, row: row()? };
        rt.keep(entry.byte_count())?;
        self.heap.push(entry);
        let count = self.heap.len() as u64;
        debug_assert!(count <= self.bounds.needed(), "only rows that are needed are kept");
        Ok(())
    }

    /// Passes the rows on.
    pub fn finish(
        self,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
        consumer: &mut Consumer<'_>,
    ) -> Result<()> {
        rt.sorted.set(rt.sorted.get() + self.added);
        let mut bounds = self.bounds;
        let mut entries = self.heap.into_vec();
        rt.sort(&mut entries, |left, right| {
            note_comparison(&left.keys, &right.keys, rt)?;
            Ok(left.cmp(right))
        })?;
        for entry in entries {
            rt.turn()?;
            if bounds.pass(entry.row, frame, consumer)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

/// The values of sort keys.
pub type SortValues = Vec<QueryValue>;

/// Counts the work of a comparison of sort keys.
pub fn note_comparison(left: &SortValues, right: &SortValues, rt: &Runtime<'_>) -> Result<()> {
    let bytes = left.iter().zip(right).map(|(a, b)| a.walked_bytes().min(b.walked_bytes()));
    rt.work(bytes.sum())
}

/// Compares rows by their sort keys.
pub fn compare_keys(keys: &[OrderKey], left: &[QueryValue], right: &[QueryValue]) -> Ordering {
    let count = keys.len();
    debug_assert!(left.len() == count && right.len() == count, "each sort key has a value");
    for ((key, left), right) in keys.iter().zip(left).zip(right) {
        let order = match key.nulls_last {
            Some(last) if left.is_valued() != right.is_valued() => {
                // Values that are null or missing go to one end, whatever the direction.
                if left.is_valued() == last { Ordering::Less } else { Ordering::Greater }
            }
            _ if key.descending => collate(right, left),
            _ => collate(left, right),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
