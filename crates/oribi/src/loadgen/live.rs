//! What the threads of a phase tell while they run, and the line that shows it.
//!
//! Nothing here is touched per row: a thread adds to its numbers when a Write has been answered, which is
//! thousands of rows. The line is on standard error, and only where that is a terminal.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use crate::perf::summary::table::grouped;

/// Longest round trip that is told apart from longer ones: an hour, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Between two redraws.
const REDRAW: Duration = Duration::from_millis(250);

/// One thread's numbers so far, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Live {
    answered_rows: AtomicU64,
    latencies: Mutex<Histogram<u64>>,
}

impl Live {
    /// Nothing yet.
    pub fn new() -> Live {
        Live { answered_rows: AtomicU64::new(0), latencies: Mutex::new(no_latencies()) }
    }

    /// Notes an answered Write.
    pub fn note(&self, rows: u64, round_trip: Duration) {
        self.answered_rows.fetch_add(rows, Relaxed);
        let nanoseconds = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.lock().saturating_record(nanoseconds);
    }

    /// Rows that were answered.
    pub fn answered_rows(&self) -> u64 {
        self.answered_rows.load(Relaxed)
    }

    /// Adds the round trips to `sum`.
    pub fn add_latencies_to(&self, sum: &mut Histogram<u64>) {
        sum.add(&*self.latencies.lock()).expect("all histograms have the same bounds");
    }
}

/// The sum of what all threads had answered.
pub fn answered_rows(threads: &[std::sync::Arc<Live>]) -> u64 {
    threads.iter().map(|live| live.answered_rows()).sum()
}

/// An empty histogram of round trips in nanoseconds.
pub fn no_latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("these bounds are in order")
}

/// The live line of a phase.
pub struct LiveLine {
    bar: ProgressBar,
    /// When it was last drawn, and what had been answered by then.
    drawn: Instant,
    answered: u64,
}

impl LiveLine {
    /// The line of a phase of this many rows; `None` for without end.
    pub fn new(phase: &'static str, rows: Option<u64>) -> LiveLine {
        let template = match rows {
            Some(_) => "{prefix} {bar:20} {percent:>3}% {msg} {eta} left",
            None => "{prefix} {spinner} {elapsed} {msg}",
        };
        let bar = ProgressBar::with_draw_target(rows, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is constant"));
        bar.set_prefix(phase);
        LiveLine { bar, drawn: Instant::now(), answered: 0 }
    }

    /// Redraws if it is time to.
    pub fn update(&mut self, threads: &[std::sync::Arc<Live>]) {
        let since = self.drawn.elapsed();
        if since < REDRAW || self.bar.is_hidden() {
            return;
        }
        let answered = answered_rows(threads);
        let mut latencies = no_latencies();
        threads.iter().for_each(|live| live.add_latencies_to(&mut latencies));
        let per_second = answered.saturating_sub(self.answered) as f64 / since.as_secs_f64();
        self.bar.set_message(message(answered, per_second as u64, &latencies));
        self.bar.set_position(answered);
        self.drawn = Instant::now();
        self.answered = answered;
    }

    /// Removes the line.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

fn message(answered: u64, per_second: u64, latencies: &Histogram<u64>) -> String {
    let mut text = format!("{} rows, {} rows/s", grouped(answered), grouped(per_second));
    if !latencies.is_empty() {
        let at = |percentile| latencies.value_at_percentile(percentile) as f64 / 1e6;
        text += &format!(", Writes p50 {:.1} ms, p99 {:.1} ms", at(50.0), at(99.0));
    }
    text
}

#[cfg(test)]
mod tests {
    //! What threads note adds up, and the line says it.

    use super::*;

    #[test]
    fn numbers_of_threads_add_up() {
        let live = Live::new();
        live.note(4000, Duration::from_millis(5));
        live.note(1000, Duration::from_secs(10_000));
        let mut sum = no_latencies();
        live.add_latencies_to(&mut sum);
        live.add_latencies_to(&mut sum);
        assert_eq!((live.answered_rows(), sum.len()), (5000, 4));
        assert!(sum.max() >= LATENCY_NS_MAX);
    }

    #[test]
    fn the_line_says_how_many_how_fast_and_how_late() {
        let mut latencies = no_latencies();
        assert_eq!(message(1_234_567, 1000, &latencies), "1,234,567 rows, 1,000 rows/s");
        latencies.record(5_000_000).unwrap();
        assert!(message(1, 1, &latencies).ends_with("Writes p50 5.0 ms, p99 5.0 ms"));
    }
}
