//! Buckets over HTTP: list, describe, create, delete.
//!
//! Owns: the JSON of a bucket as client libraries read it, and the form of a new one. Invariants:
//! the server refuses an option that it cannot honour, when ignoring it would weaken the client's
//! request; it accepts options without effect (storage backend; replicas outside of a cluster).
//! Calls that wait for the disk run on blocking threads. Changes to an open bucket are in
//! [`change`]. Caller: `routes`.

pub(crate) mod change;

use std::sync::Arc;

use hyper::{HeaderMap, StatusCode};
use oribi_cluster::copies::REPLICAS_MAX;
use oribi_config::is_bucket_name;
use oribi_config::{
    BucketStorage, compression, compression::COMPRESSION_NAMES, conflict,
    conflict::CONFLICT_RESOLUTION_NAMES, eviction, memory_tier, memory_tier::MEMORY_TIER_NAMES,
};
use oribi_engine::MemoryTier;
use oribi_engine::compression::CompressionMode;
use serde_json::{Value, json};

use super::blocking::{blocking, failed};
use super::message::{
    FormFields, HttpRejection, HttpReply, bucket_not_found, empty, field_error, json_reply, whole,
};
use super::monitoring::{BucketUsage, NodeFigures, observe, observe_bucket, sees_node};
use super::node_list::node_entry;
use super::state::AdminState;
use super::user_context::UserContext;
use oribi_server::buckets::{
    BucketCopies, BucketError, BucketHandle, BucketOptions, DURABILITY_MIN_NAMES, DurabilityMin,
};

/// Smallest memory quota of a bucket over HTTP, in MiB: Couchbase's. The setting takes less.
const QUOTA_MIB_MIN: u64 = 100;

/// Largest memory quota of a bucket, in MiB: 16 TiB.
const QUOTA_MIB_MAX: u64 = 1 << 24;

/// The flush interval in milliseconds, a setting of Oribi's own.
const MEMORY_TIER: &str = "memoryTier";
const FLUSH_INTERVAL: &str = "flushIntervalMs";

/// Its bounds, those of the server's setting: a millisecond to a day.
const FLUSH_INTERVAL_MS: std::ops::RangeInclusive<i64> = 1..=24 * 60 * 60 * 1000;

/// Settings of a bucket that the server honours, that have no effect on one copy (replicas,
/// threads, rank, the storage backend), or that it accepts with the one value that it supports.
const KNOWN_SETTINGS: [&str; 25] = [
    "name",
    "bucketType",
    "storage",
    "storageBackend",
    "ramQuota",
    "ramQuotaMB",
    "numVBuckets",
    "evictionPolicy",
    "compressionMode",
    MEMORY_TIER,
    FLUSH_INTERVAL,
    "conflictResolutionType",
    "durabilityMinLevel",
    "flushEnabled",
    "maxTTL",
    "replicaNumber",
    "replicaIndex",
    "threadsNumber",
    "rank",
    "historyRetentionCollectionDefault",
    "historyRetentionBytes",
    "historyRetentionSeconds",
    "autoCompactionDefined",
    "authType",
    "saslPassword",
];

/// Settings of old servers, where a bucket had a password. The server ignores them, and logs so.
const IGNORED_SETTINGS: [&str; 2] = ["authType", "saslPassword"];

/// All buckets that the user may use. Owners of vbuckets are left out with `skipMap=true`.
pub(crate) async fn list(state: &Arc<AdminState>, query: &str, user: &UserContext) -> HttpReply {
    let observation = match observe(state).await {
        Ok(observation) => observation,
        Err(reply) => return *reply,
    };
    let node = Some(&observation.node).filter(|_| sees_node(user));
    let described = observation
        .buckets
        .iter()
        .filter(|(handle, _)| user.identity.access.reaches(handle.name()))
        .map(|(handle, figures)| bucket_json(state, handle, (figures, node), (query, user)));
    json_reply(&described.collect())
}

