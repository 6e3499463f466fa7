//! Runs statements of a user and prints their rows.
//!
//! It owns the database of the session, and the state that Ctrl-C looks at. Invariant: the first
//! failed statement ends a run; earlier output stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::{Result, anyhow, bail};
use oribi_sql::catalog::Catalog;
use oribi_sql::database::{Database, Parameters, ResultColumn, RowSink};
use oribi_sql::{InterruptHandle, ValueRef};

use super::backend::Backend;
use super::output::{Format, ResultWriter};
use super::parquet::ParquetFile;

/// Whether a statement runs, for the Ctrl-C handler.
pub type Running = Arc<AtomicBool>;

/// See the module text.
pub struct SqlSession {
    database: Database,
    backend: Arc<dyn Backend>,
    /// How rows are printed from the next statement on.
    pub format: Format,
    with_cost: bool,
    is_running: Running,
}

impl SqlSession {
    /// A session over the tables of the catalog.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(
        backend: Arc<dyn Backend>,
        catalog: Arc<dyn Catalog>,
        format: Format,
        with_cost: bool,
    ) -> Result<SqlSession> {
        let database = Database::open(catalog)?;
        Ok(SqlSession { database, backend, format, with_cost, is_running: Running::default() })
    }

    /// A handle that ends the running statement from another thread.
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.database.interrupt_handle()
    }

    /// Whether a statement runs.
    pub fn is_running(&self) -> Running {
        self.is_running.clone()
    }

    /// The names of the tables.
    ///
    /// # Errors
    /// When they cannot be learned.
    pub fn tables(&self) -> Result<Vec<String>> {
        self.database.tables()
    }

    /// Makes a table known that no statement has named yet.
    ///
    /// # Errors
    /// When there is none.
    pub fn declare(&self, table: &str) -> Result<()> {
        self.database.declare(table)
    }

    /// Runs all statements of a text and prints their rows.
    ///
    /// # Errors
    /// When one of them is wrong, fails or is interrupted, or the output cannot be written.
    pub fn run(&mut self, statements: &str) -> Result<()> {
        self.backend.begin_statement();
        self.is_running.store(true, SeqCst);
        let mut printer = Printer { session: self, rows: None, has_file: false };
        let outcome = self.database.run(statements, &Parameters::None, &mut printer);
        self.is_running.store(false, SeqCst);
        match self.backend.is_interrupted() && outcome.is_err() {
            true => Err(anyhow!("interrupted")),
            false => outcome,
        }
    }
}

/// Prints the rows of statements.
struct Printer<'s> {
    session: &'s SqlSession,
    rows: Option<Rows>,
    /// A file has been written to the output, which ends with it.
    has_file: bool,
}

/// Where the rows of a statement go.
enum Rows {
    Printed(ResultWriter),
    File(ParquetFile),
}

impl Printer<'_> {
    fn begin_file(&mut self, columns: Vec<ResultColumn>) -> Result<Rows> {
        if std::mem::replace(&mut self.has_file, true) {
            bail!("a Parquet file has the rows of one statement: run the others by themselves");
        }
        Ok(Rows::File(ParquetFile::stdout(columns)?))
    }
}

impl RowSink for Printer<'_> {
    fn begin(&mut self, columns: Vec<ResultColumn>) -> Result<()> {
        self.rows = Some(match self.session.format.lines() {
            None => self.begin_file(columns)?,
            Some(lines) => Rows::Printed(ResultWriter::stdout(lines, columns)?),
        });
        Ok(())
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        match &mut self.rows {
            Some(Rows::Printed(writer)) => Ok(writer.row(values)?),
            Some(Rows::File(file)) => file.row(values),
            None => Ok(()),
        }
    }

    fn end(&mut self, is_complete: bool) -> Result<()> {
        match self.rows.take() {
            Some(Rows::Printed(writer)) => writer.finish()?,
            Some(Rows::File(file)) if is_complete => file.finish()?,
            // Without its end no reader takes the rest for all rows.
            Some(Rows::File(_)) | None => {}
        }
        if self.session.with_cost {
            eprintln!("{}", self.session.backend.cost());
        }
        Ok(())
    }
}
