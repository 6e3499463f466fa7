//! Sends batches to their tablets and records the outcome of their rows.
//!
//! It owns the account of bytes in flight, and one task for each tablet with a queued batch. It
//! does not touch the rows in progress, because the program may hold their lock for any time.
//! Invariant: a batch leaves the account when it has an outcome. A batch ends in one of three ways:
//! written, perhaps with some rows refused; failed as a whole; or encoded again after the table was
//! altered, and then one of the first two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Error, StatusCode};
use crate::proto::tserver::{PerRowErrorPb, ResourceMetricsPb, WriteResponsePb};
use crate::row_operation::RowLayout;

use super::error::SessionError;
use super::filling::SealedBatch;
use super::lane::TabletLane;
use super::options::{SchemaChange, SessionOptions, WriteReport};
use super::recode::{Recoded, Recoder};
use super::row_buffers::RowBuffers;
use super::row_errors::{RowErrors, RowFailure};
use super::sent_schema::SentSchema;
use super::statistics::SessionStatistics;
use super::write_request::WriteRequest;
use super::write_target::WriteTarget;

/// How often the session encodes a batch again before it fails. More would mean that the table is
/// altered between any two attempts.
const SCHEMAS_MAX: usize = 5;

/// The writing side of a session.
#[derive(Debug)]
pub(super) struct Writing {
    pub options: SessionOptions,
    /// The layout of the rows as the program describes them.
    pub layout: Arc<RowLayout>,
    pub target: Arc<dyn WriteTarget>,
    pub timeout: Duration,
    pub runtime: Handle,
    /// Bytes of batches that are queued or in flight.
    pub outstanding_bytes: AtomicUsize,
    /// Batches that are queued or in flight.
    pub outstanding_batches: AtomicUsize,
    /// Notified of every outcome.
    pub progress: Notify,
    pub errors: Mutex<RowErrors>,
    pub statistics: Mutex<SessionStatistics>,
    /// The schema by which servers decode; it differs from `layout` after the table was altered.
    sent_schema: Mutex<Arc<SentSchema>>,
    /// A tablet is gone; the next caller that can should ask for the table's tablets again.
    pub view_is_stale: AtomicBool,
}

/// The server's answer to a batch that it took.
#[derive(Default)]
pub(super) struct WriteResult {
    /// Rows that were not written, by their number in the batch, without duplicates.
    pub(super) failures: Vec<(usize, RowFailure)>,
    /// Rows without effect, as their operation allows.
    ignored: u64,
}

impl Writing {
    /// The writing side of a session with this row layout; it sends nothing yet.
    pub(super) fn new(
        layout: Arc<RowLayout>,
        target: Arc<dyn WriteTarget>,
        sent_schema: SentSchema,
        options: SessionOptions,
    ) -> Writing {
        Writing {
            timeout: options.timeout.unwrap_or_else(|| target.timeout()),
            options,
            layout,
            target,
            runtime: Handle::current(),
            outstanding_bytes: AtomicUsize::new(0),
            outstanding_batches: AtomicUsize::new(0),
            progress: Notify::new(),
            errors: Mutex::default(),
            statistics: Mutex::default(),
            sent_schema: Mutex::new(Arc::new(sent_schema)),
            view_is_stale: AtomicBool::new(false),
        }
    }

    /// Hands batches to the tasks of their tablets.
    pub(super) fn send(self: &Arc<Self>, sealed: Vec<SealedBatch>) {
        for SealedBatch { lane, buffers } in sealed {
            self.outstanding_bytes.fetch_add(buffers.bytes(), Ordering::AcqRel);
            self.outstanding_batches.fetch_add(1, Ordering::AcqRel);
            if lane.push(buffers) {
                self.runtime.spawn(self.clone().run_lane(lane));
            }
        }
    }

    /// Takes a batch with an outcome off the account.
    fn release(&self, bytes: usize) {
        self.outstanding_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.outstanding_batches.fetch_sub(1, Ordering::AcqRel);
        self.progress.notify_waiters();
    }

