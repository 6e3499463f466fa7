//! Which copies follow the active copies of this node.
//!
//! Owns: that decision, by what copies acknowledge. A member follows while it gets what the active
//! copy had some time ago; a copy that joins follows while it has a stream. What has not followed
//! for the patience is reported to the leader, so the report changes seldom. The facts are the
//! active's: while it lives, it alone knows what it acknowledged and who has that.

use std::collections::BTreeMap;

use oribi_replication::copies::{CopiesEpoch, CopyId};
use oribi_types::{Seqno, Vbid};

/// Seconds between two acknowledgements of a copy that gets changes all the time.
const ACKNOWLEDGED_EVERY_S: u64 = 1;
/// Acknowledgements that a copy may miss, while its disk or its node is busy.
const MISSED_MAX: u64 = 5;
const NS_PER_S: u64 = 1_000_000_000;

/// How long a copy may not follow: a lease, and longer than a few acknowledgements of one that
/// does.
pub(crate) fn patience_ns(lease_s: u64) -> u64 {
    let patience_s = lease_s.max(MISSED_MAX * ACKNOWLEDGED_EVERY_S);
    debug_assert!(patience_s >= lease_s, "a copy is not given up before its node");
    patience_s.saturating_mul(NS_PER_S)
}

/// A copy that the record of a vbucket names, at one look at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedCopy {
    pub(crate) vbid: Vbid,
    /// The epoch of the record that names it.
    pub(crate) epoch: CopiesEpoch,
    pub(crate) copy: CopyId,
    pub(crate) is_member: bool,
}

/// When a copy followed last, and what it has to have next.
#[derive(Debug, Clone, Copy)]
struct Mark {
    since_ns: u64,
    goal: Seqno,
}

/// The copies of one bucket that other nodes have, and when each followed last.
#[derive(Debug, Default)]
pub(crate) struct CopyProgress(BTreeMap<NamedCopy, Mark>);

impl CopyProgress {
    /// Looks at all copies that follow this node: each with the active's last seqno, and its own if
    /// it has a stream. Returns those that have not followed for `patience_ns`.
    pub(crate) fn look(
        &mut self,
        copies: impl IntoIterator<Item = (NamedCopy, Seqno, Option<Seqno>)>,
        now_ns: u64,
        patience_ns: u64,
    ) -> BTreeMap<Vbid, Vec<u16>> {
        let (mut marks, mut unfollowed) = (BTreeMap::new(), BTreeMap::<Vbid, Vec<u16>>::new());
        for (named, high, complete_end) in copies {
            let new = Mark { since_ns: now_ns, goal: high };
            let known = self.0.get(&named).copied().unwrap_or(new);
            let follows = complete_end.is_some_and(|end| !named.is_member || end >= known.goal);
            let mark = if follows { new } else { known };
            debug_assert!(mark.since_ns <= now_ns, "time goes on");
            if now_ns.saturating_sub(mark.since_ns) >= patience_ns {
                unfollowed.entry(named.vbid).or_default().push(named.copy.node);
            }
            marks.insert(named, mark);
        }
        self.0 = marks;
        unfollowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: u64 = 100;

    // A copy that acknowledged each second was left out after two, with the shortest lease.
    #[test]
    fn a_short_lease_does_not_give_up_copies_that_follow() {
        for (lease_s, expected_s) in [(1, 5), (2, 5), (5, 5), (10, 10)] {
            assert_eq!(patience_ns(lease_s), expected_s * NS_PER_S, "lease of {lease_s} s");
        }
    }

    fn named(is_member: bool) -> NamedCopy {
        let copy = CopyId { node: 7, copy: 1 };
        NamedCopy { vbid: Vbid(3), epoch: CopiesEpoch(2), copy, is_member }
    }

    /// Looks at one copy at these times: the active's seqno, and the copy's.
    fn looks(is_member: bool, looks: &[(u64, u64, Option<u64>)]) -> Vec<bool> {
        let mut progress = CopyProgress::default();
        let look = |(now_ns, high, end): &(u64, u64, Option<u64>)| {
            let copy = (named(is_member), Seqno(*high), end.map(Seqno));
            let unfollowed = progress.look([copy], *now_ns, PATIENCE);
            assert!(unfollowed.values().all(|nodes| *nodes == [7]));
            !unfollowed.is_empty()
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_member_follows_while_it_gets_what_there_was() {
        let idle = [(0, 5, Some(5)), (99, 5, Some(5)), (300, 5, Some(5))];
        assert_eq!(looks(true, &idle), [false; 3]);
        // Under load it is always a little behind.
        let busy = [(0, 10, Some(5)), (90, 20, Some(10)), (180, 30, Some(20)), (270, 40, Some(30))];
        assert_eq!(looks(true, &busy), [false; 4]);
        let stuck = [(0, 10, Some(5)), (50, 20, Some(9)), (100, 30, Some(9)), (110, 30, Some(30))];
        assert_eq!(looks(true, &stuck), [false, false, true, false]);
        let gone = [(0, 5, Some(5)), (50, 5, None), (99, 5, None), (100, 5, None)];
        assert_eq!(looks(true, &gone), [false, false, false, true]);
    }

    #[test]
    fn a_copy_that_joins_follows_while_it_has_a_stream() {
        let filling = [(0, 10, Some(0)), (100, 20, Some(0)), (200, 30, Some(0))];
        assert_eq!(looks(false, &filling), [false; 3]);
        assert_eq!(looks(false, &[(0, 10, None), (100, 10, None)]), [false, true]);
    }

    #[test]
    fn another_epoch_begins_anew() {
        let mut progress = CopyProgress::default();
        let none = (named(true), Seqno(5), None);
        progress.look([none], 0, PATIENCE);
        let next = NamedCopy { epoch: CopiesEpoch(3), ..none.0 };
        assert!(progress.look([(next, none.1, None)], 100, PATIENCE).is_empty());
        assert!(!progress.look([(next, none.1, None)], 200, PATIENCE).is_empty());
    }
}
