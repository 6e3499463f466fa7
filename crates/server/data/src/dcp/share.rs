//! How much of its worker's time a producer takes in one turn.
//!
//! Owns: the messages that a turn may still send. A turn sends a slice, as that of any connection.
//! But one connection's slice is less than what ten writers put into the queue in their turns, so a
//! live stream would lag on a busy worker: the queue would keep every version until it is read,
//! from memory that is cold by then. So a turn of a live stream continues until it has sent as many
//! messages as the worker has served requests since the previous turn. Long slices of backfills are
//! queued after the turns of other connections, one for each poll of the sockets, like slices of
//! large values.
//!
//! Invariants: a turn sends at most [`CHANGES_PER_TURN_MAX`] messages, and one of backfills a
//! slice. The producer counts, the worker checks after it has sent the output.

use crate::limits::{CHANGES_PER_TURN, CHANGES_PER_TURN_MAX};

/// Messages from which on a slice is a long one: some ten microseconds of work.
const BULK_MESSAGES: usize = 32;
const _: () = assert!(BULK_MESSAGES <= CHANGES_PER_TURN);

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct TurnShare {
    /// Requests that the worker had served when the turn began.
    requests_seen: u64,
    left: usize,
    /// The last slice had changes from memory.
    is_live: bool,
    /// The last slice had many messages, all of backfills.
    is_bulk: bool,
}

impl TurnShare {
    /// A turn begins. `requests_served` are all of the worker so far.
    pub fn begin(&mut self, requests_served: u64) {
        let others = requests_served.wrapping_sub(self.requests_seen);
        let others = usize::try_from(others).unwrap_or(usize::MAX);
        let left = others.clamp(CHANGES_PER_TURN, CHANGES_PER_TURN_MAX);
        (self.requests_seen, self.left, self.is_live) = (requests_served, left, false);
        debug_assert!(self.slice() > 0, "a turn may send a message");
    }

    /// Messages of the next slice.
    pub fn slice(&self) -> usize {
        self.left.min(CHANGES_PER_TURN)
    }

    /// Counts the messages of a slice.
    pub fn sent(&mut self, messages: usize, is_live: bool) {
        assert!(messages <= self.left, "a turn sends at most its share");
        self.left = self.left.saturating_sub(messages);
        self.is_live = is_live;
        self.is_bulk = !is_live && messages >= BULK_MESSAGES;
    }

    /// True when the next slice is probably long and no reader waits for live changes.
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// True when the turn has another slice.
    pub fn may_continue(&self) -> bool {
        self.is_live && self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{BULK_MESSAGES, CHANGES_PER_TURN, CHANGES_PER_TURN_MAX, TurnShare};

    /// Messages of one turn that always has more.
    fn turn(share: &mut TurnShare, requests_served: u64, is_live: bool) -> usize {
        share.begin(requests_served);
        let mut sent = 0;
        loop {
            let slice = share.slice();
            assert!(slice <= CHANGES_PER_TURN);
            share.sent(slice, is_live);
            sent += slice;
            if !share.may_continue() {
                return sent;
            }
        }
    }

    #[test]
    fn a_live_stream_keeps_up_with_its_workers_requests() {
        let mut share = TurnShare::default();
        assert_eq!(turn(&mut share, 0, true), CHANGES_PER_TURN);
        assert_eq!(turn(&mut share, 10, true), CHANGES_PER_TURN, "never less than a slice");
        assert_eq!(turn(&mut share, 1010, true), 1000);
        assert_eq!(turn(&mut share, 1010, true), CHANGES_PER_TURN, "nothing counts twice");
        assert_eq!(turn(&mut share, 1 << 40, true), CHANGES_PER_TURN_MAX, "others get turns");
    }

    #[test]
    fn a_backfill_has_one_slice_a_turn() {
        let mut share = TurnShare::default();
        assert_eq!(turn(&mut share, 100_000, false), CHANGES_PER_TURN);
    }

    #[test]
    fn only_long_slices_of_backfills_let_others_go_first() {
        let mut share = TurnShare::default();
        assert!(!share.is_bulk(), "it has sent nothing");
        for (messages, is_live, is_bulk) in [
            (BULK_MESSAGES, false, true),
            (BULK_MESSAGES - 1, false, false),
            (CHANGES_PER_TURN, true, false),
        ] {
            share.begin(0);
            share.sent(messages, is_live);
            assert_eq!(share.is_bulk(), is_bulk, "{messages} {is_live}");
        }
        share.begin(0);
        share.sent(BULK_MESSAGES, false);
        share.begin(100);
        assert!(share.is_bulk(), "a turn that begins has sent nothing yet");
    }
}
