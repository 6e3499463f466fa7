//! The lines of an import on their way: in flight in a pipeline, settled in their order.
//!
//! A transient refusal causes a retry, unless a later line in flight writes the same key: that
//! later line wins. Invariant: a line leaves `pending` only after its write was acknowledged or it
//! was skipped. Every line before [`Writes::done`] is therefore complete, even if waiting is
//! cancelled.

use std::collections::VecDeque;

use anyhow::Context;
use bytes::Bytes;
use indicatif::{HumanCount, ProgressBar};
use oribi_client::{
    Client, ClientError, Collection, Operation, Pipeline, PipelineOptions, Refused, WriteOptions,
};

use super::state::StateFile;
use crate::doc::input::{Line, Position};
use crate::doc::row::read::{RowFormat, read};

/// What was done.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub documents: u64,
    pub bytes: u64,
    pub skipped: u64,
}

/// A line whose write is in flight.
struct Pending {
    before: Position,
    after: Position,
    key: Bytes,
    value: Bytes,
    write: WriteOptions,
}

/// The state that all lines of an import share.
pub struct Shared<'a> {
    pub client: &'a Client,
    pub collection: &'a Collection,
    /// Options of every write, unless its line overrides them.
    pub options: WriteOptions,
    pub format: RowFormat,
    /// Report lines that cannot be imported and go on.
    pub skip_bad: bool,
    /// Name of the input, for messages.
    pub name: String,
    pub progress: ProgressBar,
}

/// See the module.
pub struct Writes<'a> {
    shared: Shared<'a>,
    pipeline: Pipeline<'a>,
    pub state: Option<StateFile>,
    pub totals: Totals,
    /// Where the next line begins.
    position: Position,
    /// In the order of the pipeline.
    pending: VecDeque<Pending>,
}

impl<'a> Writes<'a> {
    /// An import with nothing in flight; the first line begins at `position`.
    pub fn new(
        shared: Shared<'a>,
        in_flight: PipelineOptions,
        state: Option<StateFile>,
        position: Position,
    ) -> Writes<'a> {
        let pipeline = shared.client.pipeline(in_flight);
        let (totals, pending) = (Totals::default(), VecDeque::new());
        Writes { shared, pipeline, state, totals, position, pending }
    }

    /// Every line before this position is complete.
    pub fn done(&self) -> Position {
        self.pending.front().map_or(self.position, |oldest| oldest.before)
    }

    /// Records the progress, if there is a state file. A failure does not end the import.
    pub fn save(&mut self) {
        let done = self.done();
        let Some(state) = &mut self.state else { return };
        if let Err(error) = state.save(done) {
            self.shared
                .progress
                .suspend(|| eprintln!("oribi: this import cannot be resumed: {error:#}"));
            self.state = None;
        }
    }

    /// Sends a line's document, or reports an invalid line after all lines before it are complete.
    pub async fn take(&mut self, line: Line) -> anyhow::Result<()> {
        let queued = match read(&line.bytes, &self.shared.format) {
            Ok(row) => {
                let expiry = row.expiry.unwrap_or(self.shared.options.expiry);
                let write = self.shared.options.flags(row.flags).expiry(expiry);
                let (before, after) = (line.before, line.after);
                self.queue(Pending { before, after, key: row.key, value: row.value, write }).await?
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = queued {
            if !self.shared.skip_bad {
                self.settle_all().await?;
            }
            self.refuse(line.number(), error)?;
        }
        self.position = line.after;
        Ok(())
    }

    /// The inner error is about this document alone.
    async fn queue(&mut self, pending: Pending) -> anyhow::Result<anyhow::Result<()>> {
        while self.pipeline.is_full() {
            self.settle_oldest().await?;
        }
        let operation = operation(&pending);
        match self.pipeline.queue(self.shared.collection, &operation) {
            Ok(_) => {
                self.pending.push_back(pending);
                Ok(Ok(()))
            }
            Err(error) if concerns_one_document(&error) => Ok(Err(error.into())),
            Err(error) => {
                let line = pending.after.line;
                Err(anyhow::Error::from(error)
                    .context(format!("{}: line {line}", self.shared.name)))
            }
        }
    }

    /// Waits for everything in flight.
    pub async fn settle_all(&mut self) -> anyhow::Result<()> {
        while !self.pending.is_empty() {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    /// Waits for the oldest write's result and handles it.
    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let mut result = self.pipeline.next().await.context("no write is in flight")?.result;
        // It stays in `pending` until its outcome, because waiting here may be cancelled.
        let pending = self.pending.front().context("no line is in flight")?;
        let mut is_superseded = false;
        if result.as_ref().is_err_and(may_retry) {
            // The later line wins.
            is_superseded = self.pending.iter().skip(1).any(|later| later.key == pending.key);
            if !is_superseded {
                result = self.shared.client.run(self.shared.collection, &operation(pending)).await;
            }
        }
        let (line, bytes) = (pending.after.line, pending.value.len() as u64);
        let line_bytes = pending.after.offset - pending.before.offset;
        match result {
            Ok(_) => self.acknowledge(bytes, line_bytes),
            Err(_) if is_superseded => self.acknowledge(bytes, line_bytes),
            Err(error) if concerns_one_document(&error) => self.refuse(line, error.into())?,
            Err(error) => {
                return Err(anyhow::Error::from(error)
                    .context(format!("{}: line {line}", self.shared.name)));
            }
        }
        self.pending.pop_front();
        if self.state.as_ref().is_some_and(StateFile::is_due) {
            self.save();
        }
        Ok(())
    }

    fn refuse(&mut self, line: u64, error: anyhow::Error) -> anyhow::Result<()> {
        if !self.shared.skip_bad {
            return Err(error.context(format!("{}: line {line}", self.shared.name)));
        }
        self.totals.skipped += 1;
        self.shared
            .progress
            .suspend(|| eprintln!("{}: line {line} skipped: {error:#}", self.shared.name));
        Ok(())
    }

    fn acknowledge(&mut self, bytes: u64, line_bytes: u64) {
        self.totals.documents += 1;
        self.totals.bytes += bytes;
        self.shared.progress.inc(line_bytes);
        if self.totals.documents.is_multiple_of(512) {
            let seconds = self.shared.progress.elapsed().as_secs_f64().max(0.001);
            let per_second = (self.totals.documents as f64 / seconds) as u64;
            let documents = HumanCount(self.totals.documents);
            let message = format!("{documents} docs, {}/s", HumanCount(per_second));
            self.shared.progress.set_message(message);
        }
    }
}

fn operation(pending: &Pending) -> Operation<'_> {
    Operation::upsert(&pending.key, pending.value.clone(), &pending.write)
}

/// Distinguishes refusals of one document, which can be skipped, from failures that end everything.
fn concerns_one_document(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::InvalidKey { .. }
            | ClientError::ValueTooLarge { .. }
            | ClientError::Refused(Refused::TooLarge | Refused::Invalid | Refused::Locked)
    )
}

/// True for refusals that may pass on a retry. An upsert is safe to repeat, whatever the outcome of
/// the first attempt.
fn may_retry(error: &ClientError) -> bool {
    error.is_transient()
        || matches!(error.refused(), Some(Refused::SyncWriteAmbiguous | Refused::UnknownCollection))
}
