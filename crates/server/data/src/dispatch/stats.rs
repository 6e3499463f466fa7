//! STAT: one answer per figure, then an empty one.
//!
//! Owns: the grammar (everything before the first space is the group, the rest its argument), the
//! required rights, and which module produces which group. Names and values follow those that
//! monitoring tools know.
//!
//! An unknown group is KeyEnoent, a bad argument Einval, a vbucket outside the map NotMyVbucket.
//! For an unknown scope or collection the answer names the manifest.
//!
//! A handler only plans. The blocking thread collects what takes long (the disk, sums over a
//! bucket) while the connection waits. A [`StatCursor`], driven by the connection, then produces
//! the entries in slices. Locks are held for one vbucket at a time.

mod checkpoint;
mod collection_details;
mod collections;
mod configuration;
mod connections;
mod dcp;
mod dumps;
mod general;
mod keys;
mod memcached;
mod memory;
mod storage;
mod tasks;
mod timings;
mod vbuckets;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use oribi_auth::{Privilege, PrivilegeSet};
use oribi_engine::collections::{BucketManifest, LookupError, ScopeDefinition};
use oribi_engine::{BucketStats, OperationRejection};
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, ScopeId, Timestamp, Vbid};

use super::answer::answer_late;
use super::late::give_up;
use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{HandlerReply, Outcome, Rejection, RuleRejection};
use super::request::Request;
use crate::buckets::BucketHandle;
use crate::connection::pending::LongAnswer;
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::stat_cursor::{
    PreparedStat, SingleSlice, StatCursor, StatPreparation, StatProducer, StatWriter,
};
use crate::diagnostics::counters::timings::CommandKind;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::{BlockingJob, Lane};
use crate::server_context::ServerContext;
use checkpoint::Checkpoints;
use collection_details::{CollectionDetails, Detail};
use collections::{CollectionSums, Selection};
use connections::ConnectionList;
use dumps::Dump;
use general::BucketFigures;
use keys::OwnedKey;
use timings::Histograms;
use vbuckets::EachVbucket;

pub use memory::fetched;

/// How a group is answered.
enum Plan {
    /// From now on, in slices.
    Now(Box<dyn StatProducer>),
    /// After the blocking thread has collected the figures.
    Later(StatPreparation),
}

type PlanResult = Result<Plan, Rejection>;

/// The inputs of a plan besides the bucket.
struct StatContext<'a> {
    server: &'a Arc<ServerContext>,
    now: Timestamp,
    /// The client reads a histogram as one JSON document.
    reads_histograms: bool,
    /// The part of the bucket's manifest that the client may see.
    manifest: Arc<BucketManifest>,
}

pub(super) fn stat<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let begun_ns = req.env.latency_clock.now_ns();
    let text = std::str::from_utf8(req.frame.key).map_err(|_| Status::Einval)?;
    let (group, argument) = text.split_once(' ').unwrap_or((text, ""));
    let argument = argument.trim();
    if group == "connections" {
        let plan = plan_connections(req, argument)?;
        return Ok(begin(req, None, begun_ns, plan));
    }
    let bucket = selected(req)?;
    if group == "reset" {
        return match argument {
            "" => reset(req, &bucket),
            _ => Err(Rejection::Because(Status::Einval, "reset takes no argument")),
        };
    }
    if req.state.is_text()
        && let Some(plan) = plan_dump(req, &bucket, group, argument)?
    {
        return Ok(begin(req, Some(bucket), begun_ns, plan));
    }
    let plan = match is_about_key(group) {
        true => {
            let key = parse_key(req, &bucket, group, argument)?;
            req.demand(key.collection, Privilege::MetaRead.into())?;
            plan_key(&bucket, group, key)?
        }
        false => plan_group(req, &bucket, group, argument)?,
    };
    Ok(begin(req, Some(bucket), begun_ns, plan))
}

