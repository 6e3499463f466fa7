//! The errors of `apply` and `flush`.

use crate::error::Error;
use crate::row_operation::RowError;

/// Why the session did not take a row, or that rows it took failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The row is not valid. The session did not take it.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The buffer has no space for the row, and only the program decides when to flush. The session
    /// did not take the row.
    #[error(
        "no room in the session's buffer of {buffer_bytes_max} bytes: flush first, or let the session flush in the background"
    )]
    BufferFull {
        /// Size of the buffer, in bytes.
        buffer_bytes_max: usize,
    },
    /// No partition of the table covers the row's key. The session did not take the row.
    #[error("no partition of the table covers the row's key")]
    NonCoveredKey,
    /// The client could not find the tablets of the table. The session did not take the row.
    #[error(transparent)]
    Client(#[from] Error),
    /// Rows failed; `take_errors` has them.
    #[error("{failed_rows} rows failed, the first: {first}")]
    RowsFailed {
        /// How many rows failed since the program last took the errors.
        failed_rows: u64,
        /// The first failure that is still kept.
        first: String,
    },
}
