//! Serves sub-document requests: look-ups and mutations of one path or of several.
//!
//! Owns: their answers. [`request`] holds their validation, [`lookup`] the reads, [`mutation`] the
//! changes. Paths are followed in the stored bytes, see `oribi_subdoc`; no value is parsed into a
//! tree.

mod action;
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

use oribi_auth::{Privilege, PrivilegeSet};
use oribi_engine::{ItemRef, ReadTarget, RewriteOutcome, VersionOutcome};
use oribi_protocol::limits::{FRAME_BYTES_MAX, HEADER_BYTES};
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::{DocFlags, LOOKUP_HEAD_BYTES, mutation_failure};
use oribi_types::{Cas, Datatype, VbUuid, Vbid};
use smallvec::SmallVec;

use super::outcome::{FoundValue, HandlerReply, Outcome, PathValues, Rejection, RuleRejection};
use super::request::{Request, RequestLocation};
use crate::connection::parked::Answer;
use crate::connection::send_buffer::range_within;
use lookup::{Subject, look_up, view_of};
use mutation::{Failure, MutationJob, Results};
use request::{PathRequest, SubDocumentKind};
use virtual_attributes::AttributeSource;

/// Byte limit of the answer to a list of look-ups. Without it, 16 paths to the same 20 MiB would
/// give 320. The limit is the largest frame that either side takes, less some space for the bytes
/// before the list.
const VALUE_LIST_BYTES_MAX: usize = FRAME_BYTES_MAX - 2 * HEADER_BYTES;
const _: () = assert!(VALUE_LIST_BYTES_MAX < u32::MAX as usize, "a place has 32 bits");

/// Get, exists and get-count of one path.
pub(super) fn look_up_one<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let paths = one_path(req, SubDocumentKind::Lookup);
    answer_lookup(req, paths)
}

/// Look-ups of several paths.
pub(super) fn look_up_several<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let paths = several_paths(req, SubDocumentKind::Lookup);
    answer_lookup(req, paths)
}

/// A mutation of one path.
pub(super) fn mutate_one<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let paths = one_path(req, SubDocumentKind::Mutation);
    answer_mutation(req, paths)
}

/// Mutations of several paths.
pub(super) fn mutate_several<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let paths = several_paths(req, SubDocumentKind::Mutation);
    answer_mutation(req, paths)
}

fn one_path<'a>(req: &Request<'a>, kind: SubDocumentKind) -> Result<PathRequest<'a>, Status> {
    let frame = req.frame;
    let opcode = frame.header.opcode;
    PathRequest::of_one(kind, req.state.features(), opcode, frame.extras, frame.value)
}

fn several_paths<'a>(req: &Request<'a>, kind: SubDocumentKind) -> Result<PathRequest<'a>, Status> {
    PathRequest::of_list(kind, req.state.features(), req.frame.extras, req.frame.value)
}

fn answer_lookup<'a>(req: &mut Request<'a>, paths: Result<PathRequest<'a>, Status>) -> Outcome<'a> {
    let document = req.locate()?;
    let paths = paths?;
    demand_rights(req, document, &paths, SubDocumentKind::Lookup)?;
    let key = document.key;
    let vbucket = document.vbucket(req)?;
    let outcome = match paths.has(DocFlags::REPLICA_READ) {
        true => vbucket.read_replica(&req.context(), key, sought(&paths)),
        false => vbucket.read_version(&req.context(), key, sought(&paths)),
    };
    if let VersionOutcome::Found(item, _) = &outcome {
        req.reserve_answer(held_by_answer(&paths, item))?;
    }
    req.count(|counters| &counters.cmd_get);
    let (item, cas) = match outcome {
        VersionOutcome::Refused(refused) => return Err(refused.into()),
        VersionOutcome::Found(item, cas) if may_see(&paths, &item) => (item, cas),
        VersionOutcome::Found(..) | VersionOutcome::Miss => {
            req.counters().get_misses.add(1);
            return Ok(HandlerReply::Miss { key: &[] });
        }
    };
    if ![Cas(0), cas, item.cas()].contains(&req.cas()) {
        return Err(Status::KeyEexists.into());
    }
    req.counters().get_hits.add(1);
    req.collection_counters(key.collection).gets.add(1);
    follow(req, &paths, document, (item, cas))
}

