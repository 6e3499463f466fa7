//! Figures for Prometheus, collected when somebody asks.
//!
//! Owns: the names and types of the metrics. Invariants: nothing is counted for this module, it reads
//! the workers' counters and the buckets' figures at each scrape; labels are bucket names only, so
//! that the number of series is bounded by the number of buckets. Callers: the admin HTTP. A scrape
//! looks at the disk and belongs on a blocking thread.

use std::fmt;
use std::sync::Arc;

use oribi_engine::BucketStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::dispatch::fetched;
use crate::server_context::ServerContext;

/// Media type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Makes the text of a scrape.
pub struct MetricsRegistry {
    registry: Registry,
}

struct ServerCollector {
    server: Arc<ServerContext>,
}

/// A figure of each bucket.
struct BucketFigure {
    name: &'static str,
    help: &'static str,
    value: fn(&BucketStats) -> u64,
}

/// Figures whose present value is what matters.
const BUCKET_GAUGES: &[BucketFigure] = &[
    BucketFigure { name: "bucket_items", help: "Documents in memory", value: |s| s.items as u64 },
    BucketFigure {
        name: "bucket_tombstones",
        help: "Tombstones in memory",
        value: |s| s.tombstones as u64,
    },
    BucketFigure {
        name: "bucket_item_bytes",
        help: "Bytes of document blocks",
        value: |s| s.item_bytes as u64,
    },
    BucketFigure {
        name: "bucket_table_bytes",
        help: "Bytes of hash tables",
        value: |s| s.table_bytes as u64,
    },
    BucketFigure {
        name: "bucket_memory_quota_bytes",
        help: "Bytes of memory that the bucket may use",
        value: |s| s.memory.quota_bytes,
    },
    BucketFigure {
        name: "bucket_memory_used_bytes",
        help: "Bytes that count against the quota",
        value: |s| s.memory.used_bytes,
    },
    BucketFigure {
        name: "bucket_memory_high_watermark_bytes",
        help: "Bytes beyond which the bucket evicts",
        value: |s| s.memory.high_watermark_bytes,
    },
    BucketFigure {
        name: "bucket_memory_low_watermark_bytes",
        help: "Bytes at which it stops to evict",
        value: |s| s.memory.low_watermark_bytes,
    },
    BucketFigure {
        name: "bucket_items_resident",
        help: "Documents whose value is in memory",
        value: |s| s.memory.items_resident,
    },
    BucketFigure {
        name: "bucket_items_evicted",
        help: "Documents whose value is on disk only",
        value: |s| s.memory.items_evicted,
    },
    BucketFigure {
        name: "bucket_fetch_queue",
        help: "Documents that wait to be read from disk",
        value: |s| s.memory.fetch_queue,
    },
    BucketFigure {
        name: "bucket_queue_items",
        help: "Mutations not yet on disk",
        value: |s| s.queue_items as u64,
    },
    BucketFigure {
        name: "bucket_queue_bytes",
        help: "Bytes held by mutation queues",
        value: |s| s.queue_bytes as u64,
    },
    BucketFigure {
        name: "bucket_checkpoints",
        help: "Checkpoints in memory",
        value: |s| s.checkpoints as u64,
    },
    BucketFigure {
        name: "bucket_vbuckets_active",
        help: "vbuckets that serve",
        value: |s| s.vbuckets_active as u64,
    },
    BucketFigure {
        name: "bucket_vbuckets_loading",
        help: "vbuckets still loading",
        value: |s| s.vbuckets_loading as u64,
    },
    BucketFigure {
        name: "bucket_warmup_items",
        help: "Documents loaded by warmup",
        value: |s| s.warmup.items,
    },
    BucketFigure {
        name: "bucket_warmup_done",
        help: "1 when warmup has ended",
        value: |s| u64::from(s.warmup.done),
    },
    BucketFigure {
        name: "bucket_storage_failed",
        help: "1 while commits fail",
        value: |s| u64::from(s.storage_failed),
    },
    BucketFigure {
        name: "bucket_disk_bytes",
        help: "Bytes of the files on disk",
        value: |s| s.store.disk_bytes,
    },
];

