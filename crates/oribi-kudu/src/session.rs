//! Writing rows: described cell by cell, encoded once into the request of their tablet, sent in batches.
//!
//! Invariants: rows with the same key are applied in the order in which they were handed over, because a
//! tablet gets one Write at a time; a Write that is repeated is applied once; every row that was taken is
//! either written or found among the errors, with its cells. Memory beyond the rows' own bytes does not grow
//! with the number of rows, and freeing a batch is freeing two buffers.
//!
//! How rows flow: [`RowWriter`] encodes into `filling`, which has buffers for each tablet. When a tablet has
//! enough rows, or the program flushes, or the timer fires, they go to the tablet's lane, whose task writes one
//! batch after the other. Tablets do not wait for each other; the program waits when all buffers together are
//! full. The size from which a tablet's rows are worth a request is its share of the watermark.
//!
//! Not here: leaders, retries, tokens (the executor behind `write_target`), and transactions.

mod dry_run;
mod error;
mod filling;
mod flush_timer;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod harness;
mod lane;
mod options;
mod recode;
mod row_buffers;
mod row_errors;
mod row_writer;
mod sent_schema;
mod shared;
#[cfg(test)]
mod tests;
mod write_request;
mod write_target;
mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub use error::SessionError;
pub use options::{FlushMode, SchemaChange, SessionOptions, WriteObserver, WriteReport};
pub use row_errors::{FailedRow, RowErrors, RowFailure};
pub use row_writer::{ColumnReference, RowWriter};

use crate::partition::PartitionSchema;
use crate::row_operation::{RowEncoder, RowLayout, RowOperation};
use crate::schema::{Schema, SchemaError};
use crate::table::Table;
use dry_run::DryRunTarget;
use filling::{Filling, FillingLimits};
use sent_schema::SentSchema;
use shared::SessionShared;
use write_request::OVERHEAD_BYTES_MAX;
use write_target::{ClusterTarget, WriteTarget};

/// Writes rows of one table.
///
/// Rows that are buffered when a session is dropped are not written: flush before.
///
/// ```no_run
/// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use oribi_kudu::{Session, SessionOptions};
///
/// let mut session = Session::new(&table, SessionOptions::default());
/// for id in 0..1_000_000 {
///     let mut row = session.upsert();
///     row.set_i64("id", id)?.set_string("name", "somebody")?;
///     row.apply().await?;
/// }
/// if session.flush().await.is_err() {
///     for failed in session.take_errors().iter() {
///         eprintln!("{failed}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    shared: Arc<SessionShared>,
    timer: Option<AbortHandle>,
    /// The statistics when rows were last flushed.
    at_last_flush: SessionStatistics,
}

/// What a session has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Rows that were written.
    pub rows_written: u64,
    /// Rows that failed.
    pub rows_failed: u64,
    /// Rows among those written that changed nothing, as an operation of the ignoring kind allows.
    pub rows_ignored: u64,
    /// Requests, without their repetitions.
    pub writes: u64,
    /// Bytes of the rows in them.
    pub bytes_written: u64,
}

/// What was written since the last flush, in the background or by this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushSummary {
    /// Rows that were written.
    pub rows: u64,
    /// Rows among them that changed nothing, as an operation of the ignoring kind allows.
    pub ignored_rows: u64,
    /// Requests.
    pub writes: u64,
    /// Bytes of the rows in them.
    pub bytes: u64,
}