/// Plans a dump of the client's collection. It shows keys and metadata.
fn plan_dump(
    req: &mut Request<'_>,
    bucket: &Arc<BucketHandle>,
    group: &str,
    argument: &str,
) -> Result<Option<Plan>, Rejection> {
    let Some(key) = req.state.doc_key(b"any") else { return Ok(None) };
    let collection = key.collection;
    let Some(dump) = Dump::named(group, argument, (bucket, collection), req.env.now) else {
        return Ok(None);
    };
    req.demand(collection, PrivilegeSet::of(&[Privilege::Read, Privilege::MetaRead]))?;
    Ok(Some(Plan::Now(Box::new(dump))))
}

/// Plans a group about a bucket, or about its content.
fn plan_group(
    req: &mut Request<'_>,
    bucket: &Arc<BucketHandle>,
    group: &str,
    argument: &str,
) -> PlanResult {
    // Figures of one collection need the right in that collection. All others are about the bucket.
    let is_about_collections = group.starts_with("collections") || group.starts_with("scopes");
    if !is_about_collections {
        req.demand_everywhere(SIMPLE)?;
    }
    let manifest = visible_manifest(req);
    let reads_histograms = req.state.reads_histograms();
    let asker =
        StatContext { server: &req.env.server, now: req.env.now, reads_histograms, manifest };
    plan(&asker, bucket, group, argument)
}

/// The privileges for ordinary groups.
const SIMPLE: PrivilegeSet = PrivilegeSet::of(&[Privilege::SimpleStats]);

fn is_about_key(group: &str) -> bool {
    matches!(group, "key" | "key-byid" | "vkey" | "vkey-byid")
}

/// The selected bucket, or the one that the server chooses for a client that cannot select.
fn selected(req: &mut Request<'_>) -> Result<Arc<BucketHandle>, RuleRejection> {
    let bucket = req.state.bucket().filter(|bucket| !bucket.is_deleted());
    if bucket.is_none() {
        req.find_bucket()?;
    }
    Ok(Arc::clone(req.handle()))
}

/// The scopes and collections whose figures the user may see.
fn visible_manifest(req: &mut Request<'_>) -> Arc<BucketManifest> {
    let manifest = req.bucket().manifest();
    if req.state.rights().everywhere().holds(SIMPLE) {
        return manifest;
    }
    let visible = req.state.user.rights_mut().visible(Arc::clone(&manifest));
    let held: BTreeSet<CollectionId> = visible
        .scopes()
        .iter()
        .flat_map(|scope| &scope.collections)
        .map(|collection| collection.id)
        .filter(|id| req.state.user.rights_mut().within(*id, Arc::clone(&manifest)).holds(SIMPLE))
        .collect();
    let has_any =
        |scope: &ScopeDefinition| scope.collections.iter().any(|one| held.contains(&one.id));
    Arc::new(visible.restricted(has_any, |_, collection| held.contains(&collection.id)))
}

fn reset(req: &Request<'_>, bucket: &BucketHandle) -> Outcome<'static> {
    req.demand_everywhere(Privilege::Stats.into())?;
    bucket.operations().reset();
    bucket.bucket().reset_timings();
    req.env.server.diagnostics.counters.reset();
    Ok(HandlerReply::Success)
}

fn begin(
    req: &mut Request<'_>,
    bucket: Option<Arc<BucketHandle>>,
    begun_ns: u64,
    plan: Plan,
) -> HandlerReply<'static> {
    let (producer, reply) = match plan {
        Plan::Now(producer) => (Some(producer), HandlerReply::Streamed),
        Plan::Later(preparation) => {
            (None, HandlerReply::Job(BlockingJob::new(Lane::Others, preparation, begin_prepared)))
        }
    };
    let cursor = StatCursor::new(req.id(), bucket, begun_ns, producer, req.state.is_text());
    req.state.pending.begin_answer(LongAnswer::Stat(Box::new(cursor)));
    reply
}

