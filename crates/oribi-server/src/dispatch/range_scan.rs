//! Range scan: create, continue, cancel.
//!
//! Owns: what a request has to say, and how pages become answers. A scan works on a thread of its own
//! ([`crate::range_scans`]); the connection waits for each page, serves whatever else is due between two, and asks for
//! the next when its output has gone out. Layouts are those of the protocol: a scan is named by 16 bytes; continue has
//! item limit, time limit in ms and byte limit, four bytes each, behind the name.
//!
//! Invariants: each page is checked as the request was: rights, collection and owner may be others by then; a scan whose
//! request ends before its last page is cancelled, because nobody knows which of its pages were received.

use std::sync::Arc;

use oribi_engine::Refused;
use oribi_protocol::feature::Feature;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_types::{Datatype, Vbid};

use super::exchange::Exchange;
use super::rules::{RANGE_SCAN, READ, SYSTEM_XATTR_READ};
use crate::auth::PrivilegeSet;
use crate::blocking_thread::Job;
use crate::buckets::BucketHandle;
use crate::connection::state::{ConnectionState, Wait};
use crate::connection::write_buffer::WriteBuffer;
use crate::environment::Environment;
use crate::mailbox::ConnectionId;
use crate::range_scans::{
    Content, Reply, ScanAnswer, ScanId, ScanLimits, ScanRequest, Shown, Subject,
};

/// Extras of an answer: keys only, or documents.
const ONLY_KEYS: [u8; 4] = [0, 0, 0, 0];
const DOCUMENTS: [u8; 4] = [0, 0, 0, 1];

/// A request to continue that is being answered.
pub(crate) struct ContinuedScan {
    vbid: Vbid,
    id: ScanId,
    subject: Subject,
    bucket: Arc<BucketHandle>,
    opcode: u8,
    opaque: u32,
    /// A page went out, and the next is to be asked for.
    is_due: bool,
    /// The last answer to the request was given.
    is_over: bool,
}

impl Drop for ContinuedScan {
    /// The connection ended, or may not go on.
    fn drop(&mut self) {
        if !self.is_over {
            self.bucket.range_scans().cancel(self.vbid, self.id);
        }
    }
}

/// What a user needs to see what a scan finds.
fn needed_for(content: Content) -> PrivilegeSet {
    match content {
        Content::Keys => RANGE_SCAN,
        Content::Documents => RANGE_SCAN.and(READ),
        // They come in one block, the system's among them.
        Content::WithAttributes => RANGE_SCAN.and(READ).and(SYSTEM_XATTR_READ),
    }
}

/// RangeScanCreate.
pub(super) fn create(x: &mut Exchange<'_>) {
    let Some((vbid, handle)) = served(x) else { return };
    if x.frame.header.datatype != Datatype::JSON.0 {
        return x.fail_with(Status::Einval, "the datatype of the request has to be JSON");
    }
    let request = match ScanRequest::parse(vbid, x.frame.value) {
        Ok(request) => request,
        Err(status) => return x.fail_with(status, "this does not say what is to be scanned"),
    };
    if request.content == Content::WithAttributes
        && !x.state.features.has(Feature::RangeScanIncludeXattr)
    {
        return x.fail_with(Status::NotSupported, "attributes of scans were not negotiated");
    }
    if !handle.bucket().manifest().contains(request.collection) {
        return x.unknown(Status::UnknownCollection);
    }
    if !x.allows(request.collection, needed_for(request.content)) {
        return;
    }
    let history =
        handle.bucket().vbucket(vbid).and_then(|vbucket| vbucket.failover_table().first().copied());
    if request.snapshot.is_some_and(|wanted| history.is_none_or(|is| is.uuid != wanted.vb_uuid)) {
        return x.fail(Status::VbUuidNotEqual);
    }
    wait_for(x, move |reply| {
        handle.range_scans().create(Arc::clone(handle.bucket()), request, reply);
    });
}

/// RangeScanContinue.
pub(super) fn proceed(x: &mut Exchange<'_>) {
    let Some((vbid, handle)) = served(x) else { return };
    let Some((id, limits)) = x.frame.extras.split_first_chunk::<16>() else {
        return x.fail(Status::Einval);
    };
    let Ok(limits) = <[u8; 12]>::try_from(limits) else { return x.fail(Status::Einval) };
    let [items, time_ms, bytes] = [0, 4, 8]
        .map(|at| u32::from_be_bytes([limits[at], limits[at + 1], limits[at + 2], limits[at + 3]]));
    let (id, limits) = (*id, ScanLimits { items, time_ms, bytes });
    let Some(subject) = usable(x, &handle, id) else { return };
    let shown = Shown(x.state.features.datatype_shown(Datatype(u8::MAX)));
    let header = &x.frame.header;
    x.state.range_scan = Some(Box::new(ContinuedScan {
        vbid,
        id,
        subject,
        bucket: Arc::clone(&handle),
        opcode: header.opcode,
        opaque: header.opaque,
        is_due: false,
        is_over: false,
    }));
    wait_for(x, move |reply| handle.range_scans().proceed(vbid, id, limits, shown, reply));
}

