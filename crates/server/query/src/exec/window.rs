//! Window functions: keeps all rows, sorts them by partition and order, and computes one value for
//! each row and window.
//!
//! `frame` has the rows of a frame as ranges, `running` the aggregates over them. Invariant: the
//! time of a partition of n rows is n log n, but for MEDIAN, ARRAY_AGG and DISTINCT over frames
//! whose start moves, and for what the frames' results take as output.

mod frame;
mod running;

use crate::error::{QueryError, Result};
use crate::plan::{ExprPlan, WindowPlan};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::QueryValue;
use crate::windows::WindowFunction;

use super::flow::Flow;
use super::sort::{compare_keys, keys, note_comparison};
use frame::{FrameRanges, PeerGroups, SortedRow};
use running::RunningAggregate;

/// Bytes of a sorted row apart from its values: its lists, and its peer group.
const SORTED_ROW_BYTES: usize = size_of::<SortedRow>() + 2 * size_of::<usize>();

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
        let values: usize = frame.iter().map(QueryValue::byte_count).sum();
        // The list of rows grows by doubling.
        rt.keep(values + 2 * size_of::<SlotFrame>())?;
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
            let used = rt.used();
            let result_bytes = self.compute(plan, rt)?;
            rt.release_to(used + result_bytes);
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

    /// Puts the values of a window into the rows, and answers their bytes.
    fn compute(&mut self, plan: &WindowPlan, rt: &Runtime<'_>) -> Result<usize> {
        let mut sorted = Vec::with_capacity(self.rows.len());
        for (number, row) in self.rows.iter_mut().enumerate() {
            rt.turn()?;
            let partition: Vec<QueryValue> =
                plan.partition.iter().map(|part| rt.eval(part, row)).collect::<Result<_>>()?;
            let order = keys(&plan.order, rt, row)?;
            let values: usize = partition.iter().chain(&order).map(QueryValue::byte_count).sum();
            rt.keep(values + SORTED_ROW_BYTES)?;
            sorted.push(SortedRow { partition, order, number });
        }
        rt.sort(&mut sorted, |left: &SortedRow, right| {
            for (left, right) in left.partition.iter().zip(&right.partition) {
                let order = rt.collate(left, right)?;
                if order.is_ne() {
                    return Ok(order);
                }
            }
            note_comparison(&left.order, &right.order, rt)?;
            Ok(compare_keys(&plan.order, &left.order, &right.order))
        })?;
        let mut start = 0;
        let mut result_bytes = 0;
        while start < sorted.len() {
            let same = |row: &&SortedRow| row.partition == sorted[start].partition;
            let count = sorted[start..].iter().take_while(same).count();
            debug_assert!(count > 0, "a partition has its first row");
            let sorted = &sorted[start..start + count];
            let groups = PeerGroups::new(sorted, rt)?;
            let mut partition = Partition { plan, rows: &mut self.rows, sorted, groups };
            result_bytes += partition.compute(rt)?;
            start += count;
        }
        Ok(result_bytes)
    }
}

/// The rows of one partition in the order of the window.
struct Partition<'t, 'p> {
    plan: &'p WindowPlan,
    rows: &'t mut Vec<SlotFrame>,
    sorted: &'t [SortedRow],
    groups: PeerGroups,
}

/// The results of a partition's rows.
#[derive(Default)]
struct WindowResults {
    values: Vec<QueryValue>,
    bytes: usize,
}

impl WindowResults {
    fn push(&mut self, value: QueryValue, rt: &Runtime<'_>) -> Result<()> {
        rt.turn()?;
        let bytes = value.byte_count();
        rt.keep(bytes)?;
        self.bytes += bytes;
        self.values.push(value);
        Ok(())
    }
}