/// Begins the answer once the group's data are collected, or reports why the group cannot be
/// answered.
fn begin_prepared(
    state: &mut ConnectionState,
    _: &mut Environment,
    _: RequestId,
    prepared: PreparedStat,
) -> Option<LateOutcome> {
    match prepared {
        Ok(producer) => {
            if let Some(stat) = state.pending.stat() {
                stat.prepared(producer);
            }
            None
        }
        Err(status) => Some(Err(give_up(state, status))),
    }
}

/// Appends the next slice of the STAT that the connection is answering, and after the last slice
/// its end.
pub(crate) fn continue_stat(state: &mut ConnectionState, out: &mut SendBuffer, env: &Environment) {
    let Some(request) = state.pending.stat().map(|stat| stat.request()) else { return };
    if let Some(end) = next_slice(state, out, env) {
        answer_late(state, out, request, end.map(|()| LateReply::value(Vec::new())));
    }
}

/// Appends the next slice of the STAT that the connection is answering. After the last slice,
/// returns the result of the STAT, which is then over.
pub(super) fn next_slice(
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &Environment,
) -> Option<Result<(), Status>> {
    let stat = state.pending.stat()?;
    let end = stat.slice(out)?;
    let begun_ns = stat.begun_ns();
    state.pending.end_answer();
    if let Some(operations) = state.selection.operations() {
        let elapsed_ns = env.latency_clock.now_ns().saturating_sub(begun_ns);
        operations.timings().record(CommandKind::Stats, elapsed_ns, 1);
    }
    Some(end)
}

/// Plans any group about a bucket.
fn plan(
    asker: &StatContext<'_>,
    bucket: &Arc<BucketHandle>,
    group: &str,
    argument: &str,
) -> PlanResult {
    match group {
        "vbucket"
        | "vbucket-seqno"
        | "vbucket-details"
        | "failovers"
        | "checkpoint"
        | "collections-details"
        | "scopes-details" => plan_vbuckets(asker, bucket, group, argument),
        "dcp" | "dcpagg" | "dcp-vbtakeover" => plan_changes(bucket, group, argument),
        "hash" if argument == "detail" => plan_vbuckets(asker, bucket, group, ""),
        "collections" | "collections-byid" | "scopes" | "scopes-byid" => {
            plan_sums(bucket, &asker.manifest, group, argument)
        }
        _ => plan_small(asker, bucket, group).and_then(|plan| match argument {
            "" => Ok(plan),
            _ => Err(Rejection::Status(Status::Einval)),
        }),
    }
}

/// Plans groups about connections that follow changes.
fn plan_changes(bucket: &Arc<BucketHandle>, group: &str, argument: &str) -> PlanResult {
    match (group, argument) {
        ("dcp", "") => Ok(Plan::Now(Box::new(dcp::Connections::new(bucket)))),
        ("dcp", _) => Err(Rejection::Status(Status::Einval)),
        ("dcpagg", separator) => {
            let (handle, separator) = (Arc::clone(bucket), separator.to_owned());
            Ok(whole(move |writer| dcp::write_sums(writer, &handle, &separator)))
        }
        _ => {
            let (number, name) = argument.split_once(' ').unwrap_or((argument, ""));
            let vbid = parse_vbucket(bucket, number)?;
            let (handle, name) = (Arc::clone(bucket), name.trim().to_owned());
            Ok(whole(move |writer| {
                dcp::write_takeover(writer, &handle, vbid, &name);
            }))
        }
    }
}

