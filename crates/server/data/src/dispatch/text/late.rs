//! Logins, statistics, and answers of the text protocol that another thread makes.
//!
//! Owns: the answers to commands whose bytes are gone. The client's wish for no answer is in the
//! opaque of the request.

use oribi_auth::{SaslServer, SaslStep};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_protocol::text::answer::write_line;

use super::super::handshake::{finish_sasl, sasl_job};
use super::super::late::outcome_of;
use super::super::late_outcome::LateOutcome;
use super::super::{stats, timing};
use super::answer::{self, Verb, write_failure};
use crate::connection::parked::ParkedWrite;
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::JobResult;

/// A login, as a request that is answered late.
const LOGIN: RequestId = RequestId { opcode: Opcode::SaslAuth as u8, opaque: 0 };

/// The group of statistics in a memcached client's request, by Oribi's name.
pub(super) fn group_of(group: &[u8]) -> &[u8] {
    match group {
        b"conns" => b"connections",
        group => group,
    }
}

/// Begins to check user and password.
pub(crate) fn begin_login(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    (user, password): (&[u8], &[u8]),
) {
    env.counters.auth_cmds.add(1);
    state.deauthenticate(env.now_ms);
    let mut sasl = Box::new(SaslServer::new());
    let payload = [b"\0", user, b"\0", password].concat();
    let step = sasl.start(b"PLAIN", &payload, &env.server.access.users);
    state.user.begin_sasl(sasl);
    match step {
        SaslStep::Slow(work) => {
            state.pending.wait_for_job(LOGIN);
            env.jobs.push((id, sasl_job(work)));
        }
        step => write_outcome(out, LOGIN, finish_sasl(state, env, step)),
    }
}

/// Appends the answer to a line that is not served.
pub(crate) fn refuse_line(out: &mut SendBuffer, text: &str) {
    answer::line(out, text, false);
}

/// Answers a command whose write is decided; false when it failed.
pub(crate) fn answer_parked(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    parked: &ParkedWrite,
    outcome: Result<(), (Status, &'static str)>,
) -> bool {
    timing::note_parked(state, env, parked);
    let held = state.deferred.text().take_held();
    let held = held.expect("a parked write of a text client has its answer");
    match outcome {
        Ok(()) => out.append(held.output),
        Err(_) if held.is_silent => {}
        // Of these statuses every command says the same.
        Err((status, context)) => write_failure(out.tail(), Verb::Get, status, Some(context)),
    }
    outcome.is_ok()
}

/// Takes the result of the job that the connection waited for with this request.
pub(crate) fn finish(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    request: RequestId,
    result: JobResult<Environment>,
) {
    if let Some(outcome) = outcome_of(state, env, request, result) {
        write_outcome(out, request, outcome);
    }
}

fn write_outcome(out: &mut SendBuffer, request: RequestId, outcome: LateOutcome) {
    let quiet = request.opaque != 0;
    let opcode = Opcode::from_u8(request.opcode);
    match (opcode, outcome.map(|reply| reply.status)) {
        _ if quiet => {}
        (Some(Opcode::SaslAuth), Ok(_)) => answer::line(out, "STORED", false),
        (Some(Opcode::SaslAuth), Err(Status::AuthError)) => {
            answer::line(out, "CLIENT_ERROR authentication failure", false);
        }
        (Some(Opcode::Stat), Ok(_)) => answer::line(out, "END", false),
        (_, Ok(_)) => answer::line(out, "OK", false),
        (Some(Opcode::Stat), Err(status)) => write_failure(out.tail(), Verb::Stat, status, None),
        (_, Err(status)) => write_failure(out.tail(), Verb::Flush, status, None),
    }
}

/// Appends the next slice of the statistics that the connection is answering, and after the last
/// slice their end.
pub(crate) fn continue_stat(state: &mut ConnectionState, out: &mut SendBuffer, env: &Environment) {
    match stats::next_slice(state, out, env) {
        None => {}
        Some(Ok(())) => write_line(out.tail(), "END"),
        Some(Err(status)) => write_failure(out.tail(), Verb::Stat, status, None),
    }
}