/// Follows the paths of a look-up in one version.
fn follow(
    req: &mut Request<'_>,
    paths: &PathRequest<'_>,
    document: RequestLocation<'_>,
    (item, cas): (ItemRef, Cas),
) -> Outcome<'static> {
    let sees_system = paths.names_attributes()
        && req.holds(document.key.collection, Privilege::SystemXattrRead.into());
    let mut scratch = Vec::new();
    let view = view_of(paths, &item, &mut scratch)?;
    let virtuals = AttributeSource::new(Some(&item), cas, view, uuid_of(req, document.vbid(req)));
    let now = req.env.now;
    let subject = Subject { item: &item, view, document: virtuals, now, sees_system };
    let found: SmallVec<[Result<Cow<'_, [u8]>, Status>; 4]> =
        paths.specs.iter().map(|spec| look_up(&subject, spec)).collect();
    assert_eq!(found.len(), paths.specs.len(), "each path has a result");
    let (status, datatype) = told(paths, &found, item.is_deleted())?;
    let inflated = if item.is_compressed() && !view.is_compressed { view.body } else { &[] };
    let is_inflated = !inflated.is_empty();
    let (values, mut made) = places_of(&item, inflated, &found);
    let list_bytes = |value: &FoundValue| LOOKUP_HEAD_BYTES + (value.end - value.begin) as usize;
    if paths.is_list && values.iter().map(list_bytes).sum::<usize>() > VALUE_LIST_BYTES_MAX {
        let context = "the answer would be longer than a frame may be";
        return Err(Rejection::Because(Status::E2big, context));
    }
    drop(found);
    if is_inflated {
        scratch.append(&mut made);
        made = scratch;
    }
    let is_list = paths.is_list;
    Ok(HandlerReply::Found(PathValues { status, item, cas, datatype, is_list, values, made }))
}

