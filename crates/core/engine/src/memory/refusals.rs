//! When a bucket begins to refuse writes for lack of memory, and when it stops.
//!
//! Owns: the rule. Single refusals come in bursts while the pager works, so a time of refusals ends
//! only when none came for a while. Called by the account of memory, at least once a second.

use oribi_types::Timestamp;

/// Time without a refusal after which a time of refusals is over.
const QUIET_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusalChange {
    /// Writes are refused from now on.
    Begin,
    /// They are accepted again.
    End {
        /// Writes that were refused in between.
        refused: u64,
    },
}

/// The refusals so far.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    seen: u64,
    /// Count before the first refusal of this time, and when the last was seen.
    current: Option<(u64, Timestamp)>,
}

impl Refusals {
    /// True during a time of refusals.
    pub(super) fn is_current(&self) -> bool {
        self.current.is_some()
    }

    /// Takes the count of all refusals so far, whether new ones are for lack of memory, and whether
    /// it is lacking now.
    pub(super) fn look(
        &mut self,
        count: u64,
        (is_for_memory, lacks_memory): (bool, bool),
        now: Timestamp,
    ) -> Option<RefusalChange> {
        let before = std::mem::replace(&mut self.seen, count);
        debug_assert!(
            self.current.is_none_or(|(begun, _)| begun <= count),
            "refusals are counted up"
        );
        match &mut self.current {
            None if count > before && is_for_memory => {
                self.current = Some((before, now));
                Some(RefusalChange::Begin)
            }
            None => None,
            Some((_, last)) if count > before || lacks_memory => {
                *last = now;
                None
            }
            Some((begun, last)) if now.unix_ns.saturating_sub(last.unix_ns) >= QUIET_NS => {
                let refused = count - *begun;
                self.current = None;
                Some(RefusalChange::End { refused })
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RefusalChange, Refusals, Timestamp};

    #[test]
    fn a_time_of_refusals_is_two_lines() {
        let mut refusals = Refusals::default();
        let mut look =
            |count, lacks, s| refusals.look(count, (lacks, lacks), Timestamp::from_unix_s(s));
        assert_eq!(look(0, false, 1), None);
        assert_eq!(look(0, true, 2), None, "nobody was refused");
        assert_eq!(look(3, false, 3), None, "for another reason");
        assert_eq!(look(5, true, 4), Some(RefusalChange::Begin));
        assert_eq!(look(9, true, 5), None);
        assert_eq!(look(9, false, 7), None, "a burst may follow");
        assert_eq!(look(10, false, 8), None);
        assert_eq!(look(10, false, 12), None);
        assert_eq!(look(10, false, 13), Some(RefusalChange::End { refused: 7 }));
        assert_eq!(look(10, false, 20), None);
        assert_eq!(look(11, true, 21), Some(RefusalChange::Begin));
    }
}
