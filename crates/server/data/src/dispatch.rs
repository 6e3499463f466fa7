//! Passes each decoded frame to its handler: one arm, one call per opcode.
//!
//! Owns: the order of the checks that every request passes, and the list of handlers. The checks
//! ask four questions. Is the opcode known? May this user send it? Has the frame the right shape?
//! Are its framing extras understood?
//!
//! Invariants:
//! - a refused request is answered, and the connection continues;
//! - no handler runs before its [`rules::Rule`] is satisfied;
//! - a handler returns its outcome, and [`answer`] alone turns it into an answer;
//! - this module allocates nothing, and only sampled commands read a clock.
//!
//! The connection calls this for each frame. The dispatcher does not read or write sockets and does
//! not wait: a handler that has to wait says so in its outcome.

mod access;
mod answer;
mod collections;
pub(crate) mod connection_state;
mod counter;
mod dcp;
mod durable;
mod encoding;
pub(crate) mod environment;
pub(crate) mod error_map;
mod handlers;
mod handshake;
pub(crate) mod job;
mod key_listing;
mod late;
mod late_outcome;
mod locks;
mod observing;
mod outcome;
mod range_scan;
mod reads;
mod request;
mod reservation;
mod rules;
mod sampling;
mod stats;
pub(crate) mod status;
mod sub_document;
pub(crate) mod text;
mod timing;
mod with_meta;
mod writes;

use oribi_engine::{FillingItem, KeyAhead, ReadSection};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Frame;
use oribi_protocol::frame_info::{self, RequestFrames};
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::Datatype;

use crate::connection::fetches::TryHistory;
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::diagnostics::counters::timings::CommandKind;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

pub(crate) use answer::{answer_parked, fail_request};
pub(crate) use dcp::take_answer;
pub(crate) use late::finish;
pub(crate) use range_scan::resume_range_scan;
pub(crate) use stats::continue_stat;
pub use stats::fetched;
pub(crate) use timing::end_stretch;

use answer::{End, conclude, conclude_other};
use outcome::{Rejection, RuleRejection};
use request::Request;
use rules::{RequiredAccess, Rule};

/// The result of serving a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServeResult {
    /// The frame is finished.
    Done,
    /// The frame has to wait until parked requests are answered; offer it again then.
    Later,
    /// The frame needs a document from the store; offer it again after the fetch.
    Fetch {
        /// Later requests may be served first.
        overtakable: bool,
        /// State of earlier tries that the next one needs.
        tries: TryHistory,
    },
}

/// True when this opcode, sent by a client that has not said HELLO, makes it a memcached client.
pub(crate) fn makes_legacy(code: u8) -> bool {
    Opcode::from_u8(code)
        .and_then(rules::rule)
        .is_some_and(|rule| rule.required != RequiredAccess::Anybody)
}

/// Most bytes of a request's value that the server receives: a document's body, and its attributes
/// where the opcode carries them.
pub(crate) fn value_bytes_max(code: u8) -> usize {
    match Opcode::from_u8(code).and_then(rules::rule) {
        Some(rule) if rule.datatypes & Datatype::XATTR.0 != 0 => with_meta::SENT_BYTES_MAX,
        _ => VALUE_BYTES_MAX,
    }
}

/// Serves one whole request.
#[inline(always)]
pub(crate) fn serve_frame(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    frame: &Frame<'_>,
    (section, ahead): (&ReadSection, Option<KeyAhead>),
    tries: TryHistory,
) -> ServeResult {
    let Some(opcode) = Opcode::from_u8(frame.header.opcode) else {
        let request = RequestId::of(&frame.header);
        fail_request(state, out, request, Status::UnknownCommand, None);
        return ServeResult::Done;
    };
    let mut req = Request::new(id, frame, opcode, state, env);
    (req.section, req.ahead) = (Some(section), ahead);
    (req.tries, req.has_output) = (tries, !out.is_empty());
    serve(&mut req, out)
}