/// Plans groups that take no argument.
fn plan_small(asker: &StatContext<'_>, bucket: &Arc<BucketHandle>, group: &str) -> PlanResult {
    let now = asker.now;
    let handle = Arc::clone(bucket);
    Ok(match group {
        "" => {
            let server = Arc::clone(asker.server);
            after(handle, BucketFigures::collect, move |writer, handle, figures| {
                general::write(writer, &server, handle, figures, now);
            })
        }
        "hash" => return plan_vbuckets(asker, bucket, group, ""),
        "uuid" => whole(move |writer| writer.text("uuid", &handle.bucket().config().uuid)),
        "config" => whole(move |writer| configuration::write(writer, &handle)),
        "tasks" => whole(move |writer| {
            tasks::write(writer, handle.name(), &handle.bucket().task_stats(), now);
        }),
        "timings" => {
            let as_ranges = !asker.reads_histograms;
            Plan::Later(Box::new(move || Ok(Box::new(Histograms::collect(&handle, as_ranges)))))
        }
        "memory" => {
            let server = Arc::clone(asker.server);
            after(
                handle,
                |handle| handle.bucket().stats(),
                move |writer, handle, stats| {
                    memory::write(writer, handle.bucket(), stats);
                    memory::write_server(writer, &server);
                },
            )
        }
        "warmup" => after(
            handle,
            |handle| handle.bucket().stats(),
            |writer, _, stats| {
                storage::write_warmup(writer, stats);
            },
        ),
        "kvstore" => after(
            handle,
            |handle| handle.bucket().stats(),
            |writer, _, stats| {
                storage::write_kvstore(writer, stats);
            },
        ),
        "diskinfo" => {
            after(handle, storage::DiskFigures::collect, |writer, _, figures| figures.write(writer))
        }
        _ => return plan_of_memcached(asker, handle, group),
    })
}

/// Plans the groups that only memcached has.
fn plan_of_memcached(
    asker: &StatContext<'_>,
    handle: Arc<BucketHandle>,
    group: &str,
) -> PlanResult {
    let server = Arc::clone(asker.server);
    let write: fn(&mut StatWriter<'_>, &ServerContext, &BucketHandle, &BucketStats) = match group {
        "settings" => memcached::write_settings,
        "items" => |writer, _, _, stats| memcached::write_items(writer, stats),
        "slabs" => |writer, _, _, stats| memcached::write_slabs(writer, stats),
        _ => return Err(Rejection::Status(Status::KeyEnoent)),
    };
    let collect = |handle: &BucketHandle| handle.bucket().stats();
    Ok(after(handle, collect, move |writer, handle, stats| write(writer, &server, handle, stats)))
}

fn whole(write: impl FnMut(&mut StatWriter<'_>) + Send + 'static) -> Plan {
    Plan::Now(Box::new(SingleSlice(write)))
}

/// Plans small groups whose figures are slow to collect.
fn after<T: Send + 'static>(
    handle: Arc<BucketHandle>,
    collect: impl FnOnce(&BucketHandle) -> T + Send + 'static,
    write: impl Fn(&mut StatWriter<'_>, &BucketHandle, &T) + Send + 'static,
) -> Plan {
    Plan::Later(Box::new(move || {
        let figures = collect(&handle);
        Ok(Box::new(SingleSlice(move |writer: &mut StatWriter<'_>| {
            write(writer, &handle, &figures);
        })))
    }))
}

/// Plans groups about each vbucket, or about the one that the argument names.
fn plan_vbuckets(
    asker: &StatContext<'_>,
    bucket: &Arc<BucketHandle>,
    group: &str,
    argument: &str,
) -> PlanResult {
    let vbuckets = parse_vbuckets(bucket, argument)?;
    let is_all = argument.is_empty();
    let details = |detail, vbuckets| {
        CollectionDetails::new(detail, bucket, Arc::clone(&asker.manifest), vbuckets, is_all)
    };
    Ok(Plan::Now(match group {
        "checkpoint" => Box::new(Checkpoints::new(bucket, vbuckets)),
        "collections-details" => Box::new(details(Detail::Collections, vbuckets)),
        "scopes-details" => Box::new(details(Detail::Scopes, vbuckets)),
        _ => match EachVbucket::named(group, bucket, vbuckets, asker.now) {
            Some(each) => Box::new(each),
            None => return Err(Rejection::Status(Status::KeyEnoent)),
        },
    }))
}

