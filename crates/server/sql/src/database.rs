//! Runs statements, one after the other.
//!
//! It owns SQLite's connection: a database in memory with only the virtual tables, so anything else
//! that a statement creates is gone with it. A table is declared when a statement first names it.
//! Invariant: the first failed statement ends a run; earlier output stays.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Result, anyhow, bail};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Batch, Connection, Error, ErrorCode, InterruptHandle, Statement};

use crate::catalog::{Catalog, find};
use crate::columns::JSON_TEXT;
use crate::guard::{self, Declaring};
use crate::heap::HeapTrim;
use crate::json_path;
use crate::row_numbers::RowNumbers;
use crate::virtual_table::{Declared, declare, register};

pub use crate::guard::STATEMENT_BYTES_MAX;
pub use crate::json_path::{Room, any_room};

/// Tables that one statement may name.
const TABLES_MAX: usize = 64;

/// What SQLite says of a table that was not declared.
const NO_TABLE: &str = "no such table: ";

/// Steps of SQLite's machine between two looks whether a statement has to end: some hundred
/// microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 1000;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// Its name.
    pub name: String,
    /// The declared type, of a column of a table.
    pub declared: Option<String>,
}

impl ResultColumn {
    /// True for a column whose texts are JSON documents.
    pub fn is_document(&self) -> bool {
        self.declared.as_deref() == Some(JSON_TEXT)
    }
}

/// Takes the rows of statements. An error ends the run.
pub trait RowSink {
    /// A statement begins.
    ///
    /// # Errors
    /// When its rows cannot be taken.
    fn begin(&mut self, columns: Vec<ResultColumn>) -> Result<()>;

    /// A row of it.
    ///
    /// # Errors
    /// The same.
    fn row(&mut self, values: &[ValueRef<'_>]) -> Result<()>;

    /// It has ended: after its last row, or early.
    ///
    /// # Errors
    /// The same.
    fn end(&mut self, is_complete: bool) -> Result<()>;
}

/// Values for the parameters of statements.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Parameters {
    /// None are given.
    #[default]
    None,
    /// For `?`, `?1` and so on.
    Positions(Vec<Value>),
    /// For `:name`, `@name` and `$name`.
    Names(Vec<(String, Value)>),
}

/// See the module text.
pub struct Database {
    connection: Connection,
    catalog: Arc<dyn Catalog>,
    declared: Declared,
    declaring: Declaring,
    row_numbers: RowNumbers,
    /// The last field: dropped once the connection has freed its memory.
    _trim: HeapTrim,
}

impl Database {
    /// A database whose statements may do what SQLite can.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(catalog: Arc<dyn Catalog>) -> Result<Database> {
        Database::over(Connection::open_in_memory()?, catalog, Declaring::default(), &any_room())
    }

    /// A database whose statements can only read its tables. `heap_bytes` bounds all databases of
    /// the process together; `room` is asked before this crate copies a long value beside that.
    ///
    /// # Errors
    /// SQLite's.
    pub fn restricted(catalog: Arc<dyn Catalog>, heap_bytes: u64, room: &Room) -> Result<Database> {
        let mut connection = Connection::open_in_memory()?;
        guard::bound_heap(&connection, heap_bytes)?;
        let declaring = guard::restrict(&mut connection)?;
        Database::over(connection, catalog, declaring, room)
    }

    fn over(
        connection: Connection,
        catalog: Arc<dyn Catalog>,
        declaring: Declaring,
        room: &Room,
    ) -> Result<Database> {
        json_path::register(&connection, room)?;
        let row_numbers = RowNumbers::default();
        let declared = register(&connection, row_numbers.clone())?;
        Ok(Database { connection, catalog, declared, declaring, row_numbers, _trim: HeapTrim })
    }