pub(crate) async fn get(
    state: &Arc<AdminState>,
    name: &str,
    (query, headers): (&str, &HeaderMap),
    user: &UserContext,
) -> HttpReply {
    let Some(handle) = state.server.buckets.get(name) else {
        return bucket_not_found();
    };
    state.senders.note(headers, &handle);
    match describe(state, &handle, query, user).await {
        Ok(bucket) => json_reply(&bucket),
        Err(reply) => *reply,
    }
}

/// Creates a bucket; answers 202. The bucket already serves, on all nodes of a cluster that answer
/// in time.
pub(crate) async fn create(state: &Arc<AdminState>, form: &FormFields) -> HttpReply {
    let (name, options) = match new_bucket(state, form) {
        Ok(parsed) => parsed,
        Err(reply) => return *reply,
    };
    let (server, bucket) = (Arc::clone(&state.server), name.clone());
    let created = blocking(move || {
        let created = server.buckets.create(&bucket, &options);
        server.cluster.config.advance();
        if let Ok(handle) = &created
            && let Some(node) = server.cluster.node_of(handle)
        {
            node.await_new_bucket(&**handle);
        }
        created.map(drop)
    });
    match created.await {
        Ok(Ok(())) => {
            tracing::info!(bucket = name, "created a bucket");
            empty(StatusCode::ACCEPTED)
        }
        Ok(Err(BucketError::Exists(_))) => {
            field_error("name", "Bucket with given name already exists")
        }
        Ok(Err(failure)) => failed("create a bucket", &failure),
        Err(reply) => *reply,
    }
}

/// 400 in the words by which client libraries recognise a server without views. With a 404 they
/// would report that there is no bucket.
pub(crate) fn no_views(state: &AdminState, bucket: &str) -> HttpReply {
    if state.server.buckets.get(bucket).is_none() {
        return bucket_not_found();
    }
    let text = json!({ "error": "no_ddocs_service" }).to_string();
    whole(StatusCode::BAD_REQUEST, "application/json", text)
}

/// Deletes a bucket with all its documents.
pub(crate) async fn delete(state: &Arc<AdminState>, name: &str) -> HttpReply {
    let (server, bucket) = (Arc::clone(&state.server), name.to_owned());
    let deleted = blocking(move || {
        let handle = server.buckets.get(&bucket);
        let handle = handle.ok_or_else(|| BucketError::Unknown(bucket.clone()))?;
        let deleted = match server.cluster.node_of(&handle) {
            Some(node) => node
                .delete_bucket(&*handle)
                .map_err(|error| BucketError::Cluster { name: bucket, error: error.into() }),
            None => server.buckets.delete_open(&handle),
        };
        server.cluster.config.advance();
        deleted
    });
    match deleted.await {
        Ok(Ok(())) => {
            tracing::info!(bucket = name, "deleted a bucket");
            empty(StatusCode::OK)
        }
        Ok(Err(BucketError::Unknown(_))) => bucket_not_found(),
        Ok(Err(failure)) => failed("delete a bucket", &failure),
        Err(reply) => *reply,
    }
}

/// The number of replicas in a form.
fn replica_number(form: &FormFields) -> Result<Option<u8>, HttpRejection> {
    let Some(count) = form.number("replicaNumber")? else { return Ok(None) };
    match u8::try_from(count).ok().filter(|count| *count <= REPLICAS_MAX) {
        Some(count) => Ok(Some(count)),
        None => {
            let message = format!("The number of replicas must be between 0 and {REPLICAS_MAX}");
            Err(field_error("replicaNumber", &message).into())
        }
    }
}

