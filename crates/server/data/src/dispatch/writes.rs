//! Serves requests that change documents.
//!
//! These handlers write in memory. [`super::answer`] decides when the write is answered, and parks
//! it where a durability level asks for the store.

use std::borrow::Cow;
use std::sync::Arc;

use oribi_engine::{
    ConcatMode, ConcatRequest, FillingItem, FlushAllError, MutationOutcome, StoreMode,
    StoreRequest, compression,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ExpiryExtras, SetExtras};
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, Datatype};

use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{Outcome, Rejection, Reply};
use super::request::Request;
use super::rules::{self, Silence};
use crate::connection::parked::Answer;
use crate::connection::request_id::RequestId;
use crate::dispatch::job::{Job, Lane};

/// Set.
#[inline(always)]
pub(super) fn set<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    store(x, StoreMode::Set)
}

/// Add.
pub(super) fn add<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    store(x, StoreMode::Add)
}

/// Replace.
pub(super) fn replace<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    store(x, StoreMode::Replace)
}

#[inline(always)]
fn store<'a>(x: &mut Request<'a>, mode: StoreMode) -> Outcome<'a> {
    let document = x.locate()?;
    let request = store_request(x, mode).ok_or(Status::Einval)?;
    x.admit_durable()?;
    x.count(|counters| &counters.cmd_set);
    let outcome = document.store(x, &request);
    count_store(x, document.key.collection, &outcome);
    written(outcome)
}

/// The store that a request asks for; `None` when its extras are not valid.
#[inline(always)]
fn store_request<'a>(x: &Request<'a>, mode: StoreMode) -> Option<StoreRequest<'a>> {
    let SetExtras { flags, expiry } = SetExtras::decode(x.frame.extras)?;
    Some(StoreRequest {
        mode,
        value: x.frame.value,
        is_compressed: is_compressed(x),
        flags,
        expiry,
        cas: x.cas(),
        preserve_expiry: x.infos.preserve_expiry,
    })
}

/// True when the request says that its value is compressed.
fn is_compressed(x: &Request<'_>) -> bool {
    Datatype(x.frame.header.datatype).contains(Datatype::SNAPPY)
}

/// The value of a request, inflated if it arrived compressed.
fn plain_value<'a>(x: &Request<'a>) -> Result<Cow<'a, [u8]>, MutationOutcome> {
    if !is_compressed(x) {
        return Ok(Cow::Borrowed(x.frame.value));
    }
    let inflated = compression::inflate(x.frame.value, x.bucket().value_bytes_max())?;
    Ok(Cow::Owned(inflated))
}

/// Allocates an item for a value of `value_bytes` that has not arrived yet; `None` when it would be
/// refused.
pub(super) fn begin_store(x: &Request<'_>, value_bytes: usize) -> Option<FillingItem> {
    let key = x.state.doc_key(x.frame.key)?;
    // The mode is checked once the value is there.
    let request = store_request(x, StoreMode::Set)?;
    x.bucket().begin_store(key, &request, value_bytes, x.env.now)
}

/// Append.
pub(super) fn append<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    concat(x, ConcatMode::Append)
}

/// Prepend.
pub(super) fn prepend<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    concat(x, ConcatMode::Prepend)
}

/// A concatenation always keeps the expiry, so the preserve-expiry frame changes nothing.
fn concat<'a>(x: &mut Request<'a>, mode: ConcatMode) -> Outcome<'a> {
    let document = x.locate()?;
    x.admit_durable()?;
    x.count(|counters| &counters.cmd_set);
    let value = plain_value(x)?;
    let request = ConcatRequest { mode, value: &value, cas: x.cas() };
    let outcome = x.bucket().concat(document.vbid(x), document.key, &request, x.env.now);
    count_store(x, document.key.collection, &outcome);
    written(outcome)
}

/// Delete.
pub(super) fn delete<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    let document = x.locate()?;
    x.admit_durable()?;
    let mut outcome = x.bucket().delete(document.vbid(x), document.key, x.cas(), x.env.now);
    count_cas(x, &outcome);
    match &mut outcome {
        MutationOutcome::Done(mutation) => {
            x.counters().delete_hits.add(1);
            x.collection_counters(document.key.collection).deletes.add(1);
            if x.state.is_memcached() {
                // Tombstones have a CAS, but memcached has no tombstones and its clients expect 0.
                mutation.cas = Cas(0);
            }
        }
        MutationOutcome::NotFound => x.counters().delete_misses.add(1),
        _ => {}
    }
    written(outcome)
}

/// Touch.
pub(super) fn touch<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    let document = x.locate()?;
    let ExpiryExtras { expiry } = ExpiryExtras::decode(x.frame.extras).ok_or(Status::Einval)?;
    x.admit_durable()?;
    x.count(|counters| &counters.cmd_touch);
    match x.bucket().touch(document.vbid(x), document.key, expiry, x.env.now) {
        MutationOutcome::Done(mutation) => {
            x.counters().touch_hits.add(1);
            Ok(Reply::Written(Answer::Touched(mutation)))
        }
        outcome => {
            if outcome == MutationOutcome::NotFound {
                x.counters().touch_misses.add(1);
            }
            Err(outcome.into())
        }
    }
}

/// Flush: the blocking thread empties the bucket while the connection waits. A delay in the extras
/// is not supported, only "now".
pub(super) fn flush<'a>(x: &mut Request<'a>) -> Outcome<'a> {
    let unsupported = |context| Err(Rejection::Because(Status::NotSupported, context));
    if x.frame.extras.iter().any(|byte| *byte != 0) {
        return unsupported("flushing cannot be put off");
    }
    if !x.bucket().is_flush_enabled() {
        return unsupported("flushing is not enabled for this bucket");
    }
    x.counters().cmd_flush.add(1);
    let (server, bucket) = (Arc::clone(&x.env.server), Arc::clone(x.handle()));
    let now = x.env.now;
    let work = move || server.flush_all(&bucket, now);
    // A half-emptied bucket is unreliable, so a panic ends the process.
    let job = Job::new(Lane::Others, work, |_, _, request, result| finish_flush(request, &result));
    Ok(Reply::Job(job.ending_thread()))
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
fn count_store(x: &mut Request<'_>, collection: CollectionId, outcome: &MutationOutcome) {
    count_cas(x, outcome);
    if matches!(outcome, MutationOutcome::Done(_)) {
        x.collection_counters(collection).stores.add(1);
    }
}

/// Counts the result of the CAS check, if the request named a CAS.
#[inline]
fn count_cas(x: &Request<'_>, outcome: &MutationOutcome) {
    if x.frame.header.cas == 0 {
        return;
    }
    match outcome {
        MutationOutcome::Done(_) => x.counters().cas_hits.add(1),
        MutationOutcome::NotFound => x.counters().cas_misses.add(1),
        MutationOutcome::Exists => x.counters().cas_badval.add(1),
        _ => {}
    }
}

/// The answer to a write, with its CAS, vbucket uuid and seqno.
#[inline(always)]
pub(super) fn written(outcome: MutationOutcome) -> Outcome<'static> {
    match outcome {
        MutationOutcome::Done(mutation) => Ok(Reply::Written(Answer::Mutation(mutation))),
        outcome => Err(outcome.into()),
    }
}
