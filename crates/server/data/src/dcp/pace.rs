//! When a busy producer polls its streams again.
//!
//! Owns: the distance between two looks. A look at a stream costs about as much for one change as
//! for ten: a lock, a marker, a send, and caches that the work of others has taken. So a producer
//! that found many changes waits before the next look. It waits longer while its looks find few
//! changes in each stream, and shorter while they find many changes or bytes. One that found few
//! changes in all looks at once, so light load has no delay; nor has a backfill. A busy producer
//! will look again anyway, so the streams that it has read to their ends need no wake-up.
//!
//! Invariants: announced changes are read within [`CHANGES_PAUSE_NS_MAX`], and a pause is held only
//! after a look that found more than [`CHANGES_WITHOUT_PAUSE_MAX`] changes. The worker asks when a
//! producer is announced, and gives the held ones their turn.

use crate::limits::{
    CHANGES_LOOK_BYTES, CHANGES_LOOK_BYTES_PER_STREAM, CHANGES_PAUSE_BYTES_MAX,
    CHANGES_PAUSE_NS_MAX, CHANGES_PAUSE_NS_MIN, CHANGES_PER_SNAPSHOT_MIN,
    CHANGES_WITHOUT_PAUSE_MAX,
};

/// A point in the progress of a worker: its time and its input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// On the worker's monotonic clock.
    pub ns: u64,
    /// Bytes that the worker has received so far.
    pub received: u64,
}

impl Moment {
    /// True when either is reached.
    pub fn has_reached(self, due: Moment) -> bool {
        self.ns >= due.ns || self.received >= due.received
    }
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Pace {
    looked: Moment,
    /// How long a busy producer waits after that.
    pause_ns: u64,
    found: LookTotals,
    is_held: bool,
    /// The look that is due has not begun.
    is_due: bool,
}

/// Changes sent from memory since a look.
#[derive(Debug, Default, Clone, Copy)]
struct LookTotals {
    changes: usize,
    bytes: usize,
    snapshots: usize,
}

impl LookTotals {
    fn is_busy(self) -> bool {
        self.changes > CHANGES_WITHOUT_PAUSE_MAX
    }
}

const _: () = assert!(CHANGES_PAUSE_NS_MIN < CHANGES_PAUSE_NS_MAX);

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            looked: Moment::default(),
            pause_ns: CHANGES_PAUSE_NS_MIN,
            found: LookTotals::default(),
            is_held: false,
            is_due: false,
        }
    }
}

impl Pace {
    /// Records that one of that many streams has changes. Returns when to call [`Pace::release`];
    /// `None` when the producer may look now.
    pub fn announce(&mut self, now: Moment, streams: usize) -> Option<Moment> {
        if self.is_due {
            return None;
        }
        let bytes = CHANGES_LOOK_BYTES.max(CHANGES_LOOK_BYTES_PER_STREAM * streams);
        let due = Moment {
            ns: self.looked.ns.saturating_add(self.next_pause_ns()),
            received: self.looked.received.saturating_add(bytes as u64),
        };
        if !self.found.is_busy() || now.has_reached(due) {
            self.release(now);
            return None;
        }
        self.is_held = true;
        debug_assert!(!now.has_reached(due), "a pause ends later");
        Some(due)
    }

    /// Ends a pause: the producer looks now.
    pub fn release(&mut self, now: Moment) {
        let pause_ns = self.next_pause_ns();
        debug_assert!(now.ns >= self.looked.ns, "looks follow each other");
        *self = Pace { looked: now, pause_ns, is_due: true, ..Pace::default() };
    }

    /// True once for each look.
    pub fn begins_look(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    /// True when the look has found so much that the next one will find something, too.
    pub fn is_busy(&self) -> bool {
        self.found.is_busy()
    }

    /// True during a pause.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Counts changes from memory, in frames of so many bytes.
    pub fn sent(&mut self, changes: usize, bytes: usize) {
        self.found.changes += changes;
        self.found.bytes += bytes;
        debug_assert!(changes > 0 && bytes > 0, "a sent change has bytes");
    }

    /// Changes from memory since the last look.
    pub fn found_changes(&self) -> usize {
        self.found.changes
    }

    /// Counts a snapshot of changes from memory.
    pub fn began_snapshot(&mut self) {
        self.found.snapshots += 1;
    }

    /// The pause that follows from the changes found.
    fn next_pause_ns(&self) -> u64 {
        let LookTotals { changes, bytes, snapshots } = self.found;
        let worth_it = CHANGES_PER_SNAPSHOT_MIN * snapshots;
        let (is_thin, is_thick) = (changes < worth_it, changes > 4 * worth_it);
        let pause_ns = match () {
            () if !self.found.is_busy() => CHANGES_PAUSE_NS_MIN,
            () if is_thick || bytes > CHANGES_PAUSE_BYTES_MAX => self.pause_ns / 2,
            () if is_thin && bytes <= CHANGES_PAUSE_BYTES_MAX / 2 => self.pause_ns * 2,
            () => self.pause_ns,
        };
        pause_ns.clamp(CHANGES_PAUSE_NS_MIN, CHANGES_PAUSE_NS_MAX)
    }
}

#[cfg(test)]
mod tests;
