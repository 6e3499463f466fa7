//! What a function is, and what all of them use.

use crate::error::{QueryError, Result};
use crate::limits::{FUNCTION_BYTES_MAX, VALUE_BYTES_MAX, VALUE_LEVELS_MAX};
use crate::runtime::Runtime;
use crate::value::QueryValue;

/// How a function treats missing and null arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// They are the result.
    Propagate,
    /// The function sees them.
    Pass,
}

pub struct Function {
    pub name: &'static str,
    pub min: usize,
    pub max: usize,
    pub nulls: Nulls,
    pub run: fn(&[QueryValue], &Runtime<'_>) -> Result<QueryValue>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

/// Any number of arguments.
pub const MANY: usize = usize::MAX;

pub type FunctionBody = fn(&[QueryValue], &Runtime<'_>) -> Result<QueryValue>;

pub const fn strict(name: &'static str, min: usize, max: usize, run: FunctionBody) -> Function {
    assert!(min <= max, "a call has as many arguments as it must");
    Function { name, min, max, nulls: Nulls::Propagate, run }
}

pub const fn free(name: &'static str, min: usize, max: usize, run: FunctionBody) -> Function {
    assert!(min <= max, "a call has as many arguments as it must");
    Function { name, min, max, nulls: Nulls::Pass, run }
}

/// Refuses a result that is too large, and reserves its memory.
pub fn check_size(bytes: usize, rt: &Runtime<'_>) -> Result<()> {
    check_length(bytes)?;
    rt.scratch(bytes)
}

/// Refuses a result that is too large.
pub fn check_length(bytes: usize) -> Result<()> {
    if bytes <= FUNCTION_BYTES_MAX {
        return Ok(());
    }
    Err(QueryError::evaluation("The result of a function exceeds 20 MiB"))
}

/// An array result, if it is not too large.
pub fn array(items: Vec<QueryValue>) -> Result<QueryValue> {
    check_length(items.len() * size_of::<QueryValue>())?;
    Ok(QueryValue::from(items))
}

/// Refuses values that are together too large, or one that is nested too deeply. Parts are shared,
/// so a short statement can build a value that no memory holds as text.
pub fn check_values<'v>(values: impl IntoIterator<Item = &'v QueryValue>) -> Result<()> {
    let mut left = VALUE_BYTES_MAX;
    match values.into_iter().all(|value| value.fits(VALUE_LEVELS_MAX, &mut left)) {
        true => Ok(()),
        false => Err(QueryError::evaluation(
            "A value of the statement exceeds 64 MiB or 500 levels: build a smaller one",
        )),
    }
}

/// The value, unless it is too large.
pub fn checked(value: QueryValue) -> Result<QueryValue> {
    if matches!(value, QueryValue::Array(_) | QueryValue::Object(_)) {
        check_values([&value])?;
    }
    Ok(value)
}
