//! Any [`TableSource`] as a virtual table of SQLite.
//!
//! Owns the module that SQLite calls: connecting a name to its source, choosing a plan, and the
//! cursor. Rows can only be read. A plan is remembered by its number, because SQLite hands back no
//! more than that and a text to show; equal plans share a number, so their list does not grow with
//! the statements of a session.
//!
//! Why there is `unsafe` here: the traits of `rusqlite` are unsafe to implement, and ask for one
//! thing. Invariant 1: [`SourceTable`] and [`SourceCursor`] are `repr(C)` and begin with SQLite's
//! own struct. Nothing here reads or writes a pointer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor, VTabKind,
    escape_double_quote, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error};

use crate::plan::Plan;
use crate::row_numbers::RowNumbers;
use crate::source::{Argument, Condition, Operator, RowStream, ScanRequest, TableSource};

/// Bytes of the values of a condition, from which on its source is not told of it. They are copied
/// out of SQLite's memory, which is bounded. It is some 30,000 keys; a longer list excludes little
/// of what a scan reads anyway.
const ARGUMENT_BYTES_MAX: usize = 2 << 20;

/// Name of the module in `CREATE VIRTUAL TABLE`.
const MODULE: &CStr = c"oribi";

/// The tables that were declared, by their names.
pub type Declared = Arc<Mutex<BTreeMap<String, Arc<dyn TableSource>>>>;

/// What a table needs to know of its session.
pub struct SessionTables {
    declared: Declared,
    row_numbers: RowNumbers,
}

/// Makes the module known to the connection. Statements may be shown to the row numbers before they
/// run.
///
/// # Errors
/// When SQLite refuses it.
pub fn register(connection: &Connection, row_numbers: RowNumbers) -> anyhow::Result<Declared> {
    let declared = Declared::default();
    let tables = SessionTables { declared: Arc::clone(&declared), row_numbers };
    connection.create_module(
        MODULE,
        const { &Module::<SourceTable>::read_only_module() },
        Some(tables),
    )?;
    Ok(declared)
}

/// Makes a table known to the connection.
///
/// # Errors
/// When SQLite refuses its name, with the name.
pub fn declare(
    connection: &Connection,
    declared: &Declared,
    name: &str,
    source: Arc<dyn TableSource>,
) -> anyhow::Result<()> {
    declared.lock().insert(name.to_owned(), source);
    let quoted = escape_double_quote(name);
    connection
        .execute_batch(&format!("CREATE VIRTUAL TABLE \"{quoted}\" USING oribi"))
        .map_err(|error| anyhow::anyhow!("the table {name:?} cannot be shown: {error}"))
}

/// A virtual table.
#[repr(C)]
pub struct SourceTable {
    /// SQLite's part; first by invariant 1.
    base: sqlite3_vtab,
    source: Arc<dyn TableSource>,
    plans: Arc<Mutex<Vec<Plan>>>,
    row_numbers: RowNumbers,
}

// SAFETY: invariant 1.
unsafe impl<'vtab> VTab<'vtab> for SourceTable {
    type Aux = SessionTables;
    type Cursor = SourceCursor;

    fn connect(
        _: &mut VTabConnection,
        tables: Option<&SessionTables>,
        _module: &[u8],
        _database: &[u8],
        table: &[u8],
        _arguments: &[&[u8]],
    ) -> rusqlite::Result<(Cow<'static, CStr>, SourceTable)> {
        let name = String::from_utf8_lossy(table);
        let known = tables.and_then(|tables| {
            let source = tables.declared.lock().get(name.as_ref()).cloned();
            Some((tables, source?))
        });
        let (tables, source) = known.ok_or_else(|| failure(format!("no table {name:?}")))?;
        let declaration = declaration(source.as_ref())?;
        let table = SourceTable {
            base: sqlite3_vtab::default(),
            source,
            plans: Arc::default(),
            row_numbers: tables.row_numbers.clone(),
        };
        Ok((Cow::Owned(declaration), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> rusqlite::Result<bool> {
        let plan = Plan::choose(self.source.as_ref(), info)?;
        let mut plans = self.plans.lock();
        let number = plans.iter().position(|known| *known == plan).unwrap_or_else(|| {
            plans.push(plan);
            plans.len() - 1
        });
        let number = c_int::try_from(number).map_err(|_| failure("too many plans"))?;
        info.set_idx_num(number);
        Ok(true)
    }

    fn open(&'vtab mut self) -> rusqlite::Result<SourceCursor> {
        Ok(SourceCursor {
            base: sqlite3_vtab_cursor::default(),
            source: self.source.clone(),
            plans: self.plans.clone(),
            row_numbers: self.row_numbers.clone(),
            rows: None,
            has_identity: false,
        })
    }
}

impl CreateVTab<'_> for SourceTable {
    const KIND: VTabKind = VTabKind::Default;
}

/// A scan of a virtual table.
#[repr(C)]
pub struct SourceCursor {
    /// SQLite's part; first by invariant 1.
    base: sqlite3_vtab_cursor,
    source: Arc<dyn TableSource>,
    plans: Arc<Mutex<Vec<Plan>>>,
    row_numbers: RowNumbers,
    /// The rows; `None` before the first and behind the last.
    rows: Option<Box<dyn RowStream>>,
    /// Whether the key is among what the scan reads.
    has_identity: bool,
}

impl SourceCursor {
    fn advance(&mut self) -> rusqlite::Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        match rows.advance() {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.rows = None;
                Ok(())
            }
            Err(error) => {
                self.rows = None;
                Err(failure(format!("{error:#}")))
            }
        }
    }
}