/// The replicas of a new bucket. `None` where nodes do not copy documents to each other: outside of
/// a cluster, in memory, on Kudu, and without the cluster's secret.
fn new_replicas(
    state: &AdminState,
    form: &FormFields,
    storage: &BucketStorage,
) -> Result<Option<u8>, HttpRejection> {
    let asked = replica_number(form)?;
    let Some(node) = state.server.cluster.node.as_ref() else { return Ok(None) };
    if *storage != BucketStorage::Log {
        return Ok(None);
    }
    match asked.unwrap_or(0) {
        count if node.has_links() => Ok(Some(count)),
        0 => Ok(None),
        _ => {
            let message = "Replicas need cluster_secret_file on every node of the cluster";
            Err(field_error("replicaNumber", message).into())
        }
    }
}

/// The minimum durability in a form, if a bucket with this storage can have it.
fn durability_min(
    form: &FormFields,
    is_in_memory: bool,
) -> Result<Option<DurabilityMin>, HttpRejection> {
    let Some(name) = form.get("durabilityMinLevel") else { return Ok(None) };
    match DurabilityMin::named(name) {
        Some(level) if !level.is_possible(is_in_memory) => {
            let message = format!("A bucket in memory cannot have {name}");
            Err(field_error("durabilityMinLevel", &message).into())
        }
        Some(level) => Ok(Some(level)),
        None => {
            let names = DURABILITY_MIN_NAMES.join(", ");
            let message = format!("durabilityMinLevel can be {names}");
            Err(field_error("durabilityMinLevel", &message).into())
        }
    }
}

/// The flush interval in a form.
fn flush_interval_ms(form: &FormFields) -> Result<Option<u64>, HttpRejection> {
    let Some(interval) = form.number(FLUSH_INTERVAL)? else { return Ok(None) };
    match u64::try_from(interval).ok().filter(|_| FLUSH_INTERVAL_MS.contains(&interval)) {
        Some(interval) => Ok(Some(interval)),
        None => {
            let (min, max) = (FLUSH_INTERVAL_MS.start(), FLUSH_INTERVAL_MS.end());
            let message = format!("{interval} is not between {min} and {max}");
            Err(field_error(FLUSH_INTERVAL, &message).into())
        }
    }
}

/// The compression mode in a form.
fn compression_mode(form: &FormFields) -> Result<Option<CompressionMode>, HttpRejection> {
    let Some(name) = form.get("compressionMode") else { return Ok(None) };
    match compression::mode_named(name) {
        Some(mode) => Ok(Some(mode)),
        None => {
            let message = format!("compressionMode can be {}", COMPRESSION_NAMES.join(", "));
            Err(field_error("compressionMode", &message).into())
        }
    }
}

/// The memory tier in a form.
fn memory_tier(form: &FormFields) -> Result<Option<MemoryTier>, HttpRejection> {
    let Some(name) = form.get(MEMORY_TIER) else { return Ok(None) };
    match memory_tier::tier_named(name) {
        Some(tier) => Ok(Some(tier)),
        None => {
            let message = format!("{MEMORY_TIER} can be {}", MEMORY_TIER_NAMES.join(", "));
            Err(field_error(MEMORY_TIER, &message).into())
        }
    }
}

/// The memory quota in a form. One that is smaller than allowed may stay.
fn quota_mib(form: &FormFields, current_mib: Option<u64>) -> Result<Option<u64>, HttpRejection> {
    let quota = match form.number("ramQuotaMB")? {
        Some(quota) => Some(quota),
        None => form.number("ramQuota")?,
    };
    let Some(quota) = quota else { return Ok(None) };
    let quota = u64::try_from(quota).unwrap_or(0);
    if quota < QUOTA_MIB_MIN && current_mib != Some(quota) {
        let message = format!("RAM quota cannot be less than {QUOTA_MIB_MIN} MiB");
        return Err(field_error("ramQuota", &message).into());
    }
    match quota <= QUOTA_MIB_MAX {
        true => Ok(Some(quota)),
        false => Err(field_error("ramQuota", "RAM quota is out of range").into()),
    }
}

