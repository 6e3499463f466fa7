//! Runs statements, one after the other.
//!
//! It owns SQLite's connection: a database in memory with only the virtual tables, so anything else
//! that a statement creates is gone with the session. Invariant: the first failed statement ends a
//! run; earlier output stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::{Result, anyhow};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, Error, InterruptHandle, Statement};

use super::cluster::Cluster;
use super::output::{Format, RowWriter};
use super::row_numbers::RowNumbers;
use super::virtual_table::{Catalog, register};

/// Whether a statement runs, for the Ctrl-C handler.
pub type Running = Arc<AtomicBool>;

/// See the module text.
pub struct Session {
    connection: Connection,
    cluster: Arc<Cluster>,
    names: Vec<String>,
    row_numbers: RowNumbers,
    /// How rows are printed from the next statement on.
    pub format: Format,
    with_cost: bool,
    is_running: Running,
}

impl Session {
    /// Makes the tables known.
    ///
    /// # Errors
    /// When SQLite refuses one of them.
    pub fn open(
        cluster: Arc<Cluster>,
        catalog: Catalog,
        format: Format,
        with_cost: bool,
    ) -> Result<Session> {
        let connection = Connection::open_in_memory()?;
        let names = catalog.keys().cloned().collect();
        let row_numbers = register(&connection, catalog)?;
        let is_running = Arc::new(AtomicBool::new(false));
        Ok(Session { connection, cluster, names, row_numbers, format, with_cost, is_running })
    }

    /// A handle that ends the running statement from another thread.
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    /// Whether a statement runs.
    pub fn is_running(&self) -> Running {
        self.is_running.clone()
    }

    /// The names of the tables.
    pub fn tables(&self) -> &[String] {
        &self.names
    }

    /// Runs all statements of a text and prints their rows.
    ///
    /// # Errors
    /// When one of them is wrong, fails or is interrupted, or the output cannot be written.
    pub fn run(&mut self, statements: &str) -> Result<()> {
        self.cluster.begin_statement();
        self.is_running.store(true, SeqCst);
        let outcome = self.run_all(statements);
        self.is_running.store(false, SeqCst);
        outcome
    }

    fn run_all(&mut self, statements: &str) -> Result<()> {
        let mut batch = Batch::new(&self.connection, statements);
        while let Some(mut statement) = batch.next().map_err(|error| self.explained(error))? {
            self.row_numbers.look_at(&self.connection, &statement);
            self.print(&mut statement)?;
            if self.with_cost {
                let cost = self.cluster.cost();
                eprintln!(
                    "{} requests, {} scanners, {} rows, {} bytes",
                    cost.requests, cost.tablets, cost.rows, cost.bytes
                );
            }
        }
        Ok(())
    }

    fn print(&self, statement: &mut Statement<'_>) -> Result<()> {
        let columns = statement.columns();
        let columns = columns
            .map(|column| (column.name().to_owned(), column.decl_type().map(str::to_owned)))
            .collect::<Vec<_>>();
        let count = columns.len();
        let mut writer = RowWriter::stdout(self.format, columns)?;
        let mut rows = statement.raw_query();
        let outcome = loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break Ok(()),
                Err(error) => break Err(self.explained(error)),
            };
            let values = (0..count).map(|at| row.get_ref(at)).collect::<Result<Vec<_>, _>>()?;
            writer.row(&values)?;
        };
        // Rows before an error are still useful.
        writer.finish()?;
        outcome
    }

    /// An error in words that help.
    fn explained(&self, error: Error) -> anyhow::Error {
        if self.cluster.is_interrupted() {
            return anyhow!("interrupted");
        }
        let (message, rest) = match error {
            Error::SqlInputError { msg, sql, offset, .. } => {
                let rest = usize::try_from(offset).ok().and_then(|offset| sql.get(offset..));
                (msg, rest.and_then(|rest| rest.lines().next()).unwrap_or_default().to_owned())
            }
            error => (error.to_string(), String::new()),
        };
        if message.starts_with("no such table") {
            return match self.names.is_empty() {
                true => anyhow!("{message}; there are no tables"),
                false => anyhow!("{message}; there are {}", self.names.join(", ")),
            };
        }
        match rest.is_empty() {
            true => anyhow!(message),
            false => anyhow!("{message}, at {rest:?}"),
        }
    }
}
