//! Serves requests that change documents.
//!
//! These handlers write in memory. [`super::answer`] decides when the write is answered, and parks
//! it where a durability level requires the store.

use std::borrow::Cow;
use std::sync::Arc;

use oribi_engine::{
    ConcatMode, ConcatRequest, FillingItem, FlushAllError, MutationOutcome, StoreCondition,
    StoreRequest, compression,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ExpiryExtras, SetExtras};
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, Datatype};

use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use super::rules::{self, Silence};
use crate::connection::parked::Answer;
use crate::connection::request_id::RequestId;
use crate::dispatch::job::{BlockingJob, Lane};

#[inline(always)]
pub(super) fn set<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    store(req, StoreCondition::Set)
}

pub(super) fn add<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    store(req, StoreCondition::Add)
}

pub(super) fn replace<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    store(req, StoreCondition::Replace)
}

#[inline(always)]
fn store<'a>(req: &mut Request<'a>, mode: StoreCondition) -> Outcome<'a> {
    let document = req.locate()?;
    let request = store_request(req, mode).ok_or(Status::Einval)?;
    req.admit_durable()?;
    req.count(|counters| &counters.cmd_set);
    let outcome = document.store(req, &request);
    count_store(req, document.key.collection, &outcome);
    written(outcome)
}

/// The store that a request asks for; `None` when its extras are not valid.
#[inline(always)]
fn store_request<'a>(req: &Request<'a>, mode: StoreCondition) -> Option<StoreRequest<'a>> {
    let SetExtras { flags, expiry } = SetExtras::decode(req.frame.extras)?;
    Some(StoreRequest {
        mode,
        value: req.frame.value,
        is_compressed: is_compressed(req),
        flags,
        expiry,
        cas: req.cas(),
        preserve_expiry: req.infos.preserve_expiry,
    })
}

/// True when the request says that its value is compressed.
fn is_compressed(req: &Request<'_>) -> bool {
    Datatype(req.frame.header.datatype).contains(Datatype::SNAPPY)
}

/// The value of a request, inflated if it arrived compressed.
fn plain_value<'a>(req: &Request<'a>) -> Result<Cow<'a, [u8]>, MutationOutcome> {
    if !is_compressed(req) {
        return Ok(Cow::Borrowed(req.frame.value));
    }
    let inflated = compression::inflate(req.frame.value, req.bucket().config().value_bytes_max)?;
    debug_assert!(
        inflated.len() <= req.bucket().config().value_bytes_max,
        "an inflated value is within the limit"
    );
    Ok(Cow::Owned(inflated))
}

/// Allocates an item for a value of `value_bytes` that has not arrived yet; `None` when it would be
/// refused.
pub(super) fn begin_store(req: &Request<'_>, value_bytes: usize) -> Option<FillingItem> {
    let key = req.state.doc_key(req.frame.key)?;
    // The mode is checked once the value is there.
    let request = store_request(req, StoreCondition::Set)?;
    req.bucket().begin_store(key, &request, value_bytes, req.env.now)
}

pub(super) fn append<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    concat(req, ConcatMode::Append)
}

pub(super) fn prepend<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    concat(req, ConcatMode::Prepend)
}

/// A concatenation always keeps the expiry, so the preserve-expiry frame changes nothing.
fn concat<'a>(req: &mut Request<'a>, mode: ConcatMode) -> Outcome<'a> {
    let document = req.locate()?;
    req.admit_durable()?;
    req.count(|counters| &counters.cmd_set);
    let value = plain_value(req)?;
    let request = ConcatRequest { mode, value: &value, cas: req.cas() };
    let outcome = document.vbucket(req)?.concat(&req.write_context(), document.key, &request);
    count_store(req, document.key.collection, &outcome);
    written(outcome)
}

