//! The lines of an import on their way: in flight in a pipeline, settled in their order.
//!
//! A transient refusal causes a retry, unless a later line in flight writes the same key: that
//! later line wins. Invariant: a line leaves `pending` only after its write was acknowledged or it
//! was skipped. Every line before [`ImportWrites::done`] is therefore complete, even if waiting is
//! cancelled.

use std::collections::VecDeque;

use anyhow::{Context, bail};
use bytes::Bytes;
use indicatif::{HumanCount, ProgressBar};
use oribi_client::{
    Client, ClientError, Collection, DocumentVersion, Operation, Pipeline, PipelineOptions,
    RejectionKind, VersionKind, WriteOptions,
};
use oribi_types::{Cas, Datatype, DurabilityLevel, RevSeqno};

use super::places::Places;
use super::revisions::next_revisions;
use super::state::ImportStateFile;
use crate::doc::expiry;
use crate::doc::input::csv::CsvValues;
use crate::doc::input::{InputPosition, Line};
use crate::doc::row::is_json;
use crate::doc::row::read::{DocumentRow, RowFormat, read};

#[derive(Clone, Copy, Default)]
pub struct ImportTotals {
    pub documents: u64,
    pub bytes: u64,
    pub skipped: u64,
}

/// A line whose write is in flight.
struct Pending {
    before: InputPosition,
    after: InputPosition,
    number: u64,
    collection: Collection,
    key: Bytes,
    value: Bytes,
    write: WriteOptions,
    /// Of a document with attributes, which stand before its value.
    version: Option<DocumentVersion>,
}

/// A record whose document is known.
struct ParsedRecord {
    line: Line,
    row: DocumentRow,
    collection: Collection,
}

/// The state that all lines of an import share.
pub struct ImportShared<'a> {
    pub client: &'a Client,
    /// Options of every write, unless its line overrides them.
    pub options: WriteOptions,
    pub format: RowFormat,
    /// How values of CSV are read.
    pub values: CsvValues,
    /// Report lines that cannot be imported and continue.
    pub skip_bad: bool,
    /// Name of the input, for messages.
    pub name: String,
    pub progress: ProgressBar,
}

pub struct ImportWrites<'a> {
    shared: ImportShared<'a>,
    places: Places<'a>,
    pipeline: Pipeline<'a>,
    pub state: Option<ImportStateFile>,
    pub totals: ImportTotals,
    /// Where the next line begins.
    position: InputPosition,
    /// In the order of the pipeline.
    pending: VecDeque<Pending>,
}