/// The longest life of documents in a form, in seconds.
fn max_ttl_s(form: &FormFields) -> Result<Option<u32>, HttpRejection> {
    let Some(seconds) = form.number("maxTTL")? else { return Ok(None) };
    match u32::try_from(seconds).ok().filter(|seconds| *seconds <= i32::MAX as u32) {
        Some(seconds) => Ok(Some(seconds)),
        None => {
            let message = "Max TTL must be an integer between 0 and 2147483647";
            Err(field_error("maxTTL", message).into())
        }
    }
}

fn new_bucket(
    state: &AdminState,
    form: &FormFields,
) -> Result<(String, BucketOptions), HttpRejection> {
    let name = form.get("name").unwrap_or_default();
    if !is_bucket_name(name) {
        let message = "Bucket name needs 1 to 100 letters, digits and ._%- and no leading dot";
        return Err(field_error("name", message).into());
    }
    check_honoured(form)?;
    // A bounded wait, because the client waits.
    let mut options =
        BucketOptions { waits_for_store: false, ..state.server.bucket_defaults.clone() };
    if let Some(storage) = form.get("storage") {
        options.storage = BucketStorage::from_name(storage)
            .map_err(|mistake| field_error("storage", &mistake))?;
    }
    match form.get("bucketType") {
        Some("ephemeral") => options.storage = BucketStorage::Memory,
        Some(_) if options.storage == BucketStorage::Memory => {
            options.storage = BucketStorage::default();
        }
        _ => {}
    }
    options.replicas = new_replicas(state, form, &options.storage)?;
    if let Some(count) = form.number("numVBuckets")? {
        options.vbuckets = u16::try_from(count)
            .ok()
            .filter(|count| count.is_power_of_two() && *count <= 1024)
            .ok_or_else(|| field_error("numVBuckets", "Must be a power of two up to 1024"))?;
    }
    match quota_mib(form, None)? {
        Some(quota) => options.memory_quota_mib = quota,
        None => options.memory_quota_mib = unassigned_mib(state, options.memory_quota_mib),
    }
    choose_eviction(&mut options, form)?;
    if let Some(mode) = compression_mode(form)? {
        options.compression = mode;
    }
    if let Some(tier) = memory_tier(form)? {
        options.memory_tier = tier;
    }
    options.own_flush_interval_ms = flush_interval_ms(form)?;
    if let Some(name) = form.get("conflictResolutionType") {
        options.conflict_resolution = conflict::resolution_named(name).ok_or_else(|| {
            let names = CONFLICT_RESOLUTION_NAMES.join(", ");
            field_error("conflictResolutionType", &format!("conflictResolutionType can be {names}"))
        })?;
    }
    if let Some(level) = durability_min(form, options.storage == BucketStorage::Memory)? {
        options.durability_min = level;
    }
    options.max_ttl_s = max_ttl_s(form)?.unwrap_or(0);
    if let Some(flag) = form.flag("flushEnabled")? {
        options.flush_enabled = flag;
    }
    Ok((name.to_owned(), options))
}

/// The rest of the memory that the buckets of the start were to share, `share_mib` each.
fn unassigned_mib(state: &AdminState, share_mib: u64) -> u64 {
    let buckets = state.server.buckets.list();
    let min_mib = QUOTA_MIB_MIN.min(share_mib);
    let assigned: u64 = buckets.iter().map(|handle| handle.bucket().memory_quota_bytes()).sum();
    share_mib.saturating_sub(assigned >> 20).clamp(min_mib, share_mib)
}

fn choose_eviction(options: &mut BucketOptions, form: &FormFields) -> Result<(), HttpRejection> {
    if let Some(name) = form.get("evictionPolicy") {
        options.eviction = eviction::from_http(name);
        if options.eviction.is_none() || !options.are_possible() {
            let message = format!("{name} is not possible for this type of bucket");
            return Err(field_error("evictionPolicy", &message).into());
        }
    } else if !options.are_possible() {
        // The settings' policy applies to buckets of the settings' storage.
        options.eviction = None;
    }
    Ok(())
}

