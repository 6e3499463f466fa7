//! `->>` and `json_extract` without parsing whole documents.
//!
//! It owns the functions of these names, which replace SQLite's in a database. SQLite's turn a
//! whole document into a tree first; these find the span of the path in its text ([`oribi_subdoc`])
//! and convert this value alone. Invariant: results are those of SQLite's own functions. What is
//! not certain to be the same - text that is no JSON, unusual paths, containers, long numbers - is
//! passed to SQLite's functions, in a database of its own.

use std::any::Any;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use oribi_subdoc::{Path, SubdocError, json, lookup};
use rusqlite::functions::{Context, FunctionFlags, SqlFnOutput, SubType};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, Result};

use crate::source::Argument;

/// Digits of a number whose value every way of reading it agrees on, and the greatest power of ten
/// that such a number may be scaled by.
const EXACT_DIGITS_MAX: usize = 15;
const EXACT_EXPONENT_MAX: i32 = 22;

/// Digits of an index in a path.
const INDEX_DIGITS_MAX: usize = 9;

/// SQLite takes deeper documents for malformed ones.
const DEPTH_MAX: usize = 1000;

/// SQLite's mark of a text that is JSON.
const JSON_SUBTYPE: u32 = b'J' as u32;

/// Longest value that is copied without asking for room.
const UNCOUNTED_BYTES_MAX: usize = 256 << 10;

/// Asked for memory of so many bytes, which is held as long as what it returns; an error ends the
/// statement.
pub type Room = Arc<dyn Fn(usize) -> anyhow::Result<Box<dyn Any>> + Send + Sync>;

/// Room without a bound.
pub fn any_room() -> Room {
    Arc::new(|_| Ok(Box::new(())))
}

/// One of the functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    /// `->>`, whose paths may be abbreviated to a name or an index.
    Arrow,
    /// `json_extract` with one path.
    Extract,
}

impl Function {
    fn statement(self) -> &'static str {
        match self {
            Function::Arrow => "select ?1 ->> ?2, 0",
            Function::Extract => {
                "select json_extract(?1, ?2), json_type(?1, ?2) in ('object', 'array')"
            }
        }
    }
}

/// Replaces the functions of a connection.
///
/// # Errors
/// SQLite's.
pub fn register(connection: &Connection, room: &Room) -> Result<()> {
    for (name, function) in [(c"->>", Function::Arrow), (c"json_extract", Function::Extract)] {
        let flags = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS
            | FunctionFlags::SQLITE_RESULT_SUBTYPE;
        let room = AssertUnwindSafe(Arc::clone(room));
        let fallback =
            Fallback { statement: function.statement(), database: OnceCell::new(), room };
        connection.create_scalar_function(name, 2, flags, move |context| {
            extract(context, function, &fallback)
        })?;
    }
    Ok(())
}

/// A result.
struct Extracted {
    value: Argument,
    /// For a long value, until SQLite has copied it.
    _room: Option<Box<dyn Any>>,
    /// Functions of JSON take the text for JSON and not for a string.
    is_json: bool,
}

impl SqlFnOutput for Extracted {
    fn to_sql(&self) -> Result<(ToSqlOutput<'_>, SubType)> {
        let value = match &self.value {
            Argument::Null => ValueRef::Null,
            Argument::Integer(number) => ValueRef::Integer(*number),
            Argument::Real(number) => ValueRef::Real(*number),
            Argument::Text(text) => ValueRef::Text(text),
            Argument::Blob(bytes) => ValueRef::Blob(bytes),
        };
        Ok((ToSqlOutput::Borrowed(value), self.is_json.then_some(JSON_SUBTYPE)))
    }
}

/// The value at a path.
fn extract(context: &Context<'_>, function: Function, fallback: &Fallback) -> Result<Extracted> {
    let (document, path) = (context.get_raw(0), context.get_raw(1));
    let found = match (document, path) {
        (ValueRef::Text(text), path) => {
            match path_of(path, function).and_then(|path| span_in(text, &path)) {
                Some(Some(span)) => {
                    let held = fallback.room_for(span.len())?;
                    value_of(&text[span]).map(|value| (value, held))
                }
                Some(None) => Some((Argument::Null, None)),
                None => None,
            }
        }
        _ => None,
    };
    if let Some((value, room)) = found {
        return Ok(Extracted { value, _room: room, is_json: false });
    }
    fallback.ask(document, path)
}

