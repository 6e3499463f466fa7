//! `oribi doc import`: a file of JSON lines, a JSON array or CSV into collections, thousands of
//! writes in flight.
//!
//! The command streams the file, and the pipeline bounds the writes in flight, so memory does not
//! grow with the file. It takes answers in line order. An invalid line, or one that the server
//! refuses for good, ends the import with its number; `--skip-bad` skips it. All acknowledged
//! writes stay, and `--resume` continues from there.

mod places;
mod revisions;
mod state;
mod writes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{HumanCount, ProgressBar};
use oribi_client::{PipelineOptions, WriteOptions};
use oribi_types::DurabilityLevel;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::places::Places;
use self::state::{Destination, ImportStateFile, State};
use self::writes::{ImportShared, ImportTotals, ImportWrites};
use super::expiry;
use super::input::csv::CsvValues;
use super::input::{DocumentInput, Framing, InputPosition, Line};
use super::place::CollectionTarget;
use super::row::key::{KeySource, KeyTemplate};
use super::row::read::RowFormat;
use super::row::{KEY, parse_key_field};
use crate::admin::AdminArgs;
use crate::backup::progress::{amount, with_rate_and_left};
use crate::print;
use crate::target::{DurabilityArgument, INTERRUPTED};

/// Suffix of the state file next to the input.
const STATE_SUFFIX: &str = ".oribi-import";

/// Heading of the file's options in the help.
const INPUT: &str = "Input";

/// Format of a file.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// One JSON object a line.
    Lines,
    /// A JSON array of objects.
    Array,
    /// Fields separated by commas; the first line names them.
    Csv,
    /// The same, separated by tabs.
    Tsv,
}

/// Arguments of `oribi doc import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// File with one JSON object a line, a JSON array of objects, or CSV; - reads standard input.
    file: PathBuf,
    #[command(flatten)]
    place: CollectionTarget,
    #[command(flatten)]
    admin: AdminArgs,
    /// What the file has [default: csv if its name ends in .csv, tsv for .tsv, else array or lines,
    /// whichever it begins like].
    #[arg(long, value_enum, help_heading = INPUT)]
    format: Option<Format>,
    /// With CSV: numbers, true, false and null are such, instead of strings.
    #[arg(long, help_heading = INPUT)]
    infer_types: bool,
    /// With CSV: leave fields without a value out of the documents.
    #[arg(long, help_heading = INPUT)]
    omit_empty: bool,
    /// Field of each object that holds its key.
    #[arg(long, help_heading = INPUT, value_name = "FIELD", default_value = KEY, value_parser = parse_key_field)]
    key_field: String,
    /// Make keys from fields of each object, as in '{type}::{id}'; {a.b} is field b of the object
    /// a.
    #[arg(long, help_heading = INPUT, value_name = "TEMPLATE", conflicts_with_all = ["key_field", "drop_key", "meta"])]
    key: Option<KeyTemplate>,
    /// Leave the key field out of the documents: the default for the field _key, which exports
    /// add.
    #[arg(long, help_heading = INPUT)]
    drop_key: bool,
    /// Keep the field _key in the documents.
    #[arg(long, help_heading = INPUT, conflicts_with_all = ["drop_key", "meta"])]
    keep_key: bool,
    /// Read lines that `export --meta` wrote: take flags, expiry, extended attributes and
    /// collection from them, and leave these fields and the key out of the documents.
    #[arg(long, help_heading = INPUT)]
    meta: bool,
    /// Create scopes and collections that are missing, by the server's admin HTTP.
    #[arg(long)]
    create_collections: bool,
    /// Expiry: seconds, or a time such as 90s, 15m, 12h or 7d, or @UNIXTIME; 0 for never.
    #[arg(long, value_name = "TIME", value_parser = expiry::parse, default_value = "0")]
    expiry: u32,
    /// Durability of a write.
    #[arg(long, value_enum, default_value_t = DurabilityArgument::None)]
    durability: DurabilityArgument,
    /// Continue where an earlier import of this file stopped. If the server may have crashed
    /// concurrently, use --durability persist for both.
    #[arg(long)]
    resume: bool,
    /// File that records progress, removed at the end [default: FILE.oribi-import].
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Report lines that cannot be imported and continue, instead of stopping at the first.
    #[arg(long)]
    skip_bad: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Most writes in flight.
    #[arg(long, value_name = "COUNT", default_value_t = PipelineOptions::default().operations_max)]
    #[arg(value_parser = parse_in_flight)]
    in_flight: usize,
}

