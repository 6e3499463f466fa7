//! Increment and decrement.

use oribi_engine::{CounterOutcome, CounterRequest};
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, CounterExtras};
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId};

use super::exchange::Exchange;
use super::writes::{admit_durable, answer_durably};
use crate::connection::parked::Answer;
use crate::status;

/// Increment; wraps at 2^64 as memcached's does.
pub(super) fn increment(x: &mut Exchange<'_>) {
    count(x, false);
}

/// Decrement; stops at 0.
pub(super) fn decrement(x: &mut Exchange<'_>) {
    count(x, true);
}

fn count(x: &mut Exchange<'_>, decrement: bool) {
    let Some(key) = x.doc_key() else { return };
    let Some(extras) = CounterExtras::decode(x.frame.extras) else {
        return x.fail(Status::Einval);
    };
    if !admit_durable(x) {
        return;
    }
    x.count(|counters| &counters.cmd_set);
    let creates = extras.expiry != COUNTER_DO_NOT_CREATE;
    let request = CounterRequest {
        delta: extras.delta,
        decrement,
        initial: creates.then_some(extras.initial),
        expiry: if creates { extras.expiry } else { 0 },
        cas: Cas(x.frame.header.cas),
    };
    let vbid = x.vbid(key);
    let outcome = x.bucket().bucket().counter(vbid, key, &request, x.env.now);
    count_outcome(x, key.collection, decrement, &outcome);
    match outcome {
        CounterOutcome::Done { mutation, value } => {
            answer_durably(x, vbid, mutation.seqno, Answer::Counter { mutation, value });
        }
        CounterOutcome::Refused(refused) => x.refuse(refused),
        failed @ CounterOutcome::NotANumber => {
            x.fail_with(
                status::of_counter(&failed),
                "the document is not a number from 0 to 2^64-1",
            );
        }
        failed => x.fail(status::of_counter(&failed)),
    }
}

fn count_outcome(
    x: &mut Exchange<'_>,
    collection: CollectionId,
    decrement: bool,
    outcome: &CounterOutcome,
) {
    let counters = x.counters();
    match (outcome, decrement) {
        (CounterOutcome::Done { .. }, false) => counters.incr_hits.add(1),
        (CounterOutcome::Done { .. }, true) => counters.decr_hits.add(1),
        (CounterOutcome::NotFound, false) => counters.incr_misses.add(1),
        (CounterOutcome::NotFound, true) => counters.decr_misses.add(1),
        _ => {}
    }
    if matches!(outcome, CounterOutcome::Done { .. }) {
        x.collection_counters(collection).stores.add(1);
    }
}
