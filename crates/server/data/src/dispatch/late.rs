//! Answers requests that waited for another thread.
//!
//! Owns: the effect of each job's result on the connection and on its request. The connection that
//! waited calls this.

use oribi_protocol::status::Status;

use super::answer::answer_late;
use super::outcome::{LateOutcome, LateReply};
use super::{handshake, range_scan, writes};
use crate::connection::request_id::RequestId;
use crate::connection::write_buffer::WriteBuffer;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::JobResult;
use crate::dispatch::stat_cursor::PreparedStat;

/// Takes the result of the job that the connection waited for with this request.
pub(crate) fn finish(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    env: &mut Environment,
    request: RequestId,
    result: JobResult,
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
    result: JobResult,
) -> Option<LateOutcome> {
    match result {
        JobResult::Sasl(step) => Some(handshake::finish_sasl(state, env, step)),
        JobResult::FlushAll(result) => writes::finish_flush(request, &result),
        JobResult::Answer(Status::Success, value) => Some(Ok(LateReply::value(value))),
        JobResult::Answer(status, _) => Some(Err(status)),
        JobResult::Stat(prepared) => begin_stat(state, prepared),
        JobResult::RangeScan(answer) => Some(range_scan::finish(state, answer)),
        JobResult::Refused => Some(Err(give_up(state, Status::Etmpfail))),
        JobResult::Panicked => Some(Err(give_up(state, Status::Einternal))),
    }
}

/// Begins the answer once the group's data are collected, or reports why the group cannot be
/// answered.
fn begin_stat(
    state: &mut ConnectionState,
    PreparedStat(prepared): PreparedStat,
) -> Option<LateOutcome> {
    match prepared {
        Ok(producer) => {
            if let Some(stat) = &mut state.stat {
                stat.prepared(producer);
            }
            None
        }
        Err(status) => Some(Err(give_up(state, status))),
    }
}

/// Gives up on an answer that was to be sent in pieces.
fn give_up(state: &mut ConnectionState, status: Status) -> Status {
    state.stat = None;
    state.range_scan = None;
    status
}