/// RangeScanCancel.
pub(super) fn cancel(x: &mut Exchange<'_>) {
    let Some((vbid, handle)) = served(x) else { return };
    let Ok(id) = ScanId::try_from(x.frame.extras) else { return x.fail(Status::Einval) };
    if usable(x, &handle, id).is_none() {
        return;
    }
    match handle.range_scans().cancel(vbid, id) {
        true => x.succeed(),
        false => x.fail(Status::KeyEnoent),
    }
}

/// The vbucket of the request and its bucket, where they can be scanned; answers otherwise.
fn served(x: &mut Exchange<'_>) -> Option<(Vbid, Arc<BucketHandle>)> {
    let vbid = Vbid(x.frame.header.vbucket_or_status);
    let handle = Arc::clone(x.state.bucket.as_ref()?);
    if handle.is_in_memory() {
        // Scans read what is persisted.
        x.fail_with(Status::NotSupported, "the bucket is in memory only");
        return None;
    }
    if !handle.bucket().is_serving(vbid) {
        x.refuse(Refused::NotMyVbucket);
        return None;
    }
    Some((vbid, handle))
}

/// What a scan reads, if there is this one and the user may see that, and the collection is still there; answered
/// when not.
fn usable(x: &mut Exchange<'_>, handle: &BucketHandle, id: ScanId) -> Option<Subject> {
    let Some(subject) = handle.range_scans().subject_of(id) else {
        x.fail(Status::KeyEnoent);
        return None;
    };
    if !handle.bucket().manifest().contains(subject.collection) {
        x.unknown(Status::UnknownCollection);
        return None;
    }
    x.allows(subject.collection, needed_for(subject.content)).then_some(subject)
}

/// Whether the next page may be shown, or why not.
fn may_go_on(state: &mut ConnectionState) -> Result<(), Status> {
    let ConnectionState { range_scan, rights, bucket, .. } = state;
    let Some(scan) = range_scan else { return Ok(()) };
    if !bucket.as_ref().is_some_and(|selected| Arc::ptr_eq(selected, &scan.bucket)) {
        return Err(Status::NoBucket);
    }
    let Subject { collection, content } = scan.subject;
    let manifest = scan.bucket.bucket().manifest();
    if !manifest.contains(collection) {
        return Err(Status::UnknownCollection);
    }
    let held = rights.within(collection, manifest);
    if held.is_empty() {
        return Err(Status::UnknownCollection);
    }
    if !held.holds(needed_for(content)) {
        return Err(Status::Eaccess);
    }
    match scan.bucket.bucket().is_serving(scan.vbid) {
        true => Ok(()),
        false => Err(Status::NotMyVbucket),
    }
}

fn wait_for(x: &mut Exchange<'_>, start: impl FnOnce(Reply) + Send + 'static) {
    let header = &x.frame.header;
    x.state.wait = Wait::Job { opcode: header.opcode, opaque: header.opaque };
    x.env.jobs.push((x.id, Job::RangeScan(Box::new(start))));
}

/// A scan has answered. `request` is opcode and opaque.
pub(crate) fn finish_range_scan(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    request: (u8, u32),
    answer: ScanAnswer,
) {
    let parts = |status| ResponseParts::new(request.0, status, request.1);
    match answer {
        ScanAnswer::Created(id) => {
            write_response(out.tail(), &ResponseParts { value: &id, ..parts(Status::Success) });
        }
        ScanAnswer::Page { status, only_keys, bytes } => {
            let extras = if only_keys { &ONLY_KEYS } else { &DOCUMENTS };
            let is_last = status != Status::Success;
            let shown = parts(if is_last { state.wire_status(status) } else { status });
            write_response(out.tail(), &ResponseParts { extras, value: &bytes, ..shown });
            match &mut state.range_scan {
                Some(scan) if !is_last => scan.is_due = true,
                _ => end(state),
            }
        }
        ScanAnswer::Refused(status) => {
            end(state);
            write_response(out.tail(), &parts(state.wire_status(status)));
        }
    }
}

/// The request has got its last answer; the scan may go on with another.
fn end(state: &mut ConnectionState) {
    if let Some(mut scan) = state.range_scan.take() {
        scan.is_over = true;
    }
}

/// Asks for the next page, if it may still be shown.
pub(crate) fn resume_range_scan(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    id: ConnectionId,
    env: &mut Environment,
) {
    if let Err(status) = may_go_on(state) {
        let Some(scan) = state.range_scan.take() else { return };
        let status = state.wire_status(status);
        write_response(out.tail(), &ResponseParts::new(scan.opcode, status, scan.opaque));
        return;
    }
    let Some(scan) = state.range_scan.as_mut().filter(|scan| scan.is_due) else {
        state.range_scan = None;
        return;
    };
    scan.is_due = false;
    state.wait = Wait::Job { opcode: scan.opcode, opaque: scan.opaque };
    let (bucket, name) = (Arc::clone(&scan.bucket), scan.id);
    let resume = move |reply: Reply| bucket.range_scans().resume(name, reply);
    env.jobs.push((id, Job::RangeScan(Box::new(resume))));
}