/// Takes a number of operations from the command line.
pub fn parse_in_flight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1_000_000) => Ok(count),
        _ => Err("a number from 1 to 1000000 is needed".to_owned()),
    }
}

/// Imports the file and prints the summary.
pub async fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let mut input = DocumentInput::open(&args.file, args.framing())?;
    if input.identity.is_none() && (args.resume || args.state.is_some()) {
        bail!("only the import of a regular file can be resumed");
    }
    let durability = DurabilityLevel::from(args.durability);
    // In order, a later line wins over an earlier one with the same key. Durable writes would then
    // wait for each other, so those may overlap.
    let unordered_execution = durability != DurabilityLevel::None;
    let options = args.place.target.options()?.unordered_execution(unordered_execution);
    let client = args.place.target.client(options).await?;
    let create = args.create_collections.then_some(&args.admin);
    let places = Places::new(&client, &args.place, create).await?;
    let state = match input.identity {
        Some(_) => {
            let destination = Destination::of(&client, places.default()).await?;
            if args.resume {
                args.go_to_last_place(&mut input, &destination)?;
            }
            args.begin_state(&input, destination)?
        }
        None => None,
    };
    let (start, bytes) = (input.position(), input.identity.map(|identity| identity.bytes));
    let shared = ImportShared {
        client: &client,
        options: WriteOptions::new().expiry(args.expiry).durability(durability),
        format: args.row_format(),
        values: CsvValues { infer_types: args.infer_types, omit_empty: args.omit_empty },
        skip_bad: args.skip_bad,
        name: display_name(&args.file),
        progress: progress_bar(bytes, start),
    };
    let progress = shared.progress.clone();
    let in_flight = PipelineOptions::new().operations_max(args.in_flight);
    let mut writes = ImportWrites::new(shared, places, in_flight, state, start);
    let mut lines = input.read_ahead();
    let started = Instant::now();
    let outcome = tokio::select! {
        outcome = import(&mut writes, &mut lines) => outcome.map(|()| false),
        _ = interrupts.recv() => Ok(true),
    };
    progress.finish_and_clear();
    args.finish(writes, outcome, start, started.elapsed())
}

async fn import(
    writes: &mut ImportWrites<'_>,
    lines: &mut mpsc::Receiver<anyhow::Result<Vec<Line>>>,
) -> anyhow::Result<()> {
    while let Some(batch) = lines.recv().await {
        writes.take_all(batch?).await?;
        // Let the other tasks run even if answers are always ready.
        tokio::task::yield_now().await;
        if lines.is_empty() && writes.state.is_none() {
            // Complete the typed lines before waiting for more.
            writes.settle_all().await?;
        }
    }
    writes.settle_all().await
}

impl ImportArgs {
    fn row_format(&self) -> RowFormat {
        let key = match &self.key {
            Some(template) => KeySource::Template(template.clone()),
            None => KeySource::Field(self.key_field.clone()),
        };
        let is_usual = self.key.is_none() && self.key_field == KEY;
        RowFormat { key, meta: self.meta, drop_key: self.drop_key || (is_usual && !self.keep_key) }
    }

    fn framing(&self) -> Framing {
        let extension = self.file.extension().unwrap_or_default().to_ascii_lowercase();
        match self.format {
            Some(Format::Lines) => Framing::Lines,
            Some(Format::Array) => Framing::Array,
            Some(Format::Csv) => Framing::Csv { separator: b',' },
            Some(Format::Tsv) => Framing::Csv { separator: b'\t' },
            None if extension == "csv" => Framing::Csv { separator: b',' },
            None if extension == "tsv" => Framing::Csv { separator: b'\t' },
            None => Framing::Json,
        }
    }

