//! `timings`: distributions, in microseconds where they are times.
//!
//! Commands are sampled (see `counters::timings`), so their counts are approximate. Background work
//! is complete, with the exceptions in the engine's documentation. A histogram has one entry per
//! range and one for the mean. For Oribi's own tools it is one JSON document with percentiles. The
//! blocking thread collects the histograms.

use std::vec::IntoIter;

use hdrhistogram::Histogram;
use serde_json::json;

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatProducer;
use crate::connection::stat_cursor::StatWriter;
use crate::diagnostics::counters::timings::CommandKind;

/// Ranges per halving of the remaining percentage: about a hundred ranges for a long tail.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Cost of walking one histogram, in bytes of output: 10 µs are about 100 entries.
const WALK_CHARGE: usize = 6 * 1024;

/// The producer of the group.
pub(super) struct Histograms {
    left: IntoIter<(&'static str, Histogram<u64>)>,
    as_ranges: bool,
}

impl Histograms {
    /// Copies all histograms of a bucket. Slow.
    pub fn collect(handle: &BucketHandle, as_ranges: bool) -> Histograms {
        let mut all: Vec<(&'static str, Histogram<u64>)> = CommandKind::ALL
            .iter()
            .map(|kind| (kind.stat_name(), handle.operations().timings(*kind)))
            .collect();
        let background = handle.bucket().timings();
        all.extend(background.named().map(|(name, histogram)| (name, histogram.clone())));
        Histograms { left: all.into_iter(), as_ranges }
    }
}

impl StatProducer for Histograms {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        while !writer.is_full() {
            let Some((name, histogram)) = self.left.next() else { return true };
            writer.charge(WALK_CHARGE);
            match self.as_ranges {
                true => write_ranges(writer, name, &histogram),
                false => write_json(writer, name, &histogram),
            }
        }
        false
    }
}

/// A range of a histogram: `count` values above `low`, up to `high`.
struct HistogramRange {
    low: u64,
    high: u64,
    count: u64,
    percentile: f64,
}

/// The ranges with at least one value, ascending.
fn ranges(histogram: &Histogram<u64>) -> Vec<HistogramRange> {
    let mut low = histogram.min();
    let mut ranges = Vec::new();
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        let (high, count) = (step.value_iterated_to(), step.count_since_last_iteration());
        if count > 0 {
            debug_assert!(low <= high, "a range ends after its beginning");
            ranges.push(HistogramRange { low, high, count, percentile: step.percentile() });
            low = high;
        }
    }
    debug_assert_eq!(
        ranges.iter().map(|range| range.count).sum::<u64>(),
        histogram.len(),
        "each time is in one range"
    );
    ranges
}

fn write_json(writer: &mut StatWriter<'_>, name: &str, histogram: &Histogram<u64>) {
    let data: Vec<_> = ranges(histogram)
        .iter()
        .map(|range| json!([range.high, range.count, range.percentile]))
        .collect();
    // A value beyond the histogram's limit is recorded as the greatest one, so nothing overflows.
    let document = json!({
        "bucketsLow": histogram.min(),
        "data": data,
        "total": histogram.len(),
        "overflowed": 0,
        "overflowed_sum": 0,
        "max_trackable": histogram.high(),
    });
    writer.display(name, document);
}

/// Writes the ranges; this form leaves out empty ones.
fn write_ranges(writer: &mut StatWriter<'_>, name: &str, histogram: &Histogram<u64>) {
    if histogram.is_empty() {
        return;
    }
    writer.number(&format!("{name}_mean"), histogram.mean() as u64);
    for range in ranges(histogram) {
        writer.number(&format!("{name}_{},{}", range.low, range.high), range.count);
    }
}
