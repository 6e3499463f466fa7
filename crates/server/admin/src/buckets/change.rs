//! Changes to an open bucket over HTTP: its settings, emptying it, compacting it.
//!
//! Owns: which settings of a form can change. Invariant: a form is checked as a whole before
//! anything changes, and a setting that cannot change is refused by its name. Caller: `routes`.

use std::sync::Arc;

use hyper::StatusCode;
use oribi_config::{BucketStorage, conflict, eviction};
use oribi_engine::{EvictionPolicy, FlushAllError};
use oribi_system::clock::wall_clock;
use serde_json::json;

use super::{
    check_honoured, compression_mode, durability_min, flush_interval_ms, max_ttl_s, memory_tier,
    quota_mib, replica_number,
};
use crate::blocking::{blocking, failed};
use crate::cluster::refused;
use crate::message::{
    FormFields, HttpRejection, HttpReply, bucket_not_found, empty, field_error, whole,
};
use crate::state::AdminState;
use oribi_server::buckets::{BucketChange, BucketError, BucketHandle};

/// Changes the settings that can change. A form with any other change is refused as a whole.
pub(crate) async fn update(state: &Arc<AdminState>, name: &str, form: &FormFields) -> HttpReply {
    let Some(handle) = state.server.buckets.get(name) else {
        return bucket_not_found();
    };
    let change = match changed(state, &handle, form) {
        Ok(change) => change,
        Err(reply) => return *reply,
    };
    let server = Arc::clone(&state.server);
    let changed =
        blocking(move || server.cluster.change_bucket(&server.buckets, &handle, change)).await;
    match changed {
        Ok(Ok(())) => {
            tracing::info!(bucket = name, ?change, "changed a bucket");
            empty(StatusCode::OK)
        }
        Ok(Err(BucketError::Unknown(_))) => bucket_not_found(),
        Ok(Err(failure @ BucketError::Cluster { .. })) => {
            tracing::warn!(bucket = name, error = %failure, "cannot change a bucket everywhere");
            refused(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string())
        }
        Ok(Err(failure)) => failed("change a bucket", &failure),
        Err(reply) => *reply,
    }
}

fn changed(
    state: &AdminState,
    handle: &BucketHandle,
    form: &FormFields,
) -> Result<BucketChange, HttpRejection> {
    check_honoured(form)?;
    let config = handle.bucket().config();
    let storage = handle.storage().name();
    let vbuckets = config.vbuckets.to_string();
    let fixed = [
        ("name", config.name.as_str()),
        ("storage", storage.as_str()),
        ("numVBuckets", vbuckets.as_str()),
        ("conflictResolutionType", conflict::name_of(handle.conflict_resolution())),
    ];
    for (field, present) in fixed {
        if form.get(field).is_some_and(|asked| asked != present) {
            let message = format!("It is {present} and cannot change while the bucket exists");
            return Err(field_error(field, &message).into());
        }
    }
    let is_ephemeral = handle.is_in_memory();
    if form.get("bucketType").is_some_and(|kind| (kind == "ephemeral") != is_ephemeral) {
        let message = "The type of a bucket cannot change while it exists";
        return Err(field_error("bucketType", message).into());
    }
    Ok(BucketChange {
        memory_quota_mib: quota_mib(form, Some(handle.bucket().memory_quota_bytes() >> 20))?,
        eviction: new_eviction(handle, form)?,
        flush_interval_ms: flush_interval_ms(form)?,
        flush_enabled: form.flag("flushEnabled")?,
        compression: compression_mode(form)?,
        memory_tier: memory_tier(form)?,
        durability_min: durability_min(form, handle.is_in_memory())?,
        max_ttl_s: max_ttl_s(form)?,
        replicas: new_replicas(state, handle, form)?,
    })
}

/// The number of replicas in a form. Outside of a cluster it has no effect, as at creation.
fn new_replicas(
    state: &AdminState,
    handle: &BucketHandle,
    form: &FormFields,
) -> Result<Option<u8>, HttpRejection> {
    let Some(asked) = replica_number(form)? else { return Ok(None) };
    if handle.copies().is_some() {
        return Ok(Some(asked));
    }
    if asked == 0 || state.server.cluster.node.is_none() {
        return Ok(None);
    }
    let message = match handle.storage() {
        BucketStorage::Kudu(_) => {
            "Kudu keeps the copies of this bucket, as many as its table has; the URL of a new \
             bucket can ask for others (?replicas=)"
        }
        BucketStorage::Memory => {
            "A bucket in memory has no replicas; create one on disk and copy the documents"
        }
        BucketStorage::Log => {
            "This bucket is on one node only; create another one and copy the documents"
        }
    };
    Err(field_error("replicaNumber", message).into())
}

/// The eviction policy in a form, if the bucket's storage supports it.
fn new_eviction(
    handle: &BucketHandle,
    form: &FormFields,
) -> Result<Option<EvictionPolicy>, HttpRejection> {
    let Some(name) = form.get("evictionPolicy") else { return Ok(None) };
    let storage = handle.storage().of_engine();
    match eviction::from_http(name).filter(|policy| policy.fits(storage)) {
        Some(policy) => Ok(Some(policy)),
        None => {
            let message = format!("{name} is not possible for this type of bucket");
            Err(field_error("evictionPolicy", &message).into())
        }
    }
}

/// Removes every document of a bucket whose settings allow it.
pub(crate) async fn flush(state: &Arc<AdminState>, name: &str) -> HttpReply {
    let Some(handle) = state.server.buckets.get(name) else {
        return bucket_not_found();
    };
    let rejected = |status, message: &str| {
        whole(status, "application/json", json!({ "_": message }).to_string())
    };
    let server = Arc::clone(&state.server);
    match blocking(move || server.cluster.flush_all(&handle, wall_clock())).await {
        Ok(Ok(())) => {
            tracing::info!(bucket = name, "removed every document of a bucket");
            empty(StatusCode::OK)
        }
        Ok(Err(FlushAllError::NotAllHere)) => {
            rejected(StatusCode::BAD_REQUEST, "A part of the bucket belongs to other nodes")
        }
        Ok(Err(FlushAllError::Disabled)) => {
            rejected(StatusCode::BAD_REQUEST, "Flush is disabled for the bucket")
        }
        Ok(Err(FlushAllError::WarmingUp)) => {
            rejected(StatusCode::SERVICE_UNAVAILABLE, "The bucket is warming up")
        }
        Ok(Err(failure)) => failed("empty a bucket", &failure),
        Err(reply) => *reply,
    }
}

/// Begins to give back the space of superseded documents and old tombstones; answers at once.
pub(crate) async fn compact(state: &Arc<AdminState>, name: &str) -> HttpReply {
    let Some(handle) = state.server.buckets.get(name) else {
        return bucket_not_found();
    };
    match blocking(move || handle.bucket().compact()).await {
        Ok(()) => {
            tracing::info!(bucket = name, "the compaction of a bucket was asked for");
            empty(StatusCode::OK)
        }
        Err(reply) => *reply,
    }
}
