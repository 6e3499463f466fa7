//! Serves get-and-lock and unlock.
//!
//! Owns: the rule for the duration of a lock, and the visible part of a locked document. The engine
//! owns all other effects of a lock. [`super::answer`] answers requests that meet one.

use oribi_engine::{LockOutcome, UnlockOutcome};
use oribi_protocol::status::Status;
use oribi_types::Cas;

use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use crate::dispatch::status;

/// GetLocked: as Get, with the CAS that opens the lock. A time that is absent, 0 or above the limit
/// means the default.
pub(super) fn get_locked<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let document = req.locate()?;
    let timeouts = req.env.server.connections.limits.lock_timeouts;
    let asked_s = match *req.frame.extras {
        [] => 0,
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => return Err(Status::Einval.into()),
    };
    let timeout_s = match asked_s {
        0 => timeouts.default_s,
        asked_s if asked_s > timeouts.max_s => timeouts.default_s,
        asked_s => asked_s,
    };
    req.reserve_document(document)?;
    req.count(|counters| &counters.cmd_get);
    req.count(|counters| &counters.cmd_lock);
    match document.vbucket(req)?.get_and_lock(&req.context(), document.key, timeout_s) {
        LockOutcome::Done { item, cas } => {
            req.counters().get_hits.add(1);
            req.collection_counters(document.key.collection).gets.add(1);
            Ok(HandlerReply::Document { item, cas, key: &[] })
        }
        LockOutcome::Refused(refused) => Err(refused.into()),
        LockOutcome::Miss => {
            req.counters().get_misses.add(1);
            Ok(HandlerReply::Miss { key: &[] })
        }
    }
}

pub(super) fn unlock<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    const NO_CAS: Rejection =
        Rejection::Because(Status::Einval, "unlocking needs the CAS that locking answered");
    let document = req.locate()?;
    if req.cas() == Cas(0) {
        return Err(NO_CAS);
    }
    match document.vbucket(req)?.unlock(&req.context(), document.key, req.cas()) {
        UnlockOutcome::Done => Ok(HandlerReply::Success),
        UnlockOutcome::Refused(refused) => Err(refused.into()),
        failed => {
            if failed == UnlockOutcome::NotLocked {
                req.counters().unlock_errors.add(1);
            }
            Err(status::of_unlock(failed).into())
        }
    }
}
