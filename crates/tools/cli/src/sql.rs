//! `oribi sql`: queries documents with SQLite.
//!
//! The documents are those of a running server, of a stopped server's data directory, or of buckets
//! on Kudu. Buckets and collections are virtual tables; `--table` names other Kudu tables. SQLite
//! runs the SQL (JSON functions, joins, aggregates, sorting with temporary files). Where the rows
//! come from, conditions on keys are checked and only what a statement uses is sent. Rows stream:
//! each scan holds a few pages, plus what SQLite itself needs to sort or group. Statements cannot
//! write.
//!
//! [`session`] runs statements, [`prompt`] reads them, [`output`] prints rows, `parquet` writes
//! files. SQLite's side is [`oribi_sql`]; [`backend`] is the seam besides its own. [`server`],
//! [`server_tables`] and [`server_documents`] read from a server, [`data_dir`] from a directory.
//! [`bucket_table`] with [`layout`], [`collections`], [`document`], [`long_document`], and
//! [`plain_table`] with [`predicates`] and [`cluster`] are Kudu's side.

mod backend;
mod bucket_table;
mod cluster;
mod collections;
mod data_dir;
mod document;
mod layout;
mod long_document;
mod output;
mod parquet;
mod plain_table;
mod predicates;
mod prompt;
mod server;
mod server_documents;
mod server_tables;
mod session;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use oribi_sql::catalog::Catalog;
use oribi_sql::source::TableSource;

use self::backend::Backend;
use self::bucket_table::BucketTable;
use self::cluster::SqlCluster;
use self::data_dir::DataDirectory;
use self::output::Format;
use self::plain_table::PlainTable;
use self::server::ServerLink;
use self::server_tables::ServerTables;
use self::session::SqlSession;
use crate::target::{INTERRUPTED, Target};

/// Query documents by SQL: of a running server, of a stopped one's data directory, or on Kudu.
///
/// Each bucket is a table with the columns vbucket, collection, id, cas, seqno, rev, flags, expiry,
/// datatype, body_bytes, xattrs, json and body; "BUCKET.SCOPE.COLLECTION" is a table, too.
/// Statements are SQLite's, for reading.
#[derive(Args, Debug)]
pub struct SqlArgs {
    #[command(flatten)]
    target: Target,
    /// Data directory of a server that does not run, to read instead of a running server.
    #[arg(long, value_name = "DIR", conflicts_with = "kudu")]
    data_dir: Option<PathBuf>,
    /// Masters of a Kudu cluster to read instead of a server, each HOST or HOST:PORT, separated by
    /// commas.
    #[arg(long, value_name = "MASTERS")]
    kudu: Option<String>,
    /// Database of the buckets' tables in Kudu.
    #[arg(long, default_value = "oribi", requires = "kudu")]
    database: String,
    /// Another table of the Kudu cluster to query, by its name there; may be repeated.
    #[arg(long, value_name = "NAME", requires = "kudu")]
    table: Vec<String>,
    /// How rows are printed.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The same as --format json: each row as an object.
    #[arg(long, conflicts_with_all = ["csv", "format"])]
    json: bool,
    /// The same as --format csv: rows with a header.
    #[arg(long, conflicts_with = "format")]
    csv: bool,
    /// Print the cost of each statement to standard error.
    #[arg(long)]
    stats: bool,
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
        _ => args.format,
    };
    let (backend, catalog) = open(&args)?;
    let mut session = SqlSession::open(Arc::clone(&backend), catalog, format, args.stats)?;
    end_on_ctrl_c(&backend, &session);
    let outcome = match args.statements {
        Some(statements) => session.run(&statements),
        None if io::stdin().is_terminal() => prompt::run(&mut session),
        None => read_statements().and_then(|statements| session.run(&statements)),
    };
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) if backend.is_interrupted() => Ok(ExitCode::from(INTERRUPTED)),
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// Where the documents are, and the tables.
fn open(args: &SqlArgs) -> Result<(Arc<dyn Backend>, Arc<dyn Catalog>)> {
    if let Some(masters) = &args.kudu {
        let timeout = Duration::from_secs_f64(args.target.timeout);
        let cluster = SqlCluster::connect(masters, timeout)?;
        let tables = tables(&cluster, args)?;
        return Ok((cluster, Arc::new(tables)));
    }
    if let Some(directory) = &args.data_dir {
        let directory = DataDirectory::open(directory, &args.target.bucket)?;
        return Ok((directory.clone(), directory));
    }
    let link = ServerLink::connect(&args.target)?;
    Ok((link.clone(), Arc::new(ServerTables(link))))
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

/// The tables of a Kudu cluster: those of the database, and those that were named.
fn tables(cluster: &Arc<SqlCluster>, args: &SqlArgs) -> Result<Tables> {
    let client = cluster.client();
    let prefix = format!("{}.", args.database);
    let mut tables = Tables::new();
    for summary in cluster.wait(client.list_tables(&prefix))?? {
        let Some(name) = summary.name.strip_prefix(&prefix) else { continue };
        let rows = summary.live_row_count.unwrap_or(0);
        let table = cluster.wait(client.open_table(&summary.name))??;
        if bucket_table::is_bucket(table.schema()) {
            let source = BucketTable::new(cluster.clone(), table, rows);
            tables.insert(name.to_owned(), Arc::new(source));
        }
    }
    for name in &args.table {
        let table = cluster.wait(client.open_table(name))??;
        let rows = cluster.wait(client.table_statistics(name))??.live_row_count.unwrap_or(0);
        let source = PlainTable::new(cluster.clone(), table, rows);
        tables.insert(name.clone(), Arc::new(source));
    }
    Ok(tables)
}

/// Ctrl-C ends the running statement; without one, it ends the program.
fn end_on_ctrl_c(backend: &Arc<dyn Backend>, session: &SqlSession) {
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
