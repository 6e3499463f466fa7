//! Standard output of the tools.
//!
//! Invariant: a reader that closes the pipe early, as `head` does, ends the tool quietly and with
//! success. Writing then fails with [`ReaderGone`], which the crate's `run` handles.

use std::fmt;
use std::io::{self, ErrorKind, Write, stdout};

use anyhow::Context;

/// The reader of the output has closed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of the output has closed it")
    }
}

impl std::error::Error for ReaderGone {}

/// An error of writing output, with what was being written.
pub fn failed(error: io::Error, what: &'static str) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::from(error).context(what),
    }
}

/// The same without [`ReaderGone`], for a tool whose status says more than that it has printed.
pub fn unless_gone(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if error.downcast_ref::<ReaderGone>().is_some() => Ok(()),
        printed => printed,
    }
}

pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| failed(error, "printing"))
}

/// Prints text and a line end.
pub fn line(text: &str) -> anyhow::Result<()> {
    bytes(format!("{text}\n").as_bytes())
}

/// Prints a value as JSON, for people to read.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value).context("the output as JSON")?)
}
