//! Figures of query indexes in a scrape.
//!
//! Owns: the names. A bucket without definitions has no series.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::query_indexes::{INDEX_STATES, IndexFigures, QueryIndexes};
use oribi_server::buckets::BucketHandle;

type Figure = (&'static str, &'static str, fn(&IndexFigures) -> u64);

const GAUGES: [Figure; 2] = [
    ("bucket_index_entries", "Entries of indexes, stale ones among them", |it| it.entries),
    ("bucket_index_lag_items", "Changes that online indexes do not have yet", |it| it.lag),
];

/// Writes the figures of these buckets' indexes.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    indexes: &QueryIndexes,
    buckets: &[&BucketHandle],
) -> fmt::Result {
    let figures: Vec<(&str, IndexFigures)> = buckets
        .iter()
        .filter_map(|bucket| Some((bucket.name(), indexes.figures(bucket)?)))
        .collect();
    for (name, help, value) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (bucket, figures) in &figures {
            let gauge = ConstGauge::new(value(figures));
            gauge.encode(family.encode_family(&[("bucket", *bucket)])?)?;
        }
    }
    let help = "Indexes by state";
    let mut family = encoder.encode_descriptor("bucket_indexes", help, None, MetricType::Gauge)?;
    for (bucket, figures) in &figures {
        for (state, count) in INDEX_STATES.iter().zip(figures.by_state) {
            let labels = [("bucket", *bucket), ("state", *state)];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    let (name, help) = ("bucket_index_mutations", "Changes that the feed of the indexes has read");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (bucket, figures) in &figures {
        let counter = ConstCounter::new(figures.mutations);
        counter.encode(family.encode_family(&[("bucket", *bucket)])?)?;
    }
    Ok(())
}