    /// Waits until every sent batch has an outcome.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if self.outstanding_batches.load(Ordering::Acquire) == 0 {
                return;
            }
            progress.await;
        }
    }

    /// Fails while there are failed rows that the program has not taken.
    pub(super) fn check_errors(&self) -> Result<(), SessionError> {
        let errors = self.errors.lock();
        if errors.is_empty() {
            return Ok(());
        }
        Err(SessionError::RowsFailed { failed_rows: errors.len(), first: errors.first_message() })
    }

    /// Writes a tablet's queued batches until the queue is empty.
    async fn run_lane(self: Arc<Self>, lane: Arc<TabletLane>) {
        let mut next = lane.pop();
        while let Some(batch) = next {
            let bytes = batch.bytes();
            self.write(&lane, batch).await;
            // Free the lane before waking the waiters, so that they find it idle.
            next = lane.pop();
            self.release(bytes);
        }
    }

    async fn write(&self, lane: &TabletLane, batch: RowBuffers) {
        let started = Instant::now();
        let batch = Arc::new(batch);
        let outcome = self.write_as_the_schema_is(lane, &batch, started + self.timeout).await;
        let (failed_rows, ignored) = match &outcome {
            Ok(written) => (written.failures.len() as u64, written.ignored),
            Err(_) => (batch.row_count as u64, 0),
        };
        let report = WriteReport {
            rows: batch.row_count as u64,
            failed_rows,
            bytes: batch.bytes() as u64,
            elapsed: started.elapsed(),
        };
        self.keep_failures(&batch, outcome);
        {
            let mut statistics = self.statistics.lock();
            statistics.rows_written += report.rows - report.failed_rows;
            statistics.rows_failed += report.failed_rows;
            statistics.rows_ignored = statistics.rows_ignored.saturating_add(ignored);
            statistics.writes += 1;
            statistics.bytes_written += report.bytes;
        }
        if let Some(observer) = &self.options.observer {
            observer(&report);
        }
        // A piece of the request that is still in use, or a failed row, keeps the memory.
        if let Ok(buffers) = Arc::try_unwrap(batch) {
            drop(lane.put_spare(buffers, self.options.spare_bytes_max));
        }
    }

    fn keep_failures(&self, batch: &Arc<RowBuffers>, outcome: Result<WriteResult, Error>) {
        let bytes_max = self.options.error_bytes_max;
        match outcome {
            Ok(written) if written.failures.is_empty() => {}
            Ok(written) => {
                self.errors.lock().push_rows(&self.layout, batch, written.failures, bytes_max)
            }
            Err(error) => {
                if let Error::TabletGone { .. } = error {
                    self.view_is_stale.store(true, Ordering::Release);
                }
                let failure = RowFailure::Batch(error);
                self.errors.lock().push_batch(&self.layout, batch.clone(), failure, bytes_max);
            }
        }
    }

    /// Writes a batch by the table's current schema.
    async fn write_as_the_schema_is(
        &self,
        lane: &TabletLane,
        batch: &Arc<RowBuffers>,
        deadline: Instant,
    ) -> Result<WriteResult, Error> {
        let recodes = self.options.on_schema_change == SchemaChange::Recode;
        let mut schemas = 1;
        loop {
            let schema = self.sent_schema.lock().clone();
            let outcome = match schema.is_as_described {
                true => self.write_as_described(lane, &schema, batch, deadline).await,
                false => self.write_recoded(lane, &schema, batch, deadline).await,
            };
            match outcome {
                Err(error) if is_mismatch(&error) && recodes && schemas < SCHEMAS_MAX => {
                    if !self.has_other_schema(&schema, deadline).await? {
                        return Err(error);
                    }
                    schemas += 1;
                }
                other => return other,
            }
        }
    }

    async fn write_as_described(
        &self,
        lane: &TabletLane,
        schema: &SentSchema,
        batch: &Arc<RowBuffers>,
        deadline: Instant,
    ) -> Result<WriteResult, Error> {
        let request = WriteRequest::new(schema.field.clone(), batch);
        let response = self.target.write(&lane.tablet_id, &request, deadline).await?;
        Ok(WriteResult::new(response, |number| (number < batch.row_count).then_some(number)))
    }

    async fn write_recoded(
        &self,
        lane: &TabletLane,
        schema: &SentSchema,
        batch: &RowBuffers,
        deadline: Instant,
    ) -> Result<WriteResult, Error> {
        let recoded = Recoder::between(&self.layout, &schema.layout).batch(&self.layout, batch);
        let Recoded { buffers, row_numbers, rejected } = recoded;
        let mut written = WriteResult::default();
        if !buffers.is_empty() {
            let request = WriteRequest::new(schema.field.clone(), &Arc::new(buffers));
            let response = self.target.write(&lane.tablet_id, &request, deadline).await?;
            written = WriteResult::new(response, |number| row_numbers.get(number).copied());
        }
        written.failures.extend(rejected.into_iter().map(|(number, column)| {
            (number, RowFailure::ColumnDropped { column: self.layout.name(column) })
        }));
        Ok(written)
    }

    /// Fetches the table's schema. True if it differs from the refused one.
    async fn has_other_schema(
        &self,
        refused: &Arc<SentSchema>,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let is_newest = Arc::ptr_eq(&self.sent_schema.lock(), refused);
        if !is_newest {
            return Ok(true);
        }
        let view = self.target.view(true, deadline).await?;
        if view.schema == refused.layout.schema {
            return Ok(false);
        }
        tracing::info!(
            columns = view.schema.columns().len(),
            "the table was altered, its rows are encoded again"
        );
        *self.sent_schema.lock() = Arc::new(SentSchema::altered(&view.schema));
        Ok(true)
    }
}

impl WriteResult {
    /// Reads a server's answer. `number_of` maps a row of the request to its number in the batch;
    /// `None` for a row that does not exist.
    pub(super) fn new(
        response: WriteResponsePb,
        number_of: impl Fn(usize) -> Option<usize>,
    ) -> WriteResult {
        let mut failures: Vec<_> = response
            .per_row_errors
            .into_iter()
            .filter_map(|PerRowErrorPb { row_index, error }| {
                let number = number_of(usize::try_from(row_index).ok()?)?;
                let message = error.message.unwrap_or_default();
                let code = StatusCode::from_wire(error.code);
                Some((number, RowFailure::Refused { code, message }))
            })
            .collect();
        // A correct server never names a row twice, but the counts must be right even then.
        failures.sort_by_key(|(number, _)| *number);
        failures.dedup_by_key(|(number, _)| *number);
        let ignored = response.resource_metrics.map_or(0, |metrics| ignored_rows(&metrics));
        WriteResult { failures, ignored }
    }
}

/// The server decoded the schema and has other columns.
fn is_mismatch(error: &Error) -> bool {
    error.is_schema_mismatch()
}

fn ignored_rows(metrics: &ResourceMetricsPb) -> u64 {
    let counts = [
        metrics.insert_ignore_errors,
        metrics.update_ignore_errors,
        metrics.delete_ignore_errors,
        metrics.upsert_ignore_errors,
    ];
    let counts = counts.into_iter().flatten().filter_map(|count| u64::try_from(count).ok());
    counts.fold(0, u64::saturating_add)
}
