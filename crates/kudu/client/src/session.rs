//! Writes rows: encodes each cell once, into the request of the row's tablet, and sends batches.
//!
//! Invariants: rows with the same key are applied in the order of `apply`, because a tablet gets
//! one Write at a time. The server applies a repeated Write once. Every row that the session took
//! is either written or among the errors, with its cells. Memory beyond the rows' own bytes does
//! not grow with the number of rows, and freeing a batch means freeing two buffers.
//!
//! How rows flow: [`RowWriter`] encodes into `filling`, which has buffers for each tablet. They
//! move to the tablet's lane when the tablet has enough rows, the program flushes, or the timer
//! fires. The lane's task writes one batch after the other. Tablets do not wait for each other; the
//! program waits when all buffers together are full. A tablet's rows fill a request from its share
//! of the watermark on.
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
mod statistics;
#[cfg(test)]
mod tests;
mod write_request;
mod write_target;
mod writing;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub use error::SessionError;
pub use options::{FlushMode, SchemaChange, SessionOptions, WriteReport};
pub use row_errors::{FailedRow, RowErrors, RowFailure};
pub use row_writer::{ColumnReference, RowWriter};
pub use statistics::{FlushSummary, SessionStatistics};

use crate::field_columns::FieldColumns;
use crate::partition::PartitionSchema;
use crate::row_operation::{RowEncoder, RowError, RowLayout, RowOperation};
use crate::schema::{Schema, SchemaError};
use crate::table::Table;
use dry_run::DryRunTarget;
use filling::{Filling, FillingLimits};
use sent_schema::SentSchema;
use shared::SessionShared;
use write_request::OVERHEAD_BYTES_MAX;
use write_target::{ClusterTarget, WriteTarget};
use writing::Writing;

/// Writes rows of one table.
///
/// A dropped session loses its buffered rows: flush first.
///
/// ```no_run
/// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use oribi_kudu::{Session, SessionOptions};
///
/// let mut session = Session::new(&table, SessionOptions::default());
/// for id in 0..1_000_000 {
///     let mut row = session.upsert();
///     row.set_i64("id", id)?.set_string("name", "Ada")?;
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
    /// The statistics at the last flush.
    at_last_flush: SessionStatistics,
    /// The columns of the last written struct.
    field_columns: FieldColumns,
}

impl Session {
    /// A session that writes to `table`. It starts tasks, so create it within a Tokio runtime that
    /// lives as long as the session is in use.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn new(table: &Table, options: SessionOptions) -> Session {
        let target = Arc::new(ClusterTarget::new(table.clone()));
        Session::with_target(table.schema(), table.partition_schema(), target, options)
    }

    /// A session without a cluster. It encodes and batches rows as for a table of these columns
    /// that is hashed by its key, then drops them. It shows the client's own cost of writing.
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
        let writing = Arc::new(Writing::new(layout, target, sent_schema, options));
        let shared = Arc::new(SessionShared {
            writing: writing.clone(),
            filling: Mutex::new(Filling::new(encoder, limits)),
            timer: Notify::new(),
        });
        let is_background = writing.options.flush_mode == FlushMode::Background;
        let timer = is_background
            .then(|| writing.runtime.spawn(flush_timer::run(shared.clone())).abort_handle());
        Session {
            shared,
            timer,
            at_last_flush: SessionStatistics::default(),
            field_columns: FieldColumns::default(),
        }
    }

    /// Starts an insert; the row's key must be new.
    #[inline]
    pub fn insert(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Insert)
    }

    /// Starts an insert that has no effect if the row's key exists.
    #[inline]
    pub fn insert_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::InsertIgnore)
    }

    /// Starts an upsert: it adds the row, or changes the given cells.
    #[inline]
    pub fn upsert(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Upsert)
    }

    /// Starts an upsert that leaves immutable cells of an existing row unchanged.
    #[inline]
    pub fn upsert_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::UpsertIgnore)
    }

    /// Starts an update of the given cells; the row's key must exist.
    #[inline]
    pub fn update(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Update)
    }

    /// Starts an update of the given cells that has no effect if the row's key does not exist.
    #[inline]
    pub fn update_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::UpdateIgnore)
    }

    /// Starts a delete; the row's key must exist. Set only the key.
    #[inline]
    pub fn delete(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::Delete)
    }

    /// Starts a delete that has no effect if the row's key does not exist. Set only the key.
    #[inline]
    pub fn delete_ignore(&mut self) -> RowWriter<'_> {
        self.row(RowOperation::DeleteIgnore)
    }

    /// Starts a row with an operation that is known only at run time.
    #[inline]
    pub fn row(&mut self, operation: RowOperation) -> RowWriter<'_> {
        RowWriter::new(&self.shared, operation)
    }

    /// Starts a row of a struct whose fields are columns of these names, and says where those are.
    #[inline]
    pub(crate) fn row_of_fields(
        &mut self,
        operation: RowOperation,
        names: &'static [&'static str],
    ) -> Result<(&FieldColumns, RowWriter<'_>), RowError> {
        if !self.field_columns.are_of(names) {
            self.field_columns = FieldColumns::in_schema(names, self.schema())?;
        }
        Ok((&self.field_columns, RowWriter::new(&self.shared, operation)))
    }

    /// Sends all buffered rows and waits until every row that the session ever took has an outcome.
    ///
    /// It fails with [`SessionError::RowsFailed`] while there are failed rows, of this flush or of
    /// an earlier one. [`Session::take_errors`] removes them.
    pub async fn flush(&mut self) -> Result<FlushSummary, SessionError> {
        self.start_flush();
        self.shared.writing.wait_until_idle().await;
        self.shared.renew_stale_view().await?;
        let now = self.statistics();
        let before = std::mem::replace(&mut self.at_last_flush, now);
        self.shared.writing.check_errors()?;
        Ok(FlushSummary {
            rows: now.rows_written - before.rows_written,
            ignored_rows: now.rows_ignored - before.rows_ignored,
            writes: now.writes - before.writes,
            bytes: now.bytes_written - before.bytes_written,
        })
    }

    /// Starts to send all buffered rows and does not wait. The program can apply more rows
    /// concurrently.
    pub fn start_flush(&mut self) {
        let mut filling = self.shared.filling.lock();
        let sealed = filling.seal_all();
        self.shared.writing.send(sealed);
    }

    /// The rows that failed since the last call.
    pub fn take_errors(&mut self) -> RowErrors {
        std::mem::take(&mut self.shared.writing.errors.lock())
    }

    /// Counters of the session so far.
    pub fn statistics(&self) -> SessionStatistics {
        *self.shared.writing.statistics.lock()
    }

    /// Rows that the session has taken so far, sent or not.
    pub fn rows_taken(&self) -> u64 {
        self.shared.filling.lock().rows_taken()
    }

    /// Bytes of rows that are buffered or in flight.
    pub fn buffered_bytes(&self) -> usize {
        self.shared.filling.lock().bytes()
            + self.shared.writing.outstanding_bytes.load(Ordering::Acquire)
    }

    /// The session's view of the table's columns.
    pub fn schema(&self) -> &Schema {
        &self.shared.writing.layout.schema
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
