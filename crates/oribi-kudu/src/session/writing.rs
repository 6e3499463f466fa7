//! Sends the batches of one tablet and takes note of what became of their rows.
//!
//! One task for each tablet that has something queued. It never takes the lock of the rows that are being
//! described. A batch ends in one of three ways: written, with some rows refused perhaps; failed as a
//! whole; or encoded again, because the table was altered, and then one of the first two.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::error::{Error, StatusCode};
use crate::proto::tserver::{PerRowErrorPb, ResourceMetricsPb, WriteResponsePb};

use super::lane::Lane;
use super::recode::{Recoded, Recoder};
use super::row_buffers::RowBuffers;
use super::row_errors::RowFailure;
use super::sent_schema::SentSchema;
use super::shared::SessionShared;
use super::write_request::WriteRequest;
use super::{SchemaChange, WriteReport};

/// How often a batch is encoded again before the session believes that it will not be accepted: somebody
/// would have to alter the table between each of its attempts.
const SCHEMAS_MAX: usize = 5;

/// A batch that a server took.
#[derive(Default)]
pub(super) struct Written {
    /// Rows that were not written, by their number in the batch, in which none occurs twice.
    pub(super) failures: Vec<(usize, RowFailure)>,
    /// Rows that the server left alone because their operation says so.
    ignored: u64,
}

/// Writes what is queued for a tablet, until nothing is.
pub(super) async fn run_lane(shared: Arc<SessionShared>, lane: Arc<Lane>) {
    let mut next = lane.pop();
    while let Some(batch) = next {
        let bytes = batch.bytes();
        shared.write(&lane, batch).await;
        // The lane is idle before those who wait are told, so that they find it so.
        next = lane.pop();
        shared.release(bytes);
    }
}

impl SessionShared {
    async fn write(&self, lane: &Lane, batch: RowBuffers) {
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
        // Whoever still has a piece of the request, or keeps the rows as failed, keeps the memory.
        if let Ok(buffers) = Arc::try_unwrap(batch) {
            drop(lane.put_spare(buffers));
        }
    }

    fn keep_failures(&self, batch: &Arc<RowBuffers>, outcome: Result<Written, Error>) {
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

    /// Writes a batch by the schema that the table has.
    async fn write_as_the_schema_is(
        &self,
        lane: &Lane,
        batch: &Arc<RowBuffers>,
        deadline: Instant,
    ) -> Result<Written, Error> {
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
        lane: &Lane,
        schema: &SentSchema,
        batch: &Arc<RowBuffers>,
        deadline: Instant,
    ) -> Result<Written, Error> {
        let request = WriteRequest::new(schema.field.clone(), batch);
        let response = self.target.write(&lane.tablet_id, &request, deadline).await?;
        Ok(Written::new(response, |number| (number < batch.row_count).then_some(number)))
    }

    async fn write_recoded(
        &self,
        lane: &Lane,
        schema: &SentSchema,
        batch: &RowBuffers,
        deadline: Instant,
    ) -> Result<Written, Error> {
        let recoded = Recoder::between(&self.layout, &schema.layout).batch(&self.layout, batch);
        let Recoded { buffers, row_numbers, rejected } = recoded;
        let mut written = Written::default();
        if !buffers.is_empty() {
            let request = WriteRequest::new(schema.field.clone(), &Arc::new(buffers));
            let response = self.target.write(&lane.tablet_id, &request, deadline).await?;
            written = Written::new(response, |number| row_numbers.get(number).copied());
        }
        written.failures.extend(rejected.into_iter().map(|(number, column)| {
            (number, RowFailure::ColumnDropped { column: self.layout.name(column) })
        }));
        Ok(written)
    }

    /// Asks for the table's schema. True if there is another one than the one that was refused.
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

impl Written {
    /// Reads a server's answer. `number_of` gives the number in the batch of a row of the request, and
    /// nothing for a row that there is not.
    pub(super) fn new(
        response: WriteResponsePb,
        number_of: impl Fn(usize) -> Option<usize>,
    ) -> Written {
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
        // A server has no reason to name a row twice, but the counts must be right even then.
        failures.sort_by_key(|(number, _)| *number);
        failures.dedup_by_key(|(number, _)| *number);
        let ignored = response.resource_metrics.map_or(0, |metrics| ignored_rows(&metrics));
        Written { failures, ignored }
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
