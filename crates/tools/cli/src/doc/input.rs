//! Records of a file or of standard input, read ahead by a dedicated thread: lines, records of CSV,
//! or the elements of a JSON array.
//!
//! It owns splitting into records, their line numbers, and their positions. Each record's
//! [`InputPosition`] has a digest of everything before it, so a later import can tell whether the
//! file still begins the same. A few batches and one longest record bound the memory. The thread
//! ends when its receiver is dropped; a thread that waits for a terminal ends with the process.

mod array;
pub mod csv;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use bytes::Bytes;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::array::{ArrayStep, Splitter};
use self::csv::CsvHeader;

/// Longest accepted record: the largest value in base64, and its key and metadata.
const LINE_BYTES_MAX: u64 = (VALUE_BYTES_MAX / 3 * 4 + 64 * 1024) as u64;

const READ_BLOCK_BYTES: usize = 1024 * 1024;
/// A batch ends with the line that reaches one of these.
const BATCH_LINES: usize = 256;
const BATCH_BYTES: u64 = 1024 * 1024;
/// Batches that wait to be taken.
const BATCHES: usize = 4;

/// A place between two lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InputPosition {
    pub offset: u64,
    pub line: u64,
    /// Digest of these lines: each line's is seeded with that of the lines before it.
    pub digest: u64,
}

/// A record: a line that is not blank, without its line end, or what else the framing says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Where the record before it ends.
    pub before: InputPosition,
    pub after: InputPosition,
    /// Number of the line on which it begins, from 1.
    pub number: u64,
    pub bytes: Bytes,
    /// The names of its fields, if it is a record of CSV.
    pub header: Option<Arc<CsvHeader>>,
}

/// Distinguishes versions of a file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileIdentity {
    pub bytes: u64,
    /// Time of the last change in nanoseconds since 1970.
    pub modified_ns: u64,
}

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// An element of an array if the input begins with a bracket, else a line.
    Json,
    /// A line without white space at its end; blank lines are skipped.
    Lines,
    /// A line without its line end only; empty lines are skipped.
    ExactLines,
    /// An element of a JSON array.
    Array,
    /// A record of CSV after the first, which names the fields.
    Csv { separator: u8 },
}

/// An opened file, or standard input.
pub struct DocumentInput {
    reader: BufReader<Source>,
    /// `None` for a non-regular file.
    pub identity: Option<FileIdentity>,
    position: InputPosition,
    framing: Framing,
    header: Option<Arc<CsvHeader>>,
    is_at_end: bool,
}

enum Source {
    File(File),
    Other(Box<dyn Read + Send>),
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Source::File(file) => file.read(buffer),
            Source::Other(other) => other.read(buffer),
        }
    }
}

