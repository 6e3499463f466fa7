//! Get-and-lock and unlock.
//!
//! Owns: the rule for how long a lock lasts, and what a locked document shows of itself. What else a lock means is the
//! engine's; that a request met one is answered by [`Exchange::refuse`].

use oribi_engine::{LockOutcome, UnlockOutcome};
use oribi_protocol::status::Status;
use oribi_types::Cas;

use super::exchange::{Exchange, write_item_as};
use crate::status;

/// GetLocked: as Get, with the CAS that opens the lock. No time given, 0, or more than is allowed means the default.
pub(super) fn get_locked(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let timeouts = x.env.server.limits.lock_timeouts;
    let asked_s = match x.frame.extras {
        [] => 0,
        extras => match <[u8; 4]>::try_from(extras) {
            Ok(bytes) => u32::from_be_bytes(bytes),
            Err(_) => return x.fail(Status::Einval),
        },
    };
    let timeout_s = match asked_s {
        0 => timeouts.default_s,
        asked_s if asked_s > timeouts.max_s => timeouts.default_s,
        asked_s => asked_s,
    };
    x.count(|counters| &counters.cmd_get);
    x.count(|counters| &counters.cmd_lock);
    match x.bucket().bucket().get_and_lock(x.vbid(key), key, timeout_s, x.env.now) {
        LockOutcome::Done { item, cas } => {
            x.counters().get_hits.add(1);
            x.collection_counters(key.collection).gets.add(1);
            let parts = x.parts(Status::Success);
            write_item_as(x.out, x.state.features, &parts, &item, cas);
        }
        LockOutcome::Refused(refused) => x.refuse(refused),
        miss @ LockOutcome::Miss => {
            x.counters().get_misses.add(1);
            x.fail(status::of_lock(&miss));
        }
    }
}

/// UnlockKey.
pub(super) fn unlock(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let cas = Cas(x.frame.header.cas);
    if cas == Cas(0) {
        return x.fail_with(Status::Einval, "unlocking needs the CAS that locking answered");
    }
    match x.bucket().bucket().unlock(x.vbid(key), key, cas, x.env.now) {
        UnlockOutcome::Done => x.succeed(),
        UnlockOutcome::Refused(refused) => x.refuse(refused),
        failed => {
            if failed == UnlockOutcome::NotLocked {
                x.counters().unlock_errors.add(1);
            }
            x.fail(status::of_unlock(failed));
        }
    }
}
