//! memcached's text protocol and its meta commands, decoded without a copy.
//!
//! Owns: how received bytes become commands ([`Decoder`]), the words for commands that are none,
//! and how answers look ([`answer`]). A server decides what a command does.
//!
//! The keys of one `get` become one [`Command::Get`] each, so a server serves, looks ahead and
//! waits for one document at a time, and a line of any number of keys takes no memory. The line of
//! any other command is decoded as a whole, with the data block after it.
//!
//! Invariants: decoding allocates nothing and borrows from the input; how the input is torn into
//! pieces does not change the commands; a line without an end is bounded ([`LINE_BYTES_MAX`],
//! [`KEYS_BYTES_MAX`]).

pub mod answer;
mod base64;
mod command;
mod foreign;
pub mod login;
mod meta;
mod number;
mod parse;
mod tokens;

use memchr::memchr;

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use parse::{
    BAD_EXPIRY, BAD_FORMAT, END_BYTES, ParsedStore, UNKNOWN, parse_meta_set, parse_other,
    parse_store, store_mode,
};
use tokens::Tokens;

pub use command::{Command, Fault, Keys, Store, StoreMode};
pub use foreign::ForeignProtocol;
pub use meta::{DECODED_KEY_BYTES_MAX, Flags, Meta};

/// Longest beginning of a line without an end, apart from `get` and its like; memcached's limit.
pub const LINE_BYTES_MAX: usize = 2048;

/// Received bytes of a `get` from which on its keys are served before its line has an end.
pub const KEYS_BYTES_MAX: usize = 16 * 1024;

/// Spaces that such a line may begin with, to be known as one.
const SPACES_MAX: usize = 100;

const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

/// Kind of the bytes at the head of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodedCommand<'a> {
    /// A command is not complete.
    Incomplete,
    /// A store command whose data block is not complete.
    Partial {
        /// The command, without its value.
        store: Store<'a>,
        /// Bytes of its line.
        line_bytes: usize,
        /// Bytes of its value, at most [`VALUE_BYTES_MAX`].
        value_bytes: usize,
    },
    /// A whole command, or one key of a `get`.
    Complete {
        /// The command.
        command: Command<'a>,
        /// Bytes it occupied.
        consumed: usize,
    },
    /// Bytes that are passed over.
    Skipped {
        /// Their number.
        consumed: usize,
    },
    /// A line that is too long: this is not the protocol.
    TooLong,
    /// A line that another protocol begins with.
    Foreign(ForeignProtocol),
}

/// Turns the bytes of one connection into commands.
///
/// A decoder changes when it decodes. A server that may have to decode the same command again uses
/// a copy, and keeps the copy once the command is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decoder(Place);

/// Where in the stream the next byte is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    /// At the beginning of a line.
    #[default]
    Line,
    /// Among the keys of a command.
    Keys(Keys),
    /// In a line that is passed over.
    Rest,
}

impl Decoder {
    /// True at the beginning of a line.
    pub fn is_at_line(self) -> bool {
        self.0 == Place::Line
    }

    /// Passes over the other keys of the command that was decoded last.
    pub fn abandon_keys(&mut self) {
        if let Place::Keys(_) = self.0 {
            self.0 = Place::Rest;
        }
    }

