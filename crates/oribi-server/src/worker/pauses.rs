//! Connections with change streams that pause before they look for more.
//!
//! Owns: which connections pause, and until when. Invariant: a connection is in the list at least
//! while its producer pauses, and leaves it when the pause is over; an entry of a connection that
//! is gone is ignored. The worker calls this once per round.

use crate::mailbox::ConnectionId;

/// See the module text.
#[derive(Default)]
pub(super) struct Pauses {
    held: Vec<(u64, ConnectionId)>,
    /// The earliest end; `None` without a pause.
    due_ns: Option<u64>,
}

impl Pauses {
    /// Adds a connection until `due_ns`.
    pub fn add(&mut self, connection: ConnectionId, due_ns: u64) {
        self.held.push((due_ns, connection));
        self.due_ns = Some(self.due_ns.map_or(due_ns, |first_ns| first_ns.min(due_ns)));
    }

    /// When the first pause is over.
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Takes out a connection whose pause is over.
    pub fn take_due(&mut self, now_ns: u64) -> Option<ConnectionId> {
        if self.due_ns.is_none_or(|due_ns| now_ns < due_ns) {
            return None;
        }
        let at = self.held.iter().position(|(due_ns, _)| *due_ns <= now_ns);
        let found = at.map(|at| self.held.swap_remove(at).1);
        if found.is_none() {
            self.due_ns = self.held.iter().map(|(due_ns, _)| *due_ns).min();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionId, Pauses};

    #[test]
    fn each_pause_ends_once_and_not_early() {
        let id = |slot| ConnectionId { slot, generation: 1 };
        let mut pauses = Pauses::default();
        assert_eq!((pauses.due_ns(), pauses.take_due(u64::MAX)), (None, None));
        pauses.add(id(1), 20);
        pauses.add(id(2), 10);
        pauses.add(id(3), 10);
        assert_eq!((pauses.due_ns(), pauses.take_due(9)), (Some(10), None));
        let mut ended = [pauses.take_due(10), pauses.take_due(10)].map(|id| id.unwrap().slot);
        ended.sort_unstable();
        assert_eq!((ended, pauses.take_due(10)), ([2, 3], None));
        assert_eq!((pauses.due_ns(), pauses.take_due(25)), (Some(20), Some(id(1))));
        assert_eq!((pauses.take_due(25), pauses.due_ns()), (None, None));
    }
}
