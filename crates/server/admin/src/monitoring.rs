//! Figures in the form that monitors of Couchbase Server read: telegraf, netdata, the exporters for
//! Prometheus, Datadog.
//!
//! Owns: the names of figures there, and which figure of Oribi each one is. Invariants: every value
//! is measured; a figure that Oribi does not have is left out. Rates are averages since the
//! reading before (`rates`), so the answer to `stats` has one sample of each. The figures of the
//! node are of all its buckets, so they need a right in all of them; `routes` and [`sees_node`]
//! check that. Callers: `routes`, `pools` and `buckets`.

use std::sync::Arc;
use std::time::Instant;

use oribi_auth::Privilege;
use oribi_engine::BucketStats;
use oribi_system::clock::wall_clock;
use oribi_system::memory::memory_of_process;
use serde_json::{Map, Value, json};

use super::blocking::blocking;
use super::machine::{self, Disk, MachineMemory};
use super::message::{
    HttpRejection, HttpReply, bucket_not_found, forbidden, json_reply, path_not_found,
};
use super::rates::{OperationCounts, OperationRates};
use super::state::AdminState;
use super::user_context::UserContext;
use oribi_server::admin_api::dcp_registry::DcpTotals;
use oribi_server::buckets::BucketHandle;

/// The set of counters of the machine. No bucket has this uuid.
const MACHINE: &str = "";

const NS_PER_MS: u64 = 1_000_000;

/// Figures of a bucket at one moment.
pub(super) struct BucketUsage {
    pub(super) stats: BucketStats,
    pub(super) rates: OperationRates,
    changes: DcpTotals,
    is_persistent: bool,
}

/// Figures of this node and its machine at one moment, with sums over all buckets.
pub(super) struct NodeFigures {
    memory: Option<MachineMemory>,
    disk: Option<Disk>,
    processor_percent: Option<f64>,
    connections: usize,
    memory_limit: Option<u64>,
    quota_total: u64,
    quota_used: u64,
    mem_used: u64,
    disk_used: u64,
    interesting: Vec<(&'static str, u64)>,
}

/// Figures of a node, and of each of its buckets.
pub(super) struct Observation {
    pub(super) node: NodeFigures,
    pub(super) buckets: Vec<(Arc<BucketHandle>, BucketUsage)>,
}

/// True for a user who may read the sums over all buckets.
pub(super) fn sees_node(user: &UserContext) -> bool {
    user.identity.access.everywhere("*").holds(Privilege::SimpleStats.into())
}

/// Reads the figures of the node and of its buckets.
pub(super) async fn observe(state: &Arc<AdminState>) -> Result<Observation, HttpRejection> {
    let state = Arc::clone(state);
    blocking(move || {
        let handles = state.server.buckets.list();
        let uuids = handles.iter().map(|handle| handle.bucket().config().uuid.as_str());
        let uuids: Vec<&str> = uuids.chain([MACHINE]).collect();
        state.rates.retain(&uuids);
        let read =
            |handle: &Arc<BucketHandle>| (Arc::clone(handle), BucketUsage::read(&state, handle));
        let buckets: Vec<_> = handles.iter().map(read).collect();
        Observation { node: NodeFigures::read(&state, &buckets), buckets }
    })
    .await
}

/// Reads the figures of one bucket, and those of the node where the user may see them.
pub(super) async fn observe_bucket(
    state: &Arc<AdminState>,
    handle: &Arc<BucketHandle>,
    user: &UserContext,
) -> Result<(BucketUsage, Option<NodeFigures>), HttpRejection> {
    let mut node = None;
    if sees_node(user) {
        let observation = observe(state).await?;
        let mut buckets = observation.buckets.into_iter();
        node = Some(observation.node);
        if let Some((_, figures)) = buckets.find(|(other, _)| Arc::ptr_eq(other, handle)) {
            return Ok((figures, node));
        }
    }
    let (state, handle) = (Arc::clone(state), Arc::clone(handle));
    Ok((blocking(move || BucketUsage::read(&state, &handle)).await?, node))
}

impl BucketUsage {
    fn read(state: &AdminState, handle: &BucketHandle) -> BucketUsage {
        let stats = handle.bucket().stats();
        let changes = handle.producers().figures(handle.bucket());
        let counts = counts(handle, &stats, &changes);
        let rates = state.rates.read(&handle.bucket().config().uuid, Instant::now(), counts);
        BucketUsage { stats, rates, changes, is_persistent: !handle.is_in_memory() }
    }