    /// Decodes the request at the beginning of `bytes`.
    #[inline]
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> DecodedCommand<'a> {
        match self.0 {
            Place::Line => match memchr(b'\n', bytes) {
                Some(end) => self.line(bytes, end),
                None => self.unfinished(bytes),
            },
            Place::Keys(keys) => self.key(keys, bytes, 0),
            Place::Rest => self.rest(bytes),
        }
    }

    /// Decodes the line that ends at `end`.
    fn line<'a>(&mut self, bytes: &'a [u8], end: usize) -> DecodedCommand<'a> {
        let is_ended_by_two = end > 1 && bytes[end - 1] == b'\r';
        let line = &bytes[..if is_ended_by_two { end - 1 } else { end }];
        let mut tokens = Tokens::new(line);
        let consumed = end + 1;
        let verb = tokens.next().unwrap_or_default();
        if end > LINE_BYTES_MAX && !is_list(line, verb) {
            return DecodedCommand::TooLong;
        }
        if let Some(mode) = store_mode(verb) {
            let decoded = complete_store(bytes, consumed, parse_store(mode, tokens));
            return unless_foreign(line, decoded);
        }
        let decoded = match verb {
            b"get" | b"bget" => self.keys(bytes, end, tokens, Keys::default()),
            b"gets" => self.keys(bytes, end, tokens, Keys { with_cas: true, expiry: None }),
            b"gat" => self.touching_keys(bytes, end, tokens, false),
            b"gats" => self.touching_keys(bytes, end, tokens, true),
            b"ms" => complete_store(bytes, consumed, parse_meta_set(tokens)),
            _ => DecodedCommand::Complete { command: parse_other(verb, tokens), consumed },
        };
        unless_foreign(line, decoded)
    }

    /// Decodes the first key of the line that ends at `end`.
    fn keys<'a>(
        &mut self,
        bytes: &'a [u8],
        end: usize,
        tokens: Tokens<'a>,
        keys: Keys,
    ) -> DecodedCommand<'a> {
        let mut all = tokens;
        let is_empty = keys.expiry.is_none() && all.next().is_none();
        // A key that is too long refuses all of them, so they are measured before the first answer.
        let is_measured = (KEY_BYTES_MAX..=KEYS_BYTES_MAX).contains(&end);
        let mut tokens_of_line = tokens;
        let answer = match () {
            () if is_empty => UNKNOWN,
            () if is_measured && tokens_of_line.any(|key| key.len() > KEY_BYTES_MAX) => BAD_FORMAT,
            () => return self.key(keys, bytes, offset_in(bytes, tokens.rest())),
        };
        DecodedCommand::Complete {
            command: Command::Invalid(Fault::new(answer)),
            consumed: end + 1,
        }
    }

    fn touching_keys<'a>(
        &mut self,
        bytes: &'a [u8],
        end: usize,
        mut tokens: Tokens<'a>,
        with_cas: bool,
    ) -> DecodedCommand<'a> {
        let answer = match tokens.next().map(number::expiry) {
            None => UNKNOWN,
            Some(None) => BAD_EXPIRY,
            Some(expiry) => return self.keys(bytes, end, tokens, Keys { with_cas, expiry }),
        };
        DecodedCommand::Complete {
            command: Command::Invalid(Fault::new(answer)),
            consumed: end + 1,
        }
    }

    /// Decodes the next key, `from` on.
    #[inline]
    fn key<'a>(&mut self, keys: Keys, bytes: &'a [u8], from: usize) -> DecodedCommand<'a> {
        let rest = &bytes[from..];
        let begin = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
        let token = &rest[begin..];
        let is_end = |byte: &u8| matches!(byte, b' ' | b'\n' | 0);
        let Some(len) = token.iter().position(is_end) else {
            return self.unfinished_key(keys, begin, token);
        };
        let (key, behind) = token.split_at(len);
        let consumed = from + begin + len;
        let (key, is_last, consumed) = match behind[0] {
            b'\n' => (key.strip_suffix(b"\r").unwrap_or(key), true, consumed + 1),
            b' ' => match end_behind(behind) {
                Some(Some(end)) => (key, true, consumed + end),
                Some(None) => (key, false, consumed),
                // Whether another key follows is not known yet.
                None if behind.len() <= LINE_BYTES_MAX => return self.wait_for_key(keys, from),
                None => (key, false, consumed),
            },
            _ => (key, true, consumed),
        };
        self.0 = match behind[0] {
            0 => Place::Rest,
            _ if is_last => Place::Line,
            _ => Place::Keys(keys),
        };
        let command = match key.len() {
            0 => Command::End,
            1..=KEY_BYTES_MAX => Command::Get { key, keys, is_last },
            _ => {
                self.abandon_keys();
                Command::Invalid(Fault::new(BAD_FORMAT))
            }
        };
        DecodedCommand::Complete { command, consumed }
    }

    /// The first key of a line is decoded again from the beginning of the line.
    fn wait_for_key<'a>(&mut self, keys: Keys, from: usize) -> DecodedCommand<'a> {
        self.0 = if from == 0 { Place::Keys(keys) } else { Place::Line };
        DecodedCommand::Incomplete
    }

    fn unfinished_key<'a>(
        &mut self,
        keys: Keys,
        spaces: usize,
        token: &'a [u8],
    ) -> DecodedCommand<'a> {
        if token.len() > KEY_BYTES_MAX + END_BYTES {
            self.0 = Place::Rest;
            return DecodedCommand::Complete {
                command: Command::Invalid(Fault::new(BAD_FORMAT)),
                consumed: spaces + token.len(),
            };
        }
        self.0 = Place::Keys(keys);
        match spaces {
            0 => DecodedCommand::Incomplete,
            consumed => DecodedCommand::Skipped { consumed },
        }
    }

    /// Decodes the beginning of a line.
    fn unfinished<'a>(&mut self, bytes: &'a [u8]) -> DecodedCommand<'a> {
        if bytes.len() <= LINE_BYTES_MAX {
            return DecodedCommand::Incomplete;
        }
        let mut tokens = Tokens::new(bytes);
        let verb = tokens.next().unwrap_or_default();
        if !is_list(bytes, verb) {
            return DecodedCommand::TooLong;
        }
        if bytes.len() <= KEYS_BYTES_MAX {
            return DecodedCommand::Incomplete;
        }
        let expiry = match verb {
            b"gat" | b"gats" => match tokens.next().and_then(number::expiry) {
                Some(expiry) => Some(expiry),
                None => return DecodedCommand::TooLong,
            },
            _ => None,
        };
        self.0 = Place::Keys(Keys { with_cas: verb.ends_with(b"s"), expiry });
        DecodedCommand::Skipped { consumed: offset_in(bytes, tokens.rest()) }
    }

    fn rest<'a>(&mut self, bytes: &'a [u8]) -> DecodedCommand<'a> {
        match memchr(b'\n', bytes) {
            Some(end) => {
                self.0 = Place::Line;
                DecodedCommand::Skipped { consumed: end + 1 }
            }
            None if bytes.is_empty() => DecodedCommand::Incomplete,
            None => DecodedCommand::Skipped { consumed: bytes.len() },
        }
    }
}

