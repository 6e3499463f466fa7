//! Figures of a cluster's copies in a scrape.
//!
//! Owns: the names. They are what this node saw last; failovers count where they were led, so the
//! sum over all nodes counts each once. A node in no cluster has no series.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encoding::{encode_counter, encode_gauge};
use oribi_server::buckets::BucketHandle;
use oribi_server::server_context::ServerContext;

/// Writes the figures of the cluster and of these buckets' copies.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    server: &ServerContext,
    buckets: &[&BucketHandle],
) -> fmt::Result {
    let Some(member) = &server.cluster.node else { return Ok(()) };
    let nodes = member.nodes();
    let (name, help) = ("bucket_copies_missing", "Copies that no node has, or whose node is gone");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (bucket, missing) in &nodes.missing_copies {
        let labels = [("bucket", bucket.as_str())];
        ConstGauge::new(*missing as u64).encode(family.encode_family(&labels)?)?;
    }
    let (name, help) = ("bucket_copies_lag_seqnos", "Seqnos that the replicas on this node lack");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for bucket in buckets.iter().filter(|bucket| bucket.copies().is_some()) {
        let copies = server.cluster.links.status(&bucket.bucket().config().uuid);
        let lag: u64 = copies.iter().map(|copy| copy.lag()).sum();
        ConstGauge::new(lag).encode(family.encode_family(&[("bucket", bucket.name())])?)?;
    }
    let help = "Failovers that were done while this node led the cluster";
    encode_counter(encoder, "cluster_failovers", help, nodes.failovers)?;
    let left = nodes.running_rebalance().map_or(0, |running| running.counts.left as u64);
    let help = "Moves of the running rebalance that are not done";
    encode_gauge(encoder, "cluster_rebalance_moves_left", help, left)
}
