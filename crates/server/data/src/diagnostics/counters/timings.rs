//! Sampled command times.
//!
//! Owns: the kinds of commands that are timed, and one histogram for each, per worker and bucket.
//!
//! Two clock reads cost about as much as a tenth of a GET, so only every [`SAMPLE_EVERY`]th command
//! of a kind is timed. A worker records its first sample with weight 1 and each later sample with
//! weight `SAMPLE_EVERY`. The count of a histogram is therefore less than `SAMPLE_EVERY` below the
//! true number of commands, and percentiles are those of the samples. STAT is rare and always
//! timed.
//!
//! Invariants: one worker writes the countdowns; that worker locks a histogram once per sample, and
//! other threads lock it only to read or reset it. Times are in microseconds, from the dispatch of
//! a request until its answer is encoded; waiting for the store and for the network is not
//! included.

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::Counter;

/// Sampling interval: one command in this many of a kind is timed.
pub const SAMPLE_EVERY: u8 = 64;

/// Longest time that the histogram resolves; longer times are recorded as this value.
const TIMED_US_MAX: u64 = 60_000_000;

/// Decimal digits that a recorded time keeps.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Kinds of commands that are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// Reads of one document.
    Get,
    /// Set, add, replace, append, prepend.
    Store,
    Arithmetic,
    Delete,
    Touch,
    Stats,
}

impl CommandKind {
    /// All of them, in the order of their histograms.
    pub const ALL: [CommandKind; 6] =
        [Self::Get, Self::Store, Self::Arithmetic, Self::Delete, Self::Touch, Self::Stats];

    /// The command as a label of metrics.
    pub fn metric_name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Store => "store",
            Self::Arithmetic => "arithmetic",
            Self::Delete => "delete",
            Self::Touch => "touch",
            Self::Stats => "stats",
        }
    }

    /// Name of the histogram in STAT `timings`.
    pub fn stat_name(self) -> &'static str {
        match self {
            Self::Get => "get_cmd",
            Self::Store => "store_cmd",
            Self::Arithmetic => "arith_cmd",
            Self::Delete => "delete_cmd",
            Self::Touch => "touch_cmd",
            Self::Stats => "get_stats_cmd",
        }
    }
}

const KINDS: usize = CommandKind::ALL.len();
const _: () = {
    let mut at = 0;
    while at < KINDS {
        assert!(CommandKind::ALL[at] as usize == at, "a kind is the place of its histogram");
        at += 1;
    }
};

/// An empty histogram of command times.
pub fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIMED_US_MAX, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that fit")
}

/// Command times of one worker in one bucket.
#[derive(Debug, Default)]
pub struct CommandTimings {
    /// Commands left until the next one that is timed; 0 only before the first.
    countdowns: [Counter; KINDS],
    /// Created when the first command of the kind is timed: most workers never see most kinds.
    histograms: Mutex<[Option<Box<Histogram<u64>>>; KINDS]>,
}

impl CommandTimings {
    /// Counts a command that is about to run. `Some` means that the command is to be timed, and
    /// recorded with this weight. Only the worker that owns the timings may call it.
    #[inline]
    pub fn sample(&self, kind: CommandKind) -> Option<u8> {
        let countdown = &self.countdowns[kind as usize];
        let left = countdown.get();
        debug_assert!(left <= u64::from(SAMPLE_EVERY), "a countdown begins at the sampling rate");
        if left > 1 {
            countdown.set(left - 1);
            return None;
        }
        countdown.set(SAMPLE_EVERY.into());
        Some(if left == 0 { 1 } else { SAMPLE_EVERY })
    }

    /// Records a command that took `elapsed_ns`, as `weight` commands.
    pub fn record(&self, kind: CommandKind, elapsed_ns: u64, weight: u8) {
        debug_assert!(weight > 0, "a sample stands for requests");
        let mut histograms = self.histograms.lock();
        let histogram =
            histograms[kind as usize].get_or_insert_with(|| Box::new(empty_histogram()));
        histogram.saturating_record_n(elapsed_ns / 1000, weight.into());
    }

    /// Adds the times of one kind to `sum`.
    pub fn add_to(&self, kind: CommandKind, sum: &mut Histogram<u64>) {
        if let Some(histogram) = &self.histograms.lock()[kind as usize] {
            sum.add(&**histogram).expect("all histograms have the same bounds");
        }
    }

    /// Forgets all recorded times.
    pub fn reset(&self) {
        for histogram in self.histograms.lock().iter_mut().flatten() {
            histogram.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandKind, CommandTimings, SAMPLE_EVERY, empty_histogram};

    #[test]
    fn sampled_counts_approximate_from_below() {
        let timings = CommandTimings::default();
        for done in 1..=1000_u64 {
            if let Some(weight) = timings.sample(CommandKind::Get) {
                timings.record(CommandKind::Get, 5_000, weight);
            }
            let mut sum = empty_histogram();
            timings.add_to(CommandKind::Get, &mut sum);
            assert!(
                sum.len() <= done && done - sum.len() < u64::from(SAMPLE_EVERY),
                "{} of {done}",
                sum.len()
            );
            assert_eq!(sum.max(), 5);
        }
        let mut other = empty_histogram();
        timings.add_to(CommandKind::Store, &mut other);
        assert_eq!(other.len(), 0);
    }

    #[test]
    fn times_beyond_the_range_count_as_its_end() {
        let timings = CommandTimings::default();
        timings.record(CommandKind::Delete, u64::MAX, 1);
        let mut sum = empty_histogram();
        timings.add_to(CommandKind::Delete, &mut sum);
        assert_eq!(sum.len(), 1);
        timings.reset();
        let mut after = empty_histogram();
        timings.add_to(CommandKind::Delete, &mut after);
        assert_eq!(after.len(), 0);
    }
}
