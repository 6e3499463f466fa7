//! Runs statements of a user and prints their rows.
//!
//! It owns the state that Ctrl-C looks at. Invariant: the first failed statement ends a run;
//! earlier output stays.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use indicatif::{HumanCount, ProgressBar};
use oribi_query::statement_text::{self, TextClass};
use serde_json::{Map, Value};

use super::output::{Format, ResultWriter};
use super::parquet::ParquetFile;
use super::source::{
    QuerySource, ResultSink, ServiceError, StatementFailure, Summary, keyspace_paths,
};
use super::{explain, names};
use crate::print;

/// Whether a statement runs, for the Ctrl-C handler.
pub type StatementFlag = Arc<AtomicBool>;

/// Interval between two updates of the count of rows.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// See the module text.
pub struct QuerySession {
    source: Arc<dyn QuerySource>,
    /// Fields of every request.
    options: Map<String, Value>,
    /// How rows are printed from the next statement on.
    pub format: Format,
    with_cost: bool,
    is_running: StatementFlag,
}

impl QuerySession {
    /// A session whose requests have these fields.
    pub fn new(
        source: Arc<dyn QuerySource>,
        options: Map<String, Value>,
        format: Format,
        with_cost: bool,
    ) -> QuerySession {
        QuerySession { source, options, format, with_cost, is_running: StatementFlag::default() }
    }

    /// Whether a statement runs.
    pub fn is_running(&self) -> StatementFlag {
        self.is_running.clone()
    }

    pub fn source(&self) -> &Arc<dyn QuerySource> {
        &self.source
    }

    /// Runs all statements of a text and prints their rows.
    ///
    /// # Errors
    /// When one of them is wrong, fails or is interrupted, or the output cannot be written.
    pub fn run(&mut self, text: &str) -> Result<()> {
        self.source.begin_statement();
        self.is_running.store(true, SeqCst);
        let outcome = self.run_all(text);
        self.is_running.store(false, SeqCst);
        match self.source.is_interrupted() && outcome.is_err() {
            true => Err(anyhow!("interrupted")),
            false => outcome,
        }
    }

    fn run_all(&self, text: &str) -> Result<()> {
        let ranges = statement_text::statements(text).map_err(|error| {
            let error =
                ServiceError { code: error.code.into(), text: error.msg, position: error.position };
            explained(StatementFailure { errors: vec![error] }, text)
        })?;
        if self.format == Format::Parquet && ranges.len() > 1 {
            bail!("a Parquet file has the rows of one statement: run the others by themselves");
        }
        let count = ranges.len();
        for (number, range) in (1..).zip(ranges) {
            let statement = &text[range];
            self.run_one(statement).map_err(|error| {
                let error = match error.downcast::<StatementFailure>() {
                    Ok(failure) => self.with_advice(failure, statement),
                    Err(error) => error,
                };
                match count {
                    1 => error,
                    _ => error.context(format!("statement {number} of {count}")),
                }
            })?;
        }
        Ok(())
    }

    fn run_one(&self, statement: &str) -> Result<()> {
        let began = Instant::now();
        let mut request = self.options.clone();
        request.insert("statement".to_owned(), statement.into());
        let mut printer = Printer {
            format: self.format,
            shows_plan: self.format == Format::Table && is_explain(statement),
            rows: None,
            progress: progress(),
            count: 0,
        };
        let outcome = self.source.run(&request, &mut printer);
        printer.progress.finish_and_clear();
        printer.end(outcome.is_ok())?;
        let summary = outcome?;
        if self.with_cost {
            eprintln!("{}", self.cost(summary, began.elapsed()));
        }
        Ok(())
    }

    /// Effects and cost of a statement.
    fn cost(&self, summary: Summary, elapsed: Duration) -> String {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let mut text = format!("{} row{}", HumanCount(summary.rows), plural(summary.rows));
        if summary.changes > 0 {
            let (count, plural) = (HumanCount(summary.changes), plural(summary.changes));
            text += &format!(", {count} document{plural} changed");
        }
        text += &format!(" in {:.1} ms", elapsed.as_secs_f64() * 1e3);
        if let Some(cost) = self.source.cost() {
            text += &format!("; {cost}");
        }
        text
    }

    /// The failure with the name that may have been meant.
    fn with_advice(&self, failure: StatementFailure, statement: &str) -> anyhow::Error {
        let paths = match failure.is_about_names() {
            true => keyspace_paths(&*self.source).ok(),
            false => None,
        };
        let advice = paths.map(|paths| names::advice(&paths, &failure.errors[0].text));
        let error = explained(failure, statement);
        match advice {
            Some(advice) => anyhow!("{error:#}; {advice}"),
            None => error,
        }
    }
}

/// The failure, for people with its place in the statement.
fn explained(failure: StatementFailure, statement: &str) -> anyhow::Error {
    let excerpt = failure.excerpt(statement).filter(|_| io::stderr().is_terminal());
    match excerpt {
        Some(excerpt) => anyhow!("{failure}\n{excerpt}"),
        None => failure.into(),
    }
}

fn is_explain(statement: &str) -> bool {
    let first = statement_text::classify(statement).into_iter().next();
    first.is_some_and(|(range, class)| {
        class == TextClass::Keyword && statement[range].eq_ignore_ascii_case("explain")
    })
}

/// Counts rows where a person waits for a file.
fn progress() -> ProgressBar {
    match io::stderr().is_terminal() && !io::stdout().is_terminal() {
        true => {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(PROGRESS_INTERVAL);
            bar
        }
        false => ProgressBar::hidden(),
    }
}

/// Prints the rows of a statement.
struct Printer {
    format: Format,
    /// The rows are plans.
    shows_plan: bool,
    rows: Option<Rows>,
    progress: ProgressBar,
    count: u64,
}

/// Where the rows of a statement go.
enum Rows {
    Printed(ResultWriter),
    File(ParquetFile),
}

impl ResultSink for Printer {
    fn begin(&mut self, signature: &str) -> Result<()> {
        self.rows = Some(match self.format.lines() {
            None => Rows::File(ParquetFile::stdout(signature)?),
            Some(lines) => Rows::Printed(ResultWriter::stdout(lines, signature)?),
        });
        Ok(())
    }

    fn row(&mut self, json: &[u8]) -> Result<()> {
        self.count += 1;
        if self.count.is_multiple_of(1024) {
            self.progress.set_message(format!("{} rows", HumanCount(self.count)));
        }
        if self.shows_plan
            && let Some(lines) = explain::lines(&serde_json::from_slice(json)?)
        {
            return print::bytes(lines.as_bytes());
        }
        match &mut self.rows {
            Some(Rows::Printed(writer)) => writer.row(json),
            Some(Rows::File(file)) => file.row(json),
            None => Ok(()),
        }
    }
}

impl Printer {
    fn end(&mut self, is_complete: bool) -> Result<()> {
        match self.rows.take() {
            Some(Rows::Printed(writer)) => Ok(writer.finish()?),
            Some(Rows::File(file)) if is_complete => file.finish(),
            // Without its end no reader takes the rest for all rows.
            Some(Rows::File(_)) | None => Ok(()),
        }
    }
}
