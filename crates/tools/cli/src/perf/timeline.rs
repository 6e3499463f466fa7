//! Throughput over time, in bounded memory however long the run.
//!
//! Samples are taken at regular intervals. When there are too many, neighbours are joined and the
//! interval doubles, so an hour is as many points as a minute, only coarser.

use serde::Serialize;

/// Most samples; twice the points of a plot.
const SAMPLES_MAX: usize = 1024;

/// Operations in an interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TimelineSample {
    /// End of the interval, in seconds from the start of the phase.
    pub seconds: f64,
    /// Operations per second in it.
    pub operations_per_second: f64,
}

/// See the module text.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Ends of intervals, and the operations until then.
    points: Vec<(f64, u64)>,
    /// Samples that are skipped between two that are kept.
    skipped: usize,
    /// Samples since the last that was kept.
    since_kept: usize,
}

impl Timeline {
    /// Adds a sample: the operations of the phase up to `seconds`, in order of time.
    pub fn add(&mut self, seconds: f64, operations: u64) {
        if self.since_kept < self.skipped {
            self.since_kept += 1;
            return;
        }
        self.since_kept = 0;
        self.points.push((seconds, operations));
        if self.points.len() == SAMPLES_MAX {
            let mut position = 0;
            self.points.retain(|_| {
                position += 1;
                position % 2 == 0
            });
            self.skipped = self.skipped * 2 + 1;
        }
    }

    /// The samples so far; the last is at `seconds`, when `operations` were done.
    pub fn finish(mut self, seconds: f64, operations: u64) -> Vec<TimelineSample> {
        // The rest after the last interval is joined to it when it is short: a rate over a few
        // milliseconds says nothing.
        let before_last = self.points.iter().rev().nth(1).map_or(0.0, |point| point.0);
        if let Some(last) = self.points.last()
            && seconds - last.0 < (last.0 - before_last) / 2.0
        {
            self.points.pop();
        }
        if self.points.last().is_none_or(|last| last.0 < seconds) {
            self.points.push((seconds, operations));
        }
        let mut before = (0.0, 0);
        let sample = |&(seconds, operations): &(f64, u64)| {
            let took = seconds - before.0;
            let done = operations.saturating_sub(before.1) as f64;
            before = (seconds, operations);
            (took > 0.0).then(|| TimelineSample { seconds, operations_per_second: done / took })
        };
        self.points.iter().filter_map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    //! No operation is lost by joining samples.

    use super::*;

    #[test]
    fn long_runs_keep_few_samples_and_all_operations() {
        for samples in [1usize, 10, SAMPLES_MAX, 100_000] {
            let mut timeline = Timeline::default();
            for n in 1..=samples {
                timeline.add(n as f64 * 0.1, n as u64 * 50);
            }
            let end = samples as f64 * 0.1 + 0.05;
            let finished = timeline.finish(end, samples as u64 * 50 + 25);
            assert!(finished.len() <= SAMPLES_MAX);
            assert!((finished.last().unwrap().seconds - end).abs() < 1e-9);
            let mut before = 0.0;
            let total: f64 = finished
                .iter()
                .map(|sample| {
                    let took = sample.seconds - before;
                    before = sample.seconds;
                    took * sample.operations_per_second
                })
                .sum();
            assert!((total - (samples as f64 * 50.0 + 25.0)).abs() < 1e-3, "{total}");
        }
    }

    #[test]
    fn a_run_that_ended_at_once_has_no_samples() {
        assert_eq!(Timeline::default().finish(0.0, 0), []);
    }
}
