//! `timings`: distributions, in microseconds where they are times.
//!
//! Commands are sampled (see `counters::timings`), so counts approximate theirs; background work is
//! complete but for what the engine's documentation says. A histogram is one JSON document, or, for
//! tools of the older kind, one entry per range and one for the mean. The histograms are collected on
//! the blocking thread.

use std::vec::IntoIter;

use hdrhistogram::Histogram;
use serde_json::json;

use super::cursor::StatProducer;
use super::writer::StatWriter;
use crate::buckets::BucketHandle;
use crate::counters::timings::CommandKind;

/// Ranges per halving of what is left above: about a hundred ranges for a long tail.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Work of walking one histogram, counted in bytes of output: 10 µs are about 100 entries.
const WALK_CHARGE: usize = 6 * 1024;

/// See the module text.
pub(super) struct Histograms {
    left: IntoIter<(&'static str, Histogram<u64>)>,
    as_ranges: bool,
}

impl Histograms {
    /// Copies of all histograms of a bucket. Slow.
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

/// A part of a histogram: above `low` up to `high` there are `count`.
struct HistogramRange {
    low: u64,
    high: u64,
    count: u64,
    percentile: f64,
}

/// The parts that have something in them, ascending.
fn ranges(histogram: &Histogram<u64>) -> Vec<HistogramRange> {
    let mut low = histogram.min();
    let mut ranges = Vec::new();
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        let (high, count) = (step.value_iterated_to(), step.count_since_last_iteration());
        if count > 0 {
            ranges.push(HistogramRange { low, high, count, percentile: step.percentile() });
            low = high;
        }
    }
    ranges
}

fn write_json(writer: &mut StatWriter<'_>, name: &str, histogram: &Histogram<u64>) {
    let data: Vec<_> = ranges(histogram)
        .iter()
        .map(|range| json!([range.high, range.count, range.percentile]))
        .collect();
    // A value beyond the range is recorded as the greatest one, so nothing overflows.
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

/// The older form leaves out what is empty.
fn write_ranges(writer: &mut StatWriter<'_>, name: &str, histogram: &Histogram<u64>) {
    if histogram.is_empty() {
        return;
    }
    writer.number(&format!("{name}_mean"), histogram.mean() as u64);
    for range in ranges(histogram) {
        writer.number(&format!("{name}_{},{}", range.low, range.high), range.count);
    }
}
