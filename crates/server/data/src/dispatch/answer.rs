//! The one place where an outcome becomes an answer.
//!
//! Owns: the decisions that no handler takes:
//! - whether a quiet command stays silent;
//! - whether a write is answered now or when the store has it;
//! - which status this client understands;
//! - how long the request took;
//! - how an answer describes a failure;
//! - which log lines, audit events and counters result.
//!
//! Invariants: an answer carries opcode and opaque of its request; error statuses pass the legacy
//! mapping here and nowhere else. [`super::encoding`] writes the bytes.

use std::borrow::Cow;

use oribi_engine::OperationRejection;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, ServerDuration, write_response};
use oribi_protocol::status::Status;

use super::encoding;
use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{HandlerReply, Outcome, Rejection, RuleRejection};
use super::request::Request;
use super::rules::{self, Rule, Silence};
use super::{access, durable, reservation, timing};
use crate::connection::parked::{Answer, ParkedWrite};
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::diagnostics::rejection_log::Reference;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::status;

/// How serving a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The request is finished.
    Done,
    /// It is tried again when the connection's wait is over.
    Later,
    /// It is tried again after a fetch.
    Fetch,
}

/// Parts of an answer with this status and no body.
#[inline(always)]
fn parts(req: &Request<'_>, status: Status) -> ResponseParts<'static> {
    let header = &req.frame.header;
    let begun_ns = req.tries.begun_ns;
    let duration = (begun_ns != 0)
        .then(|| ServerDuration::of_ns(req.env.latency_clock.now_ns().saturating_sub(begun_ns)));
    ResponseParts { duration, ..ResponseParts::new(header.opcode, status, header.opaque) }
}

/// Answers Success with no body.
#[inline(always)]
pub(super) fn succeed(req: &Request<'_>, out: &mut SendBuffer) -> End {
    write_response(out.tail(), &parts(req, Status::Success));
    End::Done
}

/// Answers a request of the commonest commands. Their most frequent answers are written without
/// another call.
#[inline(always)]
pub(super) fn conclude(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    rule: &Rule,
    outcome: Outcome<'_>,
) -> End {
    let features = req.state.features();
    match outcome {
        Ok(HandlerReply::Document { item, cas, key }) => {
            let parts = ResponseParts { key, ..parts(req, Status::Success) };
            encoding::write_document(out, features, &parts, &item, cas);
            End::Done
        }
        Ok(HandlerReply::Shared { item, key }) => {
            let parts = ResponseParts { key, ..parts(req, Status::Success) };
            encoding::write_copied(out, features, &parts, &item, item.cas());
            End::Done
        }
        // A miss is as frequent as a hit in many caches.
        Ok(HandlerReply::Miss { key: [] }) if rule.silence != Silence::OnMiss => {
            let text = match features.is_negotiated() {
                true => "",
                false => encoding::plain_text(Status::KeyEnoent, None),
            };
            let parts = parts(req, Status::KeyEnoent);
            write_response(out.tail(), &ResponseParts { value: text.as_bytes(), ..parts });
            End::Done
        }
        Ok(HandlerReply::Written(Answer::Mutation(mutation)))
            if !req.waits_for_durability() && rule.silence != Silence::OnSuccess =>
        {
            encoding::write_mutation(out, features, &parts(req, Status::Success), &mutation);
            End::Done
        }
        other => conclude_other(req, out, rule, other),
    }
}

#[inline(never)]
pub(super) fn conclude_other(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    rule: &Rule,
    outcome: Outcome<'_>,
) -> End {
    match outcome {
        Ok(reply) => send(req, out, rule, reply),
        Err(Rejection::Engine(OperationRejection::NeedsFetch)) if !req.tries.is_over() => {
            return End::Fetch;
        }
        Err(Rejection::Engine(OperationRejection::TemporaryFailure))
            if reservation::waits_for_bucket(req) =>
        {
            return End::Later;
        }
        Err(Rejection::Retry(wait)) => {
            reservation::wait(req, wait);
            return End::Later;
        }
        Err(not_done) => refuse(req, out, not_done),
    }
    End::Done
}

fn send(req: &mut Request<'_>, out: &mut SendBuffer, rule: &Rule, reply: HandlerReply<'_>) {
    let reply = match reply {
        HandlerReply::Miss { .. } if rule.silence == Silence::OnMiss => return,
        HandlerReply::Streamed | HandlerReply::Nothing => return,
        HandlerReply::AsLate(outcome) => return answer_late(req.state, out, req.id(), outcome),
        HandlerReply::Job(job) => {
            req.state.pending.wait_for_job(req.id());
            return req.env.jobs.push((req.connection, job));
        }
        HandlerReply::Written(answer) if req.waits_for_durability() => {
            // Quiet forms take no durability frame, and a bucket raises them like others.
            let waits = rule.durable || rule.silence != Silence::Never;
            assert!(waits, "only durable commands and their quiet forms wait");
            match durable::park(req, answer) {
                None => return,
                Some(answer) => HandlerReply::Written(answer),
            }
        }
        reply => reply,
    };
    if rule.silence == Silence::OnSuccess {
        return;
    }
    let (features, parts) = (req.state.features(), parts(req, Status::Success));
    match reply {
        HandlerReply::Success
        | HandlerReply::Job(_)
        | HandlerReply::AsLate(_)
        | HandlerReply::Streamed
        | HandlerReply::Nothing => {
            write_response(out.tail(), &parts);
        }
        HandlerReply::Document { item, cas, key } => {
            let parts = ResponseParts { key, ..parts };
            encoding::write_document(out, features, &parts, &item, cas);
        }
        HandlerReply::Shared { item, key } => {
            let parts = ResponseParts { key, ..parts };
            encoding::write_copied(out, features, &parts, &item, item.cas());
        }
        HandlerReply::Miss { key } => {
            let parts = ResponseParts { key, status: Status::KeyEnoent, ..parts };
            match key {
                [] => encoding::write_failure(out, features, &parts, None),
                _ => write_response(out.tail(), &parts),
            }
        }
        HandlerReply::Written(answer) => encoding::write_written(out, features, parts, &answer),
        HandlerReply::Value { status, value } => {
            let status = req.state.wire_status(status);
            let parts = ResponseParts { status, value: &value, ..parts };
            write_response(out.tail(), &parts);
        }
        HandlerReply::Extras { cas, extras } => {
            let parts = ResponseParts { cas: cas.0, extras: &extras, ..parts };
            write_response(out.tail(), &parts);
        }
        HandlerReply::Json(json) => encoding::write_json(out, features, &parts, &json),
        HandlerReply::Sampled(sampled) => encoding::write_sampled(out, features, &parts, &sampled),
        HandlerReply::Found(found) => {
            let parts = ResponseParts { status: found.status, ..parts };
            encoding::write_found(out, features, &parts, &found);
        }
    }
}

/// Answers a request that was not done, and counts the engine's refusals.
#[cold]
pub(super) fn refuse(req: &mut Request<'_>, out: &mut SendBuffer, not_done: Rejection) {
    match not_done {
        Rejection::Status(status) => fail(req, out, status, None),
        Rejection::Because(status, context) => fail(req, out, status, Some(context)),
        Rejection::Engine(refused) => refuse_by_engine(req, out, refused),
        Rejection::Unknown(status) => fail_unknown(req, out, status),
        Rejection::Refused(refusal) => {
            access::audit(req, refusal);
            match refusal {
                RuleRejection::Status(status, context) => fail_logged(req, out, status, context),
                RuleRejection::UnknownCollection => {
                    fail_unknown(req, out, Status::UnknownCollection);
                }
                RuleRejection::Access(missing) => {
                    let context = format!("needs the privilege {missing}");
                    fail_logged(req, out, Status::Eaccess, &context);
                }
            }
        }
        Rejection::Retry(_) => {
            debug_assert!(false, "a request that is tried again is not answered")
        }
    }
}

/// Answers with a status and, if the client negotiated it, a readable reason. The failure is not
/// logged: only the client that owns the document knows whether it matters.
fn fail(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    status: Status,
    context: Option<&'static str>,
) {
    debug_assert!(status != Status::Success, "a failure has its status");
    if req.state.closes_instead(status) {
        return;
    }
    let parts = parts(req, req.state.wire_status(status));
    encoding::write_failure(out, req.state.features(), &parts, context);
}

/// As [`fail`], with a reference that identifies the request in the log.
fn fail_logged(req: &mut Request<'_>, out: &mut SendBuffer, status: Status, context: &str) {
    debug_assert!(status != Status::Success, "a refusal has its status");
    let reference = log_refusal(req, status, context);
    if req.state.closes_instead(status) {
        return;
    }
    let (features, parts) = (req.state.features(), parts(req, req.state.wire_status(status)));
    match encoding::reads_contexts(features) {
        true => encoding::write_error_body(out, features, &parts, (None, context, reference)),
        false => encoding::write_failure(out, features, &parts, Some(context)),
    }
}

/// Logs a refused request, unless many came just before. Returns the reference in the log.
fn log_refusal(req: &mut Request<'_>, status: Status, context: &str) -> Option<Reference> {
    let reference = req.env.refusals.admit(req.env.now_ms)?;
    let user = req.state.user.name();
    tracing::info!(
        %reference,
        connection = req.state.record().number,
        user,
        opcode = req.opcode.name(),
        status = status.name(),
        context,
        "request refused"
    );
    Some(reference)
}

/// Answers a request that the engine has refused, with advice to the client.
fn refuse_by_engine(req: &mut Request<'_>, out: &mut SendBuffer, refused: OperationRejection) {
    let status = status::of_refused(refused);
    let context = count_refused(req, refused);
    match refused {
        OperationRejection::NotMyVbucket => send_map(req, out),
        OperationRejection::UnknownCollection => fail_unknown(req, out, status),
        OperationRejection::Locked => {
            let is_old = !req.state.features().has(Feature::XError);
            let is_temporary = is_old && status::locked_is_temporary(req.opcode);
            fail(req, out, if is_temporary { Status::Etmpfail } else { status }, None);
        }
        _ => fail(req, out, status, Some(context)),
    }
}

/// Counts a refusal of the engine, and says it in words.
fn count_refused(req: &Request<'_>, refused: OperationRejection) -> &'static str {
    match refused {
        OperationRejection::NotMyVbucket => "another node has the document",
        OperationRejection::UnknownCollection => "unknown collection, or no right in it",
        OperationRejection::Locked => {
            req.counters().lock_errors.add(1);
            "the document is locked"
        }
        OperationRejection::DurableWriteInProgress => {
            "a durable write of the document is under way"
        }
        OperationRejection::Recommitting => {
            "this copy was promoted, and commits durable writes of the one before"
        }
        OperationRejection::NoMemory => {
            req.counters().ep_oom_errors.add(1);
            "the bucket's memory is full"
        }
        OperationRejection::TemporaryFailure => {
            req.counters().ep_tmp_oom_errors.add(1);
            "the bucket's memory or queue is full for now, or its store fails"
        }
        OperationRejection::NeedsFetch => {
            req.counters().ep_tmp_oom_errors.add(1);
            "the document could not be read from the store"
        }
    }
}

/// The status of a request that was not done, and the reason in words, for an answer in the text
/// protocol. Counts, logs and audits like [`refuse`].
#[cold]
pub(super) fn describe(
    req: &mut Request<'_>,
    not_done: Rejection,
) -> (Status, Option<Cow<'static, str>>) {
    const UNKNOWN: &str = "unknown collection, or no right in it";
    let (status, context) = match not_done {
        Rejection::Status(status) => return (status, None),
        Rejection::Because(status, context) => return (status, Some(context.into())),
        Rejection::Engine(refused) => {
            return (status::of_refused(refused), Some(count_refused(req, refused).into()));
        }
        Rejection::Unknown(status) => return (status, Some(UNKNOWN.into())),
        Rejection::Retry(_) => {
            debug_assert!(false, "a request that is tried again is not answered");
            return (Status::Einternal, None);
        }
        Rejection::Refused(refusal) => {
            access::audit(req, refusal);
            match refusal {
                RuleRejection::Status(status, context) => (status, Cow::Borrowed(context)),
                RuleRejection::UnknownCollection => (Status::UnknownCollection, UNKNOWN.into()),
                RuleRejection::Access(missing) => {
                    (Status::Eaccess, format!("needs the privilege {missing}").into())
                }
            }
        }
    };
    log_refusal(req, status, &context);
    (status, Some(context))
}

/// Answers that a collection or scope is not in the manifest, and names that manifest.
fn fail_unknown(req: &mut Request<'_>, out: &mut SendBuffer, status: Status) {
    let features = req.state.features();
    if !features.is_negotiated() {
        return fail(req, out, status, None);
    }
    let context = match status {
        Status::UnknownScope => "unknown scope, or no right in it",
        _ => "unknown collection, or no right in it",
    };
    let uid = req.bucket().manifest().uid();
    let parts = parts(req, req.state.wire_status(status));
    encoding::write_error_body(out, features, &parts, (Some(uid), context, None));
}

/// Answers that another node has the vbucket, and sends the cluster configuration. The
/// configuration is left out if this connection has it already and requested each version once.
fn send_map(req: &mut Request<'_>, out: &mut SendBuffer) {
    let document = req.env.server.cluster.bucket_document(req.handle());
    debug_assert!(!document.json.is_empty(), "a map has a text");
    let seen = req.state.selection.config_sent() == document.version
        && req.state.features().has(Feature::DedupeNotMyVbucketClustermap);
    if seen {
        return fail(req, out, Status::NotMyVbucket, None);
    }
    req.state.selection.note_config_sent(document.version);
    let parts = parts(req, Status::NotMyVbucket);
    encoding::write_json(out, req.state.features(), &parts, &document.json);
}

/// Answers a request whose frame is no longer there.
pub(super) fn answer_late(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    request: RequestId,
    outcome: LateOutcome,
) {
    match outcome {
        Ok(LateReply { status, extras, value }) => {
            let status = state.wire_status(status);
            let parts = ResponseParts::new(request.opcode, status, request.opaque);
            write_response(out.tail(), &ResponseParts { extras, value: &value, ..parts });
        }
        Err(status) => fail_request(state, out, request, status, None),
    }
}

/// Answers with a failure a frame that no handler sees, or a request whose frame is no longer
/// there.
pub(crate) fn fail_request(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    request: RequestId,
    status: Status,
    context: Option<&'static str>,
) {
    debug_assert!(status != Status::Success, "a failure has its status");
    if state.closes_instead(status) {
        return;
    }
    let parts = ResponseParts::new(request.opcode, state.wire_status(status), request.opaque);
    encoding::write_failure(out, state.features(), &parts, context);
}

/// Answers a write whose persistence is decided. A failure means that the write is not known to be
/// durable.
pub(crate) fn answer_parked(
    state: &ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    parked: &ParkedWrite,
    outcome: Result<(), (Status, &'static str)>,
) {
    timing::note_parked(state, env, parked);
    let RequestId { opcode, opaque } = parked.request;
    let duration = parked.duration(&env.latency_clock);
    let parts = ResponseParts { duration, ..ResponseParts::new(opcode, Status::Success, opaque) };
    let rule = Opcode::from_u8(opcode).and_then(rules::rule);
    let is_silent = rule.is_some_and(|rule| rule.silence == Silence::OnSuccess);
    match outcome {
        Ok(()) if is_silent => {}
        Ok(()) => encoding::write_written(out, state.features(), parts, &parked.answer),
        Err((status, context)) => {
            let parts = ResponseParts { status: state.wire_status(status), ..parts };
            encoding::write_failure(out, state.features(), &parts, Some(context));
        }
    }
}