/// Refuses unknown settings, and those whose lack of effect the client would notice too late.
fn check_honoured(form: &FormFields) -> Result<(), HttpRejection> {
    form.only(&KNOWN_SETTINGS)?;
    let accepted = [
        ("bucketType", &["couchbase", "membase", "ephemeral"][..]),
        ("historyRetentionCollectionDefault", &["false"][..]),
        ("historyRetentionBytes", &["0"][..]),
        ("historyRetentionSeconds", &["0"][..]),
        ("autoCompactionDefined", &["false"][..]),
    ];
    for (field, values) in accepted {
        if let Some(value) = form.get(field).filter(|value| !values.contains(value)) {
            let message = format!("{value} is not supported, only {}", values.join(", "));
            return Err(field_error(field, &message).into());
        }
    }
    replica_number(form)?;
    for setting in IGNORED_SETTINGS.into_iter().filter(|name| form.get(name).is_some()) {
        tracing::warn!(setting, "ignored: users have passwords, buckets have none");
    }
    Ok(())
}

async fn describe(
    state: &Arc<AdminState>,
    handle: &Arc<BucketHandle>,
    query: &str,
    user: &UserContext,
) -> Result<Value, HttpRejection> {
    let (figures, node) = observe_bucket(state, handle, user).await?;
    Ok(bucket_json(state, handle, (&figures, node.as_ref()), (query, user)))
}

fn bucket_json(
    state: &AdminState,
    handle: &BucketHandle,
    (figures, node): (&BucketUsage, Option<&NodeFigures>),
    (query, user): (&str, &UserContext),
) -> Value {
    let config = handle.bucket().config();
    let name = &config.name;
    let uri = format!("/pools/default/buckets/{name}");
    let of_bucket = format!("bucket_uuid={}", config.uuid);
    let status = if figures.stats.warmup.done { "healthy" } else { "warmup" };
    let quota = figures.stats.memory.quota_bytes;
    let mut controllers = json!({ "compactAll": format!("{uri}/controller/compactBucket") });
    if handle.bucket().is_flush_enabled() {
        controllers["flush"] = json!(format!("{uri}/controller/doFlush"));
    }
    let mut bucket = json!({
        "name": name,
        "uuid": config.uuid,
        "uri": format!("{uri}?{of_bucket}"),
        "streamingUri": format!("/pools/default/bucketsStreaming/{name}?{of_bucket}"),
        "stats": {
            "uri": format!("{uri}/stats"),
            "nodeStatsListURI": format!("{uri}/nodes"),
        },
        "bucketType": handle.bucket_type(),
        "nodeLocator": "vbucket",
        "storageBackend": "couchstore",
        "evictionPolicy": eviction::http_name(handle.bucket().eviction()),
        "conflictResolutionType": conflict::name_of(handle.conflict_resolution()),
        "compressionMode": compression::name_of(handle.bucket().compression_mode()),
        MEMORY_TIER: memory_tier::name_of(handle.bucket().memory_tier()),
        FLUSH_INTERVAL: handle.bucket().flush_interval_ms(),
        "durabilityMinLevel": handle.durability_min().name(),
        "maxTTL": handle.bucket().max_ttl_s(),
        "numVBuckets": config.vbuckets,
        "replicaNumber": handle.copies().map_or(0, BucketCopies::replicas),
        "replicaIndex": false,
        "quota": { "ram": quota, "rawRAM": quota },
        "controllers": controllers,
        "collectionsManifestUid": handle.bucket().manifest().uid().to_string(),
        "bucketCapabilitiesVer": "",
        "bucketCapabilities": oribi_server::cluster_config::BUCKET_CAPABILITIES,
        "nodes": [node_entry(state, user, status, node)],
        "basicStats": figures.basic_stats(),
    });
    if FormFields::parse(query).is_none_or(|query| query.get("skipMap") != Some("true")) {
        bucket["vBucketServerMap"] = state.server.cluster.vbucket_server_map(handle, &user.host);
    }
    bucket
}
