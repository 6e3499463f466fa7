//! Makes a write wait for the store where its durability level demands it.
//!
//! A write is done in memory first and then either answered or parked. With unordered execution
//! negotiated, the connection continues with the next frame; otherwise it waits. One node is a
//! majority of one, so memory satisfies the level "majority".

use oribi_protocol::feature::Feature;

use super::request::Request;
use crate::connection::parked::{Answer, ParkToken, ParkedWrite};
use crate::limits::{DURABILITY_TIMEOUT_DEFAULT_MS, DURABILITY_TIMEOUT_MIN_MS};

/// Parks a write that is done in memory until the store has it. Returns the answer if the store
/// already has it.
pub(super) fn park(req: &mut Request<'_>, answer: Answer) -> Option<Answer> {
    let document = req.locate().expect("the handler located what it wrote");
    req.counters().durable_writes.add(1);
    let position = req.state.deferred.writes_or_new().next_position();
    let position = position.expect("admit_durable was asked before the write was done");
    let serial = req.env.park_serial();
    let token = ParkToken { slot: req.connection.slot, position, serial }.encode();
    let history = (answer.seqno(), answer.history());
    if req.bucket().when_persisted(document.vbid(req), history, &req.env.sink, token) {
        return Some(answer);
    }
    let asked_ms = req.infos.durability.and_then(|durability| durability.timeout_ms);
    let timeout_ms = asked_ms.map_or(DURABILITY_TIMEOUT_DEFAULT_MS, u64::from);
    let write = ParkedWrite {
        serial,
        request: req.id(),
        begun_ns: req.tries.begun_ns,
        since_ms: req.env.now_ms,
        deadline_ms: req.env.now_ms + timeout_ms.max(DURABILITY_TIMEOUT_MIN_MS),
        answer,
    };
    req.state.deferred.writes_or_new().park(write);
    if !req.state.features().has(Feature::UnorderedExecution) {
        req.state.pending.wait_for_deferred();
    }
    None
}
