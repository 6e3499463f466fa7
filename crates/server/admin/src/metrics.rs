//! Metrics for Prometheus, collected for each scrape.
//!
//! Owns: the names and types of the metrics. Invariants: this module counts nothing itself, it
//! reads the workers' counters and the buckets' figures; labels are the names of buckets and
//! collections and a fixed list of operations, so buckets and collections bound the number of
//! series. A scrape reads the disk, so it belongs on a blocking thread. Caller: the admin HTTP.

mod collections;
mod copies;
mod encoding;
mod histograms;
#[cfg(feature = "query")]
mod indexes;
mod process;

use std::fmt;
use std::sync::Arc;

use oribi_engine::{BucketStats, StoreOperation, block_arena};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::admission::AdmissionControl;
use encoding::{encode_counter, encode_gauge};
use oribi_server::admin_api::dcp_registry::DcpTotals;
use oribi_server::admin_api::fetched;
use oribi_server::buckets::BucketHandle;
use oribi_server::server_context::ServerContext;
use process::ProcessCollector;

/// Media type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders the text of a scrape.
pub struct MetricsRegistry {
    registry: Registry,
    /// Metrics whose names have no prefix.
    process: Registry,
}

struct ServerCollector {
    server: Arc<ServerContext>,
    /// Of the admin HTTP, and of the ports for queries.
    admission: [Arc<AdmissionControl>; 2],
    #[cfg(feature = "query")]
    indexes: Arc<crate::query_indexes::QueryIndexes>,
}

/// One metric per bucket.
struct BucketFigure {
    name: &'static str,
    help: &'static str,
    value: fn(&BucketStats) -> u64,
}

const fn figure(
    name: &'static str,
    help: &'static str,
    value: fn(&BucketStats) -> u64,
) -> BucketFigure {
    BucketFigure { name, help, value }
}

/// Gauges: metrics whose current value matters.
const BUCKET_GAUGES: &[BucketFigure] = &[
    figure("bucket_items", "Documents in memory", |s| s.items as u64),
    figure("bucket_tombstones", "Tombstones in memory", |s| s.tombstones as u64),
    figure("bucket_item_bytes", "Bytes of document blocks", |s| s.item_bytes as u64),
    figure("bucket_table_bytes", "Bytes of hash tables", |s| s.table_bytes as u64),
    figure("bucket_memory_quota_bytes", "Bytes of memory that the bucket may use", |s| {
        s.memory.quota_bytes
    }),
    figure("bucket_memory_used_bytes", "Bytes that count against the quota", |s| {
        s.memory.used_bytes
    }),
    figure("bucket_memory_high_watermark_bytes", "Bytes beyond which the bucket evicts", |s| {
        s.memory.high_watermark_bytes
    }),
    figure("bucket_index_bytes", "Bytes of the entries of indexes", |s| s.memory.indexes_bytes),
    figure("bucket_memory_low_watermark_bytes", "Bytes at which it stops to evict", |s| {
        s.memory.low_watermark_bytes
    }),
    figure("bucket_items_resident", "Documents whose value is in memory", |s| {
        s.memory.items_resident
    }),
    figure("bucket_items_evicted", "Documents whose value is on disk only", |s| {
        s.memory.items_evicted
    }),
    figure("bucket_items_dense", "Documents whose value is compressed in memory", |s| {
        s.memory.dense.values
    }),
    figure("bucket_dense_plain_bytes", "Bytes of these values as clients see them", |s| {
        s.memory.dense.plain_bytes
    }),
    figure("bucket_dense_bytes", "Bytes of these values in memory", |s| s.memory.dense.dense_bytes),
    figure("bucket_dictionaries", "Dictionaries that such values need", |s| {
        s.memory.dense.dictionaries
    }),
    figure("bucket_dictionary_bytes", "Bytes of these dictionaries", |s| s.memory.dictionary_bytes),
    figure("bucket_fetch_queue", "Documents that wait to be read from disk", |s| {
        s.memory.fetch_queue
    }),
    figure("bucket_queue_items", "Mutations not yet on disk", |s| s.queue_items as u64),
    figure("bucket_queue_bytes", "Bytes held by mutation queues", |s| s.queue_bytes as u64),
    figure("bucket_checkpoints", "Checkpoints in memory", |s| s.checkpoints as u64),
    figure("bucket_vbuckets_active", "vbuckets that serve", |s| s.vbuckets_active as u64),
    figure("bucket_vbuckets_loading", "vbuckets still loading", |s| s.vbuckets_loading as u64),
    figure("bucket_warmup_items", "Documents loaded by warmup", |s| s.warmup.items),
    figure("bucket_warmup_done", "1 when warmup has ended", |s| u64::from(s.warmup.done)),
    figure("bucket_storage_failed", "1 while writes are refused because the store fails", |s| {
        u64::from(s.failed.refuse_writes())
    }),
    figure("bucket_disk_bytes", "Bytes of the files on disk", |s| s.store.disk_bytes),
];

