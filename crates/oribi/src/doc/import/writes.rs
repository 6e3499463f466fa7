//! The lines of an import on their way: in flight in a pipeline, settled in their order.
//!
//! A write that is refused for the moment is tried again on its own, unless a later line in flight
//! writes the same key: then the later one is what the file means the document to be. Invariant: a
//! line leaves `pending` only when its write was acknowledged or it was skipped, so everything before
//! [`Writes::done`] is done, also when this is abandoned in the middle of waiting.

use std::collections::VecDeque;

use anyhow::Context;
use bytes::Bytes;
use indicatif::{HumanCount, ProgressBar};
use oribi_client::pipeline::{Pipeline, PipelineOptions};
use oribi_client::{Client, ClientError, Collection, Operation, Refused, WriteOptions};

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

/// What all lines of an import share.
pub struct Shared<'a> {
    pub client: &'a Client,
    pub collection: &'a Collection,
    /// Options of every write, where its line says nothing else.
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
    /// Same order as in the pipeline.
    pending: VecDeque<Pending>,
}

impl<'a> Writes<'a> {
    /// Nothing is in flight yet; the first line begins at `position`.
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

    /// Everything before this place is done.
    pub fn done(&self) -> Position {
        self.pending.front().map_or(self.position, |oldest| oldest.before)
    }

    /// Records how far the import came, if that is kept. Failing to is no reason to end the import.
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

    /// Sends a line's document, or says what is wrong with the line once all before it are done.
    pub async fn take(&mut self, line: Line) -> anyhow::Result<()> {
        let queued = match read(&line.bytes, &self.shared.format) {
            Ok(row) => {
                let write = WriteOptions {
                    flags: row.flags,
                    expiry: row.expiry.unwrap_or(self.shared.options.expiry),
                    ..self.shared.options
                };
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

    /// Waits for the oldest write's result and does what it calls for.
    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let (_, mut result) = self.pipeline.next().await.context("no write is in flight")?;
        // It stays in `pending` until it is decided, because waiting may be abandoned here.
        let pending = self.pending.front().context("no line is in flight")?;
        let mut is_superseded = false;
        if result.as_ref().is_err_and(may_retry) {
            // The later line will be the document.
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

/// Tells refusals of one document, which can be skipped, from failures that end everything.
fn concerns_one_document(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::InvalidKey { .. }
            | ClientError::ValueTooLarge { .. }
            | ClientError::Refused(Refused::TooLarge | Refused::Invalid | Refused::Locked)
    )
}

/// True for refusals that another attempt may turn into success, here because an upsert may be
/// repeated whatever became of the first one.
fn may_retry(error: &ClientError) -> bool {
    error.is_transient()
        || matches!(error.refused(), Some(Refused::SyncWriteAmbiguous | Refused::UnknownCollection))
}
