//! The steps around the handler of a command of the text protocol.
//!
//! Owns: rights, counters, times and retries, as `dispatch.rs` has them for binary requests.

use oribi_engine::{FillingItem, KeyAhead, OperationRejection, ReadSection};
use oribi_protocol::opcode::Opcode;

use super::super::answer::End;
use super::super::outcome::{Outcome, Rejection};
use super::super::request::Request;
use super::super::rules::{self, RequiredAccess};
use super::super::{ServeResult, access, durable, reservation, sample, timing};
use super::answer::{self, Form};
use super::handling::handle;
use super::translated_request::TranslatedRequest;
use crate::connection::fetches::TryHistory;
use crate::connection::held_answer::HeldAnswer;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::diagnostics::counters::timings::CommandKind;
use crate::diagnostics::counters::{Counter, WorkerCounters};
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

/// The connection's state for a command, besides its bytes.
#[derive(Default)]
pub(crate) struct Offer<'s> {
    /// The read section of the turn.
    pub section: Option<&'s ReadSection>,
    /// The key, if it was announced to the engine.
    pub ahead: Option<KeyAhead>,
    pub tries: TryHistory,
    /// The item that received the value of a store command.
    pub received: Option<FillingItem>,
}

/// How serving a command ended.
pub(crate) struct CommandResult {
    /// As for a binary request.
    pub served: ServeResult,
    /// The item of a command that is offered again.
    pub received: Option<FillingItem>,
    /// The answer to a `get` has ended before its keys did.
    pub abandons_keys: bool,
}

/// The half of the protocol that a command belongs to.
#[derive(Clone, Copy)]
pub(super) enum Language {
    /// `get`, `set` and their like.
    Text,
    /// `mg`, `ms` and their like.
    Meta,
}

impl Language {
    /// The counter of its commands.
    pub fn counter(self, counters: &WorkerCounters) -> &Counter {
        match self {
            Language::Text => &counters.cmd_text,
            Language::Meta => &counters.cmd_meta,
        }
    }
}

/// A command that is answered.
pub(super) const DONE: CommandResult =
    CommandResult { served: ServeResult::Done, received: None, abandons_keys: false };

/// Runs the handler of a binary request.
pub(super) fn run(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    meant: &TranslatedRequest<'_>,
    form: Form<'_>,
    offer: Offer<'_>,
) -> CommandResult {
    let Some(rule) = rules::rule(meant.opcode) else { return DONE };
    let frame = meant.frame();
    let mut req = Request::new(id, &frame, meant.opcode, state, env);
    (req.section, req.ahead) = (offer.section, offer.ahead);
    (req.tries, req.received) = (offer.tries, offer.received);
    req.has_output = !out.is_empty();
    let mut abandons_keys = false;
    let how = (rule.required, rule.timed, Language::Text);
    let served = serve(&mut req, out, how, |req, out, permitted| {
        let outcome = permitted.and_then(|()| handle(req));
        let (end, failed) = conclude(req, out, form, outcome);
        abandons_keys = failed && matches!(form, Form::Value { is_last: false, .. });
        end
    });
    let received = req.received.filter(|_| served != ServeResult::Done);
    CommandResult { served, received, abandons_keys }
}

/// Handles the common part of every command: rights, counters and times around `action`, which
/// serves and answers it.
pub(super) fn serve<'a>(
    req: &mut Request<'a>,
    out: &mut SendBuffer,
    (required, timed, language): (RequiredAccess, Option<CommandKind>, Language),
    action: impl FnOnce(&mut Request<'a>, &mut SendBuffer, Result<(), Rejection>) -> End,
) -> ServeResult {
    let permitted = access::check(req, required).map_err(Rejection::from);
    let is_first = req.tries.is_first();
    if is_first {
        timing::begin(req);
        language.counter(&req.env.counters).add(1);
        req.tries.weight = timed.and_then(|kind| sample(req, kind)).unwrap_or(0);
    }
    let begun_ns = if req.tries.weight == 0 { 0 } else { req.env.latency_clock.now_ns() };
    let is_plain_read = matches!(language, Language::Text) && req.opcode == Opcode::Get;
    let may_wait = req.waits_for_durability() && !is_plain_read;
    let mut held = may_wait.then(SendBuffer::new);
    let end = action(req, held.as_mut().unwrap_or(out), permitted);
    if let Some(held) = held {
        held_back(req, out, held, end);
    }
    if let (Some(kind), true) = (timed, req.tries.weight != 0 && end == End::Done) {
        let elapsed_ns = req.env.latency_clock.now_ns().saturating_sub(begun_ns);
        if let Some(operations) = req.state.selection.operations() {
            operations.timings().record(kind, elapsed_ns, req.tries.weight);
        }
    }
    match end {
        End::Done => {
            if let Some(rule) = rules::rule(req.opcode).filter(|_| !is_first) {
                timing::note_if_slow(req, rule);
            }
            ServeResult::Done
        }
        End::Later => ServeResult::Later,
        End::Fetch => ServeResult::Fetch { overtakable: false, tries: req.tries },
    }
}

/// Sends an answer to a command in a bucket that raises writes, or holds it back until the write is
/// durable.
#[cold]
fn held_back(req: &mut Request<'_>, out: &mut SendBuffer, output: SendBuffer, end: End) {
    let written = req.state.deferred.text().take_written();
    debug_assert!(written.is_none() || end == End::Done, "a write is answered");
    let written = written.filter(|_| end == End::Done);
    let is_parked = written.is_some_and(|written| durable::park(req, written).is_none());
    if is_parked {
        // A meta command reports failures even if it is quiet.
        let is_silent = req.frame.header.opaque != 0;
        req.state.deferred.text().hold(HeldAnswer { output, is_silent });
    } else {
        out.append(output);
    }
}

/// Answers an outcome, or has the command offered again. Says whether it failed.
#[inline]
fn conclude(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    form: Form<'_>,
    outcome: Outcome<'_>,
) -> (End, bool) {
    match outcome {
        Ok(reply) => (End::Done, !answer::write(req, out, form, reply)),
        Err(not_done) => match offered_again(req, not_done) {
            Some(end) => (end, false),
            None => {
                answer::fail(req, out, form, not_done);
                (End::Done, true)
            }
        },
    }
}

/// How a command ends that is to be offered again; `None` when it has to be answered.
pub(super) fn offered_again(req: &mut Request<'_>, not_done: Rejection) -> Option<End> {
    match not_done {
        Rejection::Engine(OperationRejection::NeedsFetch) if !req.tries.is_over() => {
            Some(End::Fetch)
        }
        Rejection::Engine(OperationRejection::TemporaryFailure)
            if reservation::waits_for_bucket(req) =>
        {
            Some(End::Later)
        }
        Rejection::Retry(wait) => {
            reservation::wait(req, wait);
            Some(End::Later)
        }
        _ => None,
    }
}
