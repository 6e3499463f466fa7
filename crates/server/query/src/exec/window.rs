//! Window functions: keeps all rows, sorts them by partition and order, and computes one value for
//! each row and window.

use std::ops::Range;

use crate::aggregates::AggregateState;
use crate::ast::{FrameBound, FrameExclusion, FrameUnit};
use crate::error::{QueryError, Result};
use crate::plan::{WindowFrame, WindowPlan};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::QueryValue;
use crate::value::order::collate;
use crate::windows::WindowFunction;

use super::flow::Flow;
use super::sort::{compare_keys, keys};

/// The rows of a SELECT with windows.
pub struct WindowTable<'p> {
    windows: &'p [WindowPlan],
    rows: Vec<SlotFrame>,
}

impl<'p> WindowTable<'p> {
    pub fn new(windows: &'p [WindowPlan]) -> WindowTable<'p> {
        WindowTable { windows, rows: Vec::new() }
    }

    pub fn add(&mut self, frame: &SlotFrame, rt: &Runtime<'_>) -> Result<()> {
        rt.keep(frame.iter().map(QueryValue::byte_count).sum())?;
        self.rows.push(frame.clone());
        Ok(())
    }

    /// Computes the windows and passes the rows on.
    pub fn finish(
        mut self,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
        each: &mut dyn FnMut(&mut SlotFrame) -> Result<Flow>,
    ) -> Result<()> {
        for plan in self.windows {
            self.compute(plan, rt)?;
        }
        for row in self.rows {
            rt.turn()?;
            *frame = row;
            if each(frame)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn compute(&mut self, plan: &WindowPlan, rt: &Runtime<'_>) -> Result<()> {
        let mut sorted = Vec::with_capacity(self.rows.len());
        for (number, row) in self.rows.iter_mut().enumerate() {
            rt.turn()?;
            let partition: Vec<QueryValue> =
                plan.partition.iter().map(|part| rt.eval(part, row)).collect::<Result<_>>()?;
            let order = keys(&plan.order, rt, row)?;
            sorted.push(SortedRow { partition, order, number });
        }
        sorted.sort_by(|left, right| {
            let parts = left.partition.iter().zip(&right.partition);
            let by_partition = parts.map(|(a, b)| collate(a, b)).find(|order| order.is_ne());
            by_partition.unwrap_or_else(|| compare_keys(&plan.order, &left.order, &right.order))
        });
        let mut start = 0;
        while start < sorted.len() {
            let same = |row: &&SortedRow| row.partition == sorted[start].partition;
            let count = sorted[start..].iter().take_while(same).count();
            let mut partition =
                Partition { plan, rows: &mut self.rows, sorted: &sorted[start..start + count] };
            partition.compute(rt)?;
            start += count;
        }
        Ok(())
    }
}

struct SortedRow {
    partition: Vec<QueryValue>,
    order: Vec<QueryValue>,
    number: usize,
}

struct Partition<'t, 'p> {
    plan: &'p WindowPlan,
    rows: &'t mut Vec<SlotFrame>,
    sorted: &'t [SortedRow],
}

impl Partition<'_, '_> {
    fn compute(&mut self, rt: &Runtime<'_>) -> Result<()> {
        let values = match self.plan.function {
            WindowFunction::Aggregate => self.aggregate(rt)?,
            WindowFunction::Lag | WindowFunction::Lead => self.offset(rt)?,
            WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue => {
                self.nth(rt)?
            }
            WindowFunction::Tiles => self.tiles(rt)?,
            WindowFunction::RatioToReport => self.ratio(rt)?,
            rank => self.rank(rank),
        };
        for (row, value) in self.sorted.iter().zip(values) {
            self.rows[row.number][self.plan.slot] = value;
        }
        Ok(())
    }

    fn arg(&mut self, index: usize, at: usize, rt: &Runtime<'_>) -> Result<QueryValue> {
        match self.plan.args.get(index) {
            Some(arg) => rt.eval(arg, &mut self.rows[self.sorted[at].number]),
            None => Ok(QueryValue::Missing),
        }
    }

    /// The rows with the same order values as `at`.
    fn peers(&self, at: usize) -> Range<usize> {
        let order = &self.sorted[at].order;
        let is_peer = |row: &SortedRow| row.order == *order;
        let before = self.sorted[..at].iter().rev().take_while(|row| is_peer(row)).count();
        let after = self.sorted[at..].iter().take_while(|row| is_peer(row)).count();
        at - before..at + after
    }

    fn rank(&self, rank: WindowFunction) -> Vec<QueryValue> {
        let count = self.sorted.len();
        let mut values = Vec::with_capacity(count);
        let (mut at, mut dense) = (0, 0);
        while at < count {
            let peers = self.peers(at);
            dense += 1;
            for number in peers.clone() {
                values.push(match rank {
                    WindowFunction::RowNumber => QueryValue::from(number + 1),
                    WindowFunction::Rank => QueryValue::from(peers.start + 1),
                    WindowFunction::DenseRank => QueryValue::from(dense as usize),
                    WindowFunction::PercentRank if count == 1 => QueryValue::Int(0),
                    WindowFunction::PercentRank => {
                        QueryValue::number(peers.start as f64 / (count - 1) as f64)
                    }
                    _ => QueryValue::number(peers.end as f64 / count as f64),
                });
            }
            at = peers.end;
        }
        values
    }

    fn tiles(&mut self, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
        let tiles = self.arg(0, 0, rt)?.as_int().filter(|tiles| *tiles > 0);
        let Some(tiles) = tiles else {
            return Err(QueryError::evaluation("NTILE takes a positive whole number"));
        };
        let (count, tiles) = (self.sorted.len(), tiles as usize);
        let (size, larger) = (count / tiles, count % tiles);
        let tile = |at: usize| match at < larger * (size + 1) {
            true => at / (size + 1),
            false => larger + (at - larger * (size + 1)) / size.max(1),
        };
        Ok((0..count).map(|at| QueryValue::from(tile(at) + 1)).collect())
    }

    fn offset(&mut self, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
        let forward = self.plan.function == WindowFunction::Lead;
        let mut values = Vec::with_capacity(self.sorted.len());
        for at in 0..self.sorted.len() {
            rt.turn()?;
            let distance = match self.arg(1, at, rt)? {
                QueryValue::Missing => 1,
                value => value.as_int().unwrap_or(1).max(0) as usize,
            };
            let mut left = distance;
            let mut other = Some(at);
            while left > 0 && other.is_some() {
                other = match forward {
                    true => other.map(|at| at + 1).filter(|at| *at < self.sorted.len()),
                    false => other.and_then(|at| at.checked_sub(1)),
                };
                if let Some(at) = other
                    && (!self.plan.ignore_nulls || self.arg(0, at, rt)?.is_valued())
                {
                    left -= 1;
                }
            }
            values.push(match other {
                Some(other) => self.arg(0, other, rt)?,
                None => self.arg(2, at, rt)?.or_null(),
            });
        }
        Ok(values)
    }

    fn nth(&mut self, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
        let function = self.plan.function;
        let mut values = Vec::with_capacity(self.sorted.len());
        for at in 0..self.sorted.len() {
            rt.turn()?;
            let mut rows = self.frame(at, rt)?;
            if function == WindowFunction::LastValue || self.plan.from_last {
                rows.reverse();
            }
            let mut skip = match function {
                WindowFunction::NthValue => self.arg(1, at, rt)?.as_int().unwrap_or(0) - 1,
                _ => 0,
            };
            let mut found = QueryValue::Null;
            for row in rows {
                let value = self.arg(0, row, rt)?;
                if self.plan.ignore_nulls && !value.is_valued() {
                    continue;
                }
                if skip == 0 {
                    found = value;
                    break;
                }
                skip -= 1;
            }
            values.push(found);
        }
        Ok(values)
    }

    fn ratio(&mut self, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
        let mut values = Vec::with_capacity(self.sorted.len());
        for at in 0..self.sorted.len() {
            let own = self.arg(0, at, rt)?.as_f64();
            let mut sum = 0.0;
            for row in self.frame(at, rt)? {
                rt.turn()?;
                sum += self.arg(0, row, rt)?.as_f64().unwrap_or(0.0);
            }
            values.push(match own {
                Some(own) if sum != 0.0 => QueryValue::number(own / sum),
                _ => QueryValue::Null,
            });
        }
        Ok(values)
    }

    fn aggregate(&mut self, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
        let Some(aggregate) = &self.plan.aggregate else { return Ok(Vec::new()) };
        let mut values = Vec::with_capacity(self.sorted.len());
        let mut last: Option<(Vec<usize>, QueryValue)> = None;
        for at in 0..self.sorted.len() {
            let rows = self.frame(at, rt)?;
            if let Some((known, value)) = &last
                && *known == rows
            {
                values.push(value.clone());
                continue;
            }
            let mut state = AggregateState::new(aggregate.kind, aggregate.distinct);
            for row in &rows {
                rt.turn()?;
                let frame = &mut self.rows[self.sorted[*row].number];
                if let Some(filter) = &aggregate.filter
                    && !rt.holds(filter, frame)?
                {
                    continue;
                }
                match &aggregate.arg {
                    Some(arg) => drop(state.add(&rt.eval(arg, frame)?)),
                    None => state.add_row(),
                }
            }
            let value = state.finish();
            last = Some((rows, value.clone()));
            values.push(value);
        }
        Ok(values)
    }

    /// The rows in the frame of a row.
    fn frame(&mut self, at: usize, rt: &Runtime<'_>) -> Result<Vec<usize>> {
        let count = self.sorted.len();
        let Some(frame) = &self.plan.frame else {
            let end = if self.plan.order.is_empty() { count } else { self.peers(at).end };
            return Ok((0..end).collect());
        };
        let start = self.bound(frame, &frame.shape.start, &frame.start, true, at, rt)?;
        let end = self.bound(frame, &frame.shape.end, &frame.end, false, at, rt)?;
        let peers = self.peers(at);
        let is_excluded = |row: usize| match frame.shape.exclude {
            FrameExclusion::NoOthers => false,
            FrameExclusion::CurrentRow => row == at,
            FrameExclusion::Group => peers.contains(&row),
            FrameExclusion::Ties => row != at && peers.contains(&row),
        };
        Ok((start.min(count)..end.min(count)).filter(|row| !is_excluded(*row)).collect())
    }

    /// The first row of the frame, or the one after its last.
    fn bound(
        &mut self,
        frame: &WindowFrame,
        bound: &FrameBound,
        distance: &Option<crate::plan::ExprPlan>,
        is_start: bool,
        at: usize,
        rt: &Runtime<'_>,
    ) -> Result<usize> {
        let count = self.sorted.len();
        let distance = match distance {
            Some(distance) => rt.eval(distance, &mut self.rows[self.sorted[at].number])?,
            None => QueryValue::Int(0),
        };
        let Some(number) = distance.as_f64().filter(|number| *number >= 0.0) else {
            return Err(QueryError::evaluation("A window frame takes distances from 0"));
        };
        let (preceding, distance) = match bound {
            FrameBound::UnboundedPreceding => return Ok(0),
            FrameBound::UnboundedFollowing => return Ok(count),
            FrameBound::Preceding(_) => (true, number),
            FrameBound::CurrentRow | FrameBound::Following(_) => (false, number),
        };
        Ok(match frame.shape.unit {
            FrameUnit::Rows => {
                let row = if preceding { at as f64 - distance } else { at as f64 + distance };
                let row = if is_start { row } else { row + 1.0 };
                row.clamp(0.0, count as f64) as usize
            }
            FrameUnit::Groups => self.group_bound(preceding, distance as usize, is_start, at),
            FrameUnit::Range => self.range_bound(bound, preceding, distance, is_start, at),
        })
    }

    fn group_bound(&self, preceding: bool, distance: usize, is_start: bool, at: usize) -> usize {
        let mut peers = self.peers(at);
        for _ in 0..distance.min(self.sorted.len()) {
            if preceding && peers.start == 0 {
                return 0;
            }
            if !preceding && peers.end == self.sorted.len() {
                return self.sorted.len();
            }
            peers = self.peers(if preceding { peers.start - 1 } else { peers.end });
        }
        if is_start { peers.start } else { peers.end }
    }

    fn range_bound(
        &self,
        bound: &FrameBound,
        preceding: bool,
        distance: f64,
        is_start: bool,
        at: usize,
    ) -> usize {
        let peers = self.peers(at);
        let key = |row: usize| self.sorted[row].order.first().and_then(QueryValue::as_f64);
        let (Some(own), false) = (key(at), *bound == FrameBound::CurrentRow) else {
            return if is_start { peers.start } else { peers.end };
        };
        let descending = self.plan.order.first().is_some_and(|key| key.descending);
        let edge = if preceding != descending { own - distance } else { own + distance };
        // Whether a row comes before the edge in the order of the window.
        let is_before = |row: usize| match key(row) {
            Some(value) if descending => value > edge || (!is_start && value == edge),
            Some(value) => value < edge || (!is_start && value == edge),
            None => row < at,
        };
        (0..self.sorted.len()).take_while(|row| is_before(*row)).count()
    }
}