impl<'a> ImportWrites<'a> {
    /// An import with nothing in flight; the first line begins at `position`.
    pub fn new(
        shared: ImportShared<'a>,
        places: Places<'a>,
        in_flight: PipelineOptions,
        state: Option<ImportStateFile>,
        position: InputPosition,
    ) -> ImportWrites<'a> {
        let pipeline = shared.client.pipeline(in_flight);
        let (totals, pending) = (ImportTotals::default(), VecDeque::new());
        ImportWrites { shared, places, pipeline, state, totals, position, pending }
    }

    /// Every line before this position is complete.
    pub fn done(&self) -> InputPosition {
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

    /// Sends the documents of records, or reports an invalid record after all before it are
    /// complete.
    pub async fn take_all(&mut self, lines: Vec<Line>) -> anyhow::Result<()> {
        let mut parsed = Vec::with_capacity(lines.len());
        for line in lines {
            match self.parse(&line).await {
                Ok((row, collection)) => parsed.push(ParsedRecord { line, row, collection }),
                Err(error) => {
                    self.send_all(std::mem::take(&mut parsed)).await?;
                    self.refuse_line(&line, error).await?;
                }
            }
        }
        self.send_all(parsed).await
    }

    async fn parse(&mut self, line: &Line) -> anyhow::Result<(DocumentRow, Collection)> {
        let mut row = match &line.header {
            None => read(&line.bytes, &self.shared.format)?,
            Some(header) => {
                let object = header.object_of(&line.bytes, self.shared.values)?;
                read(&object, &self.shared.format)?
            }
        };
        if !row.attributes.is_empty() && self.shared.options.durability != DurabilityLevel::None {
            bail!(
                "a document with attributes is written with its metadata, which --durability cannot wait for"
            );
        }
        let collection = self.places.of(row.place.take()).await?;
        Ok((row, collection))
    }

    async fn send_all(&mut self, parsed: Vec<ParsedRecord>) -> anyhow::Result<()> {
        let attributed = parsed.iter().filter(|parsed| !parsed.row.attributes.is_empty());
        let documents: Vec<_> =
            attributed.map(|parsed| (&parsed.collection, &parsed.row.key[..])).collect();
        let mut revisions = match documents.is_empty() {
            true => Vec::new(),
            false => next_revisions(self.shared.client, &documents).await?,
        }
        .into_iter();
        for parsed in parsed {
            let rev = if parsed.row.attributes.is_empty() { None } else { revisions.next() };
            let (line, pending) = self.pending_of(parsed, rev);
            if let Err(error) = self.queue(pending).await? {
                self.refuse_line(&line, error).await?;
            }
            self.position = line.after;
        }
        Ok(())
    }

    fn pending_of(&self, parsed: ParsedRecord, rev: Option<RevSeqno>) -> (Line, Pending) {
        let ParsedRecord { line, row, collection } = parsed;
        let expiry = row.expiry.unwrap_or(self.shared.options.expiry);
        let write = self.shared.options.flags(row.flags).expiry(expiry);
        let (before, after, number) = (line.before, line.after, line.number);
        let mut value = row.value;
        let version = rev.map(|rev| {
            let json = if is_json(&value) { Datatype::JSON.0 } else { 0 };
            value = [&row.attributes[..], &value].concat().into();
            DocumentVersion::new(VersionKind::Mutation, Cas(1), rev)
                .new_cas(true)
                .flags(row.flags)
                .expiry(expiry::absolute(expiry))
                .datatype(Datatype(Datatype::XATTR.0 | json))
        });
        (line, Pending { before, after, number, collection, key: row.key, value, write, version })
    }

    async fn refuse_line(&mut self, line: &Line, error: anyhow::Error) -> anyhow::Result<()> {
        if !self.shared.skip_bad {
            self.settle_all().await?;
        }
        self.refuse(line.number, error)?;
        self.position = line.after;
        Ok(())
    }

    /// The inner error is about this document alone.
    async fn queue(&mut self, pending: Pending) -> anyhow::Result<anyhow::Result<()>> {
        while self.pipeline.is_full() {
            self.settle_oldest().await?;
        }
        let operation = operation(&pending);
        match self.pipeline.queue(&pending.collection, &operation) {
            Ok(_) => {
                self.pending.push_back(pending);
                Ok(Ok(()))
            }
            Err(error) if concerns_one_document(&error) => Ok(Err(error.into())),
            Err(error) => {
                let line = pending.number;
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
            is_superseded = self.pending.iter().skip(1).any(|later| later.writes_same(pending));
            if !is_superseded {
                result = self.shared.client.run(&pending.collection, &operation(pending)).await;
            }
        }
        let (line, bytes) = (pending.number, pending.value.len() as u64);
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
        if self.state.as_ref().is_some_and(ImportStateFile::is_due) {
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

impl Pending {
    fn writes_same(&self, other: &Pending) -> bool {
        self.key == other.key && self.collection.path() == other.collection.path()
    }
}

fn operation(pending: &Pending) -> Operation<'_> {
    match &pending.version {
        None => Operation::upsert(&pending.key, pending.value.clone(), &pending.write),
        Some(version) => Operation::with_meta(&pending.key, pending.value.clone(), version),
    }
}

/// Distinguishes refusals of one document, which can be skipped, from failures that end everything.
fn concerns_one_document(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::InvalidKey { .. }
            | ClientError::ValueTooLarge { .. }
            | ClientError::Rejected(
                RejectionKind::TooLarge | RejectionKind::Invalid | RejectionKind::Locked
            )
    )
}

/// True for refusals that may pass on a retry. An upsert is safe to repeat, whatever the outcome of
/// the first attempt.
fn may_retry(error: &ClientError) -> bool {
    error.is_transient()
        || matches!(
            error.rejection(),
            Some(RejectionKind::SyncWriteAmbiguous | RejectionKind::UnknownCollection)
        )
}
