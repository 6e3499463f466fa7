//! Standard output of this crate's commands.
//!
//! Invariant: a reader that closes the pipe early, as `head` does, is no failure of the command.

use std::io::{ErrorKind, Write, stdout};

use anyhow::Context;

/// Prints text, the last thing that a command does.
pub fn text(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("printing"),
    }
}