/// One metric per bucket about the connections that follow its changes.
struct ChangesFigure {
    name: &'static str,
    help: &'static str,
    grows: bool,
    value: fn(&DcpTotals) -> u64,
}

/// Metrics of change streams.
const CHANGES: [ChangesFigure; 13] = [
    ChangesFigure {
        name: "bucket_change_connections",
        help: "Connections that follow changes",
        grows: false,
        value: |f| f.connections,
    },
    ChangesFigure {
        name: "bucket_change_streams",
        help: "Change streams of single vbuckets",
        grows: false,
        value: |f| f.streams,
    },
    ChangesFigure {
        name: "bucket_change_streams_backfilling",
        help: "Change streams that read from disk",
        grows: false,
        value: |f| f.backfilling,
    },
    ChangesFigure {
        name: "bucket_change_lag_items",
        help: "Changes that streams have still to send",
        grows: false,
        value: |f| f.items_remaining,
    },
    ChangesFigure {
        name: "bucket_change_lag_seconds",
        help: "For how long the slowest connection has had changes left to send",
        grows: false,
        value: |f| f.lag_s,
    },
    ChangesFigure {
        name: "bucket_changes_sent",
        help: "Changes sent in streams",
        grows: true,
        value: |f| f.items_sent,
    },
    ChangesFigure {
        name: "bucket_change_bytes_sent",
        help: "Bytes of messages sent in streams",
        grows: true,
        value: |f| f.bytes_sent,
    },
    ChangesFigure {
        name: "bucket_change_backfills",
        help: "Times that a stream began to read from disk",
        grows: true,
        value: |f| f.backfills,
    },
    ChangesFigure {
        name: "bucket_change_cursors_dropped",
        help: "Times that a slow stream lost its place in memory and went to disk",
        grows: true,
        value: |f| f.cursors_dropped,
    },
    ChangesFigure {
        name: "bucket_change_backfill_scans",
        help: "Scans of the store or of memory for backfills, which streams share",
        grows: true,
        value: |f| f.scans.scans,
    },
    ChangesFigure {
        name: "bucket_change_backfill_scan_streams",
        help: "Streams that these scans served",
        grows: true,
        value: |f| f.scans.streams,
    },
    ChangesFigure {
        name: "bucket_change_backfills_left_behind",
        help: "Times that a scan went on without a stream that stood still",
        grows: true,
        value: |f| f.scans.left_behind,
    },
    ChangesFigure {
        name: "bucket_change_backfill_scan_failures",
        help: "Scans for backfills that the store failed",
        grows: true,
        value: |f| f.scans.failures,
    },
];

/// Counters: metrics that only grow while the server runs.
const BUCKET_COUNTERS: &[BucketFigure] = &[
    figure("bucket_records_committed", "Mutations committed to disk", |s| {
        s.store.records_committed
    }),
    figure("bucket_commits", "Group commits", |s| s.store.commits),
    figure("bucket_evictions", "Values, or whole documents, taken out of memory", |s| {
        s.memory.evictions
    }),
    figure("bucket_dense_compressions", "Values that were compressed in memory", |s| {
        s.memory.compressions
    }),
    figure("bucket_dense_inflations", "Compressed values that were inflated", |s| {
        s.memory.dense.inflations
    }),
    figure("bucket_nru_deletions", "Documents deleted because memory ran short", |s| {
        s.memory.nru_deletions
    }),
    figure("bucket_fetches", "Documents read from disk because a request needed them", |s| {
        fetched(&s.memory)
    }),
    figure("bucket_fetch_failures", "Fetches that failed because the store did", |s| {
        s.memory.fetch_failures
    }),
    figure("bucket_commit_failures", "Failed group commits", |s| s.store.commit_failures),
];

