//! Documents from a running server by a list of keys, many reads in flight, in the order of the
//! list.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use indicatif::{HumanCount, ProgressBar};
use oribi_client::{
    Client, ClientError, Collection, DocumentMeta, Lookup, LookupInOptions, LookupInReply,
    Operation, Pipeline, PipelineOptions, RejectionKind, Reply,
};
use oribi_types::Cas;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::lines::{ExportArgs, ExportLines, ExportOutcome};
use crate::backup::progress::with_rate_and_left;
use crate::doc::import::display_name;
use crate::doc::input::{DocumentInput, Framing, Line};
use crate::doc::place::missing;
use crate::doc::row::attributes::{attributes_of, block_from, is_path};
use crate::doc::row::write::WriteMeta;
use crate::target::find_collection;

/// Most bytes of values that may wait for output, estimated from the values so far.
const VALUES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads in flight until the values so far allow an estimate of their size.
const IN_FLIGHT_AT_FIRST: usize = 64;

/// Most reads of a document whose value and expiry differ in version because of concurrent writes.
const READS_MAX: usize = 16;

/// Most paths of a lookup.
const PATHS_MAX: usize = 16;

/// The attribute that lists all others, and a name of the system's that no document has.
const NAMES: &str = "$XTOC";
const A_SYSTEM_NAME: &str = "_";

/// Missing keys to name; the others are counted.
const MISSING_SHOWN: u64 = 20;

