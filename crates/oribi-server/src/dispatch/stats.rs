//! STAT: one answer per figure, then an empty one.
//!
//! Owns: the grammar (everything before the first space is the group, the rest its argument), who may ask
//! for what, and which part produces which group. Names and values follow those that monitoring tools
//! know. An unknown group is KeyEnoent, a bad argument Einval, a vbucket outside the map NotMyVbucket, an
//! unknown scope or collection says which manifest it is not in.
//!
//! How it works: a handler only plans. What takes long to collect (the disk, sums over a bucket) is
//! collected on the blocking thread while the connection waits; the entries are then produced in slices by
//! a [`StatCursor`] that the connection drives. Locks are held for one vbucket at a time.

mod checkpoint;
mod collection_details;
mod collections;
mod configuration;
mod connections;
mod cursor;
mod general;
mod keys;
mod memory;
mod storage;
mod tasks;
mod timings;
mod vbuckets;
mod writer;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use oribi_engine::Refused;
use oribi_engine::collections::{LookupError, Manifest, Scope};
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, ScopeId, Timestamp, Vbid};

use super::exchange::Exchange;
use crate::auth::{Privilege, PrivilegeSet};
use crate::blocking_thread::Job;
use crate::buckets::BucketHandle;
use crate::connection::state::Wait;
use crate::server_context::ServerContext;
use checkpoint::Checkpoints;
use collection_details::{CollectionDetails, Detail};
use collections::{CollectionSums, Selection};
use connections::ConnectionList;
use cursor::{StatProducer, Whole};
use general::BucketFigures;
use keys::OwnedKey;
use timings::Histograms;
use vbuckets::EachVbucket;
use writer::StatWriter;

pub(crate) use cursor::{PreparedStat, StatCursor, StatPreparation, begin_stat, continue_stat};
pub(crate) use memory::fetched;

/// How a group is answered.
enum Plan {
    /// From now on, in slices.
    Now(Box<dyn StatProducer>),
    /// After the blocking thread has collected what it needs.
    Later(StatPreparation),
}

/// Why it is not.
enum Refusal {
    /// With this status and nothing else.
    Status(Status),
    /// As a request about a document would be refused.
    Engine(Refused),
    /// A scope or collection is not in the manifest.
    Unknown(Status),
}

type Planned = Result<Plan, Refusal>;

/// What a plan depends on besides the bucket.
struct Asker<'a> {
    server: &'a Arc<ServerContext>,
    now: Timestamp,
    /// The client reads histograms as one entry per range.
    wants_range_lines: bool,
    /// What the client may see of the bucket's.
    manifest: Arc<Manifest>,
}

/// Stat.
pub(super) fn stat(x: &mut Exchange<'_>) {
    let begun_ns = x.env.latency_clock.now_ns();
    let Ok(text) = std::str::from_utf8(x.frame.key) else { return x.fail(Status::Einval) };
    let (group, argument) = text.split_once(' ').unwrap_or((text, ""));
    let argument = argument.trim();
    if group == "connections" {
        let planned = plan_connections(x, argument);
        return begin(x, None, begun_ns, planned);
    }
    let Some(bucket) = selected(x) else { return };
    if group == "reset" {
        return reset(x, &bucket);
    }
    let key = match is_about_key(group).then(|| parse_key(x, &bucket, group, argument)) {
        None => None,
        Some(Ok(key)) if x.allows(key.collection, Privilege::MetaRead.into()) => Some(key),
        Some(Ok(_)) => return,
        Some(Err(refusal)) => return begin(x, Some(bucket), begun_ns, Err(refusal)),
    };
    // Figures of one collection are for those who have the right there, all others are about the bucket.
    let is_about_collections = group.starts_with("collections") || group.starts_with("scopes");
    if key.is_none() && !is_about_collections && !x.allows_everywhere(SIMPLE) {
        return;
    }
    let manifest = visible_manifest(x);
    let wants_range_lines = x.state.wants_range_lines;
    let asker = Asker { server: &x.env.server, now: x.env.now, wants_range_lines, manifest };
    let planned = match key {
        Some(key) => plan_key(&bucket, group, key),
        None => plan(&asker, &bucket, group, argument),
    };
    begin(x, Some(bucket), begun_ns, planned);
}

