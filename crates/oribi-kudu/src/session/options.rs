//! When a session sends what it has buffered, and how much it buffers.
//!
//! The defaults are those of Kudu's C++ client, except that the buffer is somewhat larger there for
//! historical reasons; a program that was tuned for that client can keep its numbers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of rows that a session holds unless told otherwise.
const BUFFER_BYTES: usize = 7 << 20;
/// Largest cell that servers take unless configured otherwise (`max_cell_size_bytes`).
const CELL_BYTES: usize = 64 << 10;
/// Bytes of failed rows that a session keeps unless told otherwise.
const ERROR_BYTES: usize = 16 << 20;

/// When rows are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushMode {
    /// Each row at once: `apply` ends when the row is written or refused. A round trip for each row.
    Sync,
    /// When enough rows are there, or the first of them gets old. `apply` waits only while the buffer is full.
    #[default]
    Background,
    /// When the program says so. A row for which there is no room is refused.
    Manual,
}

/// What becomes of rows that a tablet server refuses because the table was altered since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaChange {
    /// They are encoded again by the schema that the table has now. Rows that use a dropped column fail.
    #[default]
    Recode,
    /// Their batch fails as a whole, and nothing of it is written. For programs to which an altered table
    /// means something, such as that it belongs to somebody else.
    Fail,
}

/// How a session behaves.
#[derive(Clone)]
pub struct SessionOptions {
    /// When rows are sent.
    pub flush_mode: FlushMode,
    /// Bytes of rows that are buffered or under way, at most. A single row may be larger.
    pub buffer_bytes_max: usize,
    /// The part of the buffer, from 0 to 1, that is filled before rows are sent in the background.
    pub flush_watermark: f64,
    /// How long a row waits at most before it is sent in the background.
    pub flush_interval: Duration,
    /// How long a request may take, with all its repetitions. None is the client's timeout.
    pub timeout: Option<Duration>,
    /// Bytes of failed rows that are kept for `take_errors`; failures beyond are only counted.
    pub error_bytes_max: usize,
    /// Largest cell, in bytes. Raise it only with the servers' `max_cell_size_bytes`.
    pub cell_bytes_max: usize,
    /// What becomes of rows when the table was altered.
    pub on_schema_change: SchemaChange,
    /// Called after every Write, on the runtime's threads: keep it short.
    pub observer: Option<WriteObserver>,
}

/// What is called after every Write.
pub type WriteObserver = Arc<dyn Fn(&WriteReport) + Send + Sync>;

/// How one Write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReport {
    /// Rows in it.
    pub rows: u64,
    /// Rows of it that failed.
    pub failed_rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
    /// From when it was sent to when it was decided, repetitions included.
    pub elapsed: Duration,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            flush_mode: FlushMode::default(),
            buffer_bytes_max: BUFFER_BYTES,
            flush_watermark: 0.5,
            flush_interval: Duration::from_secs(1),
            timeout: None,
            error_bytes_max: ERROR_BYTES,
            cell_bytes_max: CELL_BYTES,
            on_schema_change: SchemaChange::default(),
            observer: None,
        }
    }
}

impl SessionOptions {
    /// Bytes from which on rows are sent in the background, at least one.
    pub(super) fn watermark_bytes(&self) -> usize {
        let watermark = self.flush_watermark.clamp(0.0, 1.0);
        ((self.buffer_bytes_max as f64 * watermark) as usize).max(1)
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("flush_mode", &self.flush_mode)
            .field("buffer_bytes_max", &self.buffer_bytes_max)
            .field("flush_watermark", &self.flush_watermark)
            .field("flush_interval", &self.flush_interval)
            .field("timeout", &self.timeout)
            .field("error_bytes_max", &self.error_bytes_max)
            .field("cell_bytes_max", &self.cell_bytes_max)
            .field("on_schema_change", &self.on_schema_change)
            .field("observer", &self.observer.is_some())
            .finish()
    }
}
