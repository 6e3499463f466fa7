//! Requests that change documents, and the wait for the store where a durability level asks for it.
//!
//! A write is done in memory first and then either answered or parked: with unordered execution
//! negotiated the connection goes on with the next frame, without it the connection waits. One node is
//! a majority of one, so the level "majority" is satisfied by memory.

use std::borrow::Cow;
use std::sync::Arc;

use oribi_engine::compression;
use oribi_engine::{
    ConcatMode, ConcatRequest, FillingItem, MutationOutcome, StoreMode, StoreRequest,
};
use oribi_protocol::feature::Feature;
use oribi_protocol::request::{ExpiryExtras, SetExtras};
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, Datatype, Seqno, Vbid};

use super::exchange::{Exchange, write_answer};
use super::reads::waits_for_store;
use crate::blocking_thread::Job;
use crate::connection::parked::{Answer, ParkToken, Parked};
use crate::connection::state::Wait;
use crate::limits::{DURABILITY_TIMEOUT_DEFAULT_MS, DURABILITY_TIMEOUT_MIN_MS};
use crate::status;

/// Set.
pub(super) fn set(x: &mut Exchange<'_>) {
    store(x, StoreMode::Set);
}

/// Add.
pub(super) fn add(x: &mut Exchange<'_>) {
    store(x, StoreMode::Add);
}

/// Replace.
pub(super) fn replace(x: &mut Exchange<'_>) {
    store(x, StoreMode::Replace);
}

fn store(x: &mut Exchange<'_>, mode: StoreMode) {
    let Some(key) = x.doc_key() else { return };
    let Some(request) = store_request(x, mode) else { return x.fail(Status::Einval) };
    if !admit_durable(x) {
        return;
    }
    x.count(|counters| &counters.cmd_set);
    let vbid = x.vbid(key);
    let mut received = x.received.take();
    let bucket = x.bucket().bucket();
    let outcome = match (&mut received, x.ahead) {
        (received @ Some(_), _) => bucket.store_received(vbid, received, &request, x.env.now),
        (None, Some(ahead)) => bucket.store_announced(ahead, key, &request, x.env.now),
        (None, None) => bucket.store(vbid, key, &request, x.env.now),
    };
    x.received = received;
    count_store(x, key.collection, &outcome);
    answer_mutation(x, vbid, outcome);
}

/// What a request asks to be stored; `None` when its extras are not valid.
fn store_request<'a>(x: &Exchange<'a>, mode: StoreMode) -> Option<StoreRequest<'a>> {
    let SetExtras { flags, expiry } = SetExtras::decode(x.frame.extras)?;
    Some(StoreRequest {
        mode,
        value: x.frame.value,
        is_compressed: is_compressed(x),
        flags,
        expiry,
        cas: Cas(x.frame.header.cas),
        preserve_expiry: x.infos.preserve_expiry,
    })
}

/// True when the request says that its value is compressed.
fn is_compressed(x: &Exchange<'_>) -> bool {
    Datatype(x.frame.header.datatype).contains(Datatype::SNAPPY)
}

/// The value of a request, inflated when it came compressed.
fn plain_value<'a>(x: &Exchange<'a>) -> Result<Cow<'a, [u8]>, MutationOutcome> {
    if !is_compressed(x) {
        return Ok(Cow::Borrowed(x.frame.value));
    }
    let bytes_max = x.bucket().bucket().value_bytes_max();
    let inflated = compression::inflate(x.frame.value, bytes_max);
    inflated.map(Cow::Owned).map_err(MutationOutcome::from)
}

/// An item for a value of `value_bytes` that is still to come; `None` when it would be refused.
pub(super) fn begin_store(x: &Exchange<'_>, value_bytes: usize) -> Option<FillingItem> {
    let key = x.state.doc_key(x.frame.key)?;
    // The mode is looked at when the value is there.
    let request = store_request(x, StoreMode::Set)?;
    x.bucket().bucket().begin_store(key, &request, value_bytes, x.env.now)
}

/// Append.
pub(super) fn append(x: &mut Exchange<'_>) {
    concat(x, ConcatMode::Append);
}

/// Prepend.
pub(super) fn prepend(x: &mut Exchange<'_>) {
    concat(x, ConcatMode::Prepend);
}

/// A concatenation always keeps the expiry, so the preserve-expiry frame changes nothing.
fn concat(x: &mut Exchange<'_>, mode: ConcatMode) {
    let Some(key) = x.doc_key() else { return };
    if !admit_durable(x) {
        return;
    }
    x.count(|counters| &counters.cmd_set);
    let value = match plain_value(x) {
        Ok(value) => value,
        Err(outcome) => return fail_mutation(x, &outcome),
    };
    let request = ConcatRequest { mode, value: &value, cas: Cas(x.frame.header.cas) };
    let vbid = x.vbid(key);
    let outcome = x.bucket().bucket().concat(vbid, key, &request, x.env.now);
    count_store(x, key.collection, &outcome);
    answer_mutation(x, vbid, outcome);
}

/// Delete.
pub(super) fn delete(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    if !admit_durable(x) {
        return;
    }
    let vbid = x.vbid(key);
    let cas = Cas(x.frame.header.cas);
    let mut outcome = x.bucket().bucket().delete(vbid, key, cas, x.env.now);
    count_cas(x, &outcome);
    match &mut outcome {
        MutationOutcome::Done(mutation) => {
            x.counters().delete_hits.add(1);
            x.collection_counters(key.collection).deletes.add(1);
            if x.state.is_legacy {
                // Tombstones have a CAS, but memcached has no tombstones and its clients expect 0.
                mutation.cas = Cas(0);
            }
        }
        MutationOutcome::NotFound => x.counters().delete_misses.add(1),
        _ => {}
    }
    answer_mutation(x, vbid, outcome);
}

