//! Answers requests that waited for another thread.
//!
//! Owns: the answer to a request whose job is over. The driver of the connection that waited calls
//! this.

use oribi_protocol::status::Status;

use super::answer::answer_late;
use super::late_outcome::LateOutcome;
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::JobResult;

/// Takes the result of the job that the connection waited for with this request.
pub(crate) fn finish(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    request: RequestId,
    result: JobResult<Environment>,
) {
    if let Some(outcome) = outcome_of(state, env, request, result) {
        answer_late(state, out, request, outcome);
    }
}

/// The effect of a job's result, and the outcome to answer with, if any.
pub(super) fn outcome_of(
    state: &mut ConnectionState,
    env: &mut Environment,
    request: RequestId,
    result: JobResult<Environment>,
) -> Option<LateOutcome> {
    match result {
        JobResult::Done { end, .. } => end.finish(state, env, request),
        JobResult::Rejected => Some(Err(give_up(state, Status::Etmpfail))),
        JobResult::Panicked => Some(Err(give_up(state, Status::Einternal))),
    }
}

/// Abandons an answer that was to be sent in pieces.
pub(super) fn give_up(state: &mut ConnectionState, status: Status) -> Status {
    state.pending.end_answer();
    status
}
