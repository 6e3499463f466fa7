//! What the client's errors mean to a store.
//!
//! Owns: which of them pass by waiting, and the translation of the others. Invariant: only what time can mend is
//! waited for; a table that is gone or an answer that makes no sense is reported.

use oribi_kudu::{CellError, Error, RpcErrorCode, SessionError};
use oribi_storage::StoreError;

/// The store's error for one of the client.
pub(crate) fn of_kudu(error: &Error) -> StoreError {
    match error {
        Error::TableNotFound { .. } | Error::Schema(_) => {
            StoreError::Foreign(format!("Kudu: {error}"))
        }
        Error::Malformed { .. } | Error::Scan(_) => StoreError::Corrupt(format!("Kudu: {error}")),
        error if error.is_schema_mismatch() => StoreError::Fenced(error.to_string()),
        error => StoreError::Io(format!("Kudu: {error}")),
    }
}

/// The store's error for one of a session.
pub(crate) fn of_session(error: &SessionError) -> StoreError {
    match error {
        SessionError::Client(error) => of_kudu(error),
        SessionError::Row(_) | SessionError::BufferFull { .. } | SessionError::NonCoveredKey => {
            StoreError::Foreign(format!("Kudu: {error}"))
        }
        error => StoreError::Io(format!("Kudu: {error}")),
    }
}

/// A cell that is not what this version writes.
pub(crate) fn of_cell(error: CellError) -> StoreError {
    StoreError::Corrupt(format!("a row of the table: {error}"))
}

/// Whether the same can be expected to work later, without anybody changing anything but Kudu's state.
pub(crate) fn passes(error: &Error) -> bool {
    // A server forgets what a client did after an hour of silence, and then takes the same as a new request.
    let is_forgotten = matches!(error, Error::Rpc { code: RpcErrorCode::RequestStale, .. });
    // A table has no tablet servers while all of them are starting.
    error.is_retryable() || is_forgotten || matches!(error, Error::NoLeaderMaster { .. })
}
