//! Figures as JSON, for the console and for scripts: of the node and its buckets, of vbuckets, and
//! the last slow operations.
//!
//! Owns: the shape of `GET /node/figures`, `GET /node/slowOperations` and `GET
//! /pools/default/buckets/B/vbuckets`. Invariants: it counts nothing itself; a user sees the
//! buckets in which it has `simple-stats` everywhere, the figures of the node with that right in
//! all buckets, and slow operations, which name keys, as an administrator. Histograms are counts
//! since the start by powers of two of microseconds, so that a reader who subtracts an earlier
//! answer has the percentiles of the time in between. Callers: `routes`, and `admin`, which runs
//! the task that samples figures for `figure_history`.

use std::sync::Arc;

use hdrhistogram::Histogram;
use oribi_auth::Privilege;
use oribi_engine::{Bucket, BucketStats};
use oribi_storage::VbucketPhase;
use oribi_system::clock::wall_clock;
use oribi_types::Vbid;
use serde_json::{Map, Value, json};

use super::blocking::blocking;
use super::figure_history::SAMPLE_INTERVAL;
use super::message::{HttpRejection, HttpReply, bucket_not_found, forbidden, json_reply};
use super::operator_memory::for_operators;
use super::state::AdminState;
use super::user_context::UserContext;
use oribi_server::admin_api::counters::timings::CommandKind;
use oribi_server::buckets::BucketHandle;

/// Bounds of the classes of a histogram, 1 us to 2^25 us.
const CLASSES: u32 = 26;
const _: () = assert!(CLASSES <= u64::BITS, "a class is a power of two of a number");

const NS_PER_MS: u64 = 1_000_000;

/// `GET /node/figures`; with `history=1` also the samples of the last minutes.
pub(crate) async fn figures(state: &Arc<AdminState>, query: &str, user: &UserContext) -> HttpReply {
    let access = &user.identity.access;
    let sees = |bucket: &str| access.everywhere(bucket).holds(Privilege::SimpleStats.into());
    let buckets: Vec<_> = state.server.buckets.list();
    let buckets = buckets.into_iter().filter(|handle| sees(handle.name())).collect();
    // The stores' figures need a look at the disk.
    let described = blocking(move || described(buckets)).await;
    let buckets = match described {
        Ok(buckets) => buckets,
        Err(reply) => return *reply,
    };
    let mut figures = json!({
        "unix_ms": wall_clock().unix_ns / NS_PER_MS,
        "uptime_s": state.server.diagnostics.uptime_s(),
        "buckets": buckets,
    });
    if sees("*") {
        figures["node"] = node(state);
    }
    if query.split('&').any(|field| field == "history=1") {
        figures["history"] = state.figure_history.list(sees).into();
    }
    match sees("*") {
        true => for_operators(json_reply(&figures)),
        false => json_reply(&figures),
    }
}

fn node(state: &AdminState) -> Value {
    let server = &state.server;
    let totals = server.diagnostics.counters.totals();
    let protocols: Map<String, Value> = totals
        .by_protocol()
        .iter()
        .map(|(name, count)| ((*name).to_owned(), json!(count)))
        .collect();
    json!({
        "workers": server.diagnostics.counters.workers(),
        "connections": server.connections.open(),
        "rejected_connections": server.connections.rejected(),
        "commands": totals.cmd_total,
        "commands_by_protocol": protocols,
        "bytes_read": totals.bytes_read,
        "bytes_written": totals.bytes_written,
        "logins_failed": totals.auth_errors,
    })
}

