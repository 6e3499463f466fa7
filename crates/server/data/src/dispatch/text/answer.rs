//! The one place where an outcome becomes an answer of the text protocol.
//!
//! Owns: the line for each outcome of each command, which is memcached's own where memcached has
//! one, and how documents are sent: copied when small, pinned when large, inflated when stored
//! compressed. Invariant: a document that cannot be sent leaves nothing of itself in the output.

use oribi_engine::ItemRef;
use oribi_engine::compression::inflate_into;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::status::Status;
use oribi_protocol::text::StoreMode;
use oribi_protocol::text::answer::{LINE_END, write_line, write_number, write_value_head};

use super::super::answer::describe;
use super::super::encoding::inflating_of;
use super::super::handshake;
use super::super::outcome::{HandlerReply, Rejection};
use super::super::request::Request;
use crate::connection::parked::Answer;
use crate::connection::send_buffer::{PinnedValue, SendBuffer};

/// The answer to `version`.
pub(super) const VERSION: &str = handshake::VERSION_LINE;

const NO_DOCUMENT: &str = "the document could not be read from the store";

/// Form of the answer to a command.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    /// A document of a `get`.
    Value {
        key: &'a [u8],
        with_cas: bool,
        /// The last key of the command: `END` follows.
        is_last: bool,
    },
    Line {
        verb: Verb,
        /// The client wants no answer.
        quiet: bool,
    },
}

/// A command, or several whose answers have the same words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Store(StoreMode),
    Delete,
    Count,
    Touch,
    Flush,
    Stat,
    Get,
}

/// Appends a line, unless the client wants no answer.
#[inline]
pub(super) fn line(out: &mut SendBuffer, text: &str, quiet: bool) {
    if !quiet {
        write_line(out.tail(), text);
    }
}

/// Answers a command that was served; false when its document cannot be sent.
#[inline]
pub(super) fn write(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    form: Form<'_>,
    reply: HandlerReply<'_>,
) -> bool {
    match (form, reply) {
        (Form::Value { key, with_cas, is_last }, HandlerReply::Shared { item, .. }) => {
            let (body, cas) = (item.body(), with_cas.then(|| item.cas().0));
            write_value_head(out.tail(), key, item.flags(), body.len(), cas);
            out.tail().extend_from_slice(body);
            out.tail().extend_from_slice(LINE_END);
            if is_last {
                write_line(out.tail(), "END");
            }
        }
        (Form::Value { key, with_cas, is_last }, reply) => {
            let found = match &reply {
                HandlerReply::Document { item, cas, .. } => Some((item, cas.0)),
                HandlerReply::Written(Answer::Document(item)) => Some((item, item.cas().0)),
                _ => None,
            };
            if let Some((item, cas)) = found {
                let cas = with_cas.then_some(cas);
                let head = |out: &mut SendBuffer, bytes: usize| {
                    write_value_head(out.tail(), key, item.flags(), bytes, cas);
                };
                if !document(out, item, head) {
                    write_line(out.tail(), &format!("SERVER_ERROR {NO_DOCUMENT}"));
                    return false;
                }
            }
            if is_last {
                write_line(out.tail(), "END");
            }
        }
        (_, HandlerReply::Job(job)) => {
            req.state.pending.wait_for_job(req.id());
            req.env.jobs.push((req.connection, job));
        }
        (_, HandlerReply::Streamed) => {}
        (Form::Line { verb, quiet }, reply) => line_of(out, verb, quiet, &reply),
    }
    true
}

fn line_of(out: &mut SendBuffer, verb: Verb, quiet: bool, reply: &HandlerReply<'_>) {
    if let HandlerReply::Written(Answer::Counter { value, .. }) = reply {
        if !quiet {
            write_number(out.tail(), *value);
            out.tail().extend_from_slice(LINE_END);
        }
        return;
    }
    let text = match verb {
        Verb::Store(_) => "STORED",
        Verb::Delete => "DELETED",
        Verb::Touch => "TOUCHED",
        Verb::Stat => "RESET",
        Verb::Count | Verb::Flush | Verb::Get => "OK",
    };
    line(out, text, quiet);
}

/// Appends a document between the line that `head` writes for its length, and the end of the line.
/// False when it is damaged; nothing is appended then.
#[inline]
pub(super) fn document(
    out: &mut SendBuffer,
    item: &ItemRef,
    head: impl Fn(&mut SendBuffer, usize),
) -> bool {
    if item.is_compressed() {
        return inflated(out, item, head);
    }
    let value = item.body();
    head(out, value.len());
    if value.len() >= GATHER_VALUE_BYTES_MIN {
        out.pin(PinnedValue::Item(item.clone()));
    } else {
        out.tail().extend_from_slice(value);
    }
    out.tail().extend_from_slice(LINE_END);
    true
}

/// As [`document`], for one whose body is stored compressed.
#[cold]
fn inflated(out: &mut SendBuffer, item: &ItemRef, head: impl Fn(&mut SendBuffer, usize)) -> bool {
    let Ok(bytes) = item.plain_body_bytes() else { return false };
    if bytes < GATHER_VALUE_BYTES_MIN {
        let begin = out.tail().len();
        head(out, bytes);
        if inflate_into(item.body(), GATHER_VALUE_BYTES_MIN, out.tail()).is_err() {
            out.tail().truncate(begin);
            return false;
        }
    } else {
        let Ok(inflating) = inflating_of(item) else { return false };
        head(out, inflating.total_bytes());
        out.pin(PinnedValue::Inflating(item.clone(), Box::new(inflating)));
    }
    out.tail().extend_from_slice(LINE_END);
    true
}

/// Answers a command that was not done.
#[cold]
pub(super) fn fail(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    form: Form<'_>,
    rejection: Rejection,
) {
    let (verb, quiet) = match form {
        Form::Value { .. } => (Verb::Get, false),
        Form::Line { verb, quiet } => (verb, quiet),
    };
    let (status, context) = describe(req, rejection);
    if !quiet {
        write_failure(out.tail(), verb, status, context.as_deref());
    }
}

/// Appends the line for a failure.
pub(super) fn write_failure(out: &mut Vec<u8>, verb: Verb, status: Status, context: Option<&str>) {
    if let Some(line) = memcached_line(verb, status) {
        return write_line(out, line);
    }
    let begin = match status {
        Status::AuthError | Status::Eaccess | Status::Einval | Status::NotSupported => {
            "CLIENT_ERROR "
        }
        _ => "SERVER_ERROR ",
    };
    out.extend_from_slice(begin.as_bytes());
    write_line(out, context.unwrap_or_else(|| status.description()));
}

/// memcached's line for a failure, where it has one.
fn memcached_line(verb: Verb, status: Status) -> Option<&'static str> {
    Some(match (verb, status) {
        (Verb::Store(StoreMode::Cas), Status::KeyEexists) => "EXISTS",
        (Verb::Store(StoreMode::Cas), Status::KeyEnoent) => "NOT_FOUND",
        (Verb::Store(_), Status::KeyEexists | Status::KeyEnoent | Status::NotStored) => {
            "NOT_STORED"
        }
        (Verb::Stat, Status::KeyEnoent) => "ERROR",
        (_, Status::KeyEnoent) => "NOT_FOUND",
        (_, Status::DeltaBadval) => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        (_, Status::E2big) => "SERVER_ERROR object too large for cache",
        (Verb::Store(_), Status::Enomem) => "SERVER_ERROR out of memory storing object",
        (_, Status::Enomem) => "SERVER_ERROR out of memory",
        (Verb::Flush, Status::NotSupported) => "CLIENT_ERROR flush_all not allowed",
        _ => return None,
    })
}
