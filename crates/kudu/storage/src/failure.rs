//! Classification of the client's errors.
//!
//! Owns: which errors are transient, and the translation of the others. Invariant: the store waits
//! only for errors that time can resolve; it reports a table that is gone, or an invalid answer.

use oribi_kudu::{CellError, Error, RpcErrorCode, SessionError};
use oribi_storage::StoreError;

/// The store's error for an error of the client.
pub(crate) fn of_kudu(error: &Error) -> StoreError {
    match error {
        Error::TableNotFound { .. } | Error::Schema(_) => {
            StoreError::Foreign(format!("Kudu: {error}"))
        }
        Error::Malformed { .. } | Error::Scan(_) => StoreError::Corrupt(format!("Kudu: {error}")),
        error if error.is_schema_mismatch() => StoreError::Fenced(error.to_string()),
        error if passes(error) => StoreError::Away(format!("Kudu: {error}")),
        error => StoreError::Io(format!("Kudu: {error}")),
    }
}

/// The store's error for an error of a session.
pub(crate) fn of_session(error: &SessionError) -> StoreError {
    match error {
        SessionError::Client(error) => of_kudu(error),
        SessionError::Row(_) | SessionError::BufferFull { .. } | SessionError::NonCoveredKey => {
            StoreError::Foreign(format!("Kudu: {error}"))
        }
        error => StoreError::Io(format!("Kudu: {error}")),
    }
}

/// The error for a cell that this version does not write.
pub(crate) fn of_cell(error: CellError) -> StoreError {
    StoreError::Corrupt(format!("a row of the table: {error}"))
}

/// True for a transient error, which resolves without a change to anything but Kudu's state.
pub(crate) fn passes(error: &Error) -> bool {
    // A server forgets a client's requests after an hour of silence, and then accepts a repeated
    // one as a new request.
    let is_forgotten = matches!(error, Error::Rpc { code: RpcErrorCode::RequestStale, .. });
    // A table has no tablet servers while all of them are starting.
    error.is_retryable() || is_forgotten || matches!(error, Error::NoLeaderMaster { .. })
}