/// Takes a sample for the history every [`SAMPLE_INTERVAL`] until the server stops.
pub(super) async fn sample_until_stopped(state: Arc<AdminState>) {
    let mut stopping = state.stopping.clone();
    loop {
        let buckets = state.server.buckets.list();
        let unix_ms = wall_clock().unix_ns / NS_PER_MS;
        // A call that fails leaves a gap.
        if let Ok(figures) = blocking(move || described(buckets)).await {
            state.figure_history.add(unix_ms, &figures);
        }
        tokio::select! {
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

fn described(buckets: Vec<Arc<BucketHandle>>) -> Vec<Value> {
    buckets.iter().map(|handle| bucket(handle)).collect()
}

fn bucket(handle: &BucketHandle) -> Value {
    let stats = handle.bucket().stats();
    let operations = handle.operations();
    let totals = operations.totals();
    let counted: Map<String, Value> =
        totals.entries().iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
    let changes = handle.producers().figures(handle.bucket());
    json!({
        "name": handle.name(),
        "type": handle.bucket_type(),
        "operations": counted,
        "latencies": {
            "get": classes(&operations.timings(CommandKind::Get)),
            "store": classes(&operations.timings(CommandKind::Store)),
        },
        "memory": memory(&stats),
        "items": stats.items,
        "items_resident": stats.memory.items_resident,
        "items_evicted": stats.memory.items_evicted,
        "items_dense": stats.memory.dense.values,
        "dense": dense(handle.bucket()),
        "fetches": stats.memory.fetches,
        "queue_items": stats.queue_items,
        "queue_bytes": stats.queue_bytes,
        "disk_bytes": stats.store.disk_bytes,
        "warmup_done": stats.warmup.done,
        "refuses_writes": stats.failed.refuse_writes(),
        "vbuckets_active": stats.vbuckets_active,
        "vbuckets": handle.vbuckets(),
        "changes": {
            "connections": changes.connections,
            "streams": changes.streams,
            "backfilling": changes.backfilling,
            "items_remaining": changes.items_remaining,
            "lag_s": changes.lag_s,
        },
    })
}

/// Dense values of each collection.
fn dense(bucket: &Bucket) -> Value {
    let collections = bucket.dense_collections().into_iter().map(|(id, dense)| {
        json!({
            "collection": format!("{:x}", id.0),
            "items": dense.values,
            "plain_bytes": dense.plain_bytes,
            "dense_bytes": dense.dense_bytes,
            "inflations": dense.inflations,
        })
    });
    collections.collect()
}

fn memory(stats: &BucketStats) -> Value {
    json!({
        "used_bytes": stats.memory.used_bytes,
        "quota_bytes": stats.memory.quota_bytes,
        "low_watermark_bytes": stats.memory.low_watermark_bytes,
        "high_watermark_bytes": stats.memory.high_watermark_bytes,
        "item_bytes": stats.item_bytes,
        "table_bytes": stats.table_bytes,
    })
}

/// Counts of times below 2, 4, 8, ... microseconds; the last class has all others.
fn classes(histogram: &Histogram<u64>) -> Vec<u64> {
    let mut classes = vec![0; CLASSES as usize];
    for step in histogram.iter_recorded() {
        let class = step.value_iterated_to().max(1).ilog2().min(CLASSES - 1);
        classes[class as usize] += step.count_at_value();
    }
    debug_assert_eq!(classes.iter().sum::<u64>(), histogram.len(), "each time is in one class");
    classes
}

pub(crate) fn slow_operations(state: &AdminState, user: &UserContext) -> HttpReply {
    if !user.identity.access.is_admin() {
        return forbidden("cluster.admin.logs!read");
    }
    let thresholds = state.server.connections.limits.slow;
    json_reply(&json!({
        "thresholds_ms": {
            "read": thresholds.read_ms,
            "write": thresholds.write_ms,
            "durable": thresholds.durable_ms,
            "other": thresholds.other_ms,
        },
        "operations": state.server.diagnostics.recent_slow.list(),
    }))
}

/// `GET /pools/default/buckets/B/vbuckets`: an array per vbucket of this node's view of it.
pub(crate) async fn vbuckets(
    state: &Arc<AdminState>,
    bucket: &str,
    user: &UserContext,
) -> HttpReply {
    let sees = user.identity.access.everywhere(bucket).holds(Privilege::SimpleStats.into());
    if !sees {
        return forbidden(&format!("cluster.bucket[{bucket}].stats!read"));
    }
    let Some(handle) = state.server.buckets.get(bucket) else {
        return bucket_not_found();
    };
    let rows: Result<Vec<Value>, HttpRejection> =
        blocking(move || (0..handle.vbuckets()).map(|vbid| vbucket(&handle, Vbid(vbid))).collect())
            .await;
    match rows {
        Ok(rows) => json_reply(&json!({ "vbuckets": rows })),
        Err(reply) => *reply,
    }
}

fn vbucket(handle: &BucketHandle, vbid: Vbid) -> Value {
    let Some(vbucket) = handle.bucket().vbucket(vbid) else {
        return json!({ "vbucket": vbid.0, "state": "absent" });
    };
    let stats = vbucket.stats();
    let state = match (stats.loading, stats.phase) {
        (true, _) => "loading",
        (false, VbucketPhase::Active) => "active",
        (false, VbucketPhase::Replica) => "replica",
        (false, VbucketPhase::Pending) => "pending",
        (false, VbucketPhase::Dead) => "dead",
    };
    json!({
        "vbucket": vbid.0,
        "state": state,
        "items": stats.items,
        "evicted": stats.items_evicted,
        "queue_items": stats.queue_items,
        "high_seqno": stats.high_seqno.0.to_string(),
        "persisted_seqno": stats.persisted_seqno.0.to_string(),
        "uuid": stats.uuid.0.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_server::admin_api::counters::timings::empty_histogram;

    #[test]
    fn times_fall_into_classes_by_powers_of_two() {
        let mut histogram = empty_histogram();
        for (time_us, count) in [(1, 3), (2, 5), (3, 1), (1000, 7), (60_000_000, 2)] {
            histogram.record_n(time_us, count).unwrap();
        }
        let classes = classes(&histogram);
        assert_eq!((classes[0], classes[1], classes[9], classes[25]), (3, 6, 7, 2));
        assert_eq!(classes.iter().sum::<u64>(), histogram.len());
    }
}
