//! When a session sends its buffered rows, and how much it buffers.
//!
//! The defaults are those of Kudu's C++ client, except for the buffer, which is somewhat larger
//! there for historical reasons. A program tuned for that client can keep its numbers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Default limit of buffered rows, in bytes.
const BUFFER_BYTES: usize = 7 << 20;
/// Largest cell that servers accept by default (`max_cell_size_bytes`).
const CELL_BYTES: usize = 64 << 10;
/// Default limit of kept failed rows, in bytes.
const ERROR_BYTES: usize = 16 << 20;

/// When a session sends rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushMode {
    /// Each row at once: `apply` ends when the server has written or refused the row. Each row
    /// costs a round trip.
    Sync,
    /// When there are enough rows, or the first of them gets old. `apply` waits only while the
    /// buffer is full.
    #[default]
    Background,
    /// When the program calls `flush`. A full buffer refuses the row.
    Manual,
}

/// The session's action on rows that a tablet server refuses because the table was altered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchemaChange {
    /// It encodes them again by the table's current schema. Rows that use a dropped column fail.
    #[default]
    Recode,
    /// The whole batch fails, and the server writes none of it. For programs that must notice an
    /// altered table, such as a new owner.
    Fail,
}

/// How a session behaves.
///
/// ```
/// use std::time::Duration;
/// use oribi_kudu::{FlushMode, SessionOptions};
///
/// let options = SessionOptions::new()
///     .flush_mode(FlushMode::Background)
///     .buffer_bytes_max(64 << 20)
///     .timeout(Duration::from_secs(60));
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct SessionOptions {
    pub(crate) flush_mode: FlushMode,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) flush_watermark: f64,
    pub(crate) flush_interval: Duration,
    /// `None` is the client's timeout.
    pub(crate) timeout: Option<Duration>,
    pub(crate) error_bytes_max: usize,
    pub(crate) spare_bytes_max: usize,
    pub(crate) cell_bytes_max: usize,
    pub(crate) on_schema_change: SchemaChange,
    pub(crate) observer: Option<WriteObserver>,
}

/// A callback after every Write.
type WriteObserver = Arc<dyn Fn(&WriteReport) + Send + Sync>;

/// How one Write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteReport {
    /// Rows in it.
    pub rows: u64,
    /// Rows of it that failed.
    pub failed_rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
    /// Time from sending to the outcome, including retries.
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
            spare_bytes_max: BUFFER_BYTES,
            cell_bytes_max: CELL_BYTES,
            on_schema_change: SchemaChange::default(),
            observer: None,
        }
    }
}

impl SessionOptions {
    /// The defaults: the session sends rows in the background, from a buffer of 7 MiB.
    pub fn new() -> SessionOptions {
        SessionOptions::default()
    }

    /// When the session sends rows.
    pub fn flush_mode(mut self, mode: FlushMode) -> SessionOptions {
        self.flush_mode = mode;
        self
    }

    /// Most bytes of rows that are buffered or in flight; 7 MiB by default. A single row may be
    /// larger.
    pub fn buffer_bytes_max(mut self, bytes: usize) -> SessionOptions {
        self.buffer_bytes_max = bytes;
        self
    }

    /// The fraction of the buffer, from 0 to 1, at which the session starts to send in the
    /// background; one half by default.
    pub fn flush_watermark(mut self, part: f64) -> SessionOptions {
        self.flush_watermark = part;
        self
    }

    /// How long a row waits at most before the session sends it in the background; 1 second by
    /// default.
    pub fn flush_interval(mut self, interval: Duration) -> SessionOptions {
        self.flush_interval = interval;
        self
    }

    /// The timeout of a request with all its attempts; the client's `rpc_timeout` by default.
    pub fn timeout(mut self, timeout: Duration) -> SessionOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Most bytes of failed rows that the session keeps for
    /// [`Session::take_errors`](crate::Session::take_errors); 16 MiB by default. It only counts
    /// further failures.
    pub fn error_bytes_max(mut self, bytes: usize) -> SessionOptions {
        self.error_bytes_max = bytes;
        self
    }

    /// Memory that one tablet's empty buffers keep for its next rows, twice at most; 7 MiB by
    /// default. The memory of a larger batch goes back to the system.
    pub fn spare_bytes_max(mut self, bytes: usize) -> SessionOptions {
        self.spare_bytes_max = bytes;
        self
    }

    /// Largest cell, in bytes; 64 KiB by default. Raise it only together with the servers'
    /// `max_cell_size_bytes`.
    pub fn cell_bytes_max(mut self, bytes: usize) -> SessionOptions {
        self.cell_bytes_max = bytes;
        self
    }

    /// Sets the action on rows after the table was altered; by default the session encodes them
    /// again.
    pub fn on_schema_change(mut self, change: SchemaChange) -> SessionOptions {
        self.on_schema_change = change;
        self
    }

    /// Calls `observer` after every Write, on the runtime's threads, so it must be fast.
    pub fn observer(
        mut self,
        observer: impl Fn(&WriteReport) + Send + Sync + 'static,
    ) -> SessionOptions {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Bytes from which the session sends rows in the background, at least one.
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
            .field("spare_bytes_max", &self.spare_bytes_max)
            .field("cell_bytes_max", &self.cell_bytes_max)
            .field("on_schema_change", &self.on_schema_change)
            .field("observer", &self.observer.is_some())
            .finish()
    }
}
