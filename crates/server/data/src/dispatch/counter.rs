//! Increment and decrement.

use oribi_engine::{CounterOutcome, CounterRequest};
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, CounterExtras};
use oribi_protocol::status::Status;
use oribi_types::CollectionId;

use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use crate::connection::parked::Answer;
use crate::dispatch::status;

/// Increment; wraps at 2^64 as in memcached.
pub(super) fn increment<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    count(req, false)
}

/// Decrement; stops at 0.
pub(super) fn decrement<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    count(req, true)
}

fn count<'a>(req: &mut Request<'a>, decrement: bool) -> Outcome<'a> {
    let document = req.locate()?;
    let extras = CounterExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    req.admit_durable()?;
    req.count(|counters| &counters.cmd_set);
    let creates = extras.expiry != COUNTER_DO_NOT_CREATE;
    let request = CounterRequest {
        delta: extras.delta,
        decrement,
        initial: creates.then_some(extras.initial),
        expiry: if creates { extras.expiry } else { 0 },
        cas: req.cas(),
    };
    let outcome = document.vbucket(req)?.counter(&req.write_context(), document.key, &request);
    count_outcome(req, document.key.collection, decrement, &outcome);
    match outcome {
        CounterOutcome::Done { mutation, value } => {
            Ok(HandlerReply::Written(Answer::Counter { mutation, value }))
        }
        CounterOutcome::Refused(refused) => Err(refused.into()),
        CounterOutcome::NotANumber => {
            let context = "the document is not a number from 0 to 2^64-1";
            Err(Rejection::Because(status::of_counter(&outcome), context))
        }
        failed => Err(status::of_counter(&failed).into()),
    }
}

fn count_outcome(
    req: &mut Request<'_>,
    collection: CollectionId,
    decrement: bool,
    outcome: &CounterOutcome,
) {
    let counters = req.counters();
    match (outcome, decrement) {
        (CounterOutcome::Done { .. }, false) => counters.incr_hits.add(1),
        (CounterOutcome::Done { .. }, true) => counters.decr_hits.add(1),
        (CounterOutcome::NotFound, false) => counters.incr_misses.add(1),
        (CounterOutcome::NotFound, true) => counters.decr_misses.add(1),
        _ => {}
    }
    if matches!(outcome, CounterOutcome::Done { .. }) {
        req.collection_counters(collection).stores.add(1);
    }
}
