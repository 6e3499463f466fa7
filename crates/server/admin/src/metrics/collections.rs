//! Figures of collections in a scrape.
//!
//! Owns: the names. Invariant: every collection of the manifest has its series, and none other, so
//! the manifest bounds their number. A scrape locks each vbucket once for them.

use std::collections::BTreeMap;
use std::fmt;

use oribi_types::CollectionId;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use oribi_server::admin_api::counters::collections::CollectionOperations;
use oribi_server::buckets::BucketHandle;

struct Row {
    bucket: String,
    scope: String,
    collection: String,
    items: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    operations: CollectionOperations,
}

impl Row {
    fn labels(&self) -> [(&'static str, &str); 3] {
        [("bucket", &self.bucket), ("scope", &self.scope), ("collection", &self.collection)]
    }
}

type Figure = (&'static str, &'static str, fn(&Row) -> u64);

const GAUGES: [Figure; 3] = [
    ("collection_items", "Documents of a collection", |row| row.items),
    ("collection_memory_bytes", "Bytes of a collection's documents in memory", |row| {
        row.memory_bytes
    }),
    ("collection_data_bytes", "Bytes of a collection's keys and values", |row| row.disk_bytes),
];

type Count = (&'static str, fn(&CollectionOperations) -> u64);

const OPERATIONS: [Count; 3] =
    [("get", |sum| sum.gets), ("store", |sum| sum.stores), ("delete", |sum| sum.deletes)];

/// Writes the figures of all collections of these buckets.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    buckets: &[&BucketHandle],
) -> fmt::Result {
    let rows: Vec<Row> = buckets.iter().flat_map(|bucket| rows_of(bucket)).collect();
    for (name, help, value) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for row in &rows {
            ConstGauge::new(value(row)).encode(family.encode_family(&row.labels())?)?;
        }
    }
    let help = "Operations on documents of a collection that succeeded";
    let name = "collection_operations";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for row in &rows {
        for (operation, value) in OPERATIONS {
            let [bucket, scope, collection] = row.labels();
            let labels = [bucket, scope, collection, ("operation", operation)];
            ConstCounter::new(value(&row.operations)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn rows_of(bucket: &BucketHandle) -> Vec<Row> {
    let manifest = bucket.bucket().manifest();
    let mut sums: BTreeMap<CollectionId, [u64; 3]> = BTreeMap::new();
    let mut figures = Vec::new();
    for vbucket in bucket.bucket().vbuckets() {
        vbucket.collection_stats(&mut figures);
        for (id, stats) in &figures {
            let sum = sums.entry(*id).or_default();
            let parts = [stats.items, stats.item_bytes, stats.disk_bytes];
            sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
    }
    let operations = bucket.operations().collections(&manifest);
    let mut rows = Vec::new();
    for scope in manifest.scopes() {
        for collection in &scope.collections {
            let [items, memory_bytes, disk_bytes] =
                sums.get(&collection.id).copied().unwrap_or_default();
            rows.push(Row {
                bucket: bucket.name().to_owned(),
                scope: scope.name.to_string(),
                collection: collection.name.to_string(),
                items,
                memory_bytes,
                disk_bytes,
                operations: operations.get(&collection.id).copied().unwrap_or_default(),
            });
        }
    }
    rows
}
