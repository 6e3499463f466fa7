//! Latency histograms of a scrape: the sampled times of commands, and those of the store.
//!
//! Owns: the bounds, and the way from a recorded histogram to Prometheus's. Nothing is measured for
//! them: they are the histograms of `stats timings`. Commands are sampled, one in 64 of a kind, and
//! counted 64-fold. A `stats reset` begins them anew, which Prometheus takes for a restart.

use std::fmt;

use hdrhistogram::Histogram;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use oribi_server::admin_api::counters::timings::CommandKind;
use oribi_server::buckets::BucketHandle;

/// Upper bounds in microseconds: three a decade, from what a hit in memory takes to a minute.
const BOUNDS_US: [u64; 22] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
    200_000, 500_000, 1_000_000, 5_000_000, 15_000_000, 60_000_000,
];

const MICROSECONDS_PER_SECOND: f64 = 1e6;

/// Name, help, and the histogram of `stats timings` of work in the background.
const BACKGROUND: [(&str, &str, &str); 3] = [
    ("bucket_commit_duration_seconds", "Time of a group commit, its sync included", "disk_commit"),
    ("bucket_fetch_duration_seconds", "Time to read a batch of evicted documents", "bg_load"),
    (
        "bucket_persistence_delay_seconds",
        "Time from a mutation until it is durable, for one mutation in 16",
        "storage_age",
    ),
];

/// Counts by bound, as Prometheus takes them.
struct Sums {
    sum_s: f64,
    count: u64,
    by_bound: Vec<(f64, u64)>,
}

/// Writes all histograms of these buckets.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    buckets: &[&BucketHandle],
) -> fmt::Result {
    let help = "Time from the dispatch of a command until its answer is encoded; sampled";
    let kind = MetricType::Histogram;
    let name = "operation_duration_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for bucket in buckets {
        for kind in CommandKind::ALL {
            let sums = sums_of(&bucket.operations().timings(kind));
            let labels = [("bucket", bucket.name()), ("operation", kind.metric_name())];
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(sums.sum_s, sums.count, &sums.by_bound, None)?;
        }
    }
    let timings: Vec<_> =
        buckets.iter().map(|bucket| (bucket.name(), bucket.bucket().timings())).collect();
    for (name, help, stat) in BACKGROUND {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (bucket, timings) in &timings {
            let found = timings.named().into_iter().find(|(name, _)| *name == stat);
            let Some((_, histogram)) = found else { continue };
            let sums = sums_of(histogram);
            let labels = [("bucket", *bucket)];
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(sums.sum_s, sums.count, &sums.by_bound, None)?;
        }
    }
    Ok(())
}

fn sums_of(histogram: &Histogram<u64>) -> Sums {
    let mut counts = [0; BOUNDS_US.len() + 1];
    let mut sum_us = 0.0;
    for step in histogram.iter_recorded() {
        let value = histogram.lowest_equivalent(step.value_iterated_to());
        let at = BOUNDS_US.partition_point(|bound| *bound < value);
        counts[at] += step.count_at_value();
        sum_us += value as f64 * step.count_at_value() as f64;
    }
    let seconds = BOUNDS_US.iter().map(|bound| *bound as f64 / MICROSECONDS_PER_SECOND);
    debug_assert_eq!(counts.iter().sum::<u64>(), histogram.len(), "every value is below a bound");
    // The greatest number stands for infinity.
    let by_bound = seconds.chain([f64::MAX]).zip(counts).collect();
    let sum_s = sum_us / MICROSECONDS_PER_SECOND;
    Sums { sum_s, count: counts.iter().sum(), by_bound }
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS_US, sums_of};
    use oribi_server::admin_api::counters::timings::empty_histogram;

    #[test]
    fn times_are_counted_under_the_bound_that_has_them() {
        let mut histogram = empty_histogram();
        histogram.record_n(5, 64).unwrap();
        histogram.record_n(6, 2).unwrap();
        histogram.record(60_000_000).unwrap();
        let sums = sums_of(&histogram);
        assert_eq!(sums.count, 67);
        assert_eq!(sums.by_bound.len(), BOUNDS_US.len() + 1);
        assert_eq!((sums.by_bound[2], sums.by_bound[3]), ((5e-6, 64), (1e-5, 2)));
        assert_eq!(sums.by_bound.last(), Some(&(f64::MAX, 0)));
        assert_eq!(sums.by_bound.iter().map(|(_, count)| count).sum::<u64>(), 67);
        assert!((sums.sum_s - 60.0).abs() < 1.0, "{}", sums.sum_s);
    }
}