impl DocumentInput {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path, framing: Framing) -> anyhow::Result<DocumentInput> {
        if path == Path::new("-") {
            return Ok(DocumentInput::new(
                Source::Other(Box::new(std::io::stdin())),
                None,
                framing,
            ));
        }
        let context = || format!("cannot open {}", path.display());
        let file = File::open(path).with_context(context)?;
        let metadata = file.metadata().with_context(context)?;
        if metadata.is_dir() {
            bail!("{} is a directory", path.display());
        }
        let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let modified_ns = modified.and_then(|since| u64::try_from(since.as_nanos()).ok());
        let identity =
            FileIdentity { bytes: metadata.len(), modified_ns: modified_ns.unwrap_or(0) };
        // A pipe has no size and cannot be read twice.
        Ok(DocumentInput::new(Source::File(file), metadata.is_file().then_some(identity), framing))
    }

    fn new(source: Source, identity: Option<FileIdentity>, framing: Framing) -> DocumentInput {
        let reader = BufReader::with_capacity(READ_BLOCK_BYTES, source);
        let position = InputPosition::default();
        DocumentInput { reader, identity, position, framing, header: None, is_at_end: false }
    }

    /// Continues at an earlier reader's position. It reads a changed file up to there; false when
    /// its beginning differs.
    pub fn resume(&mut self, at: InputPosition, was: FileIdentity) -> anyhow::Result<bool> {
        self.begin()?;
        // What begins the file is in the buffer.
        let buffered = self.reader.buffer().len();
        if self.identity == Some(was)
            && let Source::File(file) = self.reader.get_mut()
        {
            file.seek(SeekFrom::Start(at.offset)).context("seeking")?;
            self.reader.consume(buffered);
            self.position = at;
            return Ok(true);
        }
        while self.position.offset < at.offset {
            let is_over = match self.framing {
                Framing::Array => self.next_element()?.is_none(),
                _ => self.read_line()?.is_none(),
            };
            if is_over {
                break;
            }
        }
        Ok(self.position == at)
    }

    /// Looks at the beginning, which says what the records are.
    fn begin(&mut self) -> anyhow::Result<()> {
        if self.framing == Framing::Json {
            // A line or an array may be indented by spaces and line ends of a few kilobytes.
            let bytes = self.reader.fill_buf().context("reading the input")?;
            let is_array = bytes.trim_ascii_start().starts_with(b"[");
            self.framing = if is_array { Framing::Array } else { Framing::Lines };
        }
        if let Framing::Csv { separator } = self.framing
            && self.header.is_none()
        {
            let record = self.read_csv_record()?.context("there is no line with field names")?;
            self.header = Some(Arc::new(CsvHeader::parse(&record, separator)?));
        }
        Ok(())
    }

    /// Where the next line begins.
    pub fn position(&self) -> InputPosition {
        self.position
    }

    /// The next line, unchanged; `None` at the end.
    fn read_line(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let number = self.position.line + 1;
        let read = (&mut self.reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
            .with_context(|| format!("reading line {number}"))?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n") {
            bail!("line {number} is longer than any document may be");
        }
        let digest = xxh3_64_with_seed(&bytes, self.position.digest);
        let offset = self.position.offset + read as u64;
        self.position = InputPosition { offset, line: number, digest };
        Ok(Some(bytes))
    }

    /// The next record; `None` at the end.
    fn next_line(&mut self) -> anyhow::Result<Option<Line>> {
        self.begin()?;
        if self.framing == Framing::Array {
            return self.next_element();
        }
        loop {
            let before = self.position;
            let bytes = match self.framing {
                Framing::Csv { .. } => self.read_csv_record()?,
                _ => self.read_line()?,
            };
            let Some(mut bytes) = bytes else { return Ok(None) };
            let content = match self.framing {
                Framing::ExactLines | Framing::Csv { .. } => {
                    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                    line.strip_suffix(b"\r").unwrap_or(line).len()
                }
                _ => bytes.trim_ascii_end().len(),
            };
            bytes.truncate(content);
            if !bytes.is_empty() {
                let (after, number) = (self.position, before.line + 1);
                let header = self.header.clone();
                return Ok(Some(Line { before, after, number, bytes: bytes.into(), header }));
            }
        }
    }

    /// Lines up to one at which all quotes are closed.
    fn read_csv_record(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let number = self.position.line + 1;
        let Some(mut record) = self.read_line()? else { return Ok(None) };
        while memchr::memchr_iter(b'"', &record).count() % 2 == 1 {
            let more = self.read_line()?;
            record.extend(more.with_context(|| format!("line {number}: a quote has no end"))?);
            if record.len() as u64 > LINE_BYTES_MAX {
                bail!("the record at line {number} is longer than any document may be");
            }
        }
        Ok(Some(record))
    }

    /// The next element of an array.
    fn next_element(&mut self) -> anyhow::Result<Option<Line>> {
        let (before, mut taken) = (self.position, Vec::new());
        let mut splitter = Splitter::new(before.offset == 0);
        let mut step = if self.is_at_end { ArrayStep::End } else { ArrayStep::More };
        while step == ArrayStep::More {
            let bytes = self.reader.fill_buf().context("reading the array")?;
            let taking = splitter.take(bytes);
            let number = before.line + splitter.lines() + 1;
            let (next, used) = taking.with_context(|| format!("line {number}"))?;
            taken.extend_from_slice(&bytes[..used]);
            self.reader.consume(used);
            step = next;
            if taken.len() as u64 > LINE_BYTES_MAX {
                bail!("the element at line {} is longer than any document may be", before.line + 1);
            }
        }
        self.position = InputPosition {
            offset: before.offset + taken.len() as u64,
            line: before.line + splitter.lines(),
            digest: xxh3_64_with_seed(&taken, before.digest),
        };
        if step == ArrayStep::End {
            self.is_at_end = true;
            return Ok(None);
        }
        let number = before.line + lines_in(&taken[..splitter.begin()]) + 1;
        let bytes = Bytes::from(taken).slice(splitter.begin()..);
        Ok(Some(Line { before, after: self.position, number, bytes, header: None }))
    }

    /// The available lines, up to the size of a batch, but at least one.
    fn next_batch(&mut self) -> anyhow::Result<Vec<Line>> {
        let (mut lines, start) = (Vec::new(), self.position.offset);
        while let Some(line) = self.next_line()? {
            lines.push(line);
            let is_full = lines.len() >= BATCH_LINES || self.position.offset - start >= BATCH_BYTES;
            // For typed input, process each line at once, not only the 256th.
            if is_full || (self.identity.is_none() && self.reader.buffer().is_empty()) {
                break;
            }
        }
        Ok(lines)
    }

    /// Reads on another thread; the stream ends with the input or with the first error.
    pub fn read_ahead(mut self) -> mpsc::Receiver<anyhow::Result<Vec<Line>>> {
        let (sender, receiver) = mpsc::channel(BATCHES);
        std::thread::spawn(move || {
            loop {
                let batch = self.next_batch();
                let is_last = batch.as_ref().map_or(true, Vec::is_empty);
                if sender.blocking_send(batch).is_err() || is_last {
                    return;
                }
            }
        });
        receiver
    }
}

fn lines_in(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests;
