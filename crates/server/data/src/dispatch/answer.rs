//! The one place where an outcome becomes an answer.
//!
//! Owns: the decisions that no handler takes:
//! - whether a quiet command stays silent;
//! - whether a write is answered now or when the store has it;
//! - which status this client understands;
//! - how long the request took;
//! - what the client is told about a failure;
//! - which log lines, audit events and counters result.
//!
//! Invariants: an answer carries opcode and opaque of its request; error statuses pass the legacy
//! mapping here and nowhere else. [`super::encoding`] writes the bytes.

use std::borrow::Cow;

use oribi_engine::Refused;
use oribi_protocol::feature::Feature;
use oribi_protocol::response::{ResponseParts, ServerDuration, write_response};
use oribi_protocol::status::Status;

use super::encoding;
use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{Outcome, Rejection, Reply, RuleRejection};
use super::request::Request;
use super::rules::{Rule, Silence};
use super::{access, durable, room, timing};
use crate::connection::parked::{Answer, Parked};
use crate::connection::request_id::RequestId;
use crate::connection::write_buffer::WriteBuffer;
use crate::diagnostics::rejection_log::Reference;
use crate::dispatch::connection_state::{ConnectionState, Wait};
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
fn parts(x: &Request<'_>, status: Status) -> ResponseParts<'static> {
    let header = &x.frame.header;
    let begun_ns = x.tries.begun_ns;
    let duration = (begun_ns != 0)
        .then(|| ServerDuration::of_ns(x.env.latency_clock.now_ns().saturating_sub(begun_ns)));
    ResponseParts { duration, ..ResponseParts::new(header.opcode, status, header.opaque) }
}

/// Answers Success with no body.
#[inline(always)]
pub(super) fn succeed(x: &Request<'_>, out: &mut WriteBuffer) -> End {
    write_response(out.tail(), &parts(x, Status::Success));
    End::Done
}

/// Answers a request of the commonest commands. Their most frequent answers are written without
/// another call.
#[inline(always)]
pub(super) fn conclude(
    x: &mut Request<'_>,
    out: &mut WriteBuffer,
    rule: &Rule,
    outcome: Outcome<'_>,
) -> End {
    let features = x.state.features;
    match outcome {
        Ok(Reply::Document { item, cas, key }) => {
            let parts = ResponseParts { key, ..parts(x, Status::Success) };
            encoding::write_document(out, features, &parts, &item, cas);
            End::Done
        }
        Ok(Reply::Shared { item, key }) => {
            let parts = ResponseParts { key, ..parts(x, Status::Success) };
            encoding::write_copied(out, features, &parts, &item, item.cas());
            End::Done
        }
        // A miss is as frequent as a hit in many caches.
        Ok(Reply::Miss { key: [] }) if rule.silence != Silence::OnMiss => {
            let text = match features.is_negotiated() {
                true => "",
                false => encoding::plain_text(Status::KeyEnoent, None),
            };
            let parts = parts(x, Status::KeyEnoent);
            write_response(out.tail(), &ResponseParts { value: text.as_bytes(), ..parts });
            End::Done
        }
        Ok(Reply::Written(Answer::Mutation(mutation)))
            if !x.waits_for_store() && rule.silence != Silence::OnSuccess =>
        {
            encoding::write_mutation(out, features, &parts(x, Status::Success), &mutation);
            End::Done
        }
        other => conclude_other(x, out, rule, other),
    }
}

/// Answers any request.
#[inline(never)]
pub(super) fn conclude_other(
    x: &mut Request<'_>,
    out: &mut WriteBuffer,
    rule: &Rule,
    outcome: Outcome<'_>,
) -> End {
    match outcome {
        Ok(reply) => send(x, out, rule, reply),
        Err(Rejection::Engine(Refused::NeedsFetch)) if !x.tries.is_over() => return End::Fetch,
        Err(Rejection::Engine(Refused::TemporaryFailure)) if room::waits_for_bucket(x) => {
            return End::Later;
        }
        Err(Rejection::Later(wait)) => {
            x.state.wait = wait;
            return End::Later;
        }
        Err(not_done) => refuse(x, out, not_done),
    }
    End::Done
}

fn send(x: &mut Request<'_>, out: &mut WriteBuffer, rule: &Rule, reply: Reply<'_>) {
    let reply = match reply {
        Reply::Miss { .. } if rule.silence == Silence::OnMiss => return,
        Reply::Streamed | Reply::Nothing => return,
        Reply::AsLate(outcome) => return answer_late(x.state, out, x.id(), outcome),
        Reply::Job(job) => {
            x.state.wait = Wait::Job(x.id());
            return x.env.jobs.push((x.connection, job));
        }
        Reply::Written(answer) if x.waits_for_store() => match durable::park(x, answer) {
            None => return,
            Some(answer) => Reply::Written(answer),
        },
        reply => reply,
    };
    if rule.silence == Silence::OnSuccess {
        return;
    }
    let (features, parts) = (x.state.features, parts(x, Status::Success));
    match reply {
        Reply::Success | Reply::Job(_) | Reply::AsLate(_) | Reply::Streamed | Reply::Nothing => {
            write_response(out.tail(), &parts);
        }
        Reply::Document { item, cas, key } => {
            let parts = ResponseParts { key, ..parts };
            encoding::write_document(out, features, &parts, &item, cas);
        }
        Reply::Shared { item, key } => {
            let parts = ResponseParts { key, ..parts };
            encoding::write_copied(out, features, &parts, &item, item.cas());
        }
        Reply::Miss { key } => {
            let parts = ResponseParts { key, status: Status::KeyEnoent, ..parts };
            match key {
                [] => encoding::write_failure(out, features, &parts, None),
                _ => write_response(out.tail(), &parts),
            }
        }
        Reply::Written(answer) => encoding::write_written(out, features, parts, &answer),
        Reply::Value { status, value } => {
            let status = x.state.wire_status(status);
            let parts = ResponseParts { status, value: &value, ..parts };
            write_response(out.tail(), &parts);
        }
        Reply::Extras { cas, extras } => {
            let parts = ResponseParts { cas: cas.0, extras: &extras, ..parts };
            write_response(out.tail(), &parts);
        }
        Reply::Json(json) => encoding::write_json(out, features, &parts, &json),
        Reply::Sampled(sampled) => encoding::write_sampled(out, features, &parts, &sampled),
        Reply::Found(found) => {
            let parts = ResponseParts { status: found.status, ..parts };
            encoding::write_found(out, features, &parts, &found);
        }
    }
}

/// Answers a request that was not done, and counts the engine's refusals.
#[cold]
pub(super) fn refuse(x: &mut Request<'_>, out: &mut WriteBuffer, not_done: Rejection) {
    match not_done {
        Rejection::Status(status) => fail(x, out, status, None),
        Rejection::Because(status, context) => fail(x, out, status, Some(context)),
        Rejection::Engine(refused) => refuse_by_engine(x, out, refused),
        Rejection::Unknown(status) => fail_unknown(x, out, status),
        Rejection::Refused(refusal) => {
            access::audit(x, refusal);
            match refusal {
                RuleRejection::Status(status, context) => fail_logged(x, out, status, context),
                RuleRejection::UnknownCollection => {
                    fail_unknown(x, out, Status::UnknownCollection);
                }
                RuleRejection::Access(missing) => {
                    let context = format!("needs the privilege {missing}");
                    fail_logged(x, out, Status::Eaccess, &context);
                }
            }
        }
        Rejection::Later(_) => {
            debug_assert!(false, "a request that is tried again is not answered")
        }
    }
}

/// Answers with a status and, if the client negotiated it, a readable reason. The failure is not
/// logged: the client that owns the document can judge it best.
fn fail(x: &mut Request<'_>, out: &mut WriteBuffer, status: Status, context: Option<&'static str>) {
    if x.state.closes_instead(status) {
        return;
    }
    let parts = parts(x, x.state.wire_status(status));
    encoding::write_failure(out, x.state.features, &parts, context);
}

/// As [`fail`], with a reference that identifies the request in the log.
fn fail_logged(x: &mut Request<'_>, out: &mut WriteBuffer, status: Status, context: &str) {
    let reference = log_refusal(x, status, context);
    if x.state.closes_instead(status) {
        return;
    }
    let (features, parts) = (x.state.features, parts(x, x.state.wire_status(status)));
    match encoding::reads_contexts(features) {
        true => encoding::write_error_body(out, features, &parts, (None, context, reference)),
        false => encoding::write_failure(out, features, &parts, Some(context)),
    }
}

/// Logs a refused request, unless many came just before. Returns the reference in the log.
fn log_refusal(x: &mut Request<'_>, status: Status, context: &str) -> Option<Reference> {
    let reference = x.env.refusals.admit(x.env.now_ms)?;
    let user = x.state.identity.as_ref().map_or("", |identity| &identity.name);
    tracing::info!(
        %reference,
        connection = x.state.record.number,
        user,
        opcode = x.opcode.name(),
        status = status.name(),
        context,
        "request refused"
    );
    Some(reference)
}

/// Answers that the engine did not look at the key, and tells the client how to do better.
fn refuse_by_engine(x: &mut Request<'_>, out: &mut WriteBuffer, refused: Refused) {
    let status = status::of_refused(refused);
    let context = count_refused(x, refused);
    match refused {
        Refused::NotMyVbucket => send_map(x, out),
        Refused::UnknownCollection => fail_unknown(x, out, status),
        Refused::Locked => {
            let is_old = !x.state.features.has(Feature::XError);
            let is_temporary = is_old && status::locked_is_temporary(x.opcode);
            fail(x, out, if is_temporary { Status::Etmpfail } else { status }, None);
        }
        _ => fail(x, out, status, Some(context)),
    }
}

/// Counts a refusal of the engine, and says it in words.
fn count_refused(x: &Request<'_>, refused: Refused) -> &'static str {
    match refused {
        Refused::NotMyVbucket => "another node has the document",
        Refused::UnknownCollection => "unknown collection, or no right in it",
        Refused::Locked => {
            x.counters().lock_errors.add(1);
            "the document is locked"
        }
        Refused::NoMemory => {
            x.counters().ep_oom_errors.add(1);
            "the bucket's memory is full"
        }
        Refused::TemporaryFailure => {
            x.counters().ep_tmp_oom_errors.add(1);
            "the bucket's memory or queue is full for now, or its store fails"
        }
        Refused::NeedsFetch => {
            x.counters().ep_tmp_oom_errors.add(1);
            "the document could not be read from the store"
        }
    }
}

/// The status of a request that was not done, and the reason in words, for an answer in the text
/// protocol. Counts, logs and audits like [`refuse`].
#[cold]
pub(super) fn describe(
    x: &mut Request<'_>,
    not_done: Rejection,
) -> (Status, Option<Cow<'static, str>>) {
    const UNKNOWN: &str = "unknown collection, or no right in it";
    let (status, context) = match not_done {
        Rejection::Status(status) => return (status, None),
        Rejection::Because(status, context) => return (status, Some(context.into())),
        Rejection::Engine(refused) => {
            return (status::of_refused(refused), Some(count_refused(x, refused).into()));
        }
        Rejection::Unknown(status) => return (status, Some(UNKNOWN.into())),
        Rejection::Later(_) => {
            debug_assert!(false, "a request that is tried again is not answered");
            return (Status::Einternal, None);
        }
        Rejection::Refused(refusal) => {
            access::audit(x, refusal);
            match refusal {
                RuleRejection::Status(status, context) => (status, Cow::Borrowed(context)),
                RuleRejection::UnknownCollection => (Status::UnknownCollection, UNKNOWN.into()),
                RuleRejection::Access(missing) => {
                    (Status::Eaccess, format!("needs the privilege {missing}").into())
                }
            }
        }
    };
    log_refusal(x, status, &context);
    (status, Some(context))
}

/// Answers that a collection or scope is not in the manifest, and names that manifest.
fn fail_unknown(x: &mut Request<'_>, out: &mut WriteBuffer, status: Status) {
    let features = x.state.features;
    if !features.is_negotiated() {
        return fail(x, out, status, None);
    }
    let context = match status {
        Status::UnknownScope => "unknown scope, or no right in it",
        _ => "unknown collection, or no right in it",
    };
    let uid = x.bucket().manifest().uid();
    let parts = parts(x, x.state.wire_status(status));
    encoding::write_error_body(out, features, &parts, (Some(uid), context, None));
}

/// Answers that another node has the vbucket, and sends the cluster configuration. The
/// configuration is left out if this connection has it already and asked not to be told twice.
fn send_map(x: &mut Request<'_>, out: &mut WriteBuffer) {
    let document = x.env.server.bucket_document(x.handle());
    let seen = x.state.config_sent == document.version
        && x.state.features.has(Feature::DedupeNotMyVbucketClustermap);
    if seen {
        return fail(x, out, Status::NotMyVbucket, None);
    }
    x.state.config_sent = document.version;
    let parts = parts(x, Status::NotMyVbucket);
    encoding::write_json(out, x.state.features, &parts, &document.json);
}

/// Answers a request whose frame is no longer there.
pub(super) fn answer_late(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
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
    out: &mut WriteBuffer,
    request: RequestId,
    status: Status,
    context: Option<&'static str>,
) {
    if state.closes_instead(status) {
        return;
    }
    let parts = ResponseParts::new(request.opcode, state.wire_status(status), request.opaque);
    encoding::write_failure(out, state.features, &parts, context);
}

/// Answers a write whose persistence is decided. A failure means that the write is not known to be
/// durable.
pub(crate) fn answer_parked(
    state: &ConnectionState,
    out: &mut WriteBuffer,
    env: &mut Environment,
    parked: &Parked,
    outcome: Result<(), (Status, &'static str)>,
) {
    timing::note_parked(state, env, parked);
    let RequestId { opcode, opaque } = parked.request;
    let duration = parked.duration(&env.latency_clock);
    let parts = ResponseParts { duration, ..ResponseParts::new(opcode, Status::Success, opaque) };
    match outcome {
        Ok(()) => encoding::write_written(out, state.features, parts, &parked.answer),
        Err((status, context)) => {
            let parts = ResponseParts { status: state.wire_status(status), ..parts };
            encoding::write_failure(out, state.features, &parts, Some(context));
        }
    }
}