    /// `basicStats` of a bucket.
    pub(super) fn basic_stats(&self) -> Value {
        let stats = &self.stats;
        let quota = stats.memory.quota_bytes;
        json!({
            "itemCount": stats.items,
            "memUsed": stats.mem_used_bytes(),
            "quotaPercentUsed": stats.mem_used_bytes() as f64 * 100.0 / quota.max(1) as f64,
            "diskUsed": stats.store.disk_bytes,
            "dataUsed": stats.store.disk_bytes,
            "opsPerSec": whole(self.rates.of("ops")),
            "diskFetches": whole(self.rates.of("ep_bg_fetched")),
            "vbActiveNumNonResident": stats.memory.items_evicted,
        })
    }

    /// Figures as of now, under the names of samples.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let (stats, memory) = (&self.stats, &self.stats.memory);
        let gets = self.rates.of("cmd_get");
        let percent = |part: f64| if gets > 0.0 { part * 100.0 / gets } else { 0.0 };
        let resident = memory.resident_percent();
        debug_assert!((0.0..=100.0).contains(&resident), "a share is a part of the whole");
        vec![
            ("hit_ratio", percent(self.rates.of("get_hits"))),
            ("ep_cache_miss_rate", percent(self.rates.of("ep_bg_fetched")).min(100.0)),
            ("ep_resident_items_rate", resident),
            ("vb_active_resident_items_ratio", resident),
            ("curr_items", stats.items as f64),
            ("curr_items_tot", stats.items as f64),
            ("ep_num_non_resident", memory.items_evicted as f64),
            ("vb_active_num_non_resident", memory.items_evicted as f64),
            ("vb_active_num", stats.vbuckets_active as f64),
            ("ep_vb_total", (stats.vbuckets_active + stats.vbuckets_loading) as f64),
            ("mem_used", stats.mem_used_bytes() as f64),
            ("ep_max_size", memory.quota_bytes as f64),
            ("ep_mem_low_wat", memory.low_watermark_bytes as f64),
            ("ep_mem_high_wat", memory.high_watermark_bytes as f64),
            ("ep_kv_size", stats.item_bytes as f64),
            ("vb_active_itm_memory", stats.item_bytes as f64),
            ("ep_overhead", stats.table_bytes as f64),
            ("disk_write_queue", stats.queue_items as f64),
            ("ep_diskqueue_items", stats.queue_items as f64),
            ("vb_active_queue_size", stats.queue_items as f64),
            ("couch_total_disk_size", stats.store.disk_bytes as f64),
            ("couch_docs_actual_disk_size", stats.store.disk_bytes as f64),
            ("ep_dcp_other_count", self.changes.connections as f64),
            ("ep_dcp_other_producer_count", self.changes.connections as f64),
            ("ep_dcp_other_items_remaining", self.changes.items_remaining as f64),
        ]
    }
}

/// The counters of a bucket under the names that their rates have as samples.
fn counts(handle: &BucketHandle, stats: &BucketStats, changes: &DcpTotals) -> OperationCounts {
    let totals = handle.operations().totals();
    let with_meta = totals.ep_num_ops_set_meta + totals.ep_num_ops_del_meta;
    let deletions = totals.delete_hits + totals.delete_misses;
    let memory = &stats.memory;
    let mut counts = totals.entries().to_vec();
    counts.extend([
        ("ops", totals.cmd_get + totals.cmd_set + totals.cmd_touch + deletions + with_meta),
        ("xdc_ops", with_meta),
        ("misses", totals.get_misses + totals.delete_misses),
        ("ep_bg_fetched", memory.fetches),
        ("evictions", memory.evictions),
        ("ep_num_value_ejects", memory.evictions),
        ("vb_active_eject", memory.evictions),
        ("ep_diskqueue_drain", stats.store.records_committed),
        ("vb_active_queue_drain", stats.store.records_committed),
        ("ep_item_commit_failed", stats.store.commit_failures),
        ("ep_data_read_failed", stats.store.read_failures),
        ("disk_commit_count", stats.store.commits),
        ("ep_dcp_other_items_sent", changes.items_sent),
        ("ep_dcp_other_total_bytes", changes.bytes_sent),
    ]);
    debug_assert!(
        counts
            .iter()
            .enumerate()
            .all(|(at, one)| counts[..at].iter().all(|other| other.0 != one.0)),
        "a count is found by its name"
    );
    counts
}

