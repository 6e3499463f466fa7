//! The errors of the crate, from a caller's point of view.
//!
//! One enum serves the crate. A variant says which server, table or tablet refused, during which
//! operation, and with which Kudu code. The client keeps a server's text next to the code and never
//! decides by it. Errors are cheap to clone: one lost connection fails every call in flight on it,
//! and one failed batch fails all its rows. A row that a tablet server refused is not an error of
//! this kind. The batch succeeded, and the session reports the row. The client has retried every
//! retryable failure before an error reaches the caller.

mod codes;
mod from_rpc;
mod operation;

use std::io;
use std::sync::Arc;

pub use codes::{MasterErrorCode, RpcErrorCode, StatusCode, TabletServerErrorCode};
pub(crate) use from_rpc::refusal_code;
pub use operation::Operation;

use crate::row_operation::RowError;
use crate::scan_error::ScanError;
use crate::schema::{SchemaError, ValueError};
use crate::types::HostPort;

/// Why an operation of the client failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection could not be opened, or was lost before the answer came.
    #[error("connection to {server}: {source}")]
    Network {
        /// The server at the other end.
        server: HostPort,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The server can be reached, but the two sides cannot agree on how to talk.
    #[error("negotiation with {server}: {reason}")]
    Negotiation {
        /// The server at the other end.
        server: HostPort,
        /// The server's code, if it sent one.
        code: Option<RpcErrorCode>,
        /// The mismatch.
        reason: String,
    },
    /// The RPC layer of the server refused the call before any handler saw it.
    #[error("{server} refused the call ({code:?}): {message}")]
    Rpc {
        /// The server that refused.
        server: HostPort,
        /// Its reason.
        code: RpcErrorCode,
        /// Its message.
        message: String,
        /// Features that the call needs and the server lacks, by Kudu's numbers.
        unsupported_flags: Vec<u32>,
    },
    /// One server did not answer within the time of one attempt.
    #[error("{server} did not answer {method} in time")]
    NoAnswer {
        /// The server that did not answer.
        server: HostPort,
        /// The method that was called.
        method: &'static str,
    },
    /// The server's answer violates the protocol.
    #[error("{server} sent a malformed answer: {reason}")]
    Malformed {
        /// The server that answered.
        server: HostPort,
        /// Reason why the answer is invalid.
        reason: String,
    },
    /// The request is larger than a server accepts. The client sent nothing, and the connection
    /// stays usable.
    #[error("a request has at most {bytes_max} bytes, this one has {bytes}")]
    RequestTooLarge {
        /// Bytes of the request, with its headers.
        bytes: usize,
        /// Largest request allowed, in bytes.
        bytes_max: usize,
    },
    /// The deadline passed. A write may or may not have been applied.
    #[error("{operation} {subject}: deadline passed{}", after(.last))]
    Timeout {
        /// The operation.
        operation: Operation,
        /// The table, tablet or server that it was about.
        subject: String,
        /// The failure that the client was retrying at the deadline.
        last: Option<Box<Error>>,
    },
    /// None of the configured masters answers as the leader.
    #[error("no leader among the masters {}{}", list(.masters), after(.last))]
    NoLeaderMaster {
        /// The masters that were asked.
        masters: Vec<HostPort>,
        /// The last failure of one of them.
        last: Option<Box<Error>>,
    },
    /// There is no such table.
    #[error("{operation}: there is no table {table:?}")]
    TableNotFound {
        /// The operation.
        operation: Operation,
        /// Name or id of the table.
        table: String,
    },
    /// A table of this name exists already.
    #[error("{operation}: table {table:?} exists already")]
    TableAlreadyPresent {
        /// The operation.
        operation: Operation,
        /// Name of the table.
        table: String,
    },
    /// The master refused.
    #[error("{operation} {subject:?}: master said {code:?}, {status:?}: {message}")]
    Master {
        /// The operation.
        operation: Operation,
        /// The table that it was about, or empty.
        subject: String,
        /// The master's code.
        code: MasterErrorCode,
        /// The general status next to it.
        status: StatusCode,
        /// The master's message.
        message: String,
    },
    /// A tablet server refused a whole request.
    #[error(
        "{operation} tablet {tablet_id} of table {table:?} at {server}: {code:?}, {status:?}: {message}"
    )]
    TabletServer {
        /// The operation.
        operation: Operation,
        /// The server that refused.
        server: HostPort,
        /// Name of the table.
        table: String,
        /// Id of the tablet.
        tablet_id: String,
        /// The server's code.
        code: TabletServerErrorCode,
        /// The general status next to it.
        status: StatusCode,
        /// The server's message.
        message: Box<str>,
    },
    /// No range partition of the table covers the key.
    #[error("no partition of table {table:?} covers the key")]
    NonCoveredRange {
        /// Name of the table.
        table: String,
    },
    /// The tablet no longer exists, for instance because its range partition was dropped.
    #[error("tablet {tablet_id} of table {table:?} is gone")]
    TabletGone {
        /// Name of the table.
        table: String,
        /// Id of the tablet.
        tablet_id: String,
    },
    /// A row or a bound is not valid.
    #[error(transparent)]
    Row(#[from] RowError),
    /// A scan does not match its table, or the caller read a cell as a wrong type.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A schema is not valid.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A column cannot hold a value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The caller's request is not valid. The client sent nothing.
    #[error("{0}")]
    InvalidArgument(String),
}

