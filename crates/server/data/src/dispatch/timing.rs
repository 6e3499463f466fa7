//! Measures how long requests take, for the client and for the slow operation log.
//!
//! Invariant: a clock is read once per stretch of requests. Only for clients that negotiated it is
//! each request measured.

use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;

use super::request::Request;
use super::rules::{self, Rule};
use crate::connection::fetches::TryHistory;
use crate::connection::parked::ParkedWrite;
use crate::diagnostics::slow_operation_log::{OperationClass, SlowOperation};
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

/// Counts a request that is served now, whatever its result, and starts its measurement where one
/// is needed.
#[inline]
pub(super) fn begin(req: &mut Request<'_>) {
    req.env.counters.cmd_total.add(1);
    if req.env.stretch.is_full() {
        end_stretch(req.state, req.env);
    }
    req.env.stretch.push(req.frame.header.opcode);
    if req.state.features().has(Feature::Tracing) {
        req.tries.begun_ns = req.env.latency_clock.now_ns().max(1);
    }
}

/// An operation of this connection without any measured time.
fn operation(state: &ConnectionState, opcode: u8, class: OperationClass) -> SlowOperation<'_> {
    SlowOperation {
        opcode,
        class,
        connection: state.record().number,
        user: state.user.name(),
        bucket: state.bucket().map_or("", |bucket| bucket.name()),
        key: b"",
        execute_us: None,
        fetch_ms: 0,
        persist_ms: 0,
    }
}

/// Reports a finished request to the slow operation log, if its time was measured.
pub(super) fn note_if_slow(req: &mut Request<'_>, rule: &Rule) {
    let TryHistory { begun_ns, waiting_since_ms, .. } = req.tries;
    let fetch_ms = match waiting_since_ms {
        0 => 0,
        since_ms => req.env.now_ms.saturating_sub(since_ms),
    };
    // A time measured from the first try on includes the wait.
    let execute_us = (begun_ns != 0)
        .then(|| req.env.latency_clock.now_ns().saturating_sub(begun_ns) / 1_000)
        .map(|all_us| all_us.saturating_sub(fetch_ms * 1_000));
    let unknown = operation(req.state, req.frame.header.opcode, rule.class());
    let operation = SlowOperation { key: req.frame.key, execute_us, fetch_ms, ..unknown };
    req.env.slow.note(req.env.now_ms, &operation);
}

/// Reports a write whose persistence is decided to the slow operation log, without its key.
pub(super) fn note_parked(state: &ConnectionState, env: &mut Environment, parked: &ParkedWrite) {
    let unknown = operation(state, parked.request.opcode, OperationClass::Durable);
    let persist_ms = env.now_ms.saturating_sub(parked.since_ms);
    env.slow.note(env.now_ms, &SlowOperation { persist_ms, ..unknown });
}

/// Reads the clock for the requests since its last reading. Reports them to the slow operation log
/// when that was long ago. Requests measured on their own are not reported twice.
pub(crate) fn end_stretch(state: &ConnectionState, env: &mut Environment) {
    let Some(least_us) = env.slow.least_us() else { return };
    let now_ns = env.latency_clock.now_ns();
    let elapsed_us = env.stretch.elapsed_us(now_ns);
    if elapsed_us >= least_us && !state.features().has(Feature::Tracing) {
        note_stretch(state, env, elapsed_us);
    }
    env.stretch.begin(now_ns);
}

#[cold]
fn note_stretch(state: &ConnectionState, env: &mut Environment, elapsed_us: u64) {
    let opcodes = env.stretch.opcodes();
    let class_of = |code: &u8| {
        let rule = Opcode::from_u8(*code).and_then(rules::rule);
        rule.map_or(OperationClass::Other, Rule::class)
    };
    let classes: Vec<OperationClass> = opcodes.iter().map(class_of).collect();
    let (Some(opcode), Some(class)) = (opcodes.first(), classes.first()) else { return };
    let execute_us = Some(elapsed_us);
    let operation = SlowOperation { execute_us, ..operation(state, *opcode, *class) };
    env.slow.note_stretch(env.now_ms, &operation, (opcodes, &classes));
}
