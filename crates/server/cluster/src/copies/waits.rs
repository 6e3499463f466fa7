//! How long a leader waits for copies.
//!
//! Owns: since when it waits for each vbucket, and which nodes it gives no copies for a while. A
//! record is not changed again and again for a copy whose link fails: the pause grows with each
//! attempt that fails. Another leader begins anew.

use std::collections::BTreeMap;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord};

use crate::records::{CopiesEntry, VbucketPlace};

/// Longest pause, in the patience.
const PAUSES_MAX: u64 = 16;
/// How long the place of a copy is kept for a node that is gone, in the patience.
const KEPT: u64 = 12;

/// A node whose copies did not follow another node.
#[derive(Debug, Clone, Copy)]
struct Pause {
    noted_ns: u64,
    pause_ns: u64,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct LeaderWaits {
    now_ns: u64,
    patience_ns: u64,
    since_ns: BTreeMap<VbucketPlace, (CopiesEpoch, u64)>,
    /// By the number of the active copy's node, and that of the other.
    pauses: BTreeMap<(u16, u16), Pause>,
}

impl LeaderWaits {
    /// Begins a look at all records.
    pub(crate) fn begin(
        &mut self,
        records: &BTreeMap<VbucketPlace, CopiesEntry>,
        now_ns: u64,
        patience_ns: u64,
    ) {
        debug_assert!(now_ns >= self.now_ns && patience_ns > 0, "time goes on");
        (self.now_ns, self.patience_ns) = (now_ns, patience_ns);
        self.since_ns.retain(|place, (epoch, _)| {
            records.get(place).is_some_and(|entry| entry.record.epoch == *epoch)
        });
    }

    /// True when the copies of this record had their time. The first call begins it.
    pub(crate) fn is_over(&mut self, place: &VbucketPlace, record: &CopiesRecord) -> bool {
        let begun = (record.epoch, self.now_ns);
        let (_, since_ns) = self.since_ns.entry(place.clone()).or_insert(begun);
        self.now_ns.saturating_sub(*since_ns) >= self.patience_ns
    }

    /// A copy of `node` did not follow the active copy.
    pub(crate) fn note_unfollowed(&mut self, active: u16, node: u16) {
        let (now_ns, first_ns) = (self.now_ns, self.patience_ns);
        let first = Pause { noted_ns: now_ns, pause_ns: first_ns };
        let pause = self.pauses.entry((active, node)).or_insert(first);
        // Its vbuckets are noted one after the other.
        if pause.noted_ns != now_ns {
            let longest_ns = first_ns.saturating_mul(PAUSES_MAX);
            let pause_ns = pause.pause_ns.saturating_mul(2).min(longest_ns);
            *pause = Pause { noted_ns: now_ns, pause_ns };
        }
    }

    /// A copy of `node` has everything.
    pub(crate) fn note_filled(&mut self, active: u16, node: u16) {
        self.pauses.remove(&(active, node));
    }

    /// True while `node` gets no copies of vbuckets that `active` has.
    pub(crate) fn pauses(&self, active: u16, node: u16) -> bool {
        let pause = self.pauses.get(&(active, node));
        pause.is_some_and(|it| self.now_ns.saturating_sub(it.noted_ns) < it.pause_ns)
    }

    /// True while a node that is gone may come back to its place next to `active`: what it has
    /// saves most of a transfer.
    pub(crate) fn keeps_place(&self, active: u16, is_live: impl Fn(u16) -> bool) -> bool {
        let kept_ns = self.patience_ns.saturating_mul(KEPT);
        let of_active = self.pauses.range((active, 0)..=(active, u16::MAX));
        let mut gone = of_active.filter(|((_, node), _)| !is_live(*node));
        gone.any(|(_, pause)| self.now_ns.saturating_sub(pause.noted_ns) < kept_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(waits: &mut LeaderWaits, now_ns: u64) {
        waits.begin(&BTreeMap::new(), now_ns, 10);
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_end_with_success() {
        let mut waits = LeaderWaits::default();
        at(&mut waits, 100);
        waits.note_unfollowed(1, 2);
        waits.note_unfollowed(1, 2);
        at(&mut waits, 109);
        assert!(waits.pauses(1, 2) && !waits.pauses(2, 1));
        at(&mut waits, 110);
        assert!(!waits.pauses(1, 2), "two vbuckets are one failure");
        let mut now_ns = 110;
        for pause_ns in [20, 40, 80, 160, 160] {
            waits.note_unfollowed(1, 2);
            at(&mut waits, now_ns + pause_ns - 1);
            assert!(waits.pauses(1, 2));
            now_ns += pause_ns;
            at(&mut waits, now_ns);
            assert!(!waits.pauses(1, 2));
        }
        waits.note_unfollowed(1, 2);
        waits.note_filled(1, 2);
        assert!(!waits.pauses(1, 2));
    }

    #[test]
    fn a_place_is_kept_for_a_node_that_is_gone() {
        let mut waits = LeaderWaits::default();
        at(&mut waits, 0);
        waits.note_unfollowed(1, 2);
        assert!(waits.keeps_place(1, |_| false) && !waits.keeps_place(2, |_| false));
        assert!(!waits.keeps_place(1, |node| node == 2), "it is back");
        at(&mut waits, 120);
        assert!(!waits.keeps_place(1, |_| false));
    }
}
