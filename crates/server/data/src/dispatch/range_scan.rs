//! Serves range scans: create, continue, cancel.
//!
//! Owns: the checks of a request, and how pages become answers. Each scan has a separate thread
//! ([`crate::buckets::range_scans`]). The connection waits for each page, serves other due work
//! between two pages, and requests the next page once its output is sent. Layouts are those of the
//! protocol: 16 bytes name a scan. CONTINUE has item limit, time limit in ms and byte limit, four
//! bytes each, after the name.
//!
//! Invariant: each page is checked as the request was, because rights, collection and owner may
//! have changed since.

use std::sync::Arc;

use oribi_auth::PrivilegeSet;
use oribi_protocol::feature::Feature;
use oribi_protocol::status::Status;
use oribi_types::{Datatype, Vbid};

use super::answer::fail_request;
use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use super::rules::{RANGE_SCAN, READ, SYSTEM_XATTR_READ};
use crate::buckets::BucketHandle;
use crate::buckets::range_scans::{
    AcceptedDatatypes, Content, Reserve, ScanAnswer, ScanId, ScanLimits, ScanReply, ScanRequest,
    ScanReservation, ScanSubject,
};
use crate::connection::continued_scan::ContinuedScan;
use crate::connection::memory::ConnectionMemory;
use crate::connection::memory::budget::Demand;
use crate::connection::memory::ticket::Ticket;
use crate::connection::pending::LongAnswer;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::BlockingJob;

/// Extras of an answer: keys only, or documents.
const ONLY_KEYS: [u8; 4] = [0, 0, 0, 0];
const DOCUMENTS: [u8; 4] = [0, 0, 0, 1];

/// The privileges that a user needs to see the results of a scan.
fn needed_for(content: Content) -> PrivilegeSet {
    match content {
        Content::Keys => RANGE_SCAN,
        Content::Documents => RANGE_SCAN.and(READ),
        // All attributes come in one block, the system's included.
        Content::WithAttributes => RANGE_SCAN.and(READ).and(SYSTEM_XATTR_READ),
    }
}

pub(super) fn create<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let (vbid, handle) = served(req)?;
    if req.frame.header.datatype != Datatype::JSON.0 {
        let context = "the datatype of the request has to be JSON";
        return Err(Rejection::Because(Status::Einval, context));
    }
    let request = ScanRequest::parse(vbid, req.frame.value)
        .map_err(|status| Rejection::Because(status, "this does not say what is to be scanned"))?;
    // A client that supports attributes may request them here. The separate feature only announces
    // that.
    if request.content == Content::WithAttributes && !req.state.features().has(Feature::Xattr) {
        return Err(Rejection::Because(Status::NotSupported, "attributes were not negotiated"));
    }
    if !handle.bucket().manifest().contains(request.collection) {
        return Err(Rejection::Unknown(Status::UnknownCollection));
    }
    req.demand(request.collection, needed_for(request.content))?;
    let vbucket = handle.bucket().vbucket(vbid);
    let history = vbucket.and_then(|vbucket| vbucket.failover_table().first().copied());
    if request.snapshot.is_some_and(|wanted| history.is_none_or(|is| is.uuid != wanted.vb_uuid)) {
        return Err(Status::VbUuidNotEqual.into());
    }
    let reserve = reserve_in(&req.env.server.connections.memory);
    Ok(HandlerReply::Job(scan_job(move |reply| {
        handle.range_scans().create(Arc::clone(handle.bucket()), request, reserve, reply);
    })))
}

/// A scan reserves large documents as connections do large answers.
pub(super) fn reserve_in(memory: &Arc<ConnectionMemory>) -> Reserve {
    let memory = Arc::clone(memory);
    let mut queued: Option<(usize, Ticket)> = None;
    Box::new(move |bytes| {
        queued.take_if(|(before, _)| *before != bytes);
        if bytes == 0 {
            return None;
        }
        let ticket = || Ticket::new(&memory, Demand::of_bytes(bytes), || {});
        let (_, ticket) = queued.get_or_insert_with(|| (bytes, ticket()));
        let held = ticket.poll()?;
        debug_assert!(bytes > 0, "a reservation is of memory");
        queued = None;
        Some(Box::new(held) as ScanReservation)
    })
}

pub(super) fn proceed<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let (vbid, handle) = served(req)?;
    let (id, limits) = req.frame.extras.split_first_chunk::<16>().ok_or(Status::Einval)?;
    let limits = <[u8; 12]>::try_from(limits).map_err(|_| Status::Einval)?;
    let [items, time_ms, bytes] = [0, 4, 8]
        .map(|at| u32::from_be_bytes([limits[at], limits[at + 1], limits[at + 2], limits[at + 3]]));
    let (id, limits) = (*id, ScanLimits { items, time_ms, bytes });
    let subject = usable(req, &handle, id)?;
    let shown = AcceptedDatatypes(req.state.features().datatype_shown(Datatype(u8::MAX)));
    req.state.pending.begin_answer(LongAnswer::RangeScan(Box::new(ContinuedScan {
        vbid,
        id,
        subject,
        bucket: Arc::clone(&handle),
        request: req.id(),
        is_over: false,
    })));
    Ok(HandlerReply::Job(scan_job(move |reply| {
        handle.range_scans().proceed(vbid, id, limits, shown, reply);
    })))
}

