//! Connections with change streams that pause before they look for more.
//!
//! Owns: which connections pause, and until when. Invariant: a connection is in the list at least
//! while its producer pauses, and leaves it when the pause is over; an entry of a connection that
//! is gone is ignored. The worker calls this once per round.

use crate::connection::waker::ConnectionId;
use crate::dcp::pace::Moment;

/// See the module text.
#[derive(Default)]
pub(super) struct Pauses {
    held: Vec<(Moment, ConnectionId)>,
    /// The earliest end of each kind; `None` without a pause.
    due: Option<Moment>,
}

impl Pauses {
    /// Adds a connection until `due`.
    pub fn add(&mut self, connection: ConnectionId, due: Moment) {
        self.held.push((due, connection));
        self.due = Some(self.due.map_or(due, |first| earlier(first, due)));
        debug_assert!(
            self.due_ns().is_some_and(|first| first <= due.ns),
            "the first pause ends first"
        );
    }

    /// When the first pause is over, whatever the worker receives.
    pub fn due_ns(&self) -> Option<u64> {
        self.due.map(|due| due.ns)
    }

    /// Takes out a connection whose pause is over.
    pub fn take_due(&mut self, now: Moment) -> Option<ConnectionId> {
        if self.due.is_none_or(|due| !now.has_reached(due)) {
            return None;
        }
        let at = self.held.iter().position(|(due, _)| now.has_reached(*due));
        let found = at.map(|at| self.held.swap_remove(at).1);
        if found.is_none() {
            self.due = self.held.iter().map(|(due, _)| *due).reduce(earlier);
        }
        debug_assert!(
            found.is_some() || self.due.is_some() != self.held.is_empty(),
            "a pause has an end"
        );
        found
    }
}

/// The earlier of each kind.
fn earlier(one: Moment, other: Moment) -> Moment {
    Moment { ns: one.ns.min(other.ns), received: one.received.min(other.received) }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionId, Moment, Pauses};

    const LONG: Moment = Moment { ns: u64::MAX, received: u64::MAX };

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 1 }
    }

    #[test]
    fn each_pause_ends_once_and_not_early() {
        let at = |ns| Moment { ns, received: 0 };
        let until = |ns| Moment { ns, ..LONG };
        let mut pauses = Pauses::default();
        assert_eq!((pauses.due_ns(), pauses.take_due(LONG)), (None, None));
        pauses.add(id(1), until(20));
        pauses.add(id(2), until(10));
        pauses.add(id(3), until(10));
        assert_eq!((pauses.due_ns(), pauses.take_due(at(9))), (Some(10), None));
        let mut ended =
            [pauses.take_due(at(10)), pauses.take_due(at(10))].map(|id| id.unwrap().slot);
        ended.sort_unstable();
        assert_eq!((ended, pauses.take_due(at(10))), ([2, 3], None));
        assert_eq!((pauses.due_ns(), pauses.take_due(at(25))), (Some(20), Some(id(1))));
        assert_eq!((pauses.take_due(at(25)), pauses.due_ns()), (None, None));
    }

    #[test]
    fn bytes_end_a_pause_before_its_time() {
        let mut pauses = Pauses::default();
        pauses.add(id(1), Moment { ns: 100, received: 5000 });
        pauses.add(id(2), Moment { ns: 200, received: 3000 });
        assert_eq!(pauses.take_due(Moment { ns: 1, received: 2999 }), None);
        assert_eq!(pauses.take_due(Moment { ns: 1, received: 3000 }), Some(id(2)));
        assert_eq!(pauses.take_due(Moment { ns: 1, received: 3000 }), None);
        assert_eq!(pauses.due_ns(), Some(100));
        assert_eq!(pauses.take_due(Moment { ns: 100, received: 3000 }), Some(id(1)));
    }
}
