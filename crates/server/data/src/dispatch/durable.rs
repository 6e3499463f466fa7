//! Makes a write wait until it is as durable as its level demands.
//!
//! A write is done in memory first and then either answered or parked. With unordered execution
//! negotiated, the connection continues with the next frame; otherwise, and after a quiet write, it
//! waits. In a bucket without replicas one node is a majority of one, so memory satisfies the level
//! "majority". With replicas every level waits for other nodes. The bucket's minimum durability
//! raises any write, quiet ones and those of the text protocol too.

use oribi_engine::WriteVisibility;
use oribi_protocol::feature::Feature;
use oribi_types::DurabilityLevel;

use super::request::Request;
use super::rules::{self, Rule};
use crate::buckets::PrepareGuard;
use crate::connection::parked::{Answer, ParkToken, ParkedWrite};
use crate::limits::{DURABILITY_TIMEOUT_DEFAULT_MS, DURABILITY_TIMEOUT_MIN_MS};

/// When a write of the request becomes visible, by its durability frame and its bucket's minimum.
#[cold]
pub(super) fn visibility(req: &Request<'_>) -> WriteVisibility {
    let asked = req.infos.durability.map_or(DurabilityLevel::None, |asked| asked.level);
    req.state.bucket().map_or(WriteVisibility::AtOnce, |bucket| bucket.visibility(asked))
}

/// True for a write that has to wait until others of its connection are durable: as many wait as
/// may. One that later requests have overtaken cannot wait, and is refused.
#[inline(always)]
pub(super) fn waits_for_others(req: &Request<'_>, rule: &Rule) -> bool {
    let may_wait = rule.durable && req.waits_for_durability() && !req.tries.is_overtaken;
    may_wait && req.state.deferred.is_full()
}

/// Parks a write that is done in memory until it is durable. Returns the answer if it already is.
pub(super) fn park(req: &mut Request<'_>, mut answer: Answer) -> Option<Answer> {
    let document = req.locate().expect("the handler located what it wrote");
    req.counters().durable_writes.add(1);
    let position = req.state.deferred.writes_or_new().next_position();
    let position = position.expect("admit_durable was asked before the write was done");
    let serial = req.env.park_serial();
    let token = ParkToken { slot: req.connection.slot, position, serial }.encode();
    let (vbid, seqno) = (document.vbid(req), answer.seqno());
    let history = (seqno, answer.history());
    let (is_over, prepare) = match req.visibility {
        WriteVisibility::WhenCommitted(level) => {
            let asked = (history, level.needs_persistence());
            let commit = req.bucket().when_committed(vbid, asked, &req.env.sink, token);
            commit.into_iter().for_each(|commit| answer.set_seqno(commit));
            (commit.is_some(), Some(PrepareGuard::new(req.bucket(), vbid, seqno)))
        }
        WriteVisibility::WhenStored | WriteVisibility::AtOnce => {
            (req.bucket().when_persisted(vbid, history, &req.env.sink, token), None)
        }
    };
    if is_over {
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
        _prepare: prepare,
    };
    req.state.deferred.writes_or_new().park(write);
    let is_overtakable = rules::rule(req.opcode).is_some_and(|rule| rule.reorders);
    if !is_overtakable || !req.state.features().has(Feature::UnorderedExecution) {
        req.state.pending.wait_for_deferred();
    }
    None
}
