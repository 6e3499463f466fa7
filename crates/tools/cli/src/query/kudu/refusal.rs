//! Failures of Kudu as those of a statement.

use oribi_query::QueryError;

/// A failure of the store, and a change of what is only read.
const STORE_FAILED: u32 = 12008;
const READ_ONLY: u32 = 1000;

/// An error of Kudu as the statement's.
pub fn failed(error: anyhow::Error) -> Box<QueryError> {
    QueryError::datastore(STORE_FAILED, format!("{error:#}"))
}

/// The answer to every change.
pub fn read_only() -> Box<QueryError> {
    QueryError::datastore(READ_ONLY, "Kudu's tables are only read")
}
