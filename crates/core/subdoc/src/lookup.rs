//! Read operations: a value's span, its existence, its number of members.

use std::ops::Range;

use crate::error::SubdocError;
use crate::locate::{Member, PathLocation, locate, members, span};
use crate::path::Path;

/// The span of the value at `path` in `text`, without the whitespace around it.
///
/// # Errors
/// [`SubdocError::PathEnoent`], [`SubdocError::PathMismatch`], [`SubdocError::DocE2deep`],
/// [`SubdocError::DocNotJson`].
pub fn get(text: &[u8], path: &Path<'_>) -> Result<Range<usize>, SubdocError> {
    span(text, &found(text, path)?, path.components().len())
}

/// Whether `path` has a value.
///
/// # Errors
/// As [`get`], except that the value itself is not walked.
pub fn exists(text: &[u8], path: &Path<'_>) -> Result<(), SubdocError> {
    found(text, path).map(|_| ())
}

/// The number of elements or members of the container at `path`.
///
/// # Errors
/// As [`get`]; a value that is not a container is a [`SubdocError::PathMismatch`].
pub fn count(text: &[u8], path: &Path<'_>) -> Result<usize, SubdocError> {
    let container = found(text, path)?;
    let mut members = members(text, container.value, path.components().len())?;
    while let Some(member) = members.next()? {
        members.skip(&member)?;
    }
    Ok(members.skipped())
}

fn found(text: &[u8], path: &Path<'_>) -> Result<Member, SubdocError> {
    match locate(text, path.components())? {
        PathLocation::Found(member) => Ok(member),
        PathLocation::Missing { .. } => Err(SubdocError::PathEnoent),
    }
}