/// What ordinary groups need.
const SIMPLE: PrivilegeSet = PrivilegeSet::of(&[Privilege::SimpleStats]);

fn is_about_key(group: &str) -> bool {
    matches!(group, "key" | "key-byid" | "vkey" | "vkey-byid")
}

fn selected(x: &mut Exchange<'_>) -> Option<Arc<BucketHandle>> {
    let bucket = x.state.bucket.as_ref().filter(|bucket| !bucket.is_deleted()).cloned();
    if bucket.is_none() {
        x.fail(Status::NoBucket);
    }
    bucket
}

/// The scopes and collections that the user may have figures of.
fn visible_manifest(x: &mut Exchange<'_>) -> Arc<Manifest> {
    let manifest = x.bucket().bucket().manifest();
    if x.state.rights.everywhere().holds(SIMPLE) {
        return manifest;
    }
    let visible = x.state.rights.visible(Arc::clone(&manifest));
    let held: BTreeSet<CollectionId> = visible
        .scopes()
        .iter()
        .flat_map(|scope| &scope.collections)
        .map(|collection| collection.id)
        .filter(|id| x.state.rights.within(*id, Arc::clone(&manifest)).holds(SIMPLE))
        .collect();
    let has_any = |scope: &Scope| scope.collections.iter().any(|one| held.contains(&one.id));
    Arc::new(visible.restricted(has_any, |_, collection| held.contains(&collection.id)))
}

fn reset(x: &mut Exchange<'_>, bucket: &BucketHandle) {
    if !x.allows_everywhere(Privilege::Stats.into()) {
        return;
    }
    bucket.operations().reset();
    bucket.bucket().reset_timings();
    x.env.server.counters.reset();
    x.succeed();
}

fn begin(x: &mut Exchange<'_>, bucket: Option<Arc<BucketHandle>>, begun_ns: u64, planned: Planned) {
    let header = &x.frame.header;
    let (opcode, opaque) = (header.opcode, header.opaque);
    let producer = match planned {
        Ok(Plan::Now(producer)) => Some(producer),
        Ok(Plan::Later(preparation)) => {
            x.state.wait = Wait::Job { opcode, opaque };
            x.env.jobs.push((x.id, Job::Stat(preparation)));
            None
        }
        Err(Refusal::Status(status)) => return x.fail(status),
        Err(Refusal::Engine(refused)) => return x.refuse(refused),
        Err(Refusal::Unknown(status)) => return x.unknown(status),
    };
    let cursor = StatCursor::new(opcode, opaque, bucket, begun_ns, producer);
    x.state.stat = Some(Box::new(cursor));
}

/// The list of groups about a bucket.
fn plan(asker: &Asker<'_>, bucket: &Arc<BucketHandle>, group: &str, argument: &str) -> Planned {
    match group {
        "vbucket"
        | "vbucket-seqno"
        | "vbucket-details"
        | "failovers"
        | "checkpoint"
        | "collections-details"
        | "scopes-details" => plan_vbuckets(asker, bucket, group, argument),
        "hash" if argument == "detail" => plan_vbuckets(asker, bucket, group, ""),
        "collections" | "collections-byid" | "scopes" | "scopes-byid" => {
            plan_sums(bucket, &asker.manifest, group, argument)
        }
        _ => plan_small(asker, bucket, group).and_then(|plan| match argument {
            "" => Ok(plan),
            _ => Err(Refusal::Status(Status::Einval)),
        }),
    }
}

/// Groups that take no argument.
fn plan_small(asker: &Asker<'_>, bucket: &Arc<BucketHandle>, group: &str) -> Planned {
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
            let as_ranges = asker.wants_range_lines;
            Plan::Later(Box::new(move || {
                PreparedStat(Ok(Box::new(Histograms::collect(&handle, as_ranges))))
            }))
        }
        "memory" => after(
            handle,
            |handle| handle.bucket().stats(),
            |writer, handle, stats| {
                memory::write(writer, handle.bucket().config(), stats);
            },
        ),
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
        _ => return Err(Refusal::Status(Status::KeyEnoent)),
    })
}

