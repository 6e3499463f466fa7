//! Documents from a running server by a list of keys, many reads in flight, in the order of the
//! list.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use oribi_client::{
    Client, ClientError, Collection, Operation, Pipeline, PipelineOptions, Refused, Reply,
};
use oribi_types::Cas;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::lines::{ExportArgs, Lines, Outcome};
use crate::doc::import::display_name;
use crate::doc::input::{Input, Line, Trim};
use crate::doc::place::missing;
use crate::doc::row::write::Meta;

/// Most bytes of values that may wait for output, estimated from the values so far.
const VALUES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads in flight until the values so far allow an estimate of their size.
const IN_FLIGHT_AT_FIRST: usize = 64;

/// Most reads of a document whose value and expiry differ in version because of concurrent writes.
const READS_MAX: usize = 16;

/// Missing keys to name; the others are counted.
const MISSING_SHOWN: u64 = 20;

/// Exports them. It returns an error only before the output begins; the outcome has later failures.
pub async fn run(args: &ExportArgs, keys: &Path) -> anyhow::Result<(Lines, Outcome)> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let input = Input::open(keys, Trim::LineEnd)?;
    let (client, collection) = args.place.connect(true).await?;
    let mut lines = args.lines()?;
    let progress = progress_bar(input.identity.map(|identity| identity.bytes));
    let options = PipelineOptions::new().operations_max(usize::MAX);
    let mut reads = Reads {
        client: &client,
        collection: &collection,
        pipeline: client.pipeline(options),
        pending: VecDeque::new(),
        in_flight_max: args.in_flight,
        with_meta: args.meta,
        name: display_name(keys),
        value_bytes: 0,
        lines: &mut lines,
        progress: progress.clone(),
    };
    let mut input = input.read_ahead();
    let outcome = tokio::select! {
        outcome = reads.run(&mut input) => outcome.map(|()| true),
        _ = interrupts.recv() => Ok(false),
    };
    drop(reads);
    progress.finish_and_clear();
    Ok((lines, outcome))
}

struct Reads<'a> {
    client: &'a Client,
    collection: &'a Collection,
    pipeline: Pipeline<'a>,
    /// In the order of the pipeline, where each has one operation or, with metadata, two.
    pending: VecDeque<Line>,
    in_flight_max: usize,
    with_meta: bool,
    /// Name of the list, for messages.
    name: String,
    /// Sum over all values so far.
    value_bytes: u64,
    lines: &'a mut Lines,
    progress: ProgressBar,
}

impl Reads<'_> {
    async fn run(
        &mut self,
        keys: &mut mpsc::Receiver<anyhow::Result<Vec<Line>>>,
    ) -> anyhow::Result<()> {
        while let Some(batch) = keys.recv().await {
            for line in batch? {
                while self.pending.len() >= self.allowed_in_flight() {
                    self.settle_oldest().await?;
                }
                self.queue(line)?;
            }
            // Let the other tasks run even if answers are always ready.
            tokio::task::yield_now().await;
        }
        while !self.pending.is_empty() {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    /// Fewer with large values, because all reads in flight may be answered at once.
    fn allowed_in_flight(&self) -> usize {
        if self.lines.documents + self.lines.missing < IN_FLIGHT_AT_FIRST as u64 {
            return self.in_flight_max.min(IN_FLIGHT_AT_FIRST);
        }
        let average = self.value_bytes / self.lines.documents.max(1);
        let allowed = VALUES_BYTES_MAX / average.max(1);
        usize::try_from(allowed).unwrap_or(usize::MAX).clamp(1, self.in_flight_max)
    }

    fn queue(&mut self, line: Line) -> anyhow::Result<()> {
        let at = || place_of(&self.name, &line);
        self.pipeline.queue(self.collection, &Operation::get(&line.bytes)).with_context(at)?;
        if self.with_meta {
            let operation = Operation::get_meta(&line.bytes);
            self.pipeline.queue(self.collection, &operation).with_context(at)?;
        }
        self.pending.push_back(line);
        Ok(())
    }

    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let line = self.pending.pop_front().context("no read is in flight")?;
        let key: &Bytes = &line.bytes;
        let mut document = self.result_of(&Operation::get(key), &line).await?;
        let mut meta = match self.with_meta {
            true => self.result_of(&Operation::get_meta(key), &line).await?,
            false => None,
        };
        // If the document is written all the time, the expiry may be that of a later version.
        for _ in 1..READS_MAX {
            if !self.with_meta || is_one_version(document.as_ref(), meta.as_ref()) {
                break;
            }
            let (get, get_meta) = (Operation::get(key), Operation::get_meta(key));
            document = self.decided(self.client.run(self.collection, &get).await, &line)?;
            meta = self.decided(self.client.run(self.collection, &get_meta).await, &line)?;
        }
        self.progress.inc(line.after.offset - line.before.offset);
        let Some(document) = document else {
            self.report_missing(key);
            return Ok(());
        };
        self.value_bytes += document.value.len() as u64;
        let expiry = meta.and_then(|meta| meta.meta()).map_or(0, |meta| meta.expiry);
        let meta = Meta { cas: document.cas.0, flags: document.flags, expiry };
        self.lines.add(key, &document.value, self.with_meta.then_some(&meta))?;
        if self.lines.documents.is_multiple_of(512) {
            self.progress.set_message(format!("{} docs", HumanCount(self.lines.documents)));
        }
        Ok(())
    }

    /// The next result of the pipeline, which is that of `operation`; reads may be repeated.
    async fn result_of(
        &mut self,
        operation: &Operation<'_>,
        line: &Line,
    ) -> anyhow::Result<Option<Reply>> {
        let mut result = self.pipeline.next().await.context("no read is in flight")?.result;
        if !matches!(result, Ok(_) | Err(ClientError::Refused(Refused::NotFound))) {
            result = self.client.run(self.collection, operation).await;
        }
        self.decided(result, line)
    }

    /// A document, none, or a failure with its position.
    fn decided(
        &self,
        result: Result<Reply, ClientError>,
        line: &Line,
    ) -> anyhow::Result<Option<Reply>> {
        match result {
            Ok(reply) => Ok(Some(reply)),
            Err(ClientError::Refused(Refused::NotFound)) => Ok(None),
            Err(error) => Err(anyhow::Error::from(error).context(place_of(&self.name, line))),
        }
    }

    fn report_missing(&mut self, key: &[u8]) {
        self.lines.missing += 1;
        if self.lines.missing <= MISSING_SHOWN {
            let text = missing(OsStr::from_bytes(key), self.collection);
            self.progress.suspend(|| eprintln!("oribi: {text}"));
        }
    }
}

fn place_of(name: &str, line: &Line) -> String {
    format!("{name}: line {}", line.number())
}

/// True when value and metadata are of the same version, or the document does not exist.
fn is_one_version(document: Option<&Reply>, meta: Option<&Reply>) -> bool {
    let Some(document) = document else { return true };
    // A document locked by another client shows no CAS.
    let is_locked = document.cas == Cas(u64::MAX);
    let meta = meta.and_then(Reply::meta);
    is_locked || meta.is_some_and(|meta| !meta.is_deleted && meta.cas == document.cas)
}

fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => {
            (ProgressBar::new(bytes), "{wide_bar} {percent} % of the keys  {msg}  {eta}")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is valid"))
}