/// Touch.
pub(super) fn touch(x: &mut Exchange<'_>) {
    let Some(key) = x.doc_key() else { return };
    let Some(ExpiryExtras { expiry }) = ExpiryExtras::decode(x.frame.extras) else {
        return x.fail(Status::Einval);
    };
    if !admit_durable(x) {
        return;
    }
    x.count(|counters| &counters.cmd_touch);
    let vbid = x.vbid(key);
    match x.bucket().bucket().touch(vbid, key, expiry, x.env.now) {
        MutationOutcome::Done(mutation) => {
            x.counters().touch_hits.add(1);
            answer_durably(x, vbid, mutation.seqno, Answer::Touched(mutation));
        }
        outcome => {
            if outcome == MutationOutcome::NotFound {
                x.counters().touch_misses.add(1);
            }
            answer_mutation(x, vbid, outcome);
        }
    }
}

/// Flush: the bucket is emptied on the blocking thread while the connection waits. A delay in the
/// extras is not supported, only "now".
pub(super) fn flush(x: &mut Exchange<'_>) {
    if x.frame.extras.iter().any(|byte| *byte != 0) {
        return x.fail_with(Status::NotSupported, "flushing cannot be put off");
    }
    if !x.bucket().bucket().is_flush_enabled() {
        return x.fail_with(Status::NotSupported, "flushing is not enabled for this bucket");
    }
    x.counters().cmd_flush.add(1);
    let bucket = Arc::clone(x.state.bucket.as_ref().expect("the rule demands a bucket"));
    x.state.wait = Wait::Job { opcode: x.frame.header.opcode, opaque: x.frame.header.opaque };
    x.env.jobs.push((x.id, Job::FlushAll(bucket)));
}

fn count_store(x: &mut Exchange<'_>, collection: CollectionId, outcome: &MutationOutcome) {
    count_cas(x, outcome);
    if matches!(outcome, MutationOutcome::Done(_)) {
        x.collection_counters(collection).stores.add(1);
    }
}

/// Counts what became of the CAS, if the request named one.
fn count_cas(x: &Exchange<'_>, outcome: &MutationOutcome) {
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

pub(super) fn answer_mutation(x: &mut Exchange<'_>, vbid: Vbid, outcome: MutationOutcome) {
    match outcome {
        MutationOutcome::Done(mutation) => {
            answer_durably(x, vbid, mutation.seqno, Answer::Mutation(mutation));
        }
        MutationOutcome::Refused(refused) => x.refuse(refused),
        failed => fail_mutation(x, &failed),
    }
}

/// Answers a write that was not done. What depends on the document alone speaks for itself.
fn fail_mutation(x: &mut Exchange<'_>, outcome: &MutationOutcome) {
    let status = status::of_mutation(outcome);
    match outcome {
        MutationOutcome::TooLarge => {
            x.fail_with(status, "the value is longer than a document may be")
        }
        MutationOutcome::Corrupt => x.fail_with(status, "the value is not what its datatype says"),
        _ => x.fail(status),
    }
}

/// False, and answered, when this write would have to wait and too many of the connection do already.
/// To be asked before the write is done.
pub(super) fn admit_durable(x: &mut Exchange<'_>) -> bool {
    if !waits_for_store(x) {
        return true;
    }
    let parked = x.state.parked.get_or_insert_default();
    let is_admitted = parked.next_position().is_some();
    if !is_admitted {
        let context = "too many writes of this connection wait for the store";
        x.fail_with(Status::Etmpfail, context);
    }
    is_admitted
}

/// Answers a write that is done in memory: now, or when the store has it.
pub(super) fn answer_durably(x: &mut Exchange<'_>, vbid: Vbid, seqno: Seqno, answer: Answer) {
    if waits_for_store(x) {
        x.counters().durable_writes.add(1);
        let position = x.state.parked.get_or_insert_default().next_position();
        let position = position.expect("admit_durable was asked before the write was done");
        let serial = x.env.park_serial();
        let token = ParkToken { slot: x.id.slot, position, serial }.encode();
        let position = (seqno, answer.history());
        if !x.bucket().bucket().when_persisted(vbid, position, &x.env.sink, token) {
            return park(x, serial, answer);
        }
    }
    let is_read = matches!(answer, Answer::Document(_));
    if x.opcode.is_quiet() && !is_read {
        return;
    }
    let parts = x.parts(Status::Success);
    write_answer(x.out, x.state.features, parts, &answer);
}

fn park(x: &mut Exchange<'_>, serial: u32, answer: Answer) {
    let asked_ms = x.infos.durability.and_then(|durability| durability.timeout_ms);
    let timeout_ms = asked_ms.map_or(DURABILITY_TIMEOUT_DEFAULT_MS, u64::from);
    let deadline_ms = x.env.now_ms + timeout_ms.max(DURABILITY_TIMEOUT_MIN_MS);
    let header = &x.frame.header;
    let parked = x.state.parked.get_or_insert_default();
    parked.park(Parked {
        serial,
        opcode: header.opcode,
        opaque: header.opaque,
        begun_ns: x.tries.begun_ns,
        since_ms: x.env.now_ms,
        deadline_ms,
        answer,
    });
    if !x.state.features.has(Feature::UnorderedExecution) {
        x.state.wait = Wait::Parked;
    }
}