/// Serves a store request whose value was received into its item. Returns the item when the request
/// has to be offered again.
pub(crate) fn serve_received(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    frame: &Frame<'_>,
    item: FillingItem,
    tries: TryHistory,
) -> (ServeResult, Option<FillingItem>) {
    let Some(opcode) = Opcode::from_u8(frame.header.opcode) else {
        return (ServeResult::Done, None);
    };
    let mut req = Request::new(id, frame, opcode, state, env);
    (req.received, req.tries, req.has_output) = (Some(item), tries, !out.is_empty());
    let served = serve(&mut req, out);
    (served, req.received.filter(|_| served != ServeResult::Done))
}

fn serve(req: &mut Request<'_>, out: &mut SendBuffer) -> ServeResult {
    let Some(rule) = rules::rule(req.opcode) else {
        if let Some(opcode) = access::memcached_opcode(req) {
            req.opcode = opcode;
            return serve(req, out);
        }
        let refusal = access::refuse_unknown(req);
        return refuse(req, out, refusal);
    };
    if let Err(refusal) = check(req, rule) {
        return refuse(req, out, refusal);
    }
    let in_order = req.infos.barrier || !rule.reorders;
    if (in_order && req.state.deferred.is_any()) || durable::waits_for_others(req, rule) {
        // The request is offered again, so it is not counted now.
        req.state.pending.wait_for_deferred();
        return ServeResult::Later;
    }
    let is_first = req.tries.is_first();
    if is_first {
        timing::begin(req);
        req.tries.weight = rule.timed.and_then(|kind| sample(req, kind)).unwrap_or(0);
    }
    let end = match rule.timed.filter(|_| req.tries.weight != 0) {
        Some(kind) => call_timed(req, out, rule, kind),
        None => call(req, out, rule),
    };
    match end {
        End::Done => {
            if req.tries.begun_ns != 0 || !is_first {
                timing::note_if_slow(req, rule);
            }
            ServeResult::Done
        }
        End::Later => ServeResult::Later,
        End::Fetch => {
            let overtakable = !in_order && req.state.features().has(Feature::UnorderedExecution);
            ServeResult::Fetch { overtakable, tries: req.tries }
        }
    }
}

/// Answers a request that is not served. It counts like any other.
#[cold]
fn refuse(req: &mut Request<'_>, out: &mut SendBuffer, refusal: RuleRejection) -> ServeResult {
    if req.tries.is_first() {
        timing::begin(req);
    }
    answer::refuse(req, out, Rejection::Refused(refusal));
    ServeResult::Done
}

/// Decides by the head alone whether to receive a request that needs a reservation. Answers the
/// request if not.
pub(crate) fn admits_large(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    frame: &Frame<'_>,
) -> bool {
    let Some(opcode) = Opcode::from_u8(frame.header.opcode) else {
        let (request, context) =
            (RequestId::of(&frame.header), "this server does not know the command");
        fail_request(state, out, request, Status::UnknownCommand, Some(context));
        return false;
    };
    let mut req = Request::new(id, frame, opcode, state, env);
    let refusal = match rules::rule(opcode) {
        None if !req.state.user.is_known() => {
            RuleRejection::Status(Status::Eaccess, "authenticate first")
        }
        None => RuleRejection::Status(Status::NotSupported, "this server does not know how"),
        Some(rule) => match access::check(&mut req, rule.required) {
            Err(refusal) => refusal,
            Ok(()) if !rule.takes_value() => {
                RuleRejection::Status(Status::Einval, "no value may be given")
            }
            Ok(())
                if matches!(
                    rule.required,
                    RequiredAccess::Anybody | RequiredAccess::Authenticated
                ) =>
            {
                RuleRejection::Status(
                    Status::E2big,
                    "the value is longer than any for this command",
                )
            }
            Ok(()) => return true,
        },
    };
    answer::refuse(&mut req, out, Rejection::Refused(refusal));
    false
}

/// Allocates the item for the value of a store request, `value_bytes` long, once all other parts
/// are there. `None` when the request would be refused; it is then received and answered as usual.
pub(crate) fn begin_store(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    frame: &Frame<'_>,
    value_bytes: usize,
) -> Option<FillingItem> {
    let opcode = Opcode::from_u8(frame.header.opcode)?;
    let mut req = Request::new(id, frame, opcode, state, env);
    check(&mut req, rules::rule(opcode)?).ok()?;
    writes::begin_store(&req, value_bytes)
}

