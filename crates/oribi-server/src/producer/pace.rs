//! When a busy producer looks for changes again.
//!
//! Owns: the distance between two looks. A look at a stream costs about as much for one change as
//! for ten: a lock, a marker, a send. So a producer that found many changes waits a moment before
//! the next look, and then finds more of them in each stream. One that found few looks at once, so
//! light load has no delay; nor has a backfill. Invariant: what is announced is looked at within [`CHANGES_PAUSE_NS`].
//! The worker asks when a producer is announced, and gives the held ones their turn.

use crate::limits::{CHANGES_PAUSE_NS, CHANGES_WITHOUT_PAUSE_MAX};

/// See the module text. Times are those of the worker's monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    looked_ns: u64,
    /// Changes sent since then.
    sent: usize,
    is_held: bool,
}

impl Pace {
    /// Takes note that there are changes. Returns when to call [`Pace::release`]; `None` when the
    /// producer may look now.
    pub fn announce(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.looked_ns.saturating_add(CHANGES_PAUSE_NS);
        if self.sent <= CHANGES_WITHOUT_PAUSE_MAX || due_ns <= now_ns {
            self.release(now_ns);
            return None;
        }
        self.is_held = true;
        Some(due_ns)
    }

    /// Ends a pause: the producer looks now.
    pub fn release(&mut self, now_ns: u64) {
        *self = Pace { looked_ns: now_ns, sent: 0, is_held: false };
    }

    /// True during a pause.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Counts a change from memory.
    pub fn sent(&mut self) {
        self.sent += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGES_PAUSE_NS, CHANGES_WITHOUT_PAUSE_MAX, Pace};

    #[test]
    fn only_a_busy_producer_pauses_and_not_for_long() {
        let mut pace = Pace::default();
        let send = |pace: &mut Pace, count| (0..count).for_each(|_| pace.sent());
        let mut now_ns = 10 * CHANGES_PAUSE_NS;
        for _ in 0..100 {
            now_ns += 1;
            assert_eq!(pace.announce(now_ns), None, "few changes are sent at once");
            send(&mut pace, CHANGES_WITHOUT_PAUSE_MAX);
        }
        send(&mut pace, 1);
        let due_ns = now_ns + CHANGES_PAUSE_NS;
        assert_eq!(pace.announce(due_ns - 1), Some(due_ns));
        assert!(pace.is_held());
        pace.release(due_ns);
        assert!(!pace.is_held());
        send(&mut pace, CHANGES_WITHOUT_PAUSE_MAX + 1);
        let later_ns = due_ns + CHANGES_PAUSE_NS;
        assert_eq!(pace.announce(later_ns), None, "the pause is over by itself");
        assert!(!pace.is_held());
    }
}