    /// A handle that ends the running statement from another thread.
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    /// Asks `has_to_end` every now and then while a statement runs. True ends the statement.
    ///
    /// # Errors
    /// SQLite's.
    pub fn end_when(&mut self, has_to_end: impl FnMut() -> bool + Send + 'static) -> Result<()> {
        Ok(self.connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(has_to_end))?)
    }

    /// The names of the tables.
    ///
    /// # Errors
    /// When they cannot be learned.
    pub fn tables(&self) -> Result<Vec<String>> {
        self.catalog.names()
    }

    /// Makes a table known that no statement has named yet.
    ///
    /// # Errors
    /// When there is none.
    pub fn declare(&self, name: &str) -> Result<()> {
        let known = |known: &String| known.eq_ignore_ascii_case(name);
        if self.declared.lock().keys().any(known) {
            return Ok(());
        }
        if self.declared.lock().len() >= TABLES_MAX {
            bail!("statements may name {TABLES_MAX} tables");
        }
        let source = find(self.catalog.as_ref(), name)?;
        self.declaring.store(true, SeqCst);
        let outcome = declare(&self.connection, &self.declared, name, source);
        self.declaring.store(false, SeqCst);
        outcome
    }

    /// Runs all statements of a text.
    ///
    /// # Errors
    /// When one of them is wrong, fails or is interrupted, or the rows cannot be taken.
    pub fn run(
        &self,
        statements: &str,
        parameters: &Parameters,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let mut batch = Batch::new(&self.connection, statements);
        loop {
            let mut statement = match batch.next() {
                Ok(Some(statement)) => statement,
                Ok(None) => return Ok(()),
                Err(error) => {
                    // The batch stays where it is.
                    self.declare_missing(&error)?;
                    continue;
                }
            };
            bind(&mut statement, parameters)?;
            self.row_numbers.look_at(&self.connection, &statement);
            run_one(&mut statement, sink)?;
        }
    }

    /// Declares the table that is missing.
    fn declare_missing(&self, error: &Error) -> Result<()> {
        let (message, _) = parts_of(error);
        let Some(name) = message.strip_prefix(NO_TABLE) else { return Err(explained(error)) };
        // `main` is the name of the database itself.
        let name = name.strip_prefix("main.").unwrap_or(name);
        let is_known = self.declared.lock().keys().any(|known| known.eq_ignore_ascii_case(name));
        match is_known {
            true => Err(explained(error)),
            false => self.declare(name),
        }
    }
}

fn run_one(statement: &mut Statement<'_>, sink: &mut dyn RowSink) -> Result<()> {
    let columns = statement.columns();
    let columns = columns.map(|column| ResultColumn {
        name: column.name().to_owned(),
        declared: column.decl_type().map(str::to_owned),
    });
    let columns = columns.collect::<Vec<_>>();
    let count = columns.len();
    sink.begin(columns)?;
    let mut rows = statement.raw_query();
    let outcome = loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break Ok(()),
            Err(error) => break Err(explained(&error)),
        };
        let values = (0..count).map(|at| row.get_ref(at)).collect::<Result<Vec<_>, _>>()?;
        if let Err(error) = sink.row(&values) {
            break Err(error);
        }
    };
    // Rows before an error are still useful.
    let ended = sink.end(outcome.is_ok());
    outcome.and(ended)
}

fn bind(statement: &mut Statement<'_>, parameters: &Parameters) -> Result<()> {
    for at in 1..=statement.parameter_count() {
        let name = statement.parameter_name(at).map(str::to_owned);
        let value = match (parameters, &name) {
            (Parameters::Positions(values), _) => values.get(at - 1),
            (Parameters::Names(values), Some(name)) => {
                let name = &name[1..];
                values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
            }
            _ => None,
        };
        let name = name.map_or_else(|| Cow::from(format!("?{at}")), Cow::from);
        let value = value.ok_or_else(|| anyhow!("the parameter {name} has no value"))?;
        statement.raw_bind_parameter(at, value)?;
    }
    Ok(())
}

/// The message, and the statement from where the error is.
fn parts_of(error: &Error) -> (String, String) {
    match error {
        Error::SqlInputError { msg, sql, offset, .. } => {
            let rest = usize::try_from(*offset).ok().and_then(|offset| sql.get(offset..));
            (msg.clone(), rest.and_then(|rest| rest.lines().next()).unwrap_or_default().to_owned())
        }
        Error::SqliteFailure(_, Some(message)) => (message.clone(), String::new()),
        error => (error.to_string(), String::new()),
    }
}

/// An error in words that help.
fn explained(error: &Error) -> anyhow::Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::OutOfMemory) => {
            return anyhow!(
                "the statement needs more memory than statements may have; \
                 sort or group fewer rows, or fewer columns"
            );
        }
        Some(ErrorCode::AuthorizationForStatementDenied) => {
            return anyhow!("statements may only read: SELECT, VALUES, WITH and EXPLAIN");
        }
        Some(ErrorCode::OperationInterrupted) => return anyhow!("interrupted"),
        _ => {}
    }
    let (message, rest) = parts_of(error);
    // The bucket that is there from the start has a keyword as its name.
    let rest_lower = rest.to_ascii_lowercase();
    match rest.is_empty() {
        true => anyhow!(message),
        false if message.contains("syntax error") && rest_lower.starts_with("default") => {
            anyhow!(
                "{message}: default is a word of SQL, so the bucket's name is written in double quotes, \"default\""
            )
        }
        false => anyhow!("{message}, at {rest:?}"),
    }
}

#[cfg(test)]
mod tests;
