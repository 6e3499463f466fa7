//! The signals that end a server, and which of them end it at once.
//!
//! Owns: the rule. `timeout` signals the process and then its group, and a terminal and a
//! supervisor may both pass on one Ctrl-C, so a second signal soon after the first is no request to
//! lose writes. A third one is, and so is any that comes later than [`PATIENCE`].

use std::time::{Duration, Instant};

use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

/// Signals later than this after the first end the process at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Exit status of a process that ended without flushing.
const NOT_FLUSHED: i32 = 1;

/// The signals since a server began to stop.
struct StopSignals {
    later_signals: u32,
}

impl StopSignals {
    /// True when the next signal ends the process without flushing.
    fn ends_at_once(&mut self, since_first: Duration) -> bool {
        self.later_signals += 1;
        self.later_signals > 1 || since_first >= PATIENCE
    }
}

/// Ends the process when a signal says so, without waiting for the flush. Signals that came
/// concurrently are handled at once, however many they are.
pub fn end_at_once(signals: &mut Signals, first: Instant) {
    let mut stopping = StopSignals { later_signals: 0 };
    for signal in signals.forever() {
        if signal == SIGHUP {
            continue;
        }
        if stopping.ends_at_once(first.elapsed()) {
            tracing::error!(signal, "another signal: ended without flushing");
            std::process::exit(NOT_FLUSHED);
        }
        tracing::info!(
            signal,
            "stopping already; what is acknowledged is being flushed, unless a third signal comes"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, PATIENCE, StopSignals};

    #[test]
    fn third_or_late_signal_ends_without_flush() {
        let mut stopping = StopSignals { later_signals: 0 };
        assert!(!stopping.ends_at_once(Duration::ZERO), "the second");
        assert!(stopping.ends_at_once(Duration::ZERO), "the third");
        let mut stopping = StopSignals { later_signals: 0 };
        assert!(stopping.ends_at_once(PATIENCE), "a late one");
    }
}