impl NodeFigures {
    fn read(state: &AdminState, buckets: &[(Arc<BucketHandle>, BucketUsage)]) -> NodeFigures {
        let sum = |of: fn(&BucketUsage) -> u64| -> u64 {
            buckets.iter().map(|(_, figures)| of(figures)).sum()
        };
        let rate = |name: &str| {
            whole(buckets.iter().map(|(_, figures)| figures.rates.of(name)).sum::<f64>())
        };
        let quota_used = sum(|bucket| bucket.stats.memory.quota_bytes);
        let mem_used = sum(|bucket| bucket.stats.mem_used_bytes());
        let disk_used = sum(|bucket| bucket.stats.store.disk_bytes);
        let items = sum(|bucket| bucket.stats.items as u64);
        let interesting = vec![
            ("cmd_get", rate("cmd_get")),
            ("get_hits", rate("get_hits")),
            ("ops", rate("ops")),
            ("ep_bg_fetched", rate("ep_bg_fetched")),
            ("curr_items", items),
            ("curr_items_tot", items),
            ("mem_used", mem_used),
            ("couch_docs_actual_disk_size", disk_used),
            ("vb_active_num_non_resident", sum(|bucket| bucket.stats.memory.items_evicted)),
        ];
        let directory = state.server.cluster.data_dir.lock().clone();
        let memory_limit = memory_of_process();
        NodeFigures {
            memory: machine::memory(),
            disk: directory.and_then(|directory| machine::disk(&directory)),
            processor_percent: processor_percent(state),
            connections: state.server.connections.open(),
            memory_limit,
            quota_total: memory_limit.unwrap_or(0).max(quota_used),
            quota_used,
            mem_used,
            disk_used,
            interesting,
        }
    }

    /// MiB that the quotas of buckets can share.
    pub(super) fn memory_quota_mib(&self) -> u64 {
        self.quota_total >> 20
    }

    /// `storageTotals` of a node or a cluster.
    pub(super) fn storage_totals(&self) -> Value {
        assert!(self.quota_used <= self.quota_total, "the buckets' quotas are within the total");
        let mut totals = json!({ "ram": {
            "quotaTotal": self.quota_total,
            "quotaTotalPerNode": self.quota_total,
            "quotaUsed": self.quota_used,
            "quotaUsedPerNode": self.quota_used,
            "usedByData": self.mem_used,
        } });
        if let Some(memory) = self.memory {
            totals["ram"]["total"] = json!(memory.total);
            totals["ram"]["used"] = json!(memory.total.saturating_sub(memory.available));
        }
        if let Some(disk) = self.disk {
            totals["hdd"] = json!({
                "total": disk.total,
                "quotaTotal": disk.total,
                "used": disk.used,
                "usedByData": self.disk_used,
                "free": disk.free,
            });
        }
        totals
    }

    /// Adds the figures to a node's entry in a list of nodes.
    pub(super) fn add_to_entry(&self, entry: &mut Value) {
        let interesting: Map<String, Value> = self
            .interesting
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let system: Map<String, Value> =
            self.system().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        entry["interestingStats"] = Value::Object(interesting);
        entry["systemStats"] = Value::Object(system);
        entry["mcdMemoryReserved"] = json!(self.quota_total >> 20);
        entry["mcdMemoryAllocated"] = json!(self.quota_used >> 20);
        if let Some(memory) = self.memory {
            entry["memoryTotal"] = json!(memory.total);
            entry["memoryFree"] = json!(memory.available);
        }
    }