impl MetricsRegistry {
    /// Metrics of one server.
    pub(crate) fn new(
        server: Arc<ServerContext>,
        admission: [Arc<AdmissionControl>; 2],
        #[cfg(feature = "query")] indexes: Arc<crate::query_indexes::QueryIndexes>,
    ) -> MetricsRegistry {
        let mut registry = Registry::with_prefix("oribi");
        let started = server.diagnostics.started;
        registry.register_collector(Box::new(ServerCollector {
            server,
            admission,
            #[cfg(feature = "query")]
            indexes,
        }));
        let mut process = Registry::default();
        process.register_collector(Box::new(ProcessCollector { started }));
        MetricsRegistry { registry, process }
    }

    /// All metrics as text.
    pub(crate) fn scrape(&self) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.process))
            .and_then(|()| encode_eof(&mut text))
            .expect("a String takes every write");
        debug_assert!(text.ends_with("# EOF\n"), "a scraper sees that the text is whole");
        text
    }
}

impl fmt::Debug for ServerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerCollector")
    }
}

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode_build(&mut encoder)?;
        self.encode_server(&mut encoder)?;
        let buckets: Vec<(String, BucketStats)> = self
            .server
            .buckets
            .list()
            .iter()
            .map(|handle| (handle.name().to_owned(), handle.bucket().stats()))
            .collect();
        encode_buckets(&mut encoder, &buckets)?;
        let handles = self.server.buckets.list();
        let handles: Vec<&BucketHandle> = handles.iter().map(AsRef::as_ref).collect();
        histograms::encode(&mut encoder, &handles)?;
        collections::encode(&mut encoder, &handles)?;
        copies::encode(&mut encoder, &self.server, &handles)?;
        #[cfg(feature = "query")]
        indexes::encode(&mut encoder, &self.indexes, &handles)?;
        self.encode_changes(&mut encoder)
    }
}

impl ServerCollector {
    fn encode_server(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let operations = self.server.buckets.operation_totals().entries();
        let all = self.server.diagnostics.counters.totals().entries();
        self.encode_protocols(encoder)?;
        for (name, value) in operations.into_iter().chain(all) {
            if PROTOCOL_COUNTERS.contains(&name) {
                continue;
            }
            let name = counter_name(name);
            let help = format!("Sum over all workers of {name}");
            encode_counter(encoder, name, &help, value)?;
        }
        let failures = self.server.access.users.failures();
        encode_counter(encoder, "auth_failures", "Failed authentications of any kind", failures)?;
        let rejected = self.server.connections.rejected() as u64;
        let lost = self.server.access.audit.dropped();
        encode_counter(encoder, "audit_events_lost", "Events that the audit log lacks", lost)?;
        let help = "Connections closed because there were too many";
        encode_counter(encoder, "connections_rejected", help, rejected)?;
        let [admin, query] = self.admission.each_ref().map(|admission| admission.turnover());
        let [open, queries] =
            self.admission.each_ref().map(|admission| admission.connections() as u64);
        encode_gauge(encoder, "admin_connections", "Connections of the admin HTTP", open)?;
        let help = "Connections of the ports for queries";
        encode_gauge(encoder, "query_connections", help, queries)?;
        let help = "Idle admin connections closed because others needed their place";
        encode_counter(encoder, "admin_connections_evicted", help, admin.evicted + query.evicted)?;
        let help =
            "Admin connections, logins, requests and streams refused because there were too many";
        encode_counter(encoder, "admin_requests_refused", help, admin.refused + query.refused)?;
        if let Some(tls) = self.server.access.tls.as_ref() {
            let expiry = tls.current().certificate.not_after_unix_s;
            let help = "End of the certificate's validity, in seconds since 1970";
            encode_gauge(encoder, "tls_certificate_not_after_seconds", help, expiry)?;
        }
        let buffers = self.server.connections.buffer_bytes();
        let help = "Bytes of connections' buffers";
        encode_gauge(encoder, "connection_buffer_bytes", help, buffers)?;
        let threads = oribi_supervisor::running().len() as u64;
        encode_gauge(encoder, "threads", "Threads that the server has started", threads)?;
        self.encode_connection_memory(encoder)?;
        let kept = block_arena::kept_bytes();
        let help = "Bytes of freed large values that wait for the next ones, of all buckets";
        encode_gauge(encoder, "kept_block_bytes", help, kept)?;
        let open = self.server.connections.open() as u64;
        let help = "Open connections of key-value clients";
        encode_gauge(encoder, "connections", help, open)
    }

