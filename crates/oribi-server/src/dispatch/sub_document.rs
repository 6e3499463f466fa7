//! Sub-document requests: look-ups and mutations of one path or of several.
//!
//! Owns: how they are answered. What they may ask is in [`request`], what they find in [`lookup`], what
//! they change in [`mutation`]. Paths are followed in the stored bytes, see `oribi_subdoc`; nothing is
//! parsed into a tree.

mod binary_value;
mod crc32c;
mod lookup;
mod macros;
mod mutation;
mod request;
#[cfg(test)]
mod tests;
mod view;
mod virtual_attributes;

use std::borrow::Cow;

use oribi_engine::{ItemRef, Refused, RewriteOutcome, Sought, VersionOutcome};
use oribi_protocol::limits::{FRAME_BYTES_MAX, GATHER_VALUE_BYTES_MIN, HEADER_BYTES};
use oribi_protocol::response::{ResponseParts, write_response_head};
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::{
    DocFlags, LOOKUP_HEAD_BYTES, mutation_failure, write_lookup_head,
};
use oribi_types::{Cas, DocKey, VbUuid, Vbid};
use smallvec::SmallVec;

use super::exchange::Exchange;
use super::writes::{admit_durable, answer_durably};
use crate::auth::{Privilege, PrivilegeSet};
use crate::connection::parked::Answer;
use crate::connection::write_buffer::{PinnedValue, WriteBuffer};
use lookup::{Subject, look_up};
use mutation::{Failure, Job, Results};
use request::{Kind, Request};
use virtual_attributes::Document;

/// What a path leads to.
type Found<'a> = Result<Cow<'a, [u8]>, Status>;

/// Bytes of the answer to a list of look-ups. Without a limit 16 paths that lead to the same 20 MiB would be 320;
/// this is what either side takes in one frame, with some room for what stands before the list.
const VALUE_LIST_BYTES_MAX: usize = FRAME_BYTES_MAX - 2 * HEADER_BYTES;

/// Get, exists and get-count of one path.
pub(super) fn look_up_one(x: &mut Exchange<'_>) {
    let frame = x.frame;
    let request = Request::of_one(
        Kind::Lookup,
        x.state.features,
        frame.header.opcode,
        frame.extras,
        frame.value,
    );
    answer_lookup(x, request);
}

/// Look-ups of several paths.
pub(super) fn look_up_several(x: &mut Exchange<'_>) {
    answer_lookup(
        x,
        Request::of_list(Kind::Lookup, x.state.features, x.frame.extras, x.frame.value),
    );
}

/// A mutation of one path.
pub(super) fn mutate_one(x: &mut Exchange<'_>) {
    let frame = x.frame;
    let request = Request::of_one(
        Kind::Mutation,
        x.state.features,
        frame.header.opcode,
        frame.extras,
        frame.value,
    );
    answer_mutation(x, request);
}

/// Mutations of several paths.
pub(super) fn mutate_several(x: &mut Exchange<'_>) {
    answer_mutation(
        x,
        Request::of_list(Kind::Mutation, x.state.features, x.frame.extras, x.frame.value),
    );
}

fn answer_lookup(x: &mut Exchange<'_>, request: Result<Request<'_>, Status>) {
    let Some(key) = x.doc_key() else { return };
    let request = match request {
        Ok(request) => request,
        Err(status) => return x.fail(status),
    };
    if !is_allowed(x, key, &request, Kind::Lookup) {
        return;
    }
    if request.doc_flags.has(DocFlags::REPLICA_READ) {
        // No node has replicas, and what is active is no replica.
        return x.refuse(Refused::NotMyVbucket);
    }
    x.count(|counters| &counters.cmd_get);
    let vbid = x.vbid(key);
    let (item, cas) = match x.bucket().bucket().read_version(vbid, key, sought(&request), x.env.now)
    {
        VersionOutcome::Refused(refused) => return x.refuse(refused),
        VersionOutcome::Found(item, cas) if may_see(&request, &item) => (item, cas),
        VersionOutcome::Found(..) | VersionOutcome::Miss => {
            x.counters().get_misses.add(1);
            return x.fail(Status::KeyEnoent);
        }
    };
    x.counters().get_hits.add(1);
    x.collection_counters(key.collection).gets.add(1);
    let mut scratch = Vec::new();
    match request.view(&item, &mut scratch) {
        Err(status) => x.fail(status),
        Ok(view) => {
            let document = Document::new(Some(&item), cas, view, uuid_of(x, vbid));
            let sees_system = request.names_attributes()
                && x.holds(key.collection, Privilege::SystemXattrRead.into());
            let subject = Subject { item: &item, cas, view, document, now: x.env.now, sees_system };
            answer_found(x, &request, &subject);
        }
    }
}

/// False, and answered, when the user may not do all that the request asks for. Who may read and write the
/// whole bucket is not asked further.
fn is_allowed(x: &mut Exchange<'_>, key: DocKey<'_>, request: &Request<'_>, kind: Kind) -> bool {
    x.state.rights.everywhere().holds(PrivilegeSet::READ_WRITE)
        || x.allows(key.collection, request.privileges(kind))
}

fn may_see(request: &Request<'_>, item: &ItemRef) -> bool {
    !item.is_deleted() || request.doc_flags.has(DocFlags::ACCESS_DELETED)
}

