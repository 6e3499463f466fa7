//! Makes a write wait for the store where its durability level demands it.
//!
//! A write is done in memory first and then either answered or parked. With unordered execution
//! negotiated, the connection goes on with the next frame; otherwise it waits. One node is a
//! majority of one, so memory satisfies the level "majority".

use oribi_protocol::feature::Feature;

use super::request::Request;
use crate::connection::parked::{Answer, ParkToken, Parked};
use crate::dispatch::connection_state::Wait;
use crate::limits::{DURABILITY_TIMEOUT_DEFAULT_MS, DURABILITY_TIMEOUT_MIN_MS};

/// Parks a write that is done in memory until the store has it. Returns the answer if the store
/// already has it.
pub(super) fn park(x: &mut Request<'_>, answer: Answer) -> Option<Answer> {
    let document = x.locate().expect("the handler located what it wrote");
    x.counters().durable_writes.add(1);
    let position = x.state.parked.get_or_insert_default().next_position();
    let position = position.expect("admit_durable was asked before the write was done");
    let serial = x.env.park_serial();
    let token = ParkToken { slot: x.connection.slot, position, serial }.encode();
    let history = (answer.seqno(), answer.history());
    if x.bucket().when_persisted(document.vbid(x), history, &x.env.sink, token) {
        return Some(answer);
    }
    let asked_ms = x.infos.durability.and_then(|durability| durability.timeout_ms);
    let timeout_ms = asked_ms.map_or(DURABILITY_TIMEOUT_DEFAULT_MS, u64::from);
    let write = Parked {
        serial,
        request: x.id(),
        begun_ns: x.tries.begun_ns,
        since_ms: x.env.now_ms,
        deadline_ms: x.env.now_ms + timeout_ms.max(DURABILITY_TIMEOUT_MIN_MS),
        answer,
    };
    x.state.parked.get_or_insert_default().park(write);
    if !x.state.features.has(Feature::UnorderedExecution) {
        x.state.wait = Wait::Parked;
    }
    None
}
