//! `oribi query`: runs statements of SQL++.
//!
//! The documents are those of a running server, of a stopped server's data directory, or of a Kudu
//! cluster. A server runs statements itself; otherwise this program does, and only reads: the
//! engine is [`oribi_query`] in both. Rows stream.
//!
//! [`session`] runs statements, [`prompt`] reads them, [`output`] prints rows, [`explain`] plans,
//! `parquet` writes files. [`source`] is the seam to where documents are: [`server`] with
//! [`response`], and over [`local`] [`data_dir`] and [`kudu`].

mod columns;
mod data_dir;
mod explain;
mod kudu;
mod local;
mod names;
mod output;
mod parquet;
mod prompt;
mod response;
mod row;
mod server;
mod session;
mod source;

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Map, Value};

use self::data_dir::DataDirectory;
use self::kudu::KuduSource;
use self::output::Format;
use self::server::ServerSource;
use self::session::QuerySession;
use self::source::QuerySource;
use crate::admin::AdminArgs;
use crate::target::{INTERRUPTED, Target, parse_timeout};

/// Run SQL++ statements on a running server, on a stopped one's data directory, or on Kudu.
///
/// A bucket's name is its default collection; BUCKET.SCOPE.COLLECTION is any other one. Names with
/// other characters than letters, digits and _ are written in backticks. A data directory and Kudu
/// are only read.
#[derive(Args, Debug)]
pub struct QueryArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    admin: AdminArgs,
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
    /// Scope of keyspaces that are named by their collection alone.
    #[arg(long, value_name = "BUCKET.SCOPE")]
    context: Option<String>,
    /// Value of the parameter $NAME, or without NAME of the next ?; JSON, else a text; may be
    /// repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Refuse statements that change something.
    #[arg(long)]
    read_only: bool,
    /// Let index scans see every write that was acknowledged before the statement.
    #[arg(long)]
    request_plus: bool,
    /// Longest time of a statement on a server, such as 5s [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    time_limit: Option<Duration>,
    /// How rows are printed.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The same as --format json: each row on a line.
    #[arg(long, conflicts_with_all = ["csv", "format"])]
    json: bool,
    /// The same as --format csv: rows with a header.
    #[arg(long, conflicts_with = "format")]
    csv: bool,
    /// Print rows, time and cost of each statement to standard error.
    #[arg(long)]
    stats: bool,
    /// File with statements.
    #[arg(long, value_name = "FILE", conflicts_with = "statements")]
    file: Option<PathBuf>,
    /// Statements, separated by semicolons [default: from standard input].
    statements: Option<String>,
}

/// Longest time of a statement, which servers may shorten.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Runs the subcommand to its end.
pub fn run(args: QueryArgs) -> Result<ExitCode> {
    let format = match (args.json, args.csv) {
        (true, _) => Format::Json,
        (_, true) => Format::Csv,
        _ => args.format,
    };
    let options = options(&args)?;
    let statements = match (&args.statements, &args.file) {
        (Some(statements), _) => Some(statements.clone()),
        (None, Some(file)) => {
            let read = fs::read_to_string(file);
            Some(read.with_context(|| format!("reading {}", file.display()))?)
        }
        (None, None) => None,
    };
    let source = open(&args)?;
    let is_prompt = statements.is_none() && io::stdin().is_terminal();
    let mut session =
        QuerySession::new(Arc::clone(&source), options, format, args.stats || is_prompt);
    end_on_ctrl_c(&source, &session);
    let outcome = match statements {
        Some(statements) => session.run(&statements),
        None if is_prompt => prompt::run(&mut session),
        None => read_statements().and_then(|statements| session.run(&statements)),
    };
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) if source.is_interrupted() => Ok(ExitCode::from(INTERRUPTED)),
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// Where the documents are.
fn open(args: &QueryArgs) -> Result<Arc<dyn QuerySource>> {
    if let Some(masters) = &args.kudu {
        let timeout = Duration::from_secs_f64(args.target.timeout);
        return Ok(KuduSource::connect(masters, &args.database, &args.table, timeout)?);
    }
    if let Some(directory) = &args.data_dir {
        return Ok(DataDirectory::open(directory)?);
    }
    Ok(ServerSource::connect(&args.admin, &args.target)?)
}

/// The fields of every request.
fn options(args: &QueryArgs) -> Result<Map<String, Value>> {
    let mut options = Map::new();
    let mut set = |name: &str, value: Value| drop(options.insert(name.to_owned(), value));
    let mut positional = Vec::new();
    for parameter in &args.param {
        match parameter.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, value)) => {
                set(&format!("${}", name.trim_start_matches('$')), parameter_value(value));
            }
            None => positional.push(parameter_value(parameter)),
        }
    }
    if !positional.is_empty() {
        set("args", positional.into());
    }
    if let Some(context) = &args.context {
        let (bucket, scope) = context
            .split_once('.')
            .with_context(|| format!("--context takes BUCKET.SCOPE, not {context:?}"))?;
        set("query_context", format!("default:`{bucket}`.`{scope}`").into());
    }
    if args.read_only {
        set("readonly", true.into());
    }
    if args.request_plus {
        set("scan_consistency", "request_plus".into());
    }
    let limit = args.time_limit.unwrap_or(TIME_LIMIT);
    set("timeout", format!("{}ms", limit.as_millis()).into());
    Ok(options)
}

/// JSON, or a text that need not be quoted.
fn parameter_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn is_name(text: &str) -> bool {
    let name = text.strip_prefix('$').unwrap_or(text);
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
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

/// Ctrl-C ends the running statement; without one, it ends the program.
fn end_on_ctrl_c(source: &Arc<dyn QuerySource>, session: &QuerySession) {
    let is_running = session.is_running();
    let weak = Arc::downgrade(source);
    source.runtime().spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            let Some(source) = weak.upgrade() else { return };
            if !is_running.load(SeqCst) || source.is_interrupted() {
                std::process::exit(INTERRUPTED.into());
            }
            source.interrupt();
        }
    });
}
