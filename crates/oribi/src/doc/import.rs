//! `oribi doc import`: a file of JSON lines into a collection, thousands of writes in flight.
//!
//! The file is streamed, and what is in flight is bounded by the pipeline, so memory does not grow with
//! the file. Answers are taken in the order of the lines. A line that is no document, or that the
//! server refuses for good, ends the import with its number (or is skipped when asked for);
//! everything acknowledged before that stays.
//!
//! A write that is refused for the moment is tried again on its own, unless a later line in flight
//! writes the same key: then the later one is what the file means the document to be.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use oribi_client::pipeline::{Pipeline, PipelineOptions};
use oribi_client::{Client, ClientError, Collection, FLAGS_JSON, Operation, Refused, WriteOptions};
use oribi_types::DurabilityLevel;
use serde_json::json;

use super::row;
use super::{Durability, Place};

/// Longest line that is read: the largest document and a line end.
const LINE_BYTES_MAX: u64 = 20 * 1024 * 1024 + 2;

const READ_BLOCK_BYTES: usize = 1024 * 1024;

/// Arguments of `oribi doc import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// File with one JSON object a line; - reads standard input.
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    /// Field of each object that holds its key.
    #[arg(long, default_value = "_key")]
    key_field: String,
    /// When a write counts as done.
    #[arg(long, value_enum, default_value_t = Durability::None)]
    durability: Durability,
    /// Report lines that cannot be imported and go on, instead of ending at the first.
    #[arg(long)]
    skip_bad: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Most writes in flight.
    #[arg(long, default_value_t = PipelineOptions::default().operations_max)]
    #[arg(value_parser = parse_in_flight)]
    in_flight: usize,
}

fn parse_in_flight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1_000_000) => Ok(count),
        _ => Err("a number from 1 to 1000000 is needed".to_owned()),
    }
}

/// Imports the file and prints the summary.
pub async fn run(args: ImportArgs) -> anyhow::Result<()> {
    let mut input = Input::open(&args.file)?;
    let durability = DurabilityLevel::from(args.durability);
    // In order, a later line wins over an earlier one with the same key by itself. Durable writes
    // would then wait for each other, so those may overlap.
    let unordered_execution = durability != DurabilityLevel::None;
    let (client, collection) = args.place.connect(unordered_execution).await?;
    let options = PipelineOptions { operations_max: args.in_flight, ..PipelineOptions::default() };
    let mut import = Import {
        client: &client,
        collection: &collection,
        write: WriteOptions { flags: FLAGS_JSON, durability, ..WriteOptions::default() },
        skip_bad: args.skip_bad,
        pipeline: client.pipeline(options),
        pending: VecDeque::new(),
        progress: progress_bar(input.bytes),
        totals: Totals::default(),
    };
    let started = Instant::now();
    let outcome = import.run(&mut input, &args.key_field).await;
    import.progress.finish_and_clear();
    let totals = import.totals;
    outcome.with_context(|| {
        let file = args.file.display();
        format!("importing {file} stopped after {} documents", HumanCount(totals.documents))
    })?;
    print_summary(&totals, started.elapsed(), args.json);
    Ok(())
}

/// What was done.
#[derive(Clone, Copy, Default)]
struct Totals {
    documents: u64,
    bytes: u64,
    skipped: u64,
}

/// A line whose write is in flight.
struct Pending {
    line: u64,
    key: String,
    value: Bytes,
}

struct Import<'a> {
    client: &'a Client,
    collection: &'a Collection,
    write: WriteOptions,
    skip_bad: bool,
    pipeline: Pipeline<'a>,
    /// Same order as in the pipeline.
    pending: VecDeque<Pending>,
    progress: ProgressBar,
    totals: Totals,
}

