//! Whether the copy that becomes active next is near the end of the active one.
//!
//! Owns: that decision, while the active copy still serves. From its end of service to the heir's
//! beginning nothing serves the vbucket, so the heir has to have nearly everything before. Under
//! load it always lags: it is near when it has the active copy's seqno of the last look, or lacks
//! only a few seqnos. After the patience it gets the role anyway, because the wait could have no
//! end.

use std::collections::BTreeMap;

use oribi_types::Seqno;

use crate::records::VbucketPlace;

/// Seqnos that an heir may lack: milliseconds of sending.
const GAP_MAX: u64 = 1000;
/// Time between two looks, so the age of a goal.
const GOAL_NS: u64 = 250_000_000;

#[derive(Debug, Clone, Copy)]
struct Mark {
    first_ns: u64,
    asked_ns: u64,
    goal_ns: u64,
    goal: Seqno,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct HeirWaits {
    now_ns: u64,
    patience_ns: u64,
    marks: BTreeMap<VbucketPlace, Mark>,
}

impl HeirWaits {
    /// Begins a look at all vbuckets.
    pub(crate) fn begin(&mut self, now_ns: u64, patience_ns: u64) {
        debug_assert!(now_ns >= self.now_ns && patience_ns > 0, "the clock never goes back");
        let before_ns = std::mem::replace(&mut self.now_ns, now_ns);
        self.patience_ns = patience_ns;
        // A wait that the last look did not ask for has ended.
        self.marks.retain(|_, mark| mark.asked_ns == before_ns);
    }

    /// True when the heir of a vbucket may get the role now. `high` is the last seqno of the active
    /// copy, and `acknowledged` what the heir has of it, if it follows.
    pub(crate) fn is_near(
        &mut self,
        place: &VbucketPlace,
        high: Seqno,
        acknowledged: Option<Seqno>,
    ) -> bool {
        let now_ns = self.now_ns;
        let new = Mark { first_ns: now_ns, asked_ns: now_ns, goal_ns: now_ns, goal: high };
        let mark = self.marks.entry(place.clone()).or_insert(new);
        mark.asked_ns = now_ns;
        let is_near = acknowledged
            .is_some_and(|end| end >= mark.goal || end.0.saturating_add(GAP_MAX) >= high.0);
        if now_ns.saturating_sub(mark.goal_ns) >= GOAL_NS {
            (mark.goal, mark.goal_ns) = (high, now_ns);
        }
        is_near || now_ns.saturating_sub(mark.first_ns) >= self.patience_ns
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::Vbid;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Looks at one heir at these milliseconds: the active's seqno, and the heir's.
    fn looks(looks: &[(u64, u64, Option<u64>)]) -> Vec<bool> {
        let place = VbucketPlace { uuid: "1".to_owned(), vbid: Vbid(3) };
        let mut waits = HeirWaits::default();
        let look = |(now_ms, high, end): &(u64, u64, Option<u64>)| {
            waits.begin(now_ms * 1_000_000, 5 * SECOND);
            waits.is_near(&place, Seqno(*high), end.map(Seqno))
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn an_heir_is_near_with_what_there_was_a_moment_ago() {
        assert_eq!(looks(&[(0, 900, Some(0))]), [true], "it lacks little");
        assert_eq!(looks(&[(0, 0, Some(0))]), [true]);
        let busy = [(0, 90_000, Some(80_000)), (250, 100_000, Some(90_000))];
        assert_eq!(looks(&busy), [false, true]);
        // What it had seconds ago says nothing.
        let slow = [(0, 9000, Some(0)), (250, 18_000, Some(4000)), (500, 27_000, Some(9000))];
        assert_eq!(looks(&slow), [false; 3]);
        let gone = [(0, 9, None), (250, 9, None), (500, 9, None), (5000, 9, None)];
        assert_eq!(looks(&gone), [false, false, false, true], "not for ever");
    }

    #[test]
    fn a_wait_that_ended_begins_anew() {
        let place = VbucketPlace { uuid: "1".to_owned(), vbid: Vbid(3) };
        let mut waits = HeirWaits::default();
        waits.begin(1, SECOND);
        assert!(!waits.is_near(&place, Seqno(5000), Some(Seqno(0))));
        waits.begin(2, SECOND);
        waits.begin(3, SECOND);
        assert!(waits.marks.is_empty());
        assert!(!waits.is_near(&place, Seqno(9000), Some(Seqno(6000))), "the goal is another");
    }
}