fn parse_vbuckets(bucket: &BucketHandle, argument: &str) -> Result<Range<u16>, Rejection> {
    if argument.is_empty() {
        return Ok(0..bucket.vbuckets());
    }
    let vbid = parse_vbucket(bucket, argument)?;
    Ok(vbid.0..vbid.0 + 1)
}

fn parse_vbucket(bucket: &BucketHandle, text: &str) -> Result<Vbid, Rejection> {
    let Ok(number) = text.parse() else { return Err(Rejection::Status(Status::Einval)) };
    if number >= bucket.vbuckets() {
        return Err(Rejection::Engine(OperationRejection::NotMyVbucket));
    }
    Ok(Vbid(number))
}

/// Plans groups that sum over all vbuckets.
fn plan_sums(
    bucket: &Arc<BucketHandle>,
    manifest: &Arc<BucketManifest>,
    group: &str,
    argument: &str,
) -> PlanResult {
    let selection = match group {
        "collections" if argument.is_empty() => Selection::Collections,
        "scopes" if argument.is_empty() => Selection::Scopes,
        "collections" => Selection::Collection(parse_path(manifest, argument)?),
        "scopes" => Selection::Scope(manifest.scope_id(argument).map_err(refuse_lookup)?),
        "collections-byid" => Selection::Collection(parse_collection_id(manifest, argument)?),
        _ => {
            let id = ScopeId(parse_hexadecimal(argument)?);
            if !manifest.scopes().iter().any(|scope| scope.id == id) {
                return Err(Rejection::Unknown(Status::UnknownScope));
            }
            Selection::Scope(id)
        }
    };
    let (handle, manifest) = (Arc::clone(bucket), Arc::clone(manifest));
    Ok(Plan::Later(Box::new(move || {
        Ok(Box::new(CollectionSums::collect(&handle, manifest, selection)))
    })))
}

fn parse_path(manifest: &BucketManifest, path: &str) -> Result<CollectionId, Rejection> {
    let Some((scope, collection)) = path.split_once('.') else {
        return Err(Rejection::Status(Status::Einval));
    };
    manifest.collection_id(scope, collection).map_err(refuse_lookup)
}

fn parse_collection_id(manifest: &BucketManifest, text: &str) -> Result<CollectionId, Rejection> {
    let id = CollectionId(parse_hexadecimal(text)?);
    match manifest.collection(id) {
        Some(_) => Ok(id),
        None => Err(Rejection::Unknown(Status::UnknownCollection)),
    }
}

fn refuse_lookup(error: LookupError) -> Rejection {
    match error {
        LookupError::UnknownScope => Rejection::Unknown(Status::UnknownScope),
        LookupError::UnknownCollection => Rejection::Unknown(Status::UnknownCollection),
        LookupError::InvalidName => Rejection::Status(Status::Einval),
    }
}

/// Parses an id in hexadecimal digits, with or without `0x`.
fn parse_hexadecimal(text: &str) -> Result<u32, Rejection> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // The standard library would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u32::from_str_radix(digits, 16).ok().filter(|_| is_number);
    id.ok_or(Rejection::Status(Status::Einval))
}

/// Parses `KEY VBUCKET`, followed by `SCOPE.COLLECTION` (optional) or by the id of a collection.
fn parse_key(
    req: &mut Request<'_>,
    bucket: &BucketHandle,
    group: &str,
    argument: &str,
) -> Result<OwnedKey, Rejection> {
    let manifest = req.state.user.rights_mut().visible(bucket.bucket().manifest());
    let words: Vec<&str> = argument.split_whitespace().collect();
    let (key, vbucket, collection) = match (&words[..], group.ends_with("-byid")) {
        (&[key, vbucket, id], true) => (key, vbucket, parse_collection_id(&manifest, id)?),
        (&[key, vbucket, path], false) => (key, vbucket, parse_path(&manifest, path)?),
        (&[key, vbucket], false) => (key, vbucket, CollectionId::DEFAULT),
        _ => return Err(Rejection::Status(Status::Einval)),
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(Rejection::Status(Status::Einval));
    }
    let vbid = parse_vbucket(bucket, vbucket)?;
    Ok(OwnedKey { vbid, collection, key: key.as_bytes().to_vec() })
}