/// A path of SQLite's as one of [`oribi_subdoc`], if both certainly mean the same.
fn path_of(path: ValueRef<'_>, function: Function) -> Option<Cow<'_, str>> {
    match (path, function) {
        (ValueRef::Integer(index @ 0..), Function::Arrow) => Some(format!("[{index}]").into()),
        (ValueRef::Text(text), _) => {
            let text = std::str::from_utf8(text).ok()?;
            let steps = match (text.strip_prefix('$'), function) {
                (Some(steps), _) => steps,
                (None, Function::Arrow) => return is_name(text).then(|| text.into()),
                (None, Function::Extract) => return None,
            };
            are_steps(steps).then(|| steps.strip_prefix('.').unwrap_or(steps).into())
        }
        _ => None,
    }
}

/// True for a name that needs no quotes anywhere.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// True for names behind points and indices in brackets alone.
fn are_steps(mut steps: &str) -> bool {
    while let Some(first) = steps.chars().next() {
        let rest = &steps[1..];
        let (step, behind) = match first {
            '.' => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
            '[' => match rest.split_once(']') {
                Some(split) => split,
                None => return false,
            },
            _ => return false,
        };
        let is_index = || {
            step.len() <= INDEX_DIGITS_MAX
                && !step.is_empty()
                && step.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !(first == '.' && is_name(step) || first == '[' && is_index()) {
            return false;
        }
        steps = behind;
    }
    true
}

/// Where the value at a path is in a text, if it is there; `None` when that is SQLite's to say.
fn span_in(text: &[u8], path: &str) -> Option<Option<Range<usize>>> {
    let path = Path::parse(path.as_bytes()).ok()?;
    json::nesting(text).filter(|depth| *depth < DEPTH_MAX)?;
    match lookup::get(text, &path) {
        Ok(span) => Some(Some(span)),
        Err(SubdocError::PathEnoent | SubdocError::PathMismatch) => Some(None),
        Err(_) => None,
    }
}

/// A scalar of JSON; `None` for those that are SQLite's to convert.
fn value_of(text: &[u8]) -> Option<Argument> {
    let text = std::str::from_utf8(text).ok()?;
    match text.as_bytes() {
        [b'"', inside @ .., b'"'] if !inside.contains(&b'\\') => {
            Some(Argument::Text(inside.to_vec()))
        }
        // A lone surrogate is an error, and texts of SQLite end before a zero.
        [b'"', ..] if !text.contains(r"\u0000") => {
            serde_json::from_str(text).ok().map(|text: String| Argument::Text(text.into_bytes()))
        }
        b"true" => Some(Argument::Integer(1)),
        b"false" => Some(Argument::Integer(0)),
        b"null" => Some(Argument::Null),
        [b'-' | b'0'..=b'9', ..] => number(text),
        _ => None,
    }
}

/// A number that is exact in every way of reading it.
fn number(text: &str) -> Option<Argument> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.trim_start_matches('-').len() + fraction.len();
    if digits > EXACT_DIGITS_MAX {
        return None;
    }
    if text.len() == whole.len() {
        return text.parse().ok().map(Argument::Integer);
    }
    let scale = exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()?;
    let is_exact = scale.abs() <= EXACT_EXPONENT_MAX;
    is_exact.then(|| text.parse().ok().map(Argument::Real)).flatten()
}

/// SQLite's own function.
struct Fallback {
    statement: &'static str,
    /// Made when it is first needed.
    database: OnceCell<Connection>,
    room: AssertUnwindSafe<Room>,
}

impl Fallback {
    /// Room for a copy of so many bytes, if it is long.
    fn room_for(&self, bytes: usize) -> Result<Option<Box<dyn Any>>> {
        match bytes > UNCOUNTED_BYTES_MAX {
            true => {
                (self.room)(bytes).map(Some).map_err(|why| Error::ModuleError(format!("{why:#}")))
            }
            false => Ok(None),
        }
    }

    fn ask(&self, document: ValueRef<'_>, path: ValueRef<'_>) -> Result<Extracted> {
        let database = match self.database.get() {
            Some(database) => database,
            None => {
                let opened = Connection::open_in_memory()?;
                self.database.get_or_init(|| opened)
            }
        };
        let mut statement = database.prepare(self.statement)?;
        let arguments = [document, path].map(ToSqlOutput::Borrowed);
        statement.query_row(arguments, |row| {
            let is_json = row.get::<_, Option<bool>>(1)?.unwrap_or(false);
            let bytes = row.get_ref(0)?.as_bytes().map_or(0, <[u8]>::len);
            let room = self.room_for(bytes)?;
            Ok(Extracted { value: row.get(0)?, _room: room, is_json })
        })
    }
}

#[cfg(test)]
mod tests;