impl Session {
    /// A session that writes to `table`. It starts tasks, and so must be created within a Tokio runtime, which
    /// has to live as long as the session is used.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn new(table: &Table, options: SessionOptions) -> Session {
        let target = Arc::new(ClusterTarget::new(table.clone()));
        Session::with_target(table.schema(), table.partition_schema(), target, options)
    }

    /// A session without a cluster: rows are encoded and batched as for a table of these columns that is hashed
    /// by its key, and then thrown away. It shows what writing costs the client itself.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn dry_run(
        schema: &Schema,
        num_buckets: u32,
        options: SessionOptions,
    ) -> Result<Session, SchemaError> {
        let target = Arc::new(DryRunTarget::new(schema, num_buckets)?);
        let partition_schema = target.partition_schema().clone();
        Ok(Session::with_target(schema, &partition_schema, target, options))
    }

    fn with_target(
        schema: &Schema,
        partition_schema: &PartitionSchema,
        target: Arc<dyn WriteTarget>,
        options: SessionOptions,
    ) -> Session {
        let layout = Arc::new(RowLayout::new(schema.clone()));
        let sent_schema = SentSchema::described(&layout);
        let batch_bytes_max =
            target.request_bytes_max().saturating_sub(sent_schema.field.len() + OVERHEAD_BYTES_MAX);
        let strings =
            layout.columns.iter().filter(|column| column.data_type.is_variable_length()).count();
        let limits = FillingLimits {
            watermark_bytes: options.watermark_bytes(),
            batch_bytes_max,
            row_bytes_max: strings
                .saturating_mul(options.cell_bytes_max)
                .saturating_add(layout.full_row_bytes),
        };
        let encoder =
            RowEncoder::new(layout.clone(), partition_schema.columns(), options.cell_bytes_max);
        let shared = Arc::new(SessionShared {
            timeout: options.timeout.unwrap_or_else(|| target.timeout()),
            layout,
            target,
            runtime: Handle::current(),
            filling: Mutex::new(Filling::new(encoder, limits)),
            outstanding_bytes: AtomicUsize::new(0),
            outstanding_batches: AtomicUsize::new(0),
            progress: Notify::new(),
            timer: Notify::new(),
            errors: Mutex::default(),
            statistics: Mutex::default(),
            sent_schema: Mutex::new(Arc::new(sent_schema)),
            view_is_stale: AtomicBool::new(false),
            options,
        });
        let is_background = shared.options.flush_mode == FlushMode::Background;
        let timer = is_background
            .then(|| shared.runtime.spawn(flush_timer::run(shared.clone())).abort_handle());
        Session { shared, timer, at_last_flush: SessionStatistics::default() }
    }

    /// Starts a row that is added; its key must be new.
    #[inline]
    pub fn insert(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Insert)
    }

    /// Starts a row that is added unless its key is there.
    #[inline]
    pub fn insert_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::InsertIgnore)
    }

    /// Starts a row that is added, or whose given cells are changed.
    #[inline]
    pub fn upsert(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Upsert)
    }

    /// Starts a row that is added, or whose given cells are changed as far as they may be.
    #[inline]
    pub fn upsert_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::UpsertIgnore)
    }

    /// Starts a row whose given cells are changed; its key must be there.
    #[inline]
    pub fn update(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Update)
    }

    /// Starts a row whose given cells are changed if its key is there.
    #[inline]
    pub fn update_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::UpdateIgnore)
    }

    /// Starts a row that is removed; its key must be there. Only the key is set.
    #[inline]
    pub fn delete(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Delete)
    }

    /// Starts a row that is removed if its key is there. Only the key is set.
    #[inline]
    pub fn delete_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::DeleteIgnore)
    }

    /// Starts a row with an operation that is known only now.
    #[inline]
    pub fn row(&mut self, operation: RowOperation) -> RowWriter<'_> {
        RowWriter::new(&self.shared, operation)
    }

    /// Sends what is buffered and waits until all rows that were ever taken are decided.
    ///
    /// Fails with [`SessionError::RowsFailed`] when there are failed rows, be they of this flush or of an
    /// earlier one: as long as they are not taken by [`Session::take_errors`].
    pub async fn flush(&mut self) -> Result<FlushSummary, SessionError> {
        self.start_flush();
        self.shared.wait_until_idle().await;
        self.shared.renew_stale_view().await?;
        let now = self.statistics();
        let before = std::mem::replace(&mut self.at_last_flush, now);
        self.shared.check_errors()?;
        Ok(FlushSummary {
            rows: now.rows_written - before.rows_written,
            ignored_rows: now.rows_ignored - before.rows_ignored,
            writes: now.writes - before.writes,
            bytes: now.bytes_written - before.bytes_written,
        })
    }

    /// Sends what is buffered without waiting for anything. Later rows can be applied meanwhile.
    pub fn start_flush(&mut self) {
        let mut filling = self.shared.filling.lock();
        let sealed = filling.seal_all();
        self.shared.send(sealed);
    }

    /// The rows that failed since errors were last taken.
    pub fn take_errors(&mut self) -> RowErrors {
        std::mem::take(&mut self.shared.errors.lock())
    }

    /// What the session has done so far.
    pub fn statistics(&self) -> SessionStatistics {
        *self.shared.statistics.lock()
    }

    /// Rows that were taken so far, sent or not.
    pub fn rows_taken(&self) -> u64 {
        self.shared.filling.lock().rows_taken()
    }

    /// Bytes of rows that are buffered or under way.
    pub fn buffered_bytes(&self) -> usize {
        self.shared.filling.lock().bytes() + self.shared.outstanding_bytes.load(Ordering::Acquire)
    }

    /// The columns by which rows are described.
    pub fn schema(&self) -> &Schema {
        &self.shared.layout.schema
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        let rows = self.shared.filling.lock().rows();
        if rows != 0 {
            tracing::warn!(rows, "a session was dropped before its rows were flushed");
        }
    }
}
