//! What `apply` and `flush` can answer besides success.

use crate::error::Error;
use crate::row_operation::RowError;

/// Why a row was not taken, or what became of rows that were.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The row cannot be sent as it is. It was not taken.
    #[error(transparent)]
    Row(#[from] RowError),
    /// There is no room for the row and the program alone decides when to flush. It was not taken.
    #[error(
        "no room in the session's buffer of {buffer_bytes_max} bytes: flush first, or let the session flush in the background"
    )]
    BufferFull {
        /// Size of the buffer, in bytes.
        buffer_bytes_max: usize,
    },
    /// No partition of the table covers the row's key. It was not taken.
    #[error("no partition of the table covers the row's key")]
    NonCoveredKey,
    /// The tablets of the table could not be found out. The row was not taken.
    #[error(transparent)]
    Client(#[from] Error),
    /// Rows failed; `take_errors` has them.
    #[error("{failed_rows} rows failed, the first: {first}")]
    RowsFailed {
        /// How many rows failed since errors were last taken.
        failed_rows: u64,
        /// The first failure that is still there.
        first: String,
    },
}