pub(super) fn cancel<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let (vbid, handle) = served(req)?;
    let id = ScanId::try_from(req.frame.extras).map_err(|_| Status::Einval)?;
    usable(req, &handle, id)?;
    match handle.range_scans().cancel(vbid, id) {
        true => Ok(HandlerReply::Success),
        false => Err(Status::KeyEnoent.into()),
    }
}

/// The vbucket of the request and its bucket, if it is served.
fn served(req: &Request<'_>) -> Result<(Vbid, Arc<BucketHandle>), Rejection> {
    let (vbid, handle) = (req.named_vbucket(), Arc::clone(req.handle()));
    handle.bucket().scannable_vbucket(vbid)?;
    Ok((vbid, handle))
}

/// The subject of a scan, provided that the scan exists, the user may see its results, and the
/// collection still exists.
fn usable(
    req: &mut Request<'_>,
    handle: &BucketHandle,
    id: ScanId,
) -> Result<ScanSubject, Rejection> {
    let subject = handle.range_scans().subject_of(id).ok_or(Status::KeyEnoent)?;
    if !handle.bucket().manifest().contains(subject.collection) {
        return Err(Rejection::Unknown(Status::UnknownCollection));
    }
    req.demand(subject.collection, needed_for(subject.content))?;
    Ok(subject)
}

/// Whether the next page may be shown, or why not.
fn may_continue(state: &mut ConnectionState) -> Result<(), Status> {
    let ConnectionState { pending, user, selection, .. } = state;
    let Some(scan) = pending.range_scan() else { return Ok(()) };
    if !selection.bucket().is_some_and(|selected| Arc::ptr_eq(selected, &scan.bucket)) {
        return Err(Status::NoBucket);
    }
    let ScanSubject { collection, content } = scan.subject;
    let manifest = scan.bucket.bucket().manifest();
    if !manifest.contains(collection) {
        return Err(Status::UnknownCollection);
    }
    let held = user.rights_mut().within(collection, manifest);
    if held.is_empty() {
        return Err(Status::UnknownCollection);
    }
    if !held.holds(needed_for(content)) {
        return Err(Status::Eaccess);
    }
    match scan.bucket.bucket().scannable_vbucket(scan.vbid) {
        Ok(_) => Ok(()),
        Err(rejection) => Err(crate::dispatch::status::of_refused(rejection)),
    }
}

/// A command to a scan, which the thread of the scan answers.
fn scan_job(start: impl FnOnce(ScanReply) + Send + 'static) -> BlockingJob<Environment> {
    BlockingJob::elsewhere(start, |state, _, _, answer| Some(finish(state, answer)))
}

/// Takes a page or the end from a scan.
fn finish(state: &mut ConnectionState, answer: ScanAnswer) -> LateOutcome {
    match answer {
        ScanAnswer::Created(id) => Ok(LateReply::value(id.to_vec())),
        ScanAnswer::Page { status, only_keys, bytes, held: _held } => {
            if status != Status::Success {
                end(state);
            }
            let extras = if only_keys { &ONLY_KEYS } else { &DOCUMENTS };
            Ok(LateReply { status, extras, value: bytes })
        }
        ScanAnswer::Refused(status) => {
            end(state);
            Err(status)
        }
    }
}

/// Ends the request, which has its last answer. Another request may continue the scan.
fn end(state: &mut ConnectionState) {
    if let Some(LongAnswer::RangeScan(mut scan)) = state.pending.end_answer() {
        scan.is_over = true;
    }
}

/// Requests the next page, if the client may still see it.
pub(crate) fn resume_range_scan(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    id: ConnectionId,
    env: &mut Environment,
) {
    if let Err(status) = may_continue(state) {
        let Some(LongAnswer::RangeScan(scan)) = state.pending.end_answer() else { return };
        return fail_request(state, out, scan.request, status, None);
    }
    let Some(scan) = state.pending.range_scan() else { return };
    let (bucket, name, request) = (Arc::clone(&scan.bucket), scan.id, scan.request);
    state.pending.wait_for_job(request);
    debug_assert!(state.pending.is_waiting(), "a scan waits for its page");
    let resume = move |reply: ScanReply| bucket.range_scans().resume(name, reply);
    env.jobs.push((id, scan_job(resume)));
}