// SAFETY: invariant 1.
unsafe impl VTabCursor for SourceCursor {
    fn filter(
        &mut self,
        number: c_int,
        _: Option<&str>,
        arguments: &Filters<'_>,
    ) -> rusqlite::Result<()> {
        let plan = usize::try_from(number).ok().and_then(|at| self.plans.lock().get(at).cloned());
        let plan = plan.ok_or_else(|| failure("SQLite asks for a plan that was never made"))?;
        let mut request = ScanRequest { columns: plan.columns, conditions: Vec::new() };
        for (at, (column, operator)) in plan.conditions.into_iter().enumerate() {
            // SQLite checks each condition itself, too.
            if let Some(values) = values_of(operator, arguments, at)? {
                request.conditions.push(Condition { column, operator, values });
            }
        }
        self.has_identity = self.row_numbers.are_needed();
        if self.has_identity {
            request.columns.extend(self.source.identity());
            request.columns.sort_unstable();
            request.columns.dedup();
        }
        self.rows = None;
        if is_impossible(&request) {
            return Ok(());
        }
        let rows = self.source.scan(&request).map_err(|error| failure(format!("{error:#}")))?;
        self.rows = Some(rows);
        self.advance()
    }

    fn next(&mut self) -> rusqlite::Result<()> {
        self.advance()
    }

    fn eof(&self) -> bool {
        self.rows.is_none()
    }

    fn column(&self, context: &mut Context, column: c_int) -> rusqlite::Result<()> {
        let cell = match (&self.rows, usize::try_from(column)) {
            (Some(rows), Ok(column)) => {
                rows.cell(column).map_err(|error| failure(format!("{error:#}")))?
            }
            _ => ValueRef::Null,
        };
        context.set_result(ToSqlOutput::Borrowed(cell))
    }

    fn rowid(&self) -> rusqlite::Result<i64> {
        let Some(rows) = self.rows.as_ref().filter(|_| self.has_identity) else {
            return Err(failure("SQLite asks for the number of a row whose key was not read"));
        };
        let number = self.row_numbers.number(rows.as_ref(), self.source.identity());
        number.map_err(|error| failure(format!("{error:#}")))
    }
}

/// The arguments of a condition; `None` when they are more than are worth copying.
fn values_of(
    operator: Operator,
    arguments: &Filters<'_>,
    at: usize,
) -> rusqlite::Result<Option<Vec<Argument>>> {
    let (mut values, mut bytes) = (Vec::new(), 0);
    let mut take = |value: ValueRef<'_>| -> rusqlite::Result<bool> {
        bytes += size_of::<Argument>() + value.as_bytes().map_or(0, <[u8]>::len);
        if bytes > ARGUMENT_BYTES_MAX {
            return Ok(false);
        }
        let value = Argument::column_result(value);
        values.push(value.map_err(|error| failure(error.to_string()))?);
        Ok(true)
    };
    match operator {
        Operator::IsNull | Operator::IsNotNull => {}
        Operator::In => {
            let mut all = arguments.in_values(at)?;
            while let Some(value) = all.next()? {
                if !take(value)? {
                    return Ok(None);
                }
            }
        }
        _ => {
            if !take(arguments.iter().nth(at).unwrap_or(ValueRef::Null))? {
                return Ok(None);
            }
        }
    }
    Ok(Some(values))
}

/// True when a value is compared with NULL, which nothing fulfils, or with an empty list.
fn is_impossible(request: &ScanRequest) -> bool {
    request.conditions.iter().any(|condition| match condition.operator {
        Operator::IsNull | Operator::IsNotNull => false,
        _ => condition.values.iter().all(|value| *value == Argument::Null),
    })
}

/// The table as `CREATE TABLE` says it. The name in it has no meaning.
fn declaration(source: &dyn TableSource) -> rusqlite::Result<CString> {
    let columns = source
        .columns()
        .iter()
        .map(|column| format!("\"{}\" {}", escape_double_quote(&column.name), column.declared));
    let text = format!("CREATE TABLE x({})", columns.collect::<Vec<_>>().join(", "));
    CString::new(text).map_err(|_| failure("a column's name has a zero byte"))
}

fn failure(text: impl Into<String>) -> Error {
    Error::ModuleError(text.into())
}

#[cfg(test)]
mod tests;