/// Who does not see tombstones need not wait for one to be read.
fn sought(request: &Request<'_>) -> Sought {
    let has = |flag| request.doc_flags.has(flag);
    let sees_deleted = has(DocFlags::ACCESS_DELETED) || has(DocFlags::REVIVE);
    if sees_deleted { Sought::Tombstone } else { Sought::Document }
}

fn uuid_of(x: &Exchange<'_>, vbid: Vbid) -> VbUuid {
    x.bucket().bucket().vbucket(vbid).map_or(VbUuid(0), |vbucket| vbucket.uuid())
}

/// Answers with what is in a version.
fn answer_found(x: &mut Exchange<'_>, request: &Request<'_>, subject: &Subject<'_>) {
    let is_deleted = subject.item.is_deleted();
    let success = if is_deleted { Status::SubdocSuccessDeleted } else { Status::Success };
    if let ([spec], false) = (&request.specs[..], request.is_list) {
        match look_up(subject, spec) {
            Ok(value) => send_one(x, success, subject, &value),
            Err(status) => x.fail(status),
        }
        return;
    }
    let found: SmallVec<[Found<'_>; 4]> =
        request.specs.iter().map(|spec| look_up(subject, spec)).collect();
    let status = match (found.iter().all(Result::is_ok), is_deleted) {
        (true, _) => success,
        (false, true) => Status::SubdocMultiPathFailureDeleted,
        (false, false) => Status::SubdocMultiPathFailure,
    };
    send_list(x, status, subject, &found);
}

fn send_one(x: &mut Exchange<'_>, status: Status, subject: &Subject<'_>, value: &[u8]) {
    let parts = ResponseParts { cas: subject.cas.0, ..x.parts(status) };
    write_response_head(x.out.tail(), &parts, value.len());
    append_value(x.out, subject, value);
}

fn send_list(x: &mut Exchange<'_>, status: Status, subject: &Subject<'_>, found: &[Found<'_>]) {
    let value_of = |found: &Found<'_>| found.as_ref().map_or(0, |value| value.len());
    let bytes: usize = found.iter().map(|found| LOOKUP_HEAD_BYTES + value_of(found)).sum();
    if bytes > VALUE_LIST_BYTES_MAX {
        return x.fail_with(Status::E2big, "the answer would be longer than a frame may be");
    }
    let parts = ResponseParts { cas: subject.cas.0, ..x.parts(status) };
    write_response_head(x.out.tail(), &parts, bytes);
    for found in found {
        let (status, value) = match found {
            Ok(value) => (Status::Success, &value[..]),
            Err(status) => (*status, &b""[..]),
        };
        write_lookup_head(x.out.tail(), status, value.len());
        append_value(x.out, subject, value);
    }
}

/// Appends what was found, copied when it is small or was made, pinned where it lies when it is large.
fn append_value(out: &mut WriteBuffer, subject: &Subject<'_>, value: &[u8]) {
    let is_large = value.len() >= GATHER_VALUE_BYTES_MIN;
    match is_large.then(|| PinnedValue::part_of(subject.item, value)).flatten() {
        Some(pinned) => out.pin(pinned),
        None => out.tail().extend_from_slice(value),
    }
}

fn answer_mutation(x: &mut Exchange<'_>, request: Result<Request<'_>, Status>) {
    let Some(key) = x.doc_key() else { return };
    let request = match request {
        Ok(request) => request,
        Err(status) => return x.fail(status),
    };
    if !is_allowed(x, key, &request, Kind::Mutation) || !admit_durable(x) {
        return;
    }
    x.count(|counters| &counters.cmd_set);
    let (vbid, mut results) = (x.vbid(key), Results::default());
    let outcome = rewrite(x, vbid, key, &request, &mut results);
    match outcome {
        RewriteOutcome::Refused(refused) => x.refuse(refused),
        RewriteOutcome::Rejected(Failure::Request(status)) => x.fail(status),
        RewriteOutcome::Rejected(Failure::Spec { status, .. }) if !request.is_list => {
            x.fail(status)
        }
        RewriteOutcome::Rejected(Failure::Spec { index, status }) => {
            let value = mutation_failure(index, status);
            let parts = ResponseParts { value: &value, ..x.parts(Status::SubdocMultiPathFailure) };
            x.send(&parts);
        }
        RewriteOutcome::Done(mutation) => {
            x.collection_counters(key.collection).stores.add(1);
            let Results { value, is_deleted } = results;
            let status = if is_deleted { Status::SubdocSuccessDeleted } else { Status::Success };
            let answer = Answer::SubDocument { mutation, status, value };
            answer_durably(x, vbid, mutation.seqno, answer);
        }
    }
}

fn rewrite(
    x: &Exchange<'_>,
    vbid: Vbid,
    key: DocKey<'_>,
    request: &Request<'_>,
    results: &mut Results,
) -> RewriteOutcome<Failure> {
    let bucket = x.bucket().bucket();
    let job = Job {
        request,
        key,
        cas: Cas(x.frame.header.cas),
        preserve_expiry: x.infos.preserve_expiry,
        value_bytes_max: bucket.value_bytes_max(),
        now: x.env.now,
        vb_uuid: uuid_of(x, vbid),
    };
    let expiry = request.expiry.unwrap_or(0);
    bucket.rewrite(vbid, key, sought(request), (expiry, job.cas), x.env.now, |current| {
        job.next_version(&current, results)
    })
}
