//! A stable sort that ends with its statement: each comparison is a turn and may fail.
//!
//! The sort of the standard library cannot be left in the middle. This one merges numbers of
//! items, from runs of one on, and moves the items at its end.

use std::cmp::Ordering;

use super::Runtime;
use crate::error::{QueryError, Result};
use crate::value::QueryValue;
use crate::value::order::collate;

/// Bytes that a sort takes for an item: its number, twice.
const SORTED_ITEM_BYTES: usize = 2 * size_of::<u32>();

impl Runtime<'_> {
    /// Sorts items; those that compare equal keep their order.
    pub fn sort<T>(
        &self,
        items: &mut [T],
        mut compare: impl FnMut(&T, &T) -> Result<Ordering>,
    ) -> Result<()> {
        let bytes = items.len() * SORTED_ITEM_BYTES;
        self.keep(bytes)?;
        sort(items, |left, right| {
            self.turn()?;
            compare(left, right)
        })?;
        self.give_back(bytes);
        Ok(())
    }

    pub fn sort_values(&self, items: &mut [QueryValue]) -> Result<()> {
        self.sort(items, |left, right| self.collate(left, right))
    }

    /// The order of two values, with the work of their comparison.
    pub fn collate(&self, left: &QueryValue, right: &QueryValue) -> Result<Ordering> {
        self.work(left.walked_bytes().min(right.walked_bytes()))?;
        Ok(collate(left, right))
    }
}

fn sort<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Result<Ordering>) -> Result<()> {
    let count = u32::try_from(items.len()).map_err(|_| QueryError::out_of_memory())?;
    let mut order: Vec<u32> = (0..count).collect();
    let mut merged: Vec<u32> = Vec::with_capacity(order.len());
    let mut width = 1;
    while width < order.len() {
        merged.clear();
        for pair in order.chunks(2 * width) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            merge(left, right, items, &mut merged, &mut compare)?;
        }
        debug_assert!(merged.len() == order.len(), "a merge keeps every item");
        std::mem::swap(&mut order, &mut merged);
        width *= 2;
    }
    reorder(items, &mut order);
    Ok(())
}

/// Appends the numbers of two sorted runs in order.
fn merge<T>(
    mut left: &[u32],
    mut right: &[u32],
    items: &[T],
    merged: &mut Vec<u32>,
    compare: &mut impl FnMut(&T, &T) -> Result<Ordering>,
) -> Result<()> {
    let mut is_before = |right: u32, left: u32| -> Result<bool> {
        Ok(compare(&items[left as usize], &items[right as usize])?.is_gt())
    };
    // Runs that are in order already need one comparison.
    if let (Some(last), Some(first)) = (left.last(), right.first())
        && is_before(*first, *last)?
    {
        while let ([next_left, ..], [next_right, ..]) = (left, right) {
            if is_before(*next_right, *next_left)? {
                merged.push(*next_right);
                right = &right[1..];
            } else {
                merged.push(*next_left);
                left = &left[1..];
            }
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    Ok(())
}

/// Moves the item `order[n]` to the place n, for each n.
fn reorder<T>(items: &mut [T], order: &mut [u32]) {
    debug_assert!(items.len() == order.len(), "each item has a place");
    for start in 0..order.len() {
        let mut place = start;
        while order[place] as usize != start {
            let source = order[place] as usize;
            items.swap(place, source);
            order[place] = place as u32;
            place = source;
        }
        order[place] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    //! Against the sort of the standard library, and its end in the middle.

    use super::*;

    #[test]
    fn sorts_as_the_standard_library() {
        let mut state = 7u32;
        for count in (0..40).chain([100, 255, 256, 257, 1_000]) {
            for bound in [1, 3, 1_000] {
                let items: Vec<(u32, usize)> = (0..count)
                    .map(|place| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        ((state >> 8) % bound, place)
                    })
                    .collect();
                let (mut ours, mut theirs) = (items.clone(), items);
                sort(&mut ours, |left, right| Ok(left.0.cmp(&right.0))).unwrap();
                theirs.sort_by_key(|item| item.0);
                assert_eq!(ours, theirs, "{count} items below {bound}");
            }
        }
    }

    #[test]
    fn compares_n_log_n_times_at_most() {
        let mut items: Vec<u64> =
            (0..4_096u64).map(|n| n.wrapping_mul(2_654_435_761) % 4_099).collect();
        let mut compared = 0;
        sort(&mut items, |left, right| {
            compared += 1;
            Ok(left.cmp(right))
        })
        .unwrap();
        // 2,048 pairs of runs at most have one comparison more at each level.
        assert!(compared <= 12 * 4_096 + 4_095, "{compared}");
        assert!(items.is_sorted());
    }

    #[test]
    fn ends_with_the_comparison_that_fails() {
        let mut items: Vec<u32> = (0..10_000).rev().collect();
        let mut left = 500;
        let result = sort(&mut items, |one, other| {
            left -= 1;
            match left {
                0 => Err(QueryError::timeout()),
                _ => Ok(one.cmp(other)),
            }
        });
        assert_eq!(result.unwrap_err().code, 1080);
        assert_eq!(left, 0);
        // Nothing is lost.
        items.sort_unstable();
        assert_eq!(items, (0..10_000).collect::<Vec<u32>>());
    }
}
