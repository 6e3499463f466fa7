//! Latencies of reads and of writes, in nanoseconds with three significant digits, up to an hour.
//!
//! A histogram is large, so the connections of a thread record into one [`Recorder`]. Threads share
//! nothing while operations run; sums are made for the live line and at the end of a phase.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is distinguished from longer ones: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Latencies of reads and writes.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Of reads: GETs, or batches of a scan.
    pub read: Histogram<u64>,
    /// Of writes: SETs, or Write requests.
    pub write: Histogram<u64>,
}

impl Latencies {
    pub fn new() -> Latencies {
        let empty =
            || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("these bounds are in order");
        Latencies { read: empty(), write: empty() }
    }

    pub fn add(&mut self, other: &Latencies) {
        for (sum, other) in [(&mut self.read, &other.read), (&mut self.write, &other.write)] {
            if !other.is_empty() {
                sum.add(other).expect("all histograms have the same bounds");
            }
        }
    }

    pub fn clear(&mut self) {
        for histogram in [&mut self.read, &mut self.write] {
            if !histogram.is_empty() {
                histogram.reset();
            }
        }
    }

    /// Reads and writes together.
    pub fn all(&self) -> Histogram<u64> {
        let mut all = self.read.clone();
        all.add(&self.write).expect("both histograms have the same bounds");
        all
    }
}

/// The latencies of one thread in a phase.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// Since they were last asked for.
    pub recent: Latencies,
    earlier: Latencies,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder { recent: Latencies::new(), earlier: Latencies::new() }
    }

    /// Adds the recent latencies to `sum` and begins new ones.
    pub fn hand_over(&mut self, sum: &mut Latencies) {
        sum.add(&self.recent);
        self.settle();
    }

    /// Makes the recent latencies earlier ones.
    fn settle(&mut self) {
        self.earlier.add(&self.recent);
        self.recent.clear();
    }

    /// The latencies of the phase that ends; a new one begins.
    pub fn finish(&mut self) -> Latencies {
        self.settle();
        std::mem::replace(&mut self.earlier, Latencies::new())
    }
}

/// A time as histograms have it.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! Sums are sums.

    use super::*;

    #[test]
    fn latencies_are_handed_over_and_still_count() {
        let mut recorder = Recorder::new();
        recorder.recent.read.record_n(1_000, 2).unwrap();
        let mut recent = Latencies::new();
        recorder.hand_over(&mut recent);
        recorder.recent.write.saturating_record(nanoseconds(Duration::from_secs(10_000)));
        assert_eq!((recent.read.len(), recorder.recent.read.len()), (2, 0));
        let latencies = recorder.finish();
        assert_eq!((latencies.read.len(), latencies.write.len(), latencies.all().len()), (2, 1, 3));
        assert!(latencies.write.max() >= LATENCY_NS_MAX);
        assert!(recorder.finish().all().is_empty());
    }
}