    fn state_path(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| {
            let mut name = OsString::from(&self.file);
            name.push(STATE_SUFFIX);
            PathBuf::from(name)
        })
    }

    fn go_to_last_place(&self, input: &mut DocumentInput, to: &Destination) -> anyhow::Result<()> {
        let path = self.state_path();
        let Some(state) = State::read(&path)? else {
            eprintln!("oribi: there is no {}, so this begins at the first line", path.display());
            return Ok(());
        };
        let refused = || format!("cannot resume from {}", path.display());
        state.check(to).with_context(refused)?;
        if !input.resume(state.position, state.file())? {
            let (file, line) = (self.file.display(), state.position.line);
            return Err(anyhow::anyhow!("{file} is another file up to line {line}"))
                .with_context(refused);
        }
        Ok(())
    }

    fn begin_state(
        &self,
        input: &DocumentInput,
        destination: Destination,
    ) -> anyhow::Result<Option<ImportStateFile>> {
        let Some(identity) = input.identity else { return Ok(None) };
        match ImportStateFile::begin(self.state_path(), identity, destination, input.position()) {
            Ok(state) => Ok(Some(state)),
            // The user did not ask for it, and the directory may be read-only.
            Err(error) if self.state.is_none() && !self.resume => {
                eprintln!("oribi: this import cannot be resumed: {error:#}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// `outcome` is true if the import was interrupted.
    fn finish(
        &self,
        mut writes: ImportWrites<'_>,
        outcome: anyhow::Result<bool>,
        start: InputPosition,
        elapsed: Duration,
    ) -> anyhow::Result<ExitCode> {
        let totals = writes.totals;
        if let Ok(false) = outcome {
            if let Some(state) = writes.state.take() {
                state.remove()?;
            }
            print_summary(&totals, start, elapsed, None, self.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        writes.save();
        let done = writes.done();
        if let Some(state) = writes.state.as_ref().filter(|_| done.line > 0) {
            let (line, path) = (done.line, state.path().display());
            eprintln!(
                "oribi: everything up to line {line} is done ({path}); the same command with --resume goes on there"
            );
        }
        if matches!(outcome, Ok(true)) && writes.state.is_none() {
            eprintln!("oribi: interrupted: this import cannot be resumed; run it again");
        }
        outcome.with_context(|| {
            let documents = HumanCount(totals.documents);
            format!("importing {} stopped after {documents} documents", self.file.display())
        })?;
        print_summary(&totals, start, elapsed, Some(done), self.json)?;
        Ok(ExitCode::from(INTERRUPTED))
    }
}

fn progress_bar(bytes: Option<u64>, start: InputPosition) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            // The bar takes the rest of the line: about thirty columns of eighty.
            "{wide_bar} {bytes}/{total_bytes}  {msg}  {left}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {msg}"),
    };
    // Documents of an earlier import do not count for the rate.
    bar.set_position(start.offset);
    bar.reset_eta();
    bar.with_style(with_rate_and_left(template))
}

/// `stopped` is the position of an interruption.
fn print_summary(
    totals: &ImportTotals,
    start: InputPosition,
    elapsed: Duration,
    stopped: Option<InputPosition>,
    as_json: bool,
) -> anyhow::Result<()> {
    let seconds = elapsed.as_secs_f64();
    let per_second = totals.documents as f64 / seconds.max(0.000_001);
    if as_json {
        let summary = json!({
            "documents": totals.documents,
            "bytes": totals.bytes,
            "skipped": totals.skipped,
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "documents_per_s": per_second.round() as u64,
            "lines_before": start.line,
            "interrupted": stopped.is_some(),
        });
        return print::line(&summary.to_string());
    }
    let resumed = match start.line {
        0 => String::new(),
        line => format!(", after the {} lines of before", HumanCount(line)),
    };
    let skipped = match totals.skipped {
        0 => String::new(),
        skipped => format!(", {} skipped", HumanCount(skipped)),
    };
    print::line(&format!(
        "imported {} in {seconds:.2} s, {} docs/s{skipped}{resumed}",
        amount(totals.documents, totals.bytes),
        HumanCount(per_second.round() as u64),
    ))
}

/// The display name of a file.
pub fn display_name(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}
