//! The text protocol and its meta commands as the load speaks them.
//!
//! Owns: how operations become commands, and which operation each answer belongs to. Answers come
//! in the order of the commands. A `get` of several keys has one answer for each document that
//! exists, so an operation whose key is left out is a miss. The key of every document and the
//! opaque of every meta command are compared with what was sent, so a server that loses or invents
//! an answer is found at the next one.

use std::ops::Range;

use memchr::memchr;
use oribi_client::ConnectOptions;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::status::Status;
use oribi_protocol::text::answer::write_number;

use super::answer::KvAnswer;
use super::answer_line::{AnswerLine, END, LINE_BYTES_MAX};
use super::socket::TextSocket;
use crate::perf::kv::key::KeyField;
use crate::perf::kv::operation::{KvOperation, OperationKind};
use crate::perf::kv::value::ValuePieces;

/// Which commands are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextCommands {
    Text {
        /// Most keys of one `get`; at least 1.
        keys_per_get: u32,
    },
    Meta,
}

/// See the module text.
#[derive(Debug)]
pub struct TextWire {
    socket: TextSocket,
    commands: TextCommands,
    /// Makes the keys again that answers have to name.
    keys: KeyField,
    /// Requests in order; answered up to `answered`.
    asked: Vec<RequestedKeys>,
    answered: usize,
    /// Keys of the `get` that has no end yet.
    open_keys: u32,
    present: Present,
}

/// An operation without an answer.
#[derive(Clone, Copy, Debug)]
struct RequestedKeys {
    index: u64,
    opaque: u32,
    kind: OperationKind,
    /// It is the last one of its command.
    is_last: bool,
}

/// The answer that was found; ranges are of the unread bytes.
#[derive(Debug)]
struct Present {
    asked: RequestedKeys,
    status: Status,
    value: Range<usize>,
    line: Range<usize>,
    /// Unread bytes that are done with once the answer is.
    consumed: usize,
}

impl TextWire {
    /// Connects to the server that `options` name.
    pub async fn open(
        options: &ConnectOptions,
        login: bool,
        commands: TextCommands,
        keys: KeyField,
    ) -> anyhow::Result<TextWire> {
        let socket = TextSocket::open(options, login).await?;
        let nothing =
            RequestedKeys { index: 0, opaque: 0, kind: OperationKind::Get, is_last: true };
        Ok(TextWire {
            socket,
            commands,
            keys,
            asked: Vec::new(),
            answered: 0,
            open_keys: 0,
            present: Present {
                asked: nothing,
                status: Status::Success,
                value: 0..0,
                line: 0..0,
                consumed: 0,
            },
        })
    }

    pub fn push_get(&mut self, operation: &KvOperation, key: &[u8], opaque: u32) {
        let out = self.socket.out.tail();
        match self.commands {
            TextCommands::Text { .. } if self.open_keys > 0 => {
                out.push(b' ');
                if let Some(before) = self.asked.last_mut() {
                    before.is_last = false;
                }
            }
            TextCommands::Text { .. } => out.extend_from_slice(b"get "),
            TextCommands::Meta => out.extend_from_slice(b"mg "),
        }
        out.extend_from_slice(key);
        match self.commands {
            TextCommands::Text { keys_per_get } => {
                self.open_keys += 1;
                if self.open_keys == keys_per_get {
                    self.end_get();
                }
            }
            TextCommands::Meta => {
                out.extend_from_slice(b" v O");
                write_number(out, u64::from(opaque));
                out.extend_from_slice(END);
            }
        }
        self.ask(operation, opaque);
    }