    fn system(&self) -> Vec<(&'static str, Value)> {
        let mut system = Vec::new();
        if let Some(limit) = self.memory_limit {
            system.push(("mem_limit", json!(limit)));
        }
        if let Ok(processors) = std::thread::available_parallelism() {
            system.push(("cpu_cores_available", json!(processors.get())));
        }
        if let Some(percent) = self.processor_percent {
            system.push(("cpu_utilization_rate", json!(percent)));
        }
        if let Some(memory) = self.memory {
            system.extend([
                ("mem_total", json!(memory.total)),
                ("mem_free", json!(memory.available)),
                ("swap_total", json!(memory.swap_total)),
                ("swap_used", json!(memory.swap_used)),
            ]);
        }
        system
    }
}

/// Part of the machine's processors that worked since the reading before, in per cent.
fn processor_percent(state: &AdminState) -> Option<f64> {
    let time = machine::processor_time()?;
    let counts = vec![("total", time.total), ("idle", time.idle)];
    let rates = state.rates.read(MACHINE, Instant::now(), counts);
    let (total, idle) = (rates.of("total"), rates.of("idle"));
    debug_assert!(total >= 0.0 && idle >= 0.0, "counters only grow");
    Some(if total > 0.0 { (total - idle).max(0.0) * 100.0 / total } else { 0.0 })
}

/// A rate as a whole number: some monitors read no other.
fn whole(rate: f64) -> u64 {
    debug_assert!(rate >= 0.0, "counters only grow");
    rate.round() as u64
}

/// `GET /pools/default/buckets/B/stats`, and with a node's name `.../nodes/NODE/stats`.
pub(super) async fn bucket_samples(
    state: &Arc<AdminState>,
    bucket: &str,
    node: Option<&str>,
    user: &UserContext,
) -> HttpReply {
    if !user.identity.access.everywhere(bucket).holds(Privilege::SimpleStats.into()) {
        return forbidden(&format!("cluster.bucket[{bucket}].stats!read"));
    }
    let Some(handle) = state.server.buckets.get(bucket) else {
        return bucket_not_found();
    };
    if node.is_some_and(|node| node != user.node_name(&state.server.cluster.config)) {
        return path_not_found();
    }
    let (figures, machine) = match observe_bucket(state, &handle, user).await {
        Ok(observed) => observed,
        Err(reply) => return *reply,
    };
    let mut reply = samples_json(&figures, machine.as_ref());
    if let Some(node) = node {
        reply["hostname"] = json!(node);
    }
    json_reply(&reply)
}

/// One sample of each figure. They are arrays of equal length, which telegraf insists on.
fn samples_json(figures: &BucketUsage, node: Option<&NodeFigures>) -> Value {
    let unix_ms = wall_clock().unix_ns / NS_PER_MS;
    let rates = figures.rates.all().iter().copied();
    let of_bucket = rates.chain(figures.gauges()).map(|(name, value)| (name, json!(value)));
    let of_node = node.map(NodeFigures::system).unwrap_or_default();
    let connections = node.map(|node| ("curr_connections", json!(node.connections)));
    let all = of_bucket.chain(of_node).chain(connections).chain([("timestamp", json!(unix_ms))]);
    let samples: Map<String, Value> =
        all.map(|(name, value)| (name.to_owned(), Value::Array(vec![value]))).collect();
    json!({
        "op": {
            "samples": samples,
            "samplesCount": 1,
            "isPersistent": figures.is_persistent,
            "lastTStamp": unix_ms,
            "interval": whole(figures.rates.seconds * 1000.0),
        },
    })
}

pub(super) fn bucket_nodes(state: &AdminState, bucket: &str, user: &UserContext) -> HttpReply {
    if state.server.buckets.get(bucket).is_none() {
        return bucket_not_found();
    }
    let node = user.node_name(&state.server.cluster.config);
    let uri = format!("/pools/default/buckets/{bucket}/nodes/{}", node.replace(':', "%3A"));
    let stats = json!({ "uri": format!("{uri}/stats") });
    json_reply(&json!({ "servers": [{ "hostname": node, "uri": uri, "stats": stats }] }))
}