impl Partition<'_, '_> {
    fn compute(&mut self, rt: &Runtime<'_>) -> Result<usize> {
        let mut results = WindowResults::default();
        match self.plan.function {
            WindowFunction::Aggregate => self.aggregate(&mut results, rt)?,
            WindowFunction::Lag | WindowFunction::Lead => self.offset(&mut results, rt)?,
            WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue => {
                self.nth(&mut results, rt)?
            }
            WindowFunction::Tiles => self.tiles(&mut results, rt)?,
            WindowFunction::RatioToReport => self.ratio(&mut results, rt)?,
            rank => self.rank(rank, &mut results, rt)?,
        }
        debug_assert!(results.values.len() == self.sorted.len(), "each row has a result");
        for (row, value) in self.sorted.iter().zip(results.values) {
            self.rows[row.number][self.plan.slot] = value;
        }
        Ok(results.bytes)
    }

    fn arg(&mut self, index: usize, at: usize, rt: &Runtime<'_>) -> Result<QueryValue> {
        match self.plan.args.get(index) {
            Some(arg) => rt.eval(arg, &mut self.rows[self.sorted[at].number]),
            None => Ok(QueryValue::Missing),
        }
    }

    /// The values of the first argument in all rows.
    fn first_args(&mut self, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
        let mut values = Vec::with_capacity(self.sorted.len());
        for at in 0..self.sorted.len() {
            rt.turn()?;
            let value = self.arg(0, at, rt)?;
            rt.keep(value.byte_count())?;
            values.push(value);
        }
        Ok(values)
    }

    /// The rows that count: all, or with IGNORE NULLS those with a value.
    fn counted(&self, values: &[QueryValue], rt: &Runtime<'_>) -> Result<Option<Vec<usize>>> {
        if !self.plan.ignore_nulls {
            return Ok(None);
        }
        rt.keep(values.len() * size_of::<usize>())?;
        let rows = values.iter().enumerate().filter(|(_, value)| value.is_valued());
        Ok(Some(rows.map(|(at, _)| at).collect()))
    }

    fn rank(
        &self,
        rank: WindowFunction,
        results: &mut WindowResults,
        rt: &Runtime<'_>,
    ) -> Result<()> {
        let count = self.sorted.len();
        for (dense, peers) in self.groups.all().enumerate() {
            for number in peers.clone() {
                let value = match rank {
                    WindowFunction::RowNumber => QueryValue::from(number + 1),
                    WindowFunction::Rank => QueryValue::from(peers.start + 1),
                    WindowFunction::DenseRank => QueryValue::from(dense + 1),
                    WindowFunction::PercentRank if count == 1 => QueryValue::Int(0),
                    WindowFunction::PercentRank => {
                        QueryValue::number(peers.start as f64 / (count - 1) as f64)
                    }
                    _ => QueryValue::number(peers.end as f64 / count as f64),
                };
                results.push(value, rt)?;
            }
        }
        Ok(())
    }

    fn tiles(&mut self, results: &mut WindowResults, rt: &Runtime<'_>) -> Result<()> {
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
        debug_assert!(tile(count - 1) < tiles, "the last row is in a tile");
        (0..count).try_for_each(|at| results.push(QueryValue::from(tile(at) + 1), rt))
    }

    fn offset(&mut self, results: &mut WindowResults, rt: &Runtime<'_>) -> Result<()> {
        let forward = self.plan.function == WindowFunction::Lead;
        let values = self.first_args(rt)?;
        let counted = self.counted(&values, rt)?;
        for at in 0..self.sorted.len() {
            let distance = match self.arg(1, at, rt)? {
                QueryValue::Missing => 1,
                value => value.as_int().unwrap_or(1).max(0) as usize,
            };
            let other = match (&counted, forward, distance) {
                (_, _, 0) => Some(at),
                (None, true, _) => at.checked_add(distance),
                (None, false, _) => at.checked_sub(distance),
                (Some(rows), true, _) => {
                    let after = rows.partition_point(|row| *row <= at);
                    after.checked_add(distance - 1).and_then(|at| rows.get(at)).copied()
                }
                (Some(rows), false, _) => {
                    let before = rows.partition_point(|row| *row < at);
                    before.checked_sub(distance).map(|at| rows[at])
                }
            };
            let value = match other.and_then(|other| values.get(other)) {
                Some(value) => value.clone(),
                None => self.arg(2, at, rt)?.or_null(),
            };
            results.push(value, rt)?;
        }
        Ok(())
    }

