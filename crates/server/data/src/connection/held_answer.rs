//! The answer to a command of the text protocol whose write is not durable yet.
//!
//! Owns: the bytes of that answer, until the write is as durable as its bucket demands. Answers of
//! the text protocol have no number, so the connection waits and holds one answer at most.

use super::parked::Answer;
use super::send_buffer::SendBuffer;

/// See the module text.
pub(crate) struct HeldAnswer {
    /// Sent once the write is durable.
    pub output: SendBuffer,
    /// The client wants no answer, not even to a failure.
    pub is_silent: bool,
}

/// A write of the command being served, and the answer of the last one.
#[derive(Default)]
pub(crate) struct TextWrites {
    written: Option<Answer>,
    held: Option<HeldAnswer>,
}

impl TextWrites {
    /// The command has written this version. Of several, the last one counts.
    pub fn note(&mut self, answer: Answer) {
        debug_assert!(self.held.is_none(), "a connection that waits serves no command");
        self.written = Some(answer);
    }

    /// Takes what the command has written, if it wrote.
    pub fn take_written(&mut self) -> Option<Answer> {
        self.written.take()
    }

    /// Holds the answer to a parked write.
    pub fn hold(&mut self, answer: HeldAnswer) {
        let before = self.held.replace(answer);
        assert!(before.is_none(), "a connection holds one answer");
    }

    /// Bytes of the answer that is held.
    pub fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| {
            let pinned: usize = held.output.pinned().map(|value| value.held_bytes()).sum();
            held.output.block_bytes() + pinned
        })
    }

    /// Takes the answer whose write is decided.
    pub fn take_held(&mut self) -> Option<HeldAnswer> {
        self.held.take()
    }
}