impl Import<'_> {
    async fn run(&mut self, input: &mut Input, key_field: &str) -> anyhow::Result<()> {
        while let Some((line, bytes)) = input.next_line()? {
            match row::key_of(&bytes, key_field) {
                Ok(key) => self.send(Pending { line, key, value: bytes.into() }).await?,
                Err(error) => self.refuse(line, error.into())?,
            }
        }
        while !self.pending.is_empty() {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    async fn send(&mut self, pending: Pending) -> anyhow::Result<()> {
        while self.pipeline.is_full() {
            self.settle_oldest().await?;
        }
        let operation = self.operation(&pending);
        match self.pipeline.queue(self.collection, &operation) {
            Ok(_) => self.pending.push_back(pending),
            Err(error) => self.refuse_or_fail(pending.line, error)?,
        }
        Ok(())
    }

    fn operation<'p>(&self, pending: &'p Pending) -> Operation<'p> {
        Operation::upsert(pending.key.as_bytes(), pending.value.clone(), &self.write)
    }

    /// Waits for the oldest write's result and does what it calls for.
    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let (_, mut result) = self.pipeline.next().await.context("no write is in flight")?;
        let pending = self.pending.pop_front().context("no line is in flight")?;
        if result.as_ref().is_err_and(may_retry) {
            if self.is_superseded(&pending) {
                self.acknowledge(&pending);
                return Ok(());
            }
            result = self.client.run(self.collection, &self.operation(&pending)).await;
        }
        match result {
            Ok(_) => {
                self.acknowledge(&pending);
                Ok(())
            }
            Err(error) => self.refuse_or_fail(pending.line, error),
        }
    }

    /// True when a later line with the same key is in flight: that one will be the document.
    fn is_superseded(&self, pending: &Pending) -> bool {
        self.pending.iter().any(|later| later.key == pending.key)
    }

    /// Tells refusals of one document, which can be skipped, from failures that end everything.
    fn refuse_or_fail(&mut self, line: u64, error: ClientError) -> anyhow::Result<()> {
        let concerns_one_document = matches!(
            error,
            ClientError::InvalidKey { .. }
                | ClientError::ValueTooLarge { .. }
                | ClientError::Refused(Refused::TooLarge | Refused::Invalid | Refused::Locked)
        );
        if concerns_one_document {
            return self.refuse(line, error.into());
        }
        Err(anyhow::Error::from(error).context(format!("line {line}")))
    }

    fn refuse(&mut self, line: u64, error: anyhow::Error) -> anyhow::Result<()> {
        if !self.skip_bad {
            return Err(error.context(format!("line {line}")));
        }
        self.totals.skipped += 1;
        self.progress.suspend(|| eprintln!("line {line} skipped: {error}"));
        Ok(())
    }

    fn acknowledge(&mut self, pending: &Pending) {
        self.totals.documents += 1;
        self.totals.bytes += pending.value.len() as u64;
        self.progress.inc(pending.value.len() as u64 + 1);
        if self.totals.documents.is_multiple_of(512) {
            let seconds = self.progress.elapsed().as_secs_f64().max(0.001);
            let per_second = (self.totals.documents as f64 / seconds) as u64;
            let documents = HumanCount(self.totals.documents);
            let message = format!("{documents} docs, {}/s", HumanCount(per_second));
            self.progress.set_message(message);
        }
    }
}

/// True for refusals that another attempt may turn into success, here because an upsert may be
/// repeated whatever became of the first one.
fn may_retry(error: &ClientError) -> bool {
    error.is_transient()
        || matches!(error.refused(), Some(Refused::SyncWriteAmbiguous | Refused::UnknownCollection))
}

fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            // The bar takes what the rest leaves of the line: about thirty columns of eighty.
            "{wide_bar} {bytes}/{total_bytes}  {msg}  {eta}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {msg}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    bar.with_style(style)
}

fn print_summary(totals: &Totals, elapsed: Duration, as_json: bool) {
    let seconds = elapsed.as_secs_f64();
    let per_second = totals.documents as f64 / seconds.max(0.000_001);
    if as_json {
        let summary = json!({
            "documents": totals.documents,
            "bytes": totals.bytes,
            "skipped": totals.skipped,
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "documents_per_s": per_second.round() as u64,
        });
        println!("{summary}");
        return;
    }
    let skipped = match totals.skipped {
        0 => String::new(),
        skipped => format!(", {} skipped", HumanCount(skipped)),
    };
    println!(
        "imported {} documents ({}) in {seconds:.2} s, {} docs/s{skipped}",
        HumanCount(totals.documents),
        HumanBytes(totals.bytes),
        HumanCount(per_second.round() as u64),
    );
}

/// The file being imported.
struct Input {
    reader: Box<dyn BufRead>,
    /// Size, when it is known beforehand.
    bytes: Option<u64>,
    line: u64,
}

impl Input {
    fn open(path: &Path) -> anyhow::Result<Input> {
        if path == Path::new("-") {
            let reader = Box::new(BufReader::new(std::io::stdin()));
            return Ok(Input { reader, bytes: None, line: 0 });
        }
        let context = || format!("cannot open {}", path.display());
        let file = File::open(path).with_context(context)?;
        let metadata = file.metadata().with_context(context)?;
        if metadata.is_dir() {
            bail!("{} is a directory", path.display());
        }
        let reader = Box::new(BufReader::with_capacity(READ_BLOCK_BYTES, file));
        // A pipe has no size.
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Input { reader, bytes, line: 0 })
    }

    /// The next line that is not blank, with its number from 1, without its line end.
    fn next_line(&mut self) -> anyhow::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let mut bytes = Vec::new();
            let read = (&mut self.reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut bytes)
                .with_context(|| format!("reading line {}", self.line + 1))?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            if read as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n") {
                bail!("line {} is longer than any document may be", self.line);
            }
            let content = bytes.trim_ascii_end().len();
            bytes.truncate(content);
            if !bytes.is_empty() {
                return Ok(Some((self.line, bytes)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Reading lines; what happens to them is tested against a running server.

    use super::*;

    fn lines(bytes: &'static [u8]) -> Vec<(u64, Vec<u8>)> {
        let mut input = Input { reader: Box::new(bytes), bytes: None, line: 0 };
        std::iter::from_fn(|| input.next_line().unwrap()).collect()
    }

    #[test]
    fn numbers_lines_and_skips_blank_ones() {
        let expected = vec![(1, b"a".to_vec()), (4, b" b".to_vec()), (5, b"c".to_vec())];
        assert_eq!(lines(b"a\r\n\n  \n b\nc"), expected);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn refuses_endless_lines() {
        let endless = BufReader::new(std::io::repeat(b'x'));
        let mut input = Input { reader: Box::new(endless), bytes: None, line: 0 };
        let error = input.next_line().unwrap_err();
        assert_eq!(error.to_string(), "line 1 is longer than any document may be");
    }
}
