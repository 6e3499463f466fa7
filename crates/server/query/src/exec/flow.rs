//! How rows flow: who takes them, and how many are wanted.

use crate::error::{QueryError, Result};
use crate::plan::Expr;
use crate::runtime::{Frame, Runtime};
use crate::value::Value;

use super::row::Row;

/// Whether more rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    More,
    Stop,
}

/// Takes the rows of a query.
pub type Consumer<'c> = dyn FnMut(Row, &mut Frame) -> Result<Flow> + 'c;

/// OFFSET and LIMIT.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub skip: u64,
    pub count: u64,
}

impl Bounds {
    pub const ALL: Bounds = Bounds { skip: 0, count: u64::MAX };

    pub fn new(
        limit: &Option<Expr>,
        offset: &Option<Expr>,
        rt: &Runtime<'_>,
        frame: &mut Frame,
    ) -> Result<Bounds> {
        let mut number = |expr: &Option<Expr>, name: &str, default: u64| match expr {
            None => Ok(default),
            Some(expr) => match rt.eval(expr, frame)? {
                Value::Int(number) => Ok(u64::try_from(number).unwrap_or(0)),
                Value::Float(number) if number.fract() == 0.0 => Ok(number.max(0.0) as u64),
                _ => {
                    let msg = format!("{name} takes a whole number");
                    Err(QueryError::new(5030, msg))
                }
            },
        };
        let skip = number(offset, "OFFSET", 0)?;
        Ok(Bounds { skip, count: number(limit, "LIMIT", u64::MAX)? })
    }

    /// The rows that a sort has to keep.
    pub fn needed(&self) -> u64 {
        self.skip.saturating_add(self.count)
    }

    /// Passes a row on if it is within the bounds.
    pub fn pass(
        &mut self,
        row: Row,
        frame: &mut Frame,
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