    fn nth(&mut self, results: &mut WindowResults, rt: &Runtime<'_>) -> Result<()> {
        let function = self.plan.function;
        let values = self.first_args(rt)?;
        let counted = self.counted(&values, rt)?;
        let from_last = function == WindowFunction::LastValue || self.plan.from_last;
        for at in 0..self.sorted.len() {
            let ranges = self.frame(at, rt)?;
            let skip = match function {
                WindowFunction::NthValue => self.arg(1, at, rt)?.as_int().unwrap_or(0) - 1,
                _ => 0,
            };
            let row = usize::try_from(skip)
                .ok()
                .and_then(|skip| frame::nth_row(&ranges, counted.as_deref(), skip, from_last));
            let value = row.map_or(QueryValue::Null, |row| values[row].clone());
            results.push(value, rt)?;
        }
        Ok(())
    }

    fn ratio(&mut self, results: &mut WindowResults, rt: &Runtime<'_>) -> Result<()> {
        let values = self.first_args(rt)?;
        let listed: Vec<Option<&QueryValue>> = values.iter().map(Some).collect();
        rt.keep(size_of_val(&listed[..]))?;
        let sum = crate::aggregates::AggregateKind::Sum;
        let mut running = RunningAggregate::new(sum, false, &listed);
        for (at, own) in values.iter().enumerate() {
            let sum = running.value(self.frame(at, rt)?, rt)?.as_f64().unwrap_or(0.0);
            let value = match own.as_f64() {
                Some(own) if sum != 0.0 => QueryValue::number(own / sum),
                _ => QueryValue::Null,
            };
            results.push(value, rt)?;
        }
        Ok(())
    }

    fn aggregate(&mut self, results: &mut WindowResults, rt: &Runtime<'_>) -> Result<()> {
        let Some(aggregate) = &self.plan.aggregate else { return Ok(()) };
        let mut values: Vec<Option<QueryValue>> = Vec::with_capacity(self.sorted.len());
        for row in self.sorted {
            rt.turn()?;
            let frame = &mut self.rows[row.number];
            let value = match (&aggregate.filter, &aggregate.arg) {
                (Some(filter), _) if !rt.holds(filter, frame)? => None,
                (_, Some(arg)) => Some(rt.eval(arg, frame)?),
                // A row of COUNT(*).
                (_, None) => Some(QueryValue::Bool(true)),
            };
            let bytes = value.as_ref().map_or(size_of::<QueryValue>(), QueryValue::byte_count);
            rt.keep(bytes + size_of::<usize>())?;
            values.push(value);
        }
        let listed: Vec<Option<&QueryValue>> = values.iter().map(Option::as_ref).collect();
        let mut running = RunningAggregate::new(aggregate.kind, aggregate.distinct, &listed);
        for at in 0..self.sorted.len() {
            let value = running.value(self.frame(at, rt)?, rt)?;
            results.push(value, rt)?;
        }
        Ok(())
    }

    /// The rows in the frame of a row.
    fn frame(&mut self, at: usize, rt: &Runtime<'_>) -> Result<FrameRanges> {
        let Some(frame) = &self.plan.frame else {
            return Ok(frame::default_frame(&self.groups, at, self.plan.order.is_empty()));
        };
        let start = self.distance(&frame.start, at, rt)?;
        let end = self.distance(&frame.end, at, rt)?;
        let order = frame::WindowOrder {
            sorted: self.sorted,
            groups: &self.groups,
            descending: self.plan.order.first().is_some_and(|key| key.descending),
        };
        Ok(order.frame(&frame.shape, (start, end), at))
    }

    /// The distance of a bound in the frame of a row.
    fn distance(
        &mut self,
        distance: &Option<ExprPlan>,
        at: usize,
        rt: &Runtime<'_>,
    ) -> Result<f64> {
        let Some(distance) = distance else { return Ok(0.0) };
        let distance = rt.eval(distance, &mut self.rows[self.sorted[at].number])?;
        distance
            .as_f64()
            .filter(|number| *number >= 0.0)
            .ok_or_else(|| QueryError::evaluation("A window frame takes distances from 0"))
    }
}
