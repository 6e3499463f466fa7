//! Aggregates over frames, from the first row of a partition to its last.
//!
//! A frame that grows adds its new rows to the state so far. For one whose start moves, sums,
//! counts, extremes and deviations are merged from a binary tree over the rows, so a frame costs
//! the logarithm of the rows. MEDIAN, ARRAY_AGG and DISTINCT cannot be merged: they begin again.

use std::ops::Range;

use super::frame::FrameRanges;
use crate::aggregates::{AggregateKind, AggregateState, AggregateTotals};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::QueryValue;
use crate::value::order::collate;

/// The aggregate of a partition's rows. A row without value was filtered out.
pub struct RunningAggregate<'v> {
    kind: AggregateKind,
    distinct: bool,
    values: &'v [Option<&'v QueryValue>],
    state: AggregateState,
    /// The rows in the state, and the bytes that it keeps.
    rows: Range<usize>,
    state_bytes: usize,
    tree: Option<RangeTree>,
    last: Option<(FrameRanges, QueryValue)>,
}

impl<'v> RunningAggregate<'v> {
    pub fn new(
        kind: AggregateKind,
        distinct: bool,
        values: &'v [Option<&'v QueryValue>],
    ) -> RunningAggregate<'v> {
        RunningAggregate {
            kind,
            distinct,
            values,
            state: AggregateState::new(kind, distinct),
            rows: 0..0,
            state_bytes: 0,
            tree: None,
            last: None,
        }
    }

    /// The aggregate over a frame.
    pub fn value(&mut self, ranges: FrameRanges, rt: &Runtime<'_>) -> Result<QueryValue> {
        if let Some((known, value)) = &self.last
            && *known == ranges
        {
            return Ok(value.clone());
        }
        let grows = match &ranges[..] {
            [range] => range.start == self.rows.start && range.end >= self.rows.end,
            _ => false,
        };
        let value = if grows {
            self.grow(ranges[0].end, rt)?
        } else if self.is_merged() {
            self.merged(&ranges, rt)?
        } else {
            self.fresh(&ranges, rt)?
        };
        self.last = Some((ranges, value.clone()));
        Ok(value)
    }

    fn is_merged(&self) -> bool {
        !self.distinct && !matches!(self.kind, AggregateKind::Array | AggregateKind::Median)
    }

    fn grow(&mut self, end: usize, rt: &Runtime<'_>) -> Result<QueryValue> {
        debug_assert!(self.rows.end <= end, "a frame that grows loses no row");
        debug_assert!(end <= self.values.len(), "a frame is in its partition");
        for row in self.rows.end..end {
            add(&mut self.state, self.values[row], &mut self.state_bytes, rt)?;
        }
        self.rows.end = end;
        self.state.value(rt)
    }

    /// The aggregate of rows that are added one by one. A single range may grow afterwards.
    fn fresh(&mut self, ranges: &FrameRanges, rt: &Runtime<'_>) -> Result<QueryValue> {
        rt.give_back(std::mem::take(&mut self.state_bytes));
        self.state = AggregateState::new(self.kind, self.distinct);
        self.rows = match &ranges[..] {
            [range] => range.clone(),
            // No frame begins there.
            _ => usize::MAX..usize::MAX,
        };
        for row in ranges.iter().cloned().flatten() {
            add(&mut self.state, self.values[row], &mut self.state_bytes, rt)?;
        }
        self.state.value(rt)
    }

    fn merged(&mut self, ranges: &FrameRanges, rt: &Runtime<'_>) -> Result<QueryValue> {
        let tree = match &mut self.tree {
            Some(tree) => tree,
            None => self.tree.insert(RangeTree::new(self.kind, self.values, rt)?),
        };
        let mut total = TreeNode::default();
        for range in ranges {
            tree.add(range.clone(), &mut total, self.values);
        }
        Ok(match (self.kind, total.best) {
            (AggregateKind::Min | AggregateKind::Max, Some(best)) => {
                self.values[best as usize].cloned().unwrap_or_default()
            }
            (kind, _) => total.totals.value(kind),
        })
    }
}

fn add(
    state: &mut AggregateState,
    value: Option<&QueryValue>,
    kept: &mut usize,
    rt: &Runtime<'_>,
) -> Result<()> {
    rt.turn()?;
    let Some(value) = value else { return Ok(()) };
    let bytes = state.add(value);
    if bytes > 0 {
        rt.keep(bytes)?;
        *kept += bytes;
    }
    Ok(())
}

/// Some rows' totals, and the row of their least or greatest value.
#[derive(Clone, Default)]
struct TreeNode {
    totals: AggregateTotals,
    best: Option<u32>,
}

/// A binary tree over all rows: node `n` has the rows of the nodes `2n` and `2n + 1`.
struct RangeTree {
    kind: AggregateKind,
    nodes: Vec<TreeNode>,
}

impl RangeTree {
    fn new(
        kind: AggregateKind,
        values: &[Option<&QueryValue>],
        rt: &Runtime<'_>,
    ) -> Result<RangeTree> {
        rt.keep(2 * values.len() * size_of::<TreeNode>())?;
        let mut tree = RangeTree { kind, nodes: vec![TreeNode::default(); 2 * values.len()] };
        for (row, value) in values.iter().enumerate() {
            rt.turn()?;
            let Some(value) = value.filter(|value| kind.counts(value)) else { continue };
            let node = &mut tree.nodes[values.len() + row];
            node.totals.add(kind, value);
            node.best = u32::try_from(row).ok();
        }
        for number in (1..values.len()).rev() {
            rt.turn()?;
            let mut node = tree.nodes[2 * number].clone();
            tree.merge(&mut node, &tree.nodes[2 * number + 1], values);
            tree.nodes[number] = node;
        }
        Ok(tree)
    }

    fn merge(&self, node: &mut TreeNode, other: &TreeNode, values: &[Option<&QueryValue>]) {
        node.totals.merge(&other.totals);
        let is_better = |new: u32, old: u32| {
            let (Some(new), Some(old)) = (values[new as usize], values[old as usize]) else {
                return false;
            };
            match self.kind {
                AggregateKind::Min => collate(new, old).is_lt(),
                AggregateKind::Max => collate(new, old).is_gt(),
                _ => false,
            }
        };
        node.best = match (node.best, other.best) {
            (Some(old), Some(new)) if !is_better(new, old) => Some(old),
            (old, new) => new.or(old),
        };
    }

    /// Adds the rows of a range to a total.
    fn add(&self, rows: Range<usize>, total: &mut TreeNode, values: &[Option<&QueryValue>]) {
        debug_assert!(rows.end <= values.len(), "a frame is in its partition");
        debug_assert!(self.nodes.len() == 2 * values.len(), "each row has a node");
        let (mut start, mut end) = (rows.start + values.len(), rows.end + values.len());
        while start < end {
            if start % 2 == 1 {
                self.merge(total, &self.nodes[start], values);
                start += 1;
            }
            if end % 2 == 1 {
                end -= 1;
                self.merge(total, &self.nodes[end], values);
            }
            (start, end) = (start / 2, end / 2);
        }
    }
}