fn plan_key(bucket: &Arc<BucketHandle>, group: &str, key: OwnedKey) -> PlanResult {
    if group.starts_with("vkey") {
        return plan_vkey(bucket, key);
    }
    let stats = match keys::in_memory(bucket, &key) {
        Err(OperationRejection::NeedsFetch) => return Ok(plan_stored_key(bucket, key, false)),
        stats => stats.map_err(Rejection::Engine)?,
    };
    let Some(stats) = stats else { return Err(Rejection::Status(Status::KeyEnoent)) };
    let phase = keys::phase_of(bucket, key.vbid);
    Ok(whole(move |writer| keys::write(writer, &stats, phase)))
}

fn plan_vkey(bucket: &Arc<BucketHandle>, key: OwnedKey) -> PlanResult {
    let stats = match keys::in_memory(bucket, &key) {
        Err(OperationRejection::NeedsFetch) => return Ok(plan_stored_key(bucket, key, true)),
        stats => stats.map_err(Rejection::Engine)?,
    };
    let Some(stats) = stats else { return Err(Rejection::Status(Status::KeyEnoent)) };
    let handle = Arc::clone(bucket);
    Ok(Plan::Later(Box::new(move || keys::verify(&handle, &key, stats))))
}

/// Plans for a key that memory does not know. The document may still exist.
fn plan_stored_key(bucket: &Arc<BucketHandle>, key: OwnedKey, verifies: bool) -> Plan {
    let handle = Arc::clone(bucket);
    Plan::Later(Box::new(move || keys::from_store(&handle, &key, verifies)))
}

/// Plans the only group that needs no bucket.
fn plan_connections(req: &Request<'_>, argument: &str) -> PlanResult {
    let (server, now) = (&req.env.server, req.env.now);
    let Some(viewer) = req.state.identity() else { return Err(Rejection::Status(Status::Eaccess)) };
    if argument.is_empty() {
        return Ok(Plan::Now(Box::new(ConnectionList::new(server, viewer, now))));
    }
    let Ok(number) = argument.parse() else { return Err(Rejection::Status(Status::Einval)) };
    let Some(record) = ConnectionList::one(server, viewer, number) else {
        return Err(Rejection::Status(Status::KeyEnoent));
    };
    Ok(whole(move |writer| connections::write(writer, &record, now)))
}

/// All slices of a group, each of about `slice_bytes`.
#[cfg(test)]
pub(super) fn produce_in_slices(
    server: &Arc<ServerContext>,
    bucket: &Arc<BucketHandle>,
    group: &str,
    slice_bytes: usize,
) -> Vec<Vec<u8>> {
    let manifest = bucket.bucket().manifest();
    let asker = StatContext { server, now: Timestamp::default(), reads_histograms: true, manifest };
    let mut producer = match plan(&asker, bucket, group, "") {
        Ok(Plan::Now(producer)) => producer,
        Ok(Plan::Later(preparation)) => {
            preparation().unwrap_or_else(|_| panic!("the group can be answered"))
        }
        Err(_) => panic!("no such group"),
    };
    use crate::connection::request_id::RequestId;
    use crate::connection::stat_cursor::EntryHead;

    let mut head = EntryHead::new(RequestId { opcode: 0x10, opaque: 1 });
    let mut slices = Vec::new();
    loop {
        let mut out = Vec::new();
        let is_complete = producer.produce(&mut StatWriter::new(&mut out, &mut head, slice_bytes));
        slices.push(out);
        if is_complete {
            return slices;
        }
    }
}
