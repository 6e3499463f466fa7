//! UNION, INTERSECT and EXCEPT, from left to right.
//!
//! Without ALL the result has each row once. A chain of UNION ALL streams; others keep rows.

use std::collections::{HashMap, HashSet};

use crate::ast::{SetKind, SetOperator};
use crate::error::Result;
use crate::plan::BodyPlan;
use crate::runtime::{Runtime, SlotFrame};

use super::flow::{Consumer, Flow};
use super::row::ResultRow;

impl Runtime<'_> {
    /// Runs a chain of set operators.
    pub fn run_sets(
        &self,
        first: &BodyPlan,
        rest: &[(SetOperator, BodyPlan)],
        frame: &mut SlotFrame,
        consumer: &mut Consumer<'_>,
    ) -> Result<()> {
        let streams = |operator: &SetOperator| operator.all && operator.kind == SetKind::Union;
        if rest.iter().all(|(operator, _)| streams(operator)) {
            let mut flow = Flow::More;
            for body in std::iter::once(first).chain(rest.iter().map(|(_, body)| body)) {
                if flow == Flow::Stop {
                    break;
                }
                self.run_body(body, frame, &mut |row, frame| {
                    flow = consumer(row, frame)?;
                    Ok(flow)
                })?;
            }
            return Ok(());
        }
        let mut rows = Rows { list: rows_of(first, self, frame)?, seen: None };
        for (operator, right) in rest {
            let others = rows_of(right, self, frame)?;
            self.check_deadline()?;
            match operator.kind {
                SetKind::Union => rows.unite(others, operator.all),
                kind => rows.filter(&others, kind == SetKind::Intersect, operator.all),
            }
        }
        for row in rows.list {
            if consumer(row, frame)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

fn rows_of(body: &BodyPlan, rt: &Runtime<'_>, frame: &mut SlotFrame) -> Result<Vec<ResultRow>> {
    let mut rows = Vec::new();
    rt.run_body(body, frame, &mut |row, _| {
        // Its key takes as much again.
        rt.keep(2 * row.byte_count())?;
        rows.push(row);
        Ok(Flow::More)
    })?;
    Ok(rows)
}

/// The rows so far, and their keys if no two are equal.
struct Rows {
    list: Vec<ResultRow>,
    seen: Option<HashSet<Box<[u8]>>>,
}

impl Rows {
    fn unite(&mut self, others: Vec<ResultRow>, all: bool) {
        if all {
            self.list.extend(others);
            self.seen = None;
            return;
        }
        let mut seen = self.seen.take().unwrap_or_else(|| {
            let mut seen = HashSet::new();
            self.list.retain(|row| seen.insert(row.key()));
            seen
        });
        self.list.extend(others.into_iter().filter(|row| seen.insert(row.key())));
        debug_assert!(self.list.len() == seen.len(), "each row is there once");
        self.seen = Some(seen);
    }

    /// Keeps the rows that are among others, or those that are not. With `all`, each row of the
    /// others meets one.
    fn filter(&mut self, others: &[ResultRow], among: bool, all: bool) {
        let mut counts: HashMap<Box<[u8]>, u64> = HashMap::new();
        for row in others {
            *counts.entry(row.key()).or_default() += 1;
        }
        let mut seen = HashSet::new();
        self.list.retain(|row| {
            let key = row.key();
            let matched = match counts.get_mut(&key) {
                Some(0) | None => false,
                Some(count) => {
                    *count -= u64::from(all);
                    true
                }
            };
            matched == among && (all || seen.insert(key))
        });
        self.seen = None;
    }
}
