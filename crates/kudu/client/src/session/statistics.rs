//! The counters of a session.

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStatistics {
    /// Rows that were written.
    pub rows_written: u64,
    /// Rows that failed.
    pub rows_failed: u64,
    /// Rows written without effect, as an operation of the ignoring kind allows.
    pub rows_ignored: u64,
    /// Requests, not counting retries.
    pub writes: u64,
    /// Bytes of the rows in them.
    pub bytes_written: u64,
}

/// Rows written since the last flush, in the background or by this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushSummary {
    /// Rows that were written.
    pub rows: u64,
    /// Rows without effect, as an operation of the ignoring kind allows.
    pub ignored_rows: u64,
    /// Requests.
    pub writes: u64,
    /// Bytes of the rows in them.
    pub bytes: u64,
}