fn whole(write: impl FnMut(&mut StatWriter<'_>) + Send + 'static) -> Plan {
    Plan::Now(Box::new(Whole(write)))
}

/// Small groups whose figures are slow to collect.
fn after<T: Send + 'static>(
    handle: Arc<BucketHandle>,
    collect: impl FnOnce(&BucketHandle) -> T + Send + 'static,
    write: impl Fn(&mut StatWriter<'_>, &BucketHandle, &T) + Send + 'static,
) -> Plan {
    Plan::Later(Box::new(move || {
        let figures = collect(&handle);
        PreparedStat(Ok(Box::new(Whole(move |writer: &mut StatWriter<'_>| {
            write(writer, &handle, &figures);
        }))))
    }))
}

/// Groups about each vbucket, or about the one that the argument names.
fn plan_vbuckets(
    asker: &Asker<'_>,
    bucket: &Arc<BucketHandle>,
    group: &str,
    argument: &str,
) -> Planned {
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
            None => return Err(Refusal::Status(Status::KeyEnoent)),
        },
    }))
}

fn parse_vbuckets(bucket: &BucketHandle, argument: &str) -> Result<Range<u16>, Refusal> {
    if argument.is_empty() {
        return Ok(0..bucket.vbuckets());
    }
    let vbid = parse_vbucket(bucket, argument)?;
    Ok(vbid.0..vbid.0 + 1)
}

fn parse_vbucket(bucket: &BucketHandle, text: &str) -> Result<Vbid, Refusal> {
    let Ok(number) = text.parse() else { return Err(Refusal::Status(Status::Einval)) };
    if number >= bucket.vbuckets() {
        return Err(Refusal::Engine(Refused::NotMyVbucket));
    }
    Ok(Vbid(number))
}

/// Groups that sum over all vbuckets.
fn plan_sums(
    bucket: &Arc<BucketHandle>,
    manifest: &Arc<Manifest>,
    group: &str,
    argument: &str,
) -> Planned {
    let selection = match group {
        "collections" if argument.is_empty() => Selection::Collections,
        "scopes" if argument.is_empty() => Selection::Scopes,
        "collections" => Selection::Collection(parse_path(manifest, argument)?),
        "scopes" => Selection::Scope(manifest.scope_id(argument).map_err(refuse_lookup)?),
        "collections-byid" => Selection::Collection(parse_collection_id(manifest, argument)?),
        _ => {
            let id = ScopeId(parse_hexadecimal(argument)?);
            if !manifest.scopes().iter().any(|scope| scope.id == id) {
                return Err(Refusal::Unknown(Status::UnknownScope));
            }
            Selection::Scope(id)
        }
    };
    let (handle, manifest) = (Arc::clone(bucket), Arc::clone(manifest));
    Ok(Plan::Later(Box::new(move || {
        PreparedStat(Ok(Box::new(CollectionSums::collect(&handle, manifest, selection))))
    })))
}

/// `scope.collection`.
fn parse_path(manifest: &Manifest, path: &str) -> Result<CollectionId, Refusal> {
    let Some((scope, collection)) = path.split_once('.') else {
        return Err(Refusal::Status(Status::Einval));
    };
    manifest.collection_id(scope, collection).map_err(refuse_lookup)
}

fn parse_collection_id(manifest: &Manifest, text: &str) -> Result<CollectionId, Refusal> {
    let id = CollectionId(parse_hexadecimal(text)?);
    match manifest.collection(id) {
        Some(_) => Ok(id),
        None => Err(Refusal::Unknown(Status::UnknownCollection)),
    }
}

fn refuse_lookup(error: LookupError) -> Refusal {
    match error {
        LookupError::UnknownScope => Refusal::Unknown(Status::UnknownScope),
        LookupError::UnknownCollection => Refusal::Unknown(Status::UnknownCollection),
        LookupError::InvalidName => Refusal::Status(Status::Einval),
    }
}