/// Exports them. It returns an error only before the output begins; the outcome has later failures.
pub async fn run(args: &ExportArgs, keys: &Path) -> anyhow::Result<(ExportLines, ExportOutcome)> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let input = DocumentInput::open(keys, Framing::ExactLines)?;
    let options = args.target.options()?.unordered_execution(true);
    let client = args.target.client(options).await?;
    let path = args.collections.first().map(String::as_str);
    let collection = find_collection(&client, path).await?;
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
    /// In the order of the pipeline, where each has one operation or, with metadata, three.
    pending: VecDeque<Line>,
    in_flight_max: usize,
    with_meta: bool,
    /// Name of the list, for messages.
    name: String,
    /// Sum over all values so far.
    value_bytes: u64,
    lines: &'a mut ExportLines,
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
            for operation in [Operation::get_meta(&line.bytes), names_in(&line.bytes)?] {
                self.pipeline.queue(self.collection, &operation).with_context(at)?;
            }
        }
        self.pending.push_back(line);
        Ok(())
    }

    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let line = self.pending.pop_front().context("no read is in flight")?;
        let key: &Bytes = &line.bytes;
        self.progress.inc(line.after.offset - line.before.offset);
        let document = self.result_of(&Operation::get(key), &line).await?;
        let Some((document, meta)) = (match self.with_meta {
            true => self.with_meta(document, &line).await?,
            false => document.map(|document| (document, None)),
        }) else {
            self.report_missing(key);
            return Ok(());
        };
        self.value_bytes += document.value.len() as u64;
        match meta {
            None => self.lines.add(key, &document.value, None)?,
            Some((meta, block)) => {
                let (attributes, _) = attributes_of(&block, !block.is_empty())?;
                let (flags, expiry) = (document.flags, meta.expiry);
                let meta =
                    WriteMeta { cas: document.cas.0, flags, expiry, attributes, place: None };
                self.lines.add(key, &document.value, Some(&meta))?;
            }
        }
        if self.lines.documents.is_multiple_of(512) {
            self.progress.set_message(format!("{} docs", HumanCount(self.lines.documents)));
        }
        Ok(())
    }

    /// The document with its metadata, all of one version; `None` when there is none.
    async fn with_meta(
        &mut self,
        mut document: Option<Reply>,
        line: &Line,
    ) -> anyhow::Result<Option<(Reply, Option<(DocumentMeta, Vec<u8>)>)>> {
        let key: &Bytes = &line.bytes;
        let (get, get_meta, names) =
            (Operation::get(key), Operation::get_meta(key), names_in(key)?);
        let mut meta = self.result_of(&get_meta, line).await?;
        let mut attributes = self.result_of(&names, line).await?;
        // If the document is written all the time, the metadata may be that of a later version.
        for _ in 1..READS_MAX {
            let Some(found) = document.take() else { return Ok(None) };
            let block = match &attributes {
                Some(names) => self.attributes(names, line).await?,
                None => None,
            };
            let block = block.filter(|(_, cas)| is_locked(&found) || *cas == found.cas);
            if let (Some(meta), Some((block, _))) = (meta_of_version(&found, meta.as_ref()), block)
            {
                return Ok(Some((found, Some((meta, block)))));
            }
            document = self.decided(self.client.run(self.collection, &get).await, line)?;
            meta = self.decided(self.client.run(self.collection, &get_meta).await, line)?;
            attributes = self.decided(self.client.run(self.collection, &names).await, line)?;
        }
        bail!("{}: the document changes all the time", place_of(&self.name, line))
    }

    /// The block of the attributes that a lookup of names found, and the CAS of its document;
    /// `None` when it changes between the reads.
    async fn attributes(
        &mut self,
        names: &Reply,
        line: &Line,
    ) -> anyhow::Result<Option<(Vec<u8>, Cas)>> {
        let names = names_found(names).with_context(|| place_of(&self.name, line))?;
        let (names, cas) = names;
        let mut pairs = Vec::with_capacity(names.len());
        for names in names.chunks(PATHS_MAX) {
            if let Some(name) = names.iter().find(|name| !is_path(name)) {
                let at = place_of(&self.name, line);
                bail!("{at}: attribute {name:?} cannot be looked up; export without --keys");
            }
            let paths: Vec<Lookup<'_>> =
                names.iter().map(|name| Lookup::get(name).xattr()).collect();
            let operation = Operation::lookup_in(&line.bytes, &paths, &LookupInOptions::new())?;
            let reply = self.client.run(self.collection, &operation).await;
            let Some(reply) = self.decided(reply, line)? else { return Ok(None) };
            let found = LookupInReply::decode(reply, paths.len())?;
            if found.cas != cas {
                return Ok(None);
            }
            for (name, value) in names.iter().zip(found.values) {
                let value = value.with_context(|| place_of(&self.name, line))?;
                pairs.push((name.clone(), value));
            }
        }
        Ok(Some((block_from(&pairs)?, cas)))
    }

    /// The next result of the pipeline, which is that of `operation`; reads may be repeated.
    async fn result_of(
        &mut self,
        operation: &Operation<'_>,
        line: &Line,
    ) -> anyhow::Result<Option<Reply>> {
        let mut result = self.pipeline.next().await.context("no read is in flight")?.result;
        if !matches!(result, Ok(_) | Err(ClientError::Rejected(RejectionKind::NotFound))) {
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
            Err(ClientError::Rejected(RejectionKind::NotFound)) => Ok(None),
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
    format!("{name}: line {}", line.number)
}

/// Requests the names of a document's attributes. The second path demands the right to read those
/// of the system, without which the list would lack them.
fn names_in(key: &[u8]) -> anyhow::Result<Operation<'_>> {
    let paths = [Lookup::get(NAMES).xattr(), Lookup::exists(A_SYSTEM_NAME).xattr()];
    Ok(Operation::lookup_in(key, &paths, &LookupInOptions::new())?)
}

/// The names that [`names_in`] found, and the CAS of their document.
fn names_found(reply: &Reply) -> anyhow::Result<(Vec<String>, Cas)> {
    let found = LookupInReply::decode(reply.clone(), 2)?;
    let names = found.values.into_iter().next().context("an answer without its first value")??;
    let names = serde_json::from_slice(&names).context("the names of the attributes")?;
    Ok((names, found.cas))
}

/// A document locked by another client shows no CAS.
fn is_locked(document: &Reply) -> bool {
    document.cas == Cas(u64::MAX)
}

/// The metadata if it is of the same version as the document.
fn meta_of_version(document: &Reply, meta: Option<&Reply>) -> Option<DocumentMeta> {
    let meta = meta.and_then(Reply::meta).filter(|meta| !meta.is_deleted)?;
    (is_locked(document) || meta.cas == document.cas).then_some(meta)
}

fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => {
            (ProgressBar::new(bytes), "{wide_bar} {percent} % of the keys  {msg}  {left}")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.with_style(with_rate_and_left(template))
}
