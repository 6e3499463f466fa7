//! `oribi sql`: queries the documents of buckets on Kudu with SQLite.
//!
//! Every bucket table of the cluster's database is a virtual table under its bucket's name;
//! `--table` names other Kudu tables. SQLite runs the SQL (JSON functions, joins, aggregates,
//! sorting with temporary files). Kudu checks the conditions that it can and sends the columns that
//! a statement uses. Rows stream: each scan holds one batch, plus what SQLite itself needs to sort
//! or group. Statements cannot write.
//!
//! [`session`] runs statements, [`prompt`] reads them, [`output`] prints rows. SQLite's side is
//! [`oribi_sql`]; [`backend`] is the seam besides its own.
//! [`bucket_table`] with [`layout`], [`collections`], [`document`], [`long_document`], and
//! [`plain_table`] with [`predicates`] and [`cluster`] are Kudu's side.

mod backend;
mod bucket_table;
mod cluster;
mod collections;
mod document;
mod layout;
mod long_document;
mod output;
mod plain_table;
mod predicates;
mod prompt;
mod session;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use oribi_sql::source::TableSource;

use self::backend::Backend;
use self::bucket_table::BucketTable;
use self::cluster::Cluster;
use self::output::Format;
use self::plain_table::PlainTable;
use self::session::Session;
use crate::target::INTERRUPTED;
use crate::target::parse_timeout;

/// Query the documents of buckets on Kudu by SQL.
///
/// Each bucket is a table with the columns vbucket, collection, id, cas, seqno, rev, flags, expiry, datatype,
/// body_bytes, xattrs, json and body. Statements are SQLite's, for reading.
#[derive(Args, Debug)]
pub struct SqlArgs {
    /// Masters of the Kudu cluster, each HOST or HOST:PORT, separated by commas.
    #[arg(long, value_name = "MASTERS")]
    kudu: String,
    /// Database of the buckets' tables.
    #[arg(long, default_value = "oribi")]
    database: String,
    /// Another table of the cluster to query, by its name in Kudu; may be repeated.
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Print each row as a JSON object.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print rows as CSV with a header.
    #[arg(long)]
    csv: bool,
    /// Print the cost of each statement in Kudu to standard error.
    #[arg(long)]
    stats: bool,
    /// Time limit for connecting and for each batch of rows, such as 60 (seconds) or 5m.
    #[arg(long, default_value = "60", value_parser = parse_timeout)]
    timeout: Duration,
    /// Statements, separated by semicolons [default: from standard input].
    statements: Option<String>,
}

/// The tables of a Kudu cluster.
type Tables = BTreeMap<String, Arc<dyn TableSource>>;

/// Runs the subcommand to its end.
pub fn run(args: SqlArgs) -> Result<ExitCode> {
    let format = match (args.json, args.csv) {
        (true, _) => Format::Json,
        (_, true) => Format::Csv,
        _ => Format::Table,
    };
    let cluster = Cluster::connect(&args.kudu, args.timeout)?;
    let catalog = Arc::new(catalog(&cluster, &args)?);
    let backend: Arc<dyn Backend> = cluster.clone();
    let mut session = Session::open(backend.clone(), catalog, format, args.stats)?;
    end_on_ctrl_c(&backend, &session);
    let outcome = match args.statements {
        Some(statements) => session.run(&statements),
        None if io::stdin().is_terminal() => prompt::run(&mut session),
        None => read_statements().and_then(|statements| session.run(&statements)),
    };
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) if cluster.is_interrupted() => Ok(ExitCode::from(INTERRUPTED)),
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

fn read_statements() -> Result<String> {
    let mut statements = String::new();
    io::stdin().read_to_string(&mut statements).context("reading standard input")?;
    Ok(statements)
}

/// A reader that has gone is a success.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The tables of the session: those of the database, and those that were named.
fn catalog(cluster: &Arc<Cluster>, args: &SqlArgs) -> Result<Tables> {
    let client = cluster.client();
    let prefix = format!("{}.", args.database);
    let mut catalog = Tables::new();
    for summary in cluster.wait(client.list_tables(&prefix))?? {
        let Some(name) = summary.name.strip_prefix(&prefix) else { continue };
        let rows = summary.live_row_count.unwrap_or(0);
        let table = cluster.wait(client.open_table(&summary.name))??;
        if bucket_table::is_bucket(table.schema()) {
            let source = BucketTable::new(cluster.clone(), table, rows);
            catalog.insert(name.to_owned(), Arc::new(source));
        }
    }
    for name in &args.table {
        let table = cluster.wait(client.open_table(name))??;
        let rows = cluster.wait(client.table_statistics(name))??.live_row_count.unwrap_or(0);
        let source = PlainTable::new(cluster.clone(), table, rows);
        catalog.insert(name.clone(), Arc::new(source));
    }
    Ok(catalog)
}

/// Ctrl-C ends the running statement; without one, it ends the program.
fn end_on_ctrl_c(backend: &Arc<dyn Backend>, session: &Session) {
    let (handle, is_running) = (session.interrupt_handle(), session.is_running());
    let weak = Arc::downgrade(backend);
    backend.runtime().spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            let Some(backend) = weak.upgrade() else { return };
            if !is_running.load(SeqCst) || backend.is_interrupted() {
                std::process::exit(INTERRUPTED.into());
            }
            backend.interrupt();
            handle.interrupt();
        }
    });
}
