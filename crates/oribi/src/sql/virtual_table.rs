//! Any [`TableSource`] as a virtual table of SQLite.
//!
//! Owns the module that SQLite calls: connecting a name to its source, choosing a plan, and the cursor. Rows can
//! only be read. A plan is remembered by its number, because SQLite hands back no more than that and a text to
//! show; equal plans share a number, so their list does not grow with the statements of a session.
//!
//! Why there is `unsafe` here: the traits of `rusqlite` are unsafe to implement, and ask for one thing.
//! Invariant 1: [`SourceTable`] and [`SourceCursor`] are `repr(C)` and begin with SQLite's own struct.
//! Nothing here reads or writes a pointer.

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

use super::plan::Plan;
use super::source::{Argument, Condition, Operator, RowStream, ScanRequest, TableSource};

/// Name of the module in `CREATE VIRTUAL TABLE`.
const MODULE: &CStr = c"kudu";

/// The tables of a session by the names that SQL has for them.
pub type Catalog = BTreeMap<String, Arc<dyn TableSource>>;

/// Makes every table of the catalog known to the connection.
///
/// # Errors
/// When SQLite refuses a name, with the name.
pub fn register(connection: &Connection, catalog: Catalog) -> anyhow::Result<()> {
    let names = catalog.keys().cloned().collect::<Vec<_>>();
    connection.create_module(
        MODULE,
        const { &Module::<SourceTable>::read_only_module() },
        Some(catalog),
    )?;
    for name in names {
        let quoted = escape_double_quote(&name);
        connection
            .execute_batch(&format!("CREATE VIRTUAL TABLE \"{quoted}\" USING kudu"))
            .map_err(|error| anyhow::anyhow!("the table {name:?} cannot be shown: {error}"))?;
    }
    Ok(())
}

/// A virtual table.
#[repr(C)]
pub struct SourceTable {
    /// SQLite's part; first by invariant 1.
    base: sqlite3_vtab,
    source: Arc<dyn TableSource>,
    plans: Arc<Mutex<Vec<Plan>>>,
}

// SAFETY: invariant 1.
unsafe impl<'vtab> VTab<'vtab> for SourceTable {
    type Aux = Catalog;
    type Cursor = SourceCursor;

    fn connect(
        _: &mut VTabConnection,
        catalog: Option<&Catalog>,
        _module: &[u8],
        _database: &[u8],
        table: &[u8],
        _arguments: &[&[u8]],
    ) -> rusqlite::Result<(Cow<'static, CStr>, SourceTable)> {
        let name = String::from_utf8_lossy(table);
        let source = catalog.and_then(|catalog| catalog.get(name.as_ref()));
        let source = source.ok_or_else(|| failure(format!("Kudu has no table {name:?}")))?;
        let table = SourceTable {
            base: sqlite3_vtab::default(),
            source: source.clone(),
            plans: Arc::default(),
        };
        Ok((Cow::Owned(declaration(source.as_ref())?), table))
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
            rows: None,
            row_number: 0,
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
    /// The rows; `None` before the first and behind the last.
    rows: Option<Box<dyn RowStream>>,
    row_number: i64,
}

impl SourceCursor {
    fn advance(&mut self) -> rusqlite::Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        self.row_number += 1;
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
            let values = values_of(operator, arguments, at)?;
            request.conditions.push(Condition { column, operator, values });
        }
        self.row_number = 0;
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
        Ok(self.row_number)
    }
}

/// The arguments of a condition.
fn values_of(
    operator: Operator,
    arguments: &Filters<'_>,
    at: usize,
) -> rusqlite::Result<Vec<Argument>> {
    match operator {
        Operator::IsNull | Operator::IsNotNull => Ok(Vec::new()),
        Operator::In => arguments
            .in_values(at)?
            .map(|value| Argument::column_result(value).map_err(|error| failure(error.to_string())))
            .collect(),
        _ => Ok(vec![arguments.get::<Argument>(at)?]),
    }
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
