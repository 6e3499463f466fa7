//! Meaning of one line of a text protocol's server.
//!
//! Owns: the form of the lines, their limits, and which status of the binary protocol each refusal
//! is. Source: memcached's `protocol.txt`.

use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::status::Status;

/// Longest line: a key, two numbers and flags, or a reason in words.
pub const LINE_BYTES_MAX: usize = 4096;

/// The two bytes after a line and after a document.
pub const END: &[u8] = b"\r\n";

/// A line, without its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerLine<'a> {
    /// `VALUE key flags bytes`: a document of `get` follows.
    Value {
        /// The key as it was sent.
        key: &'a [u8],
        /// Bytes of the document.
        bytes: usize,
    },
    /// `VA bytes flags`: a document of `mg` follows.
    MetaValue {
        /// The opaque, as it was sent.
        opaque: Option<u32>,
        /// Bytes of the document.
        bytes: usize,
    },
    /// `END`: no more documents of this `get`.
    End,
    Status {
        /// As in the binary protocol.
        status: Status,
        /// The opaque of a meta command, if the line has one.
        opaque: Option<u32>,
    },
}

impl<'a> AnswerLine<'a> {
    /// Parses a line; `None` if no server answers so.
    #[inline]
    pub fn parse(line: &'a [u8]) -> Option<AnswerLine<'a>> {
        let (verb, rest) = split(line);
        Some(match verb {
            b"VALUE" => {
                let (key, rest) = split(rest);
                let (_flags, rest) = split(rest);
                AnswerLine::Value { key, bytes: length(split(rest).0)? }
            }
            b"VA" => {
                let (bytes, flags) = split(rest);
                AnswerLine::MetaValue { opaque: opaque(flags), bytes: length(bytes)? }
            }
            b"END" if rest.is_empty() => AnswerLine::End,
            b"STORED" | b"HD" => status(Status::Success, rest),
            b"NOT_STORED" | b"NS" => status(Status::NotStored, rest),
            b"EXISTS" | b"EX" => status(Status::KeyEexists, rest),
            b"NOT_FOUND" | b"NF" | b"EN" => status(Status::KeyEnoent, rest),
            b"ERROR" => status(Status::UnknownCommand, b""),
            b"CLIENT_ERROR" => match rest {
                b"unauthenticated" => status(Status::AuthError, b""),
                _ => status(Status::Einval, b""),
            },
            b"SERVER_ERROR" => status(server_error(rest), b""),
            _ => return None,
        })
    }
}

fn status(status: Status, flags: &[u8]) -> AnswerLine<'static> {
    AnswerLine::Status { status, opaque: opaque(flags) }
}

/// The status after the reason of a `SERVER_ERROR`.
fn server_error(reason: &[u8]) -> Status {
    if reason.starts_with(b"out of memory") {
        return Status::Enomem;
    }
    if reason == b"object too large for cache" {
        return Status::E2big;
    }
    let passing = [Status::Etmpfail, Status::Ebusy];
    let named = passing.into_iter().find(|status| status.description().as_bytes() == reason);
    named.unwrap_or(Status::Einternal)
}

/// The first word and what stands after the space after it.
#[inline]
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, b""),
    }
}

#[inline]
fn opaque(mut flags: &[u8]) -> Option<u32> {
    while !flags.is_empty() {
        let (flag, rest) = split(flags);
        if let Some(digits) = flag.strip_prefix(b"O") {
            return number(digits)?.try_into().ok();
        }
        flags = rest;
    }
    None
}

/// Bytes of a document, which no server exceeds.
#[inline]
fn length(digits: &[u8]) -> Option<usize> {
    number(digits)?.try_into().ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX)
}

/// A number of up to 19 digits.
#[inline]
fn number(digits: &[u8]) -> Option<u64> {
    if !(1..=19).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_what_memcached_says_they_do() {
        let refused = |status| Some(AnswerLine::Status { status, opaque: None });
        let numbered = |status, opaque| Some(AnswerLine::Status { status, opaque: Some(opaque) });
        for (line, expected) in [
            ("VALUE k:1 7 512", Some(AnswerLine::Value { key: b"k:1", bytes: 512 })),
            ("VALUE k 0 0", Some(AnswerLine::Value { key: b"k", bytes: 0 })),
            ("VALUE k 0 5 99", Some(AnswerLine::Value { key: b"k", bytes: 5 })),
            (
                "VA 12 O4294967295",
                Some(AnswerLine::MetaValue { opaque: Some(u32::MAX), bytes: 12 }),
            ),
            ("VA 12 f0 O7 W", Some(AnswerLine::MetaValue { opaque: Some(7), bytes: 12 })),
            ("VA 0", Some(AnswerLine::MetaValue { opaque: None, bytes: 0 })),
            ("END", Some(AnswerLine::End)),
            ("STORED", refused(Status::Success)),
            ("HD O65536", numbered(Status::Success, 65536)),
            ("EN", refused(Status::KeyEnoent)),
            ("EN O3", numbered(Status::KeyEnoent, 3)),
            ("NS O3", numbered(Status::NotStored, 3)),
            ("NOT_STORED", refused(Status::NotStored)),
            ("EXISTS", refused(Status::KeyEexists)),
            ("ERROR", refused(Status::UnknownCommand)),
            ("CLIENT_ERROR unauthenticated", refused(Status::AuthError)),
            ("CLIENT_ERROR bad data chunk", refused(Status::Einval)),
            ("SERVER_ERROR out of memory storing object", refused(Status::Enomem)),
            ("SERVER_ERROR object too large for cache", refused(Status::E2big)),
            ("SERVER_ERROR who knows", refused(Status::Einternal)),
        ] {
            assert_eq!(AnswerLine::parse(line.as_bytes()), expected, "{line}");
        }
        let busy = format!("SERVER_ERROR {}", Status::Etmpfail.description());
        assert_eq!(AnswerLine::parse(busy.as_bytes()), refused(Status::Etmpfail));
    }

    #[test]
    fn impossible_answers_are_no_line() {
        for line in [
            "",
            " ",
            "VALUE",
            "VALUE k",
            "VALUE k 0",
            "VALUE k 0 x",
            "VALUE k 0 -1",
            "VA",
            "VA x",
            "VALUE k 0 20971521",
            "VA 99999999999999999999",
            "END of all",
            "value k 0 5",
            "stored",
        ] {
            assert_eq!(AnswerLine::parse(line.as_bytes()), None, "{line:?}");
        }
    }
}