/// Counts a command that is about to run. Returns its weight when it is to be timed.
fn sample(req: &Request<'_>, kind: CommandKind) -> Option<u8> {
    req.state.selection.operations()?.timings().sample(kind)
}

/// Records how long the last try took.
fn call_timed(req: &mut Request<'_>, out: &mut SendBuffer, rule: &Rule, kind: CommandKind) -> End {
    let begun_ns = req.env.latency_clock.now_ns();
    let end = call(req, out, rule);
    let elapsed_ns = req.env.latency_clock.now_ns().saturating_sub(begun_ns);
    if let Some(operations) = req.state.selection.operations().filter(|_| end == End::Done) {
        operations.timings().record(kind, elapsed_ns, req.tries.weight);
    }
    end
}

/// Makes every check that does not require running the request.
fn check(req: &mut Request<'_>, rule: &Rule) -> Result<(), RuleRejection> {
    access::check(req, rule.required)?;
    let datatype = req.frame.header.datatype;
    if !rule.admits(req.frame) {
        return Err(RuleRejection::Status(Status::Einval, rule.misfit(req.frame)));
    }
    if datatype != 0 {
        check_datatype(req, rule, datatype)?;
    }
    if req.frame.header.magic == Magic::AltClientRequest {
        req.infos = decode_infos(req, rule)?;
        req.visibility = durable::visibility(req);
    }
    Ok(())
}

fn check_datatype(req: &Request<'_>, rule: &Rule, datatype: u8) -> Result<(), RuleRejection> {
    if datatype & !rule.datatypes != 0 {
        return Err(RuleRejection::Status(
            Status::Einval,
            "this command does not take this datatype",
        ));
    }
    if !req.state.features().admits_datatype(datatype) {
        return Err(RuleRejection::Status(Status::Einval, "this datatype was not negotiated"));
    }
    Ok(())
}

/// Decodes framing extras and checks that the command takes them. No feature has to be negotiated
/// for them: features only announce the server's support. Some clients rely on the announcement to
/// another connection.
fn decode_infos(req: &Request<'_>, rule: &Rule) -> Result<RequestFrames, RuleRejection> {
    let refuse = |status, context| Err(RuleRejection::Status(status, context));
    let infos = frame_info::decode(req.frame.framing).map_err(|error| {
        RuleRejection::Status(status::of_frame_info(error), "the framing extras are not understood")
    })?;
    if infos.stream_id.is_some() && req.opcode != Opcode::DcpCloseStream {
        return refuse(Status::Einval, "this command takes no stream id");
    }
    if let Some(durability) = infos.durability {
        if !rule.durable {
            return refuse(Status::Einval, "this command takes no durability level");
        }
        let is_in_memory = req.state.bucket().is_some_and(|bucket| bucket.is_in_memory());
        if durability.level.needs_persistence() && is_in_memory {
            return refuse(Status::DurabilityInvalidLevel, "the bucket is in memory only");
        }
    }
    if infos.preserve_expiry && !rule.preserves_expiry {
        return refuse(Status::NotSupported, "this command cannot keep the expiry");
    }
    Ok(infos)
}

/// Runs the handler and answers. The commonest commands have a separate stack frame, so they do
/// not pay for the stack that others need.
#[inline]
fn call(req: &mut Request<'_>, out: &mut SendBuffer, rule: &Rule) -> End {
    match req.opcode {
        Opcode::Get | Opcode::Getq => get(req, out, rule),
        Opcode::Set | Opcode::Setq => set(req, out, rule),
        Opcode::Noop => answer::succeed(req, out),
        _ => {
            let outcome = handlers::call(req);
            conclude_other(req, out, rule, outcome)
        }
    }
}

#[inline(never)]
fn get(req: &mut Request<'_>, out: &mut SendBuffer, rule: &Rule) -> End {
    let outcome = reads::get(req);
    conclude(req, out, rule, outcome)
}

#[inline(never)]
fn set(req: &mut Request<'_>, out: &mut SendBuffer, rule: &Rule) -> End {
    let outcome = writes::set(req);
    conclude(req, out, rule, outcome)
}

#[cfg(test)]
mod tests;