/// Status and datatype of the answer to a look-up.
fn told(
    paths: &PathRequest<'_>,
    found: &[Result<Cow<'_, [u8]>, Status>],
    is_deleted: bool,
) -> Result<(Status, Datatype), Status> {
    let success = if is_deleted { Status::SubdocSuccessDeleted } else { Status::Success };
    if let ([spec], [found], false) = (&paths.specs[..], found, paths.is_list) {
        let value = found.as_ref().map_err(|status| *status)?;
        let is_json = !spec.is_binary && !value.is_empty();
        return Ok((success, if is_json { Datatype::JSON } else { Datatype::RAW }));
    }
    let status = match (found.iter().all(Result::is_ok), is_deleted) {
        (true, _) => success,
        (false, true) => Status::SubdocMultiPathFailureDeleted,
        (false, false) => Status::SubdocMultiPathFailure,
    };
    Ok((status, Datatype::RAW))
}

/// The place of each value: in the item, in its inflated body, or after that among the values made
/// for the answer, which are returned too.
fn places_of(
    item: &ItemRef,
    inflated: &[u8],
    found: &[Result<Cow<'_, [u8]>, Status>],
) -> (SmallVec<[FoundValue; 4]>, Vec<u8>) {
    let mut made = Vec::new();
    let mut place_of = |value: &[u8]| {
        if let Some(place) = range_within(item.value(), value) {
            return (true, place);
        }
        let place = range_within(inflated, value).unwrap_or_else(|| {
            let begin = inflated.len() + made.len();
            made.extend_from_slice(value);
            begin..begin + value.len()
        });
        (false, place)
    };
    let values = found.iter().map(|found| {
        let (status, (is_in_item, place)) = match found {
            Ok(value) => (Status::Success, place_of(value)),
            Err(status) => (*status, (false, 0..0)),
        };
        // An answer is far shorter than 4 GiB.
        FoundValue { status, is_in_item, begin: place.start as u32, end: place.end as u32 }
    });
    let values: SmallVec<[FoundValue; 4]> = values.collect();
    debug_assert_eq!(values.len(), found.len(), "each result has a place");
    (values, made)
}

/// Bytes that the answer may hold: the document whose parts are sent, or copies of parts that were
/// inflated.
fn held_by_answer(paths: &PathRequest<'_>, item: &ItemRef) -> usize {
    let inflated = match item.is_compressed() {
        true => item.plain_body_bytes().unwrap_or(0).saturating_mul(paths.specs.len() + 1),
        false => 0,
    };
    item.value_bytes().max(inflated)
}

/// Refuses a request when the user lacks a right for some part of it. A user who may read and write
/// the whole bucket passes at once.
fn demand_rights(
    req: &mut Request<'_>,
    document: RequestLocation<'_>,
    paths: &PathRequest<'_>,
    kind: SubDocumentKind,
) -> Result<(), RuleRejection> {
    if req.state.rights().everywhere().holds(PrivilegeSet::READ_WRITE) {
        return Ok(());
    }
    req.demand(document.key.collection, paths.privileges(kind))
}

fn may_see(paths: &PathRequest<'_>, item: &ItemRef) -> bool {
    !item.is_deleted() || paths.sees_tombstones()
}

/// A request that does not see tombstones need not wait for one to be read.
fn sought(paths: &PathRequest<'_>) -> ReadTarget {
    match paths.sees_tombstones() {
        true => ReadTarget::Tombstone,
        false => ReadTarget::Document,
    }
}

fn uuid_of(req: &Request<'_>, vbid: Vbid) -> VbUuid {
    req.bucket().vbucket(vbid).map_or(VbUuid(0), |vbucket| vbucket.uuid())
}

fn answer_mutation<'a>(
    req: &mut Request<'a>,
    paths: Result<PathRequest<'a>, Status>,
) -> Outcome<'a> {
    let document = req.locate()?;
    let paths = paths?;
    if paths.has(DocFlags::ADD) && req.cas() != Cas(0) {
        // A document that is to be added has no CAS yet that a request could name.
        return Err(Status::Einval.into());
    }
    demand_rights(req, document, &paths, SubDocumentKind::Mutation)?;
    req.admit_durable()?;
    req.count(|counters| &counters.cmd_set);
    let mut results = Results::default();
    match rewrite(req, document, &paths, &mut results) {
        RewriteOutcome::Refused(refused) => Err(refused.into()),
        RewriteOutcome::Rejected(Failure::Request(status)) => Err(status.into()),
        RewriteOutcome::Rejected(Failure::Spec { status, .. }) if !paths.is_list => {
            Err(status.into())
        }
        RewriteOutcome::Rejected(Failure::Spec { index, status }) => {
            let value = mutation_failure(index, status).to_vec().into();
            Ok(HandlerReply::Value { status: Status::SubdocMultiPathFailure, value })
        }
        RewriteOutcome::Done(mutation) => {
            req.collection_counters(document.key.collection).stores.add(1);
            let Results { value, of_tombstone } = results;
            let status = if of_tombstone { Status::SubdocSuccessDeleted } else { Status::Success };
            let is_json = !paths.is_list && !value.is_empty();
            let datatype = if is_json { Datatype::JSON } else { Datatype::RAW };
            let answer = Answer::SubDocument { mutation, status, value, datatype };
            Ok(HandlerReply::Written(answer))
        }
    }
}

fn rewrite(
    req: &Request<'_>,
    document: RequestLocation<'_>,
    paths: &PathRequest<'_>,
    results: &mut Results,
) -> RewriteOutcome<Failure> {
    let vbucket = match document.vbucket(req) {
        Ok(vbucket) => vbucket,
        Err(rejection) => return RewriteOutcome::Refused(rejection),
    };
    let job = MutationJob {
        request: paths,
        key: document.key,
        cas: req.cas(),
        preserve_expiry: req.infos.preserve_expiry,
        value_bytes_max: req.bucket().config().value_bytes_max,
        now: req.env.now,
        vb_uuid: vbucket.uuid(),
    };
    let expiry = paths.document.expiry.unwrap_or(0);
    let terms = (expiry, job.cas);
    vbucket.rewrite(&req.write_context(), document.key, sought(paths), terms, |current| {
        job.next_version(&current, results)
    })
}
