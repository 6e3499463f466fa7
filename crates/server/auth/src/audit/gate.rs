//! The limit on refusals and failed logins in the audit log.
//!
//! Owns: the limit for one worker, or for the admin HTTP, and the count of events left out, which
//! is written when the second is over. Invariant: an event that is left out allocates nothing.
//! Events that need administrator rights or a correct password bypass the gate.

use super::{Actor, AuditLog, Event};

/// Maximum events per second.
const EVENTS_PER_SECOND: u32 = 10;

/// See the module text.
#[derive(Debug, Default)]
pub struct AuditGate {
    window_ms: u64,
    events: u32,
    left_out: u64,
}

impl AuditGate {
    /// True when an event is to be recorded: the log is on, and the limit of this second is not
    /// reached.
    pub fn admits(&mut self, now_ms: u64, log: &AuditLog) -> bool {
        if !log.is_on() {
            return false;
        }
        self.settle(now_ms, log);
        let admits = self.events < EVENTS_PER_SECOND;
        if admits {
            self.events += 1;
        } else {
            self.left_out += 1;
        }
        assert!(
            self.events <= EVENTS_PER_SECOND,
            "no second has more events in the log than it may"
        );
        admits
    }

    /// Records the number of events left out in a second that is over.
    pub fn settle(&mut self, now_ms: u64, log: &AuditLog) {
        if now_ms.saturating_sub(self.window_ms) < 1_000 {
            return;
        }
        (self.window_ms, self.events) = (now_ms, 0);
        debug_assert!(self.events <= EVENTS_PER_SECOND, "a second has a bounded number of events");
        if self.left_out > 0 {
            log.record(Actor::default(), Event::LeftOut(std::mem::take(&mut self.left_out)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::tests::written;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let lines = written(|log| {
            let mut gate = AuditGate::default();
            for _ in 0..1_000 {
                if gate.admits(5_000, log) {
                    log.record(Actor::default(), Event::AuthenticationFailed);
                }
            }
            gate.settle(5_999, log);
            gate.settle(6_000, log);
            gate.settle(7_000, log);
            assert!(gate.admits(7_001, log));
        });
        assert_eq!(lines.len(), EVENTS_PER_SECOND as usize + 1);
        let last = lines.last().unwrap();
        assert_eq!((&last["event"], &last["count"]), (&"events left out".into(), &990.into()));
    }

    #[test]
    fn no_request_passes_without_a_log() {
        assert!(!AuditGate::default().admits(1, &AuditLog::default()));
    }
}