pub(super) fn delete<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let document = req.locate()?;
    req.admit_durable()?;
    let mut outcome = document.vbucket(req)?.delete(&req.write_context(), document.key, req.cas());
    count_cas(req, &outcome);
    match &mut outcome {
        MutationOutcome::Done(mutation) => {
            req.counters().delete_hits.add(1);
            req.collection_counters(document.key.collection).deletes.add(1);
            if req.state.is_memcached() {
                // Tombstones have a CAS, but memcached has no tombstones and its clients expect 0.
                mutation.cas = Cas(0);
            }
        }
        MutationOutcome::NotFound => req.counters().delete_misses.add(1),
        _ => {}
    }
    written(outcome)
}

pub(super) fn touch<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let document = req.locate()?;
    let ExpiryExtras { expiry } = ExpiryExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    req.admit_durable()?;
    req.count(|counters| &counters.cmd_touch);
    match document.vbucket(req)?.touch(&req.write_context(), document.key, expiry) {
        MutationOutcome::Done(mutation) => {
            req.counters().touch_hits.add(1);
            Ok(HandlerReply::Written(Answer::Touched(mutation)))
        }
        outcome => {
            if outcome == MutationOutcome::NotFound {
                req.counters().touch_misses.add(1);
            }
            Err(outcome.into())
        }
    }
}

/// Flush: the blocking thread empties the bucket while the connection waits. A delay in the extras
/// is not supported, only "now".
pub(super) fn flush<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let unsupported = |context| Err(Rejection::Because(Status::NotSupported, context));
    if req.frame.extras.iter().any(|byte| *byte != 0) {
        return unsupported("flushing cannot be put off");
    }
    if !req.bucket().is_flush_enabled() {
        return unsupported("flushing is not enabled for this bucket");
    }
    req.counters().cmd_flush.add(1);
    let (server, bucket) = (Arc::clone(&req.env.server), Arc::clone(req.handle()));
    let now = req.env.now;
    let work = move || server.cluster.flush_all(&bucket, now);
    // A half-emptied bucket is unreliable, so a panic ends the process.
    let job = BlockingJob::new(Lane::Others, work, |_, _, request, result| {
        finish_flush(request, &result)
    });
    Ok(HandlerReply::Job(job.ending_thread()))
}

/// The answer to a finished flush; `None` when a quiet flush succeeded.
fn finish_flush(request: RequestId, result: &Result<(), FlushAllError>) -> Option<LateOutcome> {
    let rule = Opcode::from_u8(request.opcode).and_then(rules::rule);
    Some(match result {
        Ok(()) if rule.is_some_and(|rule| rule.silence == Silence::OnSuccess) => return None,
        Ok(()) => Ok(LateReply::value(Vec::new())),
        Err(FlushAllError::Disabled | FlushAllError::NotAllHere) => Err(Status::NotSupported),
        Err(FlushAllError::WarmingUp) => Err(Status::Etmpfail),
        Err(error) => {
            tracing::error!(%error, "flush_all failed");
            Err(Status::Etmpfail)
        }
    })
}

#[inline(always)]
fn count_store(req: &mut Request<'_>, collection: CollectionId, outcome: &MutationOutcome) {
    count_cas(req, outcome);
    if matches!(outcome, MutationOutcome::Done(_)) {
        req.collection_counters(collection).stores.add(1);
    }
}

/// Counts the result of the CAS check, if the request named a CAS.
#[inline]
fn count_cas(req: &Request<'_>, outcome: &MutationOutcome) {
    if req.frame.header.cas == 0 {
        return;
    }
    match outcome {
        MutationOutcome::Done(_) => req.counters().cas_hits.add(1),
        MutationOutcome::NotFound => req.counters().cas_misses.add(1),
        MutationOutcome::Exists => req.counters().cas_badval.add(1),
        _ => {}
    }
}

/// The answer to a write, with its CAS, vbucket uuid and seqno.
#[inline(always)]
pub(super) fn written(outcome: MutationOutcome) -> Outcome<'static> {
    match outcome {
        MutationOutcome::Done(mutation) => Ok(HandlerReply::Written(Answer::Mutation(mutation))),
        outcome => Err(outcome.into()),
    }
}