/// Figures that only grow while the server runs.
const BUCKET_COUNTERS: &[BucketFigure] = &[
    BucketFigure {
        name: "bucket_records_committed",
        help: "Mutations committed to disk",
        value: |s| s.store.records_committed,
    },
    BucketFigure { name: "bucket_commits", help: "Group commits", value: |s| s.store.commits },
    BucketFigure {
        name: "bucket_evictions",
        help: "Values, or whole documents, taken out of memory",
        value: |s| s.memory.evictions,
    },
    BucketFigure {
        name: "bucket_nru_deletions",
        help: "Documents deleted because memory ran short",
        value: |s| s.memory.nru_deletions,
    },
    BucketFigure {
        name: "bucket_fetches",
        help: "Documents read from disk because a request needed them",
        value: |s| fetched(&s.memory),
    },
    BucketFigure {
        name: "bucket_fetch_failures",
        help: "Fetches that failed because the store did",
        value: |s| s.memory.fetch_failures,
    },
    BucketFigure {
        name: "bucket_commit_failures",
        help: "Failed group commits",
        value: |s| s.store.commit_failures,
    },
];

impl MetricsRegistry {
    /// Metrics of one server.
    pub(crate) fn new(server: Arc<ServerContext>) -> MetricsRegistry {
        let mut registry = Registry::with_prefix("oribi");
        registry.register_collector(Box::new(ServerCollector { server }));
        MetricsRegistry { registry }
    }

    /// All figures as text.
    pub(crate) fn scrape(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("a String takes every write");
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
        self.encode_server(&mut encoder)?;
        let buckets: Vec<(String, BucketStats)> = self
            .server
            .buckets
            .list()
            .iter()
            .map(|handle| (handle.name().to_owned(), handle.bucket().stats()))
            .collect();
        encode_buckets(&mut encoder, &buckets)
    }
}

impl ServerCollector {
    fn encode_server(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let operations = self.server.buckets.operation_totals().entries();
        let all = self.server.counters.totals().entries();
        for (name, value) in operations.into_iter().chain(all) {
            let name = counter_name(name);
            let help = format!("Sum over all workers of {name}");
            encode_counter(encoder, name, &help, value)?;
        }
        let failures = self.server.users.failures();
        encode_counter(encoder, "auth_failures", "Failed authentications of any kind", failures)?;
        let rejected = self.server.rejected_connections() as u64;
        let lost = self.server.audit.dropped();
        encode_counter(encoder, "audit_events_lost", "Events that the audit log lacks", lost)?;
        let help = "Connections closed because there were too many";
        encode_counter(encoder, "connections_rejected", help, rejected)?;
        if let Some(tls) = self.server.tls() {
            let expiry = tls.current().certificate.not_after_unix_s;
            let help = "End of the certificate's validity, in seconds since 1970";
            encode_gauge(encoder, "tls_certificate_not_after_seconds", help, expiry)?;
        }
        let buffers = self.server.registry.buffer_bytes();
        let help = "Bytes of connections' buffers";
        encode_gauge(encoder, "connection_buffer_bytes", help, buffers)?;
        let open = self.server.connections() as u64;
        let help = "Open connections of the memcached binary protocol";
        encode_gauge(encoder, "connections", help, open)
    }
}

/// The name that a counter of the workers has for Prometheus, which appends `_total` by itself.
fn counter_name(name: &'static str) -> &'static str {
    match name {
        "total_connections" => "connections_accepted",
        "ep_oom_errors" => "refused_out_of_memory",
        "ep_tmp_oom_errors" => "refused_temporarily",
        _ => name.strip_suffix("_total").unwrap_or(name),
    }
}

fn encode_counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), fmt::Error> {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
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