/// Every result of the crate has space for an error. The size stays below clippy's limit for a
/// large error, with some space for the errors that wrap it.
const _: () = assert!(size_of::<Error>() <= 112);

impl Error {
    /// Whether the same operation may succeed later: the cause is time or the network, not the
    /// request. The client has already retried until its deadline.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Network { .. }
            | Error::NoAnswer { .. }
            | Error::Timeout { .. }
            | Error::TabletGone { .. } => true,
            Error::NoLeaderMaster { last, .. } => {
                last.as_ref().is_none_or(|last| last.is_retryable())
            }
            Error::Rpc { code, .. } => is_retryable_rpc(*code),
            Error::Negotiation { code, .. } => code.is_some_and(is_retryable_rpc),
            Error::Master { code, status, .. } => {
                matches!(
                    code,
                    MasterErrorCode::CatalogManagerNotInitialized | MasterErrorCode::NotTheLeader
                ) || *status == StatusCode::ServiceUnavailable
            }
            Error::TabletServer { code, status, .. } => {
                matches!(
                    code,
                    TabletServerErrorCode::Throttled | TabletServerErrorCode::TxnLockedRetryOp
                ) || matches!(
                    status,
                    StatusCode::ServiceUnavailable | StatusCode::IllegalState | StatusCode::Aborted
                )
            }
            _ => false,
        }
    }

    /// Whether a tablet server refused a whole request because the table's columns have changed.
    /// The server has applied none of it, and never will.
    pub fn is_schema_mismatch(&self) -> bool {
        matches!(self, Error::TabletServer { code: TabletServerErrorCode::MismatchedSchema, .. })
    }

    /// The general status that describes this error best, for callers that count errors by kind.
    pub fn status(&self) -> StatusCode {
        match self {
            Error::Network { .. } => StatusCode::NetworkError,
            Error::Negotiation { .. } => StatusCode::NotAuthorized,
            Error::Rpc { .. } => StatusCode::RemoteError,
            Error::Malformed { .. } => StatusCode::Corruption,
            Error::RequestTooLarge { .. }
            | Error::Row(_)
            | Error::Scan(_)
            | Error::Schema(_)
            | Error::Value(_)
            | Error::InvalidArgument(_) => StatusCode::InvalidArgument,
            Error::NoAnswer { .. } | Error::Timeout { .. } => StatusCode::TimedOut,
            Error::NoLeaderMaster { .. } => StatusCode::ServiceUnavailable,
            Error::TableNotFound { .. }
            | Error::NonCoveredRange { .. }
            | Error::TabletGone { .. } => StatusCode::NotFound,
            Error::TableAlreadyPresent { .. } => StatusCode::AlreadyPresent,
            Error::Master { status, .. } | Error::TabletServer { status, .. } => *status,
        }
    }
}

impl Error {
    /// The deadline passed while the client was retrying `last`.
    pub(crate) fn timeout(operation: Operation, subject: &str, last: Option<Error>) -> Error {
        Error::Timeout { operation, subject: subject.to_owned(), last: last.map(Box::new) }
    }
}

fn is_retryable_rpc(code: RpcErrorCode) -> bool {
    matches!(
        code,
        RpcErrorCode::ServerTooBusy | RpcErrorCode::Unavailable | RpcErrorCode::ServerShuttingDown
    )
}

/// The failure that the client was retrying, as the end of a sentence.
fn after(last: &Option<Box<Error>>) -> String {
    last.as_ref().map(|error| format!(", last failure: {error}")).unwrap_or_default()
}

fn list(masters: &[HostPort]) -> String {
    masters.iter().map(HostPort::to_string).collect::<Vec<_>>().join(", ")
}