/// Result of decoding a line, unless it is no command and another protocol begins with it.
#[inline]
fn unless_foreign<'a>(line: &[u8], decoded: DecodedCommand<'a>) -> DecodedCommand<'a> {
    match decoded {
        DecodedCommand::Complete {
            command: Command::Invalid(Fault { answer: UNKNOWN, .. }),
            ..
        } => ForeignProtocol::of_line(line).map_or(decoded, DecodedCommand::Foreign),
        decoded => decoded,
    }
}

/// True for a line that may be longer than others.
fn is_list(line: &[u8], verb: &[u8]) -> bool {
    matches!(verb, b"get" | b"gets" | b"gat" | b"gats") && offset_in(line, verb) <= SPACES_MAX
}

/// The part after the spaces at the beginning of `bytes`: the end of a line, and the bytes up to
/// behind it, or something else. `None` when that is not there yet.
fn end_behind(bytes: &[u8]) -> Option<Option<usize>> {
    let spaces = bytes.iter().position(|byte| *byte != b' ')?;
    match bytes[spaces..] {
        [b'\n', ..] => Some(Some(spaces + 1)),
        [b'\r', b'\n', ..] => Some(Some(spaces + 2)),
        [b'\r'] => None,
        _ => Some(None),
    }
}

/// Where `part`, which is a part of `bytes`, begins.
fn offset_in(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - bytes.as_ptr().addr()
}

/// Joins a store command, whose line ends at `line_bytes`, with its data block.
fn complete_store<'a>(
    bytes: &'a [u8],
    line_bytes: usize,
    parsed: ParsedStore<'a>,
) -> DecodedCommand<'a> {
    let (store, value_bytes) = match parsed {
        Ok((store, value_bytes)) if value_bytes <= VALUE_BYTES_MAX => (store, value_bytes),
        Ok((store, value_bytes)) => {
            let quiet = store.quiet && store.meta.is_none();
            let skip_bytes = value_bytes + END_BYTES;
            let command = Command::Invalid(Fault { answer: TOO_LARGE, quiet, skip_bytes });
            return DecodedCommand::Complete { command, consumed: line_bytes };
        }
        Err(fault) => {
            let command = Command::Invalid(fault);
            return DecodedCommand::Complete { command, consumed: line_bytes };
        }
    };
    let block = bytes[line_bytes..].get(..value_bytes + END_BYTES);
    let Some((value, end)) = block.map(|block| block.split_at(value_bytes)) else {
        return DecodedCommand::Partial { store, line_bytes, value_bytes };
    };
    let store = Store { value, is_terminated: end == b"\r\n", ..store };
    let consumed = line_bytes + value_bytes + END_BYTES;
    DecodedCommand::Complete { command: Command::Store(store), consumed }
}

#[cfg(test)]
mod tests;
