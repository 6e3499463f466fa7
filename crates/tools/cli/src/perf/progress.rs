//! The live line of a phase on standard error: how far, how fast, how late, how many problems.
//!
//! Shown when standard error is a terminal, redrawn once a second. The percentiles are those of the
//! second before.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::control::{Live, LoadProgress};
use super::latencies::Latencies;
use super::report::{grouped, micros};

const REDRAW: Duration = Duration::from_secs(1);

/// How the end of a phase is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunExtent {
    Operations(u64),
    /// So many parts, each of unknown size.
    Parts(u64),
    Time(Duration),
    Endless,
}

/// See the module text.
pub struct LiveLine {
    bar: ProgressBar,
    unit: &'static str,
    extent: RunExtent,
    /// When it was last drawn, and what had been done by then.
    drawn: Instant,
    done: u64,
    recent: Latencies,
}

impl LiveLine {
    /// The line of a phase that counts operations under the name `unit`.
    pub fn new(phase: &'static str, unit: &'static str, extent: RunExtent) -> LiveLine {
        let template = match extent {
            RunExtent::Endless => "{prefix} {spinner} {elapsed} {msg}",
            _ => "{prefix} {bar:20} {percent:>3}% {msg}",
        };
        let length = match extent {
            RunExtent::Operations(number) | RunExtent::Parts(number) => Some(number),
            RunExtent::Time(time) => Some(time.as_millis() as u64),
            RunExtent::Endless => None,
        };
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is constant"));
        bar.set_prefix(phase);
        LiveLine { bar, unit, extent, drawn: Instant::now(), done: 0, recent: Latencies::new() }
    }

    /// Redraws if it is time to.
    pub fn update(&mut self, elapsed: Duration, progress: LoadProgress, live: &[Live]) {
        let since = self.drawn.elapsed();
        if since < REDRAW || self.bar.is_hidden() {
            return;
        }
        self.recent.clear();
        live.iter().for_each(|live| live.collect(&mut self.recent));
        let done = progress.operations.saturating_sub(self.done);
        let per_second = done as f64 / since.as_secs_f64();
        let rate = format!("{} {}/s", grouped(per_second as u64), self.unit);
        self.bar.set_message(message(rate, &self.recent, progress.problems));
        match self.extent {
            RunExtent::Operations(_) => self.bar.set_position(progress.operations),
            RunExtent::Parts(_) => self.bar.set_position(progress.parts),
            RunExtent::Time(_) => self.bar.set_position(elapsed.as_millis() as u64),
            RunExtent::Endless => self.bar.tick(),
        }
        self.drawn = Instant::now();
        self.done = progress.operations;
    }

    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

fn message(mut text: String, recent: &Latencies, problems: u64) -> String {
    let all = recent.all();
    let percentile = |percent| micros(all.value_at_percentile(percent) as f64 / 1000.0);
    if !all.is_empty() {
        let (p50, p99, p99_9) = (percentile(50.0), percentile(99.0), percentile(99.9));
        text += &format!("  p50 {p50}  p99 {p99}  p99.9 {p99_9}");
    }
    if problems > 0 {
        text += &format!("  {} PROBLEMS", grouped(problems));
    }
    text
}

#[cfg(test)]
mod tests {
    //! What the line says.

    use super::*;

    #[test]
    fn the_line_says_how_fast_how_late_and_what_is_wrong() {
        let mut recent = Latencies::new();
        let rate = || "1,234 op/s".to_owned();
        assert_eq!(message(rate(), &recent, 0), "1,234 op/s");
        recent.read.record_n(50_000, 99).unwrap();
        recent.write.record(2_000_000).unwrap();
        let text = message(rate(), &recent, 3);
        for part in ["1,234 op/s", "p50 50.0 µs", "p99.9 2.00 ms", "3 PROBLEMS"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