    pub fn push_set(
        &mut self,
        operation: &KvOperation,
        key: &[u8],
        opaque: u32,
        (flags, expiry): (u32, u32),
        value: &ValuePieces,
    ) {
        if self.open_keys > 0 {
            self.end_get();
        }
        let bytes = value.head().len() + value.body.len() + value.tail.len();
        let out = self.socket.out.tail();
        let [length, flags, expiry] = [bytes as u64, flags.into(), expiry.into()];
        match self.commands {
            TextCommands::Text { .. } => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                for number in [flags, expiry, length] {
                    out.push(b' ');
                    write_number(out, number);
                }
            }
            TextCommands::Meta => {
                out.extend_from_slice(b"ms ");
                out.extend_from_slice(key);
                out.push(b' ');
                write_number(out, length);
                for (letter, number) in [(b'O', u64::from(opaque)), (b'F', flags), (b'T', expiry)] {
                    if letter == b'O' || number != 0 {
                        out.extend_from_slice(&[b' ', letter]);
                        write_number(out, number);
                    }
                }
            }
        }
        out.extend_from_slice(END);
        out.extend_from_slice(value.head());
        match value.body.len() < GATHER_VALUE_BYTES_MIN {
            true => out.extend_from_slice(&value.body),
            false => self.socket.out.pin(value.body.clone()),
        }
        let out = self.socket.out.tail();
        out.extend_from_slice(value.tail);
        out.extend_from_slice(END);
        self.ask(operation, opaque);
    }

    fn ask(&mut self, operation: &KvOperation, opaque: u32) {
        if self.answered == self.asked.len() {
            self.asked.clear();
            self.answered = 0;
        }
        let (index, kind) = (operation.index, operation.kind);
        self.asked.push(RequestedKeys { index, opaque, kind, is_last: true });
    }

    fn end_get(&mut self) {
        self.socket.out.tail().extend_from_slice(END);
        self.open_keys = 0;
    }

    pub async fn flush(&mut self) -> anyhow::Result<()> {
        if self.open_keys > 0 {
            self.end_get();
        }
        self.socket.flush().await
    }

    pub async fn next(&mut self) -> anyhow::Result<KvAnswer<'_>> {
        while !self.advance()? {
            self.socket.receive().await?;
        }
        Ok(self.present())
    }

    #[inline]
    pub fn try_next(&mut self) -> anyhow::Result<Option<KvAnswer<'_>>> {
        Ok(if self.advance()? { Some(self.present()) } else { None })
    }

    pub fn protocol_error(&self, reason: &str) -> anyhow::Error {
        self.socket.protocol_error(reason)
    }

    fn present(&self) -> KvAnswer<'_> {
        let unread = self.socket.received.unread();
        let Present { asked, status, value, line, .. } = &self.present;
        KvAnswer {
            opaque: asked.opaque,
            kind: Some(asked.kind),
            status: status.code(),
            value: &unread[value.clone()],
            is_compressed: false,
            line: &unread[line.clone()],
        }
    }

    /// Finds the next answer among the received bytes; false when it is incomplete.
    fn advance(&mut self) -> anyhow::Result<bool> {
        self.socket.received.consume(std::mem::take(&mut self.present.consumed));
        let Some(asked) = self.asked.get(self.answered).copied() else {
            return match self.socket.received.unread() {
                [] => Ok(false),
                unread => Err(self.strange("an answer that nothing in flight waits for", unread)),
            };
        };
        let unread = self.socket.received.unread();
        let Some(end) = memchr(b'\n', unread) else {
            return match unread.len() > LINE_BYTES_MAX {
                true => Err(self.strange("a line without an end", unread)),
                false => Ok(false),
            };
        };
        let line = unread[..end].strip_suffix(b"\r").unwrap_or(&unread[..end]);
        let parsed = AnswerLine::parse(line);
        let Some(parsed) = parsed.filter(|_| line.len() <= LINE_BYTES_MAX) else {
            return Err(self.strange("a line that is no answer", line));
        };
        let is_meta = self.commands == TextCommands::Meta;
        let (line, next) = (0..line.len(), end + 1);
        let found = match (parsed, asked.kind) {
            (AnswerLine::Value { key, bytes }, OperationKind::Get) if !is_meta => {
                if key == self.keys.set(asked.index) {
                    self.document(asked, next, bytes)?
                } else if asked.is_last {
                    return Err(self.strange("a document that was not asked for", key));
                } else {
                    Some(self.miss(asked, 0))
                }
            }
            (AnswerLine::MetaValue { opaque, bytes }, OperationKind::Get) if is_meta => {
                if opaque != Some(asked.opaque) {
                    return Err(self.strange("the opaque of another request", &unread[line]));
                }
                self.document(asked, next, bytes)?
            }
            (AnswerLine::End, OperationKind::Get) if !is_meta => {
                Some(self.miss(asked, if asked.is_last { next } else { 0 }))
            }
            (AnswerLine::Status { status, opaque }, kind) => {
                let is_other = opaque.is_some_and(|opaque| opaque != asked.opaque);
                if is_other || (status == Status::Success && kind == OperationKind::Get) {
                    return Err(self.strange("the answer to another request", &unread[line]));
                }
                // A refusal ends a command; the operations of it have it in common.
                let consumed = if asked.is_last { next } else { 0 };
                Some(Present { asked, status, value: 0..0, line, consumed })
            }
            _ => return Err(self.strange("the answer to another request", &unread[line])),
        };
        Ok(match found {
            Some(found) => {
                self.present = found;
                self.answered += 1;
                true
            }
            None => false,
        })
    }

    /// The answer with a document that begins at `begin`; `None` when it is not all there.
    fn document(
        &self,
        asked: RequestedKeys,
        begin: usize,
        bytes: usize,
    ) -> anyhow::Result<Option<Present>> {
        let unread = self.socket.received.unread();
        let value = begin..begin + bytes;
        // The last document of a `get` is followed by the end of its answer.
        let end: &[u8] = match self.commands {
            TextCommands::Text { .. } if asked.is_last => b"\r\nEND\r\n",
            _ => END,
        };
        let consumed = value.end + end.len();
        let Some(found) = unread.get(value.end..consumed) else { return Ok(None) };
        if found != end {
            return Err(self.strange("a document without its end", found));
        }
        let (status, line) = (Status::Success, 0..0);
        Ok(Some(Present { asked, status, value, line, consumed }))
    }

    fn miss(&self, asked: RequestedKeys, consumed: usize) -> Present {
        Present { asked, status: Status::KeyEnoent, value: 0..0, line: 0..0, consumed }
    }

    fn strange(&self, what: &str, bytes: &[u8]) -> anyhow::Error {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
        self.socket.protocol_error(&format!("{what}: {shown:?}"))
    }
}

#[cfg(test)]
mod tests;
