//! The rows of a window frame, as ranges of a sorted partition.

use std::ops::Range;

use smallvec::SmallVec;

use crate::ast::{FrameBound, FrameClause, FrameExclusion, FrameUnit};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::QueryValue;

/// A row with its values in the window's PARTITION BY and ORDER BY.
pub struct SortedRow {
    pub partition: Vec<QueryValue>,
    pub order: Vec<QueryValue>,
    /// Its number in the table of rows.
    pub number: usize,
}

/// The rows of a frame: ranges in order that are not empty.
pub type FrameRanges = SmallVec<[Range<usize>; 3]>;

/// The groups of rows with the same order values.
pub struct PeerGroups {
    /// The first row of each group, and the number of rows at the end.
    starts: Vec<usize>,
}

impl PeerGroups {
    pub fn new(sorted: &[SortedRow], rt: &Runtime<'_>) -> Result<PeerGroups> {
        debug_assert!(!sorted.is_empty(), "a partition has a row");
        let mut starts = vec![0];
        for (before, pair) in sorted.windows(2).enumerate() {
            rt.turn()?;
            if pair[0].order != pair[1].order {
                starts.push(before + 1);
            }
        }
        starts.push(sorted.len());
        Ok(PeerGroups { starts })
    }

    pub fn all(&self) -> impl Iterator<Item = Range<usize>> {
        self.starts.windows(2).map(|pair| pair[0]..pair[1])
    }

    fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn rows(&self, group: usize) -> Range<usize> {
        self.starts[group]..self.starts[group + 1]
    }

    fn group_of(&self, at: usize) -> usize {
        debug_assert!(self.starts.last().is_some_and(|end| at < *end), "a row is in its partition");
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// The rows with the same order values as `at`.
    fn peers(&self, at: usize) -> Range<usize> {
        self.rows(self.group_of(at))
    }
}

/// The frame without a clause: all rows, or those up to the last peer.
pub fn default_frame(groups: &PeerGroups, at: usize, is_unordered: bool) -> FrameRanges {
    let count = groups.starts.last().copied().unwrap_or_default();
    let end = if is_unordered { count } else { groups.peers(at).end };
    let mut ranges = FrameRanges::new();
    ranges.push(0..end);
    ranges
}

/// The row after `skip` others of the frame, from its end if `from_last`. With `counted`, only
/// those rows count.
pub fn nth_row(
    ranges: &FrameRanges,
    counted: Option<&[usize]>,
    skip: usize,
    from_last: bool,
) -> Option<usize> {
    // Positions in the list of rows that count.
    let position = |row: usize| match counted {
        Some(rows) => rows.partition_point(|known| *known < row),
        None => row,
    };
    let mut skip = skip;
    let mut find = |range: &Range<usize>| {
        let (start, end) = (position(range.start), position(range.end));
        if skip >= end - start {
            skip -= end - start;
            return None;
        }
        let found = if from_last { end - 1 - skip } else { start + skip };
        Some(counted.map_or(found, |rows| rows[found]))
    };
    match from_last {
        true => ranges.iter().rev().find_map(&mut find),
        false => ranges.iter().find_map(&mut find),
    }
}

/// A partition in the order of its window.
pub struct WindowOrder<'t> {
    pub sorted: &'t [SortedRow],
    pub groups: &'t PeerGroups,
    pub descending: bool,
}

impl WindowOrder<'_> {
    /// The rows in the frame of a row, with the distances of its start and end.
    pub fn frame(&self, shape: &FrameClause, (start, end): (f64, f64), at: usize) -> FrameRanges {
        let count = self.sorted.len();
        let start = self.bound(shape.unit, &shape.start, start, true, at).min(count);
        let end = self.bound(shape.unit, &shape.end, end, false, at).min(count).max(start);
        let peers = self.groups.peers(at);
        let parts = match shape.exclude {
            FrameExclusion::NoOthers => [start..end, 0..0, 0..0],
            FrameExclusion::CurrentRow => [start..at, at + 1..end, 0..0],
            FrameExclusion::Group => [start..peers.start, peers.end..end, 0..0],
            FrameExclusion::Ties => [start..peers.start, at..at + 1, peers.end..end],
        };
        let within = |part: Range<usize>| part.start.clamp(start, end)..part.end.clamp(start, end);
        let ranges: FrameRanges =
            parts.into_iter().map(within).filter(|part| part.start < part.end).collect();
        debug_assert!(ranges.is_sorted_by(|left, right| left.end <= right.start), "ranges ascend");
        ranges
    }

    /// The first row of the frame, or the one after its last.
    fn bound(
        &self,
        unit: FrameUnit,
        bound: &FrameBound,
        distance: f64,
        is_start: bool,
        at: usize,
    ) -> usize {
        let count = self.sorted.len();
        let preceding = match bound {
            FrameBound::UnboundedPreceding => return 0,
            FrameBound::UnboundedFollowing => return count,
            FrameBound::Preceding(_) => true,
            FrameBound::CurrentRow | FrameBound::Following(_) => false,
        };
        match unit {
            FrameUnit::Rows => {
                let row = if preceding { at as f64 - distance } else { at as f64 + distance };
                let row = if is_start { row } else { row + 1.0 };
                row.clamp(0.0, count as f64) as usize
            }
            FrameUnit::Groups => self.group_bound(preceding, distance as usize, is_start, at),
            FrameUnit::Range => self.range_bound(bound, preceding, distance, is_start, at),
        }
    }

    fn group_bound(&self, preceding: bool, distance: usize, is_start: bool, at: usize) -> usize {
        let own = self.groups.group_of(at);
        let group = match preceding {
            true => own.checked_sub(distance),
            false => own.checked_add(distance).filter(|group| *group < self.groups.count()),
        };
        match group.map(|group| self.groups.rows(group)) {
            Some(rows) if is_start => rows.start,
            Some(rows) => rows.end,
            None if preceding => 0,
            None => self.sorted.len(),
        }
    }

    fn range_bound(
        &self,
        bound: &FrameBound,
        preceding: bool,
        distance: f64,
        is_start: bool,
        at: usize,
    ) -> usize {
        let key = |row: &SortedRow| {
            let number = row.order.first().and_then(QueryValue::as_f64);
            number.filter(|number| !number.is_nan())
        };
        let (Some(own), false) = (key(&self.sorted[at]), *bound == FrameBound::CurrentRow) else {
            let peers = self.groups.peers(at);
            return if is_start { peers.start } else { peers.end };
        };
        let edge = if preceding != self.descending { own - distance } else { own + distance };
        // Rows with numbers stand together, and rows before the edge are the first of them.
        let is_before = |value: f64| match self.descending {
            true => value > edge || (!is_start && value == edge),
            false => value < edge || (!is_start && value == edge),
        };
        let first = self.numbers_start(at, &key);
        let numbers = self.sorted[first..].partition_point(|row| key(row).is_some_and(is_before));
        first + numbers
    }

    /// The first of the rows with numbers, one of which is `at`.
    fn numbers_start(&self, at: usize, key: &dyn Fn(&SortedRow) -> Option<f64>) -> usize {
        self.sorted[..at].partition_point(|row| key(row).is_none())
    }
}
