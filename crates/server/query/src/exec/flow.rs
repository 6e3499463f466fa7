//! The flow of rows: their consumer, and the number that it wants.

use crate::error::{QueryError, Result};
use crate::plan::ExprPlan;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::QueryValue;

use super::row::ResultRow;

/// Whether more rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    More,
    Stop,
}

/// Takes the rows of a query.
pub type Consumer<'c> = dyn FnMut(ResultRow, &mut SlotFrame) -> Result<Flow> + 'c;

#[derive(Clone, Copy, Debug)]
pub struct RowBounds {
    pub skip: u64,
    pub count: u64,
}

impl RowBounds {
    pub const ALL: RowBounds = RowBounds { skip: 0, count: u64::MAX };

    pub fn new(
        limit: &Option<ExprPlan>,
        offset: &Option<ExprPlan>,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
    ) -> Result<RowBounds> {
        let mut number = |expr: &Option<ExprPlan>, name: &str, default: u64| match expr {
            None => Ok(default),
            Some(expr) => match rt.eval(expr, frame)? {
                QueryValue::Int(number) => Ok(u64::try_from(number).unwrap_or(0)),
                QueryValue::Float(number) if number.fract() == 0.0 => Ok(number.max(0.0) as u64),
                _ => {
                    let msg = format!("{name} takes a whole number");
                    Err(QueryError::new(5030, msg))
                }
            },
        };
        let skip = number(offset, "OFFSET", 0)?;
        Ok(RowBounds { skip, count: number(limit, "LIMIT", u64::MAX)? })
    }

    /// The rows that a sort has to keep.
    pub fn needed(&self) -> u64 {
        self.skip.saturating_add(self.count)
    }

    /// Passes a row on if it is within the bounds.
    pub fn pass(
        &mut self,
        row: ResultRow,
        frame: &mut SlotFrame,
        consumer: &mut Consumer<'_>,
    ) -> Result<Flow> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(Flow::More);
        }
        if self.count == 0 {
            return Ok(Flow::Stop);
        }
        self.count -= 1;
        let flow = consumer(row, frame)?;
        Ok(if self.count == 0 { Flow::Stop } else { flow })
    }
}