    /// Commands by the protocol that the client speaks.
    fn encode_protocols(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.server.diagnostics.counters.totals();
        let help = "Commands served, by the client's protocol";
        let kind = MetricType::Counter;
        let mut family = encoder.encode_descriptor("protocol_commands", help, None, kind)?;
        for (protocol, value) in totals.by_protocol() {
            let counter = ConstCounter::new(value);
            counter.encode(family.encode_family(&[("protocol", protocol)])?)?;
        }
        Ok(())
    }

    fn encode_changes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let buckets = self.server.buckets.list();
        let figures: Vec<(&str, DcpTotals)> = buckets
            .iter()
            .map(|handle| (handle.name(), handle.producers().figures(handle.bucket())))
            .collect();
        for ChangesFigure { name, help, grows, value } in CHANGES {
            let kind = if grows { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (bucket, figures) in &figures {
                let (value, labels) = (value(figures), [("bucket", *bucket)]);
                match grows {
                    true => ConstCounter::new(value).encode(family.encode_family(&labels)?)?,
                    false => ConstGauge::new(value).encode(family.encode_family(&labels)?)?,
                }
            }
        }
        Ok(())
    }

    fn encode_connection_memory(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let entries = self.server.connections.memory.stats().entries();
        for ((_, value), (name, help, grows)) in entries.into_iter().zip(CONNECTION_MEMORY) {
            match grows {
                true => encode_counter(encoder, name, help, value)?,
                false => encode_gauge(encoder, name, help, value)?,
            }
        }
        Ok(())
    }
}

/// Metrics of the memory that connections share: name, help, and whether it only grows.
const CONNECTION_MEMORY: [(&str, &str, bool); 7] = [
    ("connection_memory_max_bytes", "Bytes that connections may hold together", false),
    ("connection_memory_used_bytes", "Bytes that connections hold", false),
    ("connection_memory_reserved_bytes", "Bytes reserved for large requests and answers", false),
    ("connection_memory_waiting", "Connections that wait for memory", false),
    ("connection_memory_waits", "Requests that waited for memory", true),
    ("connection_memory_refused", "Requests refused because memory did not come in time", true),
    ("connection_memory_closed", "Connections closed for the memory they held", true),
];

/// Counters that are one metric together, by protocol.
const PROTOCOL_COUNTERS: [&str; 2] = ["cmd_text", "cmd_meta"];

/// The Prometheus name of a worker counter. Prometheus appends `_total` itself.
fn counter_name(name: &'static str) -> &'static str {
    match name {
        "total_connections" => "connections_accepted",
        "ep_oom_errors" => "refused_out_of_memory",
        "ep_tmp_oom_errors" => "refused_temporarily",
        _ => name.strip_suffix("_total").unwrap_or(name),
    }
}

/// Version of the build, as labels of a 1.
fn encode_build(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let has_kudu = if oribi_server::admin_api::HAS_KUDU { "true" } else { "false" };
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let version = env!("CARGO_PKG_VERSION");
    let labels = [("version", version), ("profile", profile), ("kudu", has_kudu)];
    let help = "What this server was built from";
    encoder.encode_descriptor("build", help, None, MetricType::Info)?.encode_info(&labels)
}

fn encode_buckets(
    encoder: &mut DescriptorEncoder<'_>,
    buckets: &[(String, BucketStats)],
) -> Result<(), fmt::Error> {
    for gauge in BUCKET_GAUGES {
        let mut family =
            encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
        for (name, stats) in buckets {
            let value = ConstGauge::new((gauge.value)(stats));
            value.encode(family.encode_family(&[("bucket", name.as_str())])?)?;
        }
    }
    let help = "1 while an operation of the store fails";
    let mut family =
        encoder.encode_descriptor("bucket_storage_failing", help, None, MetricType::Gauge)?;
    for (name, stats) in buckets {
        for operation in StoreOperation::ALL {
            let value = ConstGauge::new(u64::from(stats.failed.has(operation)));
            let labels = [("bucket", name.as_str()), ("operation", operation.name())];
            value.encode(family.encode_family(&labels)?)?;
        }
    }
    for counter in BUCKET_COUNTERS {
        let mut family =
            encoder.encode_descriptor(counter.name, counter.help, None, MetricType::Counter)?;
        for (name, stats) in buckets {
            let value = ConstCounter::new((counter.value)(stats));
            value.encode(family.encode_family(&[("bucket", name.as_str())])?)?;
        }
    }
    Ok(())
}
