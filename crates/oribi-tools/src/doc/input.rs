//! Lines of a file or of standard input, read ahead by a dedicated thread.
//!
//! It owns splitting into lines, their numbers, and their positions. Each line's [`Position`] has a
//! digest of everything before it, so a later import can tell whether the file still begins the
//! same. A few batches and one longest line bound the memory. The thread ends when its receiver is
//! dropped; a thread that waits for a terminal ends with the process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use bytes::Bytes;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest accepted line: the largest value in base64, and its key and metadata.
const LINE_BYTES_MAX: u64 = (VALUE_BYTES_MAX / 3 * 4 + 64 * 1024) as u64;

const READ_BLOCK_BYTES: usize = 1024 * 1024;
/// A batch ends with the line that reaches one of these.
const BATCH_LINES: usize = 256;
const BATCH_BYTES: u64 = 1024 * 1024;
/// Batches that wait to be taken.
const BATCHES: usize = 4;

/// A place between two lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// Bytes before it.
    pub offset: u64,
    /// Lines before it.
    pub line: u64,
    /// Digest of these lines: each line's is seeded with that of the lines before it.
    pub digest: u64,
}

/// A line that is not blank, without its line end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Where it begins; its own number is one more than the lines before it.
    pub before: Position,
    /// Where the next one begins.
    pub after: Position,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Line {
    /// Its number, from 1.
    pub fn number(&self) -> u64 {
        self.after.line
    }
}

/// Distinguishes versions of a file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Size.
    pub bytes: u64,
    /// Time of the last change in nanoseconds since 1970.
    pub modified_ns: u64,
}

/// What ends a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trim {
    /// All white space at the end; blank lines are skipped.
    WhiteSpace,
    /// The line end only; empty lines are skipped.
    LineEnd,
}

/// An opened file, or standard input.
pub struct Input {
    reader: BufReader<Source>,
    /// `None` for a non-regular file.
    pub identity: Option<FileIdentity>,
    position: Position,
    trim: Trim,
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

impl Input {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path, trim: Trim) -> anyhow::Result<Input> {
        if path == Path::new("-") {
            return Ok(Input::new(Source::Other(Box::new(std::io::stdin())), None, trim));
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
        Ok(Input::new(Source::File(file), metadata.is_file().then_some(identity), trim))
    }

    fn new(source: Source, identity: Option<FileIdentity>, trim: Trim) -> Input {
        let reader = BufReader::with_capacity(READ_BLOCK_BYTES, source);
        Input { reader, identity, position: Position::default(), trim }
    }

    /// Continues at an earlier reader's position. It reads a changed file up to there; false when
    /// its beginning differs.
    pub fn resume(&mut self, at: Position, was: FileIdentity) -> anyhow::Result<bool> {
        if self.identity == Some(was)
            && let Source::File(file) = self.reader.get_mut()
        {
            file.seek(SeekFrom::Start(at.offset)).context("seeking")?;
            self.position = at;
            return Ok(true);
        }
        while self.position.offset < at.offset {
            if self.read_line()?.is_none() {
                break;
            }
        }
        Ok(self.position == at)
    }

    /// Where the next line begins.
    pub fn position(&self) -> Position {
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
        self.position = Position { offset, line: number, digest };
        Ok(Some(bytes))
    }

    /// The next line that is not blank.
    fn next_line(&mut self) -> anyhow::Result<Option<Line>> {
        loop {
            let before = self.position;
            let Some(mut bytes) = self.read_line()? else { return Ok(None) };
            let content = match self.trim {
                Trim::WhiteSpace => bytes.trim_ascii_end().len(),
                Trim::LineEnd => {
                    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                    line.strip_suffix(b"\r").unwrap_or(line).len()
                }
            };
            bytes.truncate(content);
            if !bytes.is_empty() {
                return Ok(Some(Line { before, after: self.position, bytes: bytes.into() }));
            }
        }
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

#[cfg(test)]
mod tests {
    //! Reading lines; what happens to them is tested against a running server.

    use super::*;

    fn input(bytes: &'static [u8], trim: Trim) -> Input {
        Input::new(Source::Other(Box::new(bytes)), None, trim)
    }

    fn lines(bytes: &'static [u8], trim: Trim) -> Vec<(u64, Bytes)> {
        let mut input = input(bytes, trim);
        std::iter::from_fn(|| input.next_line().unwrap())
            .map(|line| (line.number(), line.bytes))
            .collect()
    }

    #[test]
    fn numbers_lines_and_skips_blank_ones() {
        let expected = [(1, Bytes::from("a")), (4, Bytes::from(" b")), (5, Bytes::from("c"))];
        assert_eq!(lines(b"a\r\n\n  \n b \nc", Trim::WhiteSpace), expected);
        assert!(lines(b"", Trim::WhiteSpace).is_empty());
        let expected = [(1, Bytes::from("a ")), (3, Bytes::from("  "))];
        assert_eq!(lines(b"a \r\n\n  \n", Trim::LineEnd), expected);
    }

    #[test]
    fn refuses_endless_lines() {
        let endless = Source::Other(Box::new(std::io::repeat(b'x')));
        let error = Input::new(endless, None, Trim::LineEnd).next_line().unwrap_err();
        assert_eq!(error.to_string(), "line 1 is longer than any document may be");
    }

    #[test]
    fn a_place_is_found_again_only_behind_the_same_lines() {
        let mut first = input(b"one\ntwo\nthree\n", Trim::WhiteSpace);
        first.next_line().unwrap();
        let at = first.next_line().unwrap().expect("there are three").after;
        assert_eq!((at.offset, at.line), (8, 2));
        let was = FileIdentity { bytes: 14, modified_ns: 1 };
        for (bytes, is_same) in [
            (&b"one\ntwo\nTHREE and more\n"[..], true),
            (b"one\ntwo\n", true),
            (b"one\ntwO\nthree\n", false),
            (b"two\none\nthree\n", false),
            (b"one\ntwo", false),
            (b"one two\nthree\n", false),
        ] {
            assert_eq!(input(bytes, Trim::WhiteSpace).resume(at, was).unwrap(), is_same);
        }
    }
}