/// An id in hexadecimal digits, with or without `0x`.
fn parse_hexadecimal(text: &str) -> Result<u32, Refusal> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // A sign would be accepted by the standard library.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u32::from_str_radix(digits, 16).ok().filter(|_| is_number);
    id.ok_or(Refusal::Status(Status::Einval))
}

/// `KEY VBUCKET`, followed by `SCOPE.COLLECTION` (may be left out) or by the id of a collection.
fn parse_key(
    x: &mut Exchange<'_>,
    bucket: &BucketHandle,
    group: &str,
    argument: &str,
) -> Result<OwnedKey, Refusal> {
    let manifest = x.state.rights.visible(bucket.bucket().manifest());
    let words: Vec<&str> = argument.split_whitespace().collect();
    let (key, vbucket, collection) = match (&words[..], group.ends_with("-byid")) {
        (&[key, vbucket, id], true) => (key, vbucket, parse_collection_id(&manifest, id)?),
        (&[key, vbucket, path], false) => (key, vbucket, parse_path(&manifest, path)?),
        (&[key, vbucket], false) => (key, vbucket, CollectionId::DEFAULT),
        _ => return Err(Refusal::Status(Status::Einval)),
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::Status(Status::Einval));
    }
    let vbid = parse_vbucket(bucket, vbucket)?;
    Ok(OwnedKey { vbid, collection, key: key.as_bytes().to_vec() })
}

fn plan_key(bucket: &Arc<BucketHandle>, group: &str, key: OwnedKey) -> Planned {
    if group.starts_with("vkey") {
        return plan_vkey(bucket, key);
    }
    let stats = match keys::in_memory(bucket, &key) {
        Err(Refused::NeedsFetch) => return Ok(plan_stored_key(bucket, key, false)),
        stats => stats.map_err(Refusal::Engine)?,
    };
    let Some(stats) = stats else { return Err(Refusal::Status(Status::KeyEnoent)) };
    let phase = keys::phase_of(bucket, key.vbid);
    Ok(whole(move |writer| keys::write(writer, &stats, phase)))
}

fn plan_vkey(bucket: &Arc<BucketHandle>, key: OwnedKey) -> Planned {
    let stats = match keys::in_memory(bucket, &key) {
        Err(Refused::NeedsFetch) => return Ok(plan_stored_key(bucket, key, true)),
        stats => stats.map_err(Refusal::Engine)?,
    };
    let Some(stats) = stats else { return Err(Refusal::Status(Status::KeyEnoent)) };
    let handle = Arc::clone(bucket);
    Ok(Plan::Later(Box::new(move || keys::verify(&handle, &key, stats))))
}

/// A key that memory knows nothing of, which does not mean that there is no document.
fn plan_stored_key(bucket: &Arc<BucketHandle>, key: OwnedKey, verifies: bool) -> Plan {
    let handle = Arc::clone(bucket);
    Plan::Later(Box::new(move || keys::from_store(&handle, &key, verifies)))
}

/// The only group that needs no bucket.
fn plan_connections(x: &Exchange<'_>, argument: &str) -> Planned {
    let (server, now) = (&x.env.server, x.env.now);
    let Some(viewer) = &x.state.identity else { return Err(Refusal::Status(Status::Eaccess)) };
    if argument.is_empty() {
        return Ok(Plan::Now(Box::new(ConnectionList::new(server, viewer, now))));
    }
    let Ok(number) = argument.parse() else { return Err(Refusal::Status(Status::Einval)) };
    let Some(record) = ConnectionList::one(server, viewer, number) else {
        return Err(Refusal::Status(Status::KeyEnoent));
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
    let asker = Asker { server, now: Timestamp::default(), wants_range_lines: false, manifest };
    let mut producer = match plan(&asker, bucket, group, "") {
        Ok(Plan::Now(producer)) => producer,
        Ok(Plan::Later(preparation)) => preparation().0.expect("the group can be answered"),
        Err(_) => panic!("no such group"),
    };
    let mut head = writer::EntryHead::new(0x10, 1);
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
