//! Errors of a statement: the reference's numeric code, a text of our own, and where it applies.
//!
//! Clients act on the code, so each constructor names one meaning. The HTTP status follows from
//! the code and from whether execution had begun.

use std::fmt;

/// The result of an operation that may fail the statement.
pub type Result<T> = std::result::Result<T, Box<QueryError>>;

/// One error or warning of a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryError {
    /// The reference's number, for example 3000 for a syntax error.
    pub code: u32,
    /// What failed, on what and why.
    pub msg: String,
    /// Line and column in the statement, both from 1.
    pub position: Option<(u32, u32)>,
    /// The reference's inner code, for example 17012 for a key that exists.
    pub reason_code: Option<u32>,
    /// The client may send the same statement again: nothing was changed.
    pub retry: bool,
}

impl QueryError {
    pub(crate) fn new(code: u32, msg: impl Into<String>) -> Box<QueryError> {
        Box::new(QueryError {
            code,
            msg: msg.into(),
            position: None,
            reason_code: None,
            retry: false,
        })
    }

    pub(crate) fn syntax(msg: impl Into<String>, position: (u32, u32)) -> Box<QueryError> {
        let mut error = QueryError::new(3000, msg);
        error.position = Some(position);
        error
    }

    /// A construct that the engine knows and does not run.
    pub(crate) fn unsupported(construct: &str) -> Box<QueryError> {
        QueryError::new(3000, format!("{construct} is not supported"))
    }

    pub(crate) fn evaluation(msg: impl Into<String>) -> Box<QueryError> {
        QueryError::new(5010, msg)
    }

    pub(crate) fn timeout() -> Box<QueryError> {
        QueryError::new(1080, "Timeout exceeded")
    }

    pub(crate) fn out_of_memory() -> Box<QueryError> {
        let mut error = QueryError::new(5500, "The statement needs more memory than it may have");
        error.retry = true;
        error
    }

    /// The keyspace of a path does not exist.
    pub fn keyspace_missing(path: &str) -> Box<QueryError> {
        QueryError::new(12003, format!("Keyspace not found in datastore: {path}"))
    }

    /// A failure of the document store.
    pub fn datastore(code: u32, msg: impl Into<String>) -> Box<QueryError> {
        QueryError::new(code, msg)
    }

    /// A change of one document that the store refused, with the reference's inner code.
    pub fn mutation(reason_code: u32, msg: impl Into<String>) -> Box<QueryError> {
        let mut error = QueryError::new(12009, msg);
        error.reason_code = Some(reason_code);
        error
    }

    /// The HTTP status of an answer whose first error is this one, if execution had not begun.
    pub fn http_status(&self) -> u16 {
        match self.code {
            1000 => 403,
            1030..=1070 | 1020 | 3000 => 400,
            13014 | 2120 | 10000 => 401,
            4000 | 4040 => 404,
            4300 => 409,
            12003 | 12020 => 424,
            1201 => 429,
            1180..=1182 => 503,
            _ => 500,
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.msg, self.code)
    }
}

impl std::error::Error for QueryError {}
