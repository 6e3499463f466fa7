//! Where statements run: the seam between a session and its documents.

use std::fmt;

use anyhow::Result;
use oribi_query::statement_text;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

/// See the module text.
pub trait QuerySource: Send + Sync {
    /// The runtime, for tasks concurrent with the statement.
    fn runtime(&self) -> &Runtime;

    /// Runs one statement. Rows go to the sink as they come.
    ///
    /// # Errors
    /// When the statement fails ([`StatementFailure`]), or its answer cannot be read or printed.
    fn run(&self, request: &Map<String, Value>, sink: &mut dyn ResultSink) -> Result<Summary>;

    /// Ends any wait of a statement, until [`QuerySource::begin_statement`].
    fn interrupt(&self);

    /// Whether the statement was interrupted.
    fn is_interrupted(&self) -> bool;

    /// Forgets an interruption and the cost of the statements before.
    fn begin_statement(&self);

    /// The documents that the statement has read so far, where this side counts them.
    fn cost(&self) -> Option<String>;
}

/// Takes the rows of a statement.
pub trait ResultSink {
    /// Begins a result. The signature is JSON, or empty.
    fn begin(&mut self, signature: &str) -> Result<()>;

    /// Takes one row, which is JSON.
    fn row(&mut self, json: &[u8]) -> Result<()>;
}

/// How a statement ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub rows: u64,
    pub changes: u64,
}

/// Errors of a statement. The first one decides.
#[derive(Clone, Debug)]
pub struct StatementFailure {
    pub errors: Vec<ServiceError>,
}

/// One error, as the service reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceError {
    pub code: u64,
    pub text: String,
    /// Line and column in the statement, both from 1.
    pub position: Option<(u32, u32)>,
}

/// Missing keyspaces, buckets and scopes.
const MISSING_NAMES: [u64; 3] = [12003, 12020, 12021];

impl StatementFailure {
    /// True when a name in the statement is unknown.
    pub fn is_about_names(&self) -> bool {
        self.errors.first().is_some_and(|error| MISSING_NAMES.contains(&error.code))
    }

    /// The line of the statement with the error, and a mark below the column.
    pub fn excerpt(&self, statement: &str) -> Option<String> {
        let (line, column) = self.errors.first()?.position?;
        let line = statement.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
        let column = usize::try_from(column).ok()?.checked_sub(1)?;
        // Columns count bytes.
        let width = line.get(..column.min(line.len()))?.chars().count();
        Some(format!("  {line}\n  {}^", " ".repeat(width)))
    }
}

impl fmt::Display for StatementFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.errors.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{}", error.text)?;
            if let Some((line, column)) = error.position
                && !error.text.contains(&format!("line {line}, column {column}"))
            {
                write!(f, " - line {line}, column {column}")?;
            }
            write!(f, " (error {})", error.code)?;
        }
        Ok(())
    }
}

impl std::error::Error for StatementFailure {}

/// Rows in memory, for this program's own queries.
#[derive(Default)]
pub struct CollectedRows(pub Vec<Value>);

impl ResultSink for CollectedRows {
    fn begin(&mut self, _signature: &str) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, json: &[u8]) -> Result<()> {
        self.0.push(serde_json::from_slice(json)?);
        Ok(())
    }
}

/// The rows of a small statement.
///
/// # Errors
/// Those of the source.
pub fn rows_of(source: &dyn QuerySource, statement: &str) -> Result<Vec<Value>> {
    let mut request = Map::new();
    request.insert("statement".to_owned(), statement.into());
    request.insert("readonly".to_owned(), true.into());
    let mut rows = CollectedRows::default();
    source.run(&request, &mut rows)?;
    Ok(rows.0)
}

/// The paths of all keyspaces, as statements write them.
///
/// # Errors
/// Those of the source.
pub fn keyspace_paths(source: &dyn QuerySource) -> Result<Vec<String>> {
    let statement = "SELECT RAW [IFMISSING(k.`bucket`, k.name), k.`scope`, k.name] \
                     FROM system:keyspaces AS k";
    let rows = rows_of(source, statement)?;
    let mut paths: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let [bucket, scope, name] = row.as_array()?.as_slice() else { return None };
            let parts = match scope.as_str() {
                Some(scope) => vec![bucket.as_str()?, scope, name.as_str()?],
                None => vec![bucket.as_str()?],
            };
            let quoted: Vec<String> = parts.into_iter().map(statement_text::quoted_name).collect();
            Some(quoted.join("."))
        })
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}
