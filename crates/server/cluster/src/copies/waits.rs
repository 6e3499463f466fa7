//! How long a leader waits for copies.
//!
//! Owns: since when it waits for each vbucket, and which nodes it gives no copies for a while. A
//! record is not changed again and again for a copy whose link fails: the pause grows with each
//! attempt that fails. Another leader begins anew.

use std::collections::{BTreeMap, BTreeSet};

use oribi_replication::copies::{CopiesEpoch, CopiesRecord};

use crate::records::{CopiesEntry, VbucketPlace};

/// Longest pause, in the patience.
const PAUSES_MAX: u64 = 16;
/// How long a pause is remembered, in the patience: an attempt after the longest one doubles it.
const REMEMBERED: u64 = 2 * PAUSES_MAX;
/// How long the place of a copy is kept for a node that is gone, in the patience.
const KEPT: u64 = 12;

/// A node whose copies did not follow another node.
#[derive(Debug, Clone, Copy)]
struct Pause {
    noted_ns: u64,
    pause_ns: u64,
}

/// The wait for the copies of a record.
#[derive(Debug, Clone, Copy)]
struct Wait {
    epoch: CopiesEpoch,
    since_ns: u64,
    /// The last look that asked.
    asked_ns: u64,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct LeaderWaits {
    now_ns: u64,
    patience_ns: u64,
    waits: BTreeMap<VbucketPlace, Wait>,
    /// By the number of the active copy's node, and that of the other.
    pauses: BTreeMap<(u16, u16), Pause>,
    /// How long copies that promised may take to elect one.
    pub(crate) election_ns: u64,
    /// The records at the last look.
    last: BTreeMap<VbucketPlace, CopiesRecord>,
    /// Vbuckets of which an acknowledged write may be lost, as it was logged last.
    losses: BTreeSet<VbucketPlace>,
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
        let before_ns = std::mem::replace(&mut self.now_ns, now_ns);
        self.patience_ns = patience_ns;
        // A wait that the last look did not ask for has ended.
        self.waits.retain(|place, wait| {
            let record = records.get(place).map(|entry| &entry.record);
            wait.asked_ns == before_ns && record.is_some_and(|record| record.epoch == wait.epoch)
        });
        let remembered_ns = patience_ns.saturating_mul(REMEMBERED);
        self.pauses.retain(|_, pause| now_ns.saturating_sub(pause.noted_ns) < remembered_ns);
        for (active, node) in self.left_alone(records) {
            self.note_unfollowed(active, node);
        }
        self.last = records.iter().map(|(at, entry)| (at.clone(), entry.record.clone())).collect();
    }

    /// Active copies that left the others out themselves since the last look, and the nodes of
    /// those.
    fn left_alone(&self, records: &BTreeMap<VbucketPlace, CopiesEntry>) -> BTreeSet<(u16, u16)> {
        let mut left = BTreeSet::new();
        for (place, entry) in records {
            let (record, before) = (&entry.record, self.last.get(place));
            let is_alone = record.members == [record.active] && !record.is_joint();
            let before = before.filter(|it| is_alone && it.active == record.active);
            let others = before.into_iter().flat_map(CopiesRecord::all);
            let others = others.filter(|copy| *copy != record.active);
            left.extend(others.map(|copy| (record.active.node, copy.node)));
        }
        left
    }

    /// Takes note of the vbuckets of which an acknowledged write may be lost; true when there are
    /// others than at the last look.
    pub(crate) fn note_losses(&mut self, losses: BTreeSet<VbucketPlace>) -> bool {
        let before = std::mem::replace(&mut self.losses, losses);
        !self.losses.is_subset(&before)
    }

    /// True when the copies of this record had their time. The first call begins it.
    pub(crate) fn is_over(&mut self, place: &VbucketPlace, record: &CopiesRecord) -> bool {
        self.is_over_after(self.patience_ns, place, record)
    }

    /// True when copies that promised the record's successor have not elected one in time.
    pub(crate) fn is_election_over(&mut self, place: &VbucketPlace, record: &CopiesRecord) -> bool {
        self.is_over_after(self.election_ns, place, record)
    }

    fn is_over_after(
        &mut self,
        limit_ns: u64,
        place: &VbucketPlace,
        record: &CopiesRecord,
    ) -> bool {
        let now_ns = self.now_ns;
        let begun = Wait { epoch: record.epoch, since_ns: now_ns, asked_ns: now_ns };
        let wait = self.waits.entry(place.clone()).or_insert(begun);
        wait.asked_ns = now_ns;
        now_ns.saturating_sub(wait.since_ns) >= limit_ns
    }

    /// A copy of `node` did not follow the active copy.
    pub(crate) fn note_unfollowed(&mut self, active: u16, node: u16) {
        let (now_ns, first_ns) = (self.now_ns, self.patience_ns);
        let first = Pause { noted_ns: now_ns, pause_ns: first_ns };
        let pause = self.pauses.entry((active, node)).or_insert(first);
        // Its vbuckets are noted one after the other, within one failure.
        if now_ns.saturating_sub(pause.noted_ns) >= pause.pause_ns {
            let longest_ns = first_ns.saturating_mul(PAUSES_MAX);
            let pause_ns = pause.pause_ns.saturating_mul(2).min(longest_ns);
            *pause = Pause { noted_ns: now_ns, pause_ns };
        }
    }

    /// A copy of `node` has everything. That of a copy which was filled before the pause, or during
    /// it, says nothing of the attempt after it.
    pub(crate) fn note_filled(&mut self, active: u16, node: u16) {
        if !self.pauses(active, node) {
            self.pauses.remove(&(active, node));
        }
    }

    /// True while `node` gets no copies of vbuckets that `active` has.
    pub(crate) fn pauses(&self, active: u16, node: u16) -> bool {
        let pause = self.pauses.get(&(active, node));
        pause.is_some_and(|it| self.now_ns.saturating_sub(it.noted_ns) < it.pause_ns)
    }

    /// True while a node that is gone may come back to its place next to `active`: what it has
    /// saves most of a transfer. Whether it is gone shows a while after it was left out.
    pub(crate) fn keeps_place(&self, active: u16, is_live: impl Fn(u16) -> bool) -> bool {
        let kept_ns = self.patience_ns.saturating_mul(KEPT);
        let mut of_active = self.pauses.range((active, 0)..=(active, u16::MAX));
        of_active.any(|((_, node), pause)| {
            let noted_ns = self.now_ns.saturating_sub(pause.noted_ns);
            noted_ns < if is_live(*node) { self.election_ns } else { kept_ns }
        })
    }
}

#[cfg(test)]
mod tests {
    use oribi_replication::copies::CopyId;
    use oribi_types::Vbid;

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
        waits.note_unfollowed(1, 2);
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
        // Another vbucket's copy was nearly filled when the link failed.
        waits.note_filled(1, 2);
        assert!(waits.pauses(1, 2));
        at(&mut waits, now_ns + 160);
        waits.note_filled(1, 2);
        waits.note_unfollowed(1, 2);
        at(&mut waits, now_ns + 169);
        assert!(waits.pauses(1, 2));
        at(&mut waits, now_ns + 170);
        assert!(!waits.pauses(1, 2), "the first pause again");
    }

    #[test]
    fn a_wait_that_ended_begins_anew() {
        let place = VbucketPlace { uuid: "1".to_owned(), vbid: Vbid(3) };
        let active = CopyId { node: 1, copy: 1 };
        let record = CopiesRecord {
            epoch: CopiesEpoch(4),
            active,
            members: vec![active],
            joining: Vec::new(),
            configured: 1,
            joining_configured: None,
            handover: None,
        };
        let entry = CopiesEntry {
            key: String::new(),
            bucket: String::new(),
            revision: 1,
            record: record.clone(),
        };
        let records = BTreeMap::from([(place.clone(), entry)]);
        let mut waits = LeaderWaits::default();
        let mut look = |now_ns, asks: bool| {
            waits.begin(&records, now_ns, 10);
            asks && waits.is_over(&place, &record)
        };
        assert!(!look(100, true) && !look(105, true) && look(110, true));
        assert!(!look(115, false) && !look(120, true), "another wait");
        assert!(!look(129, true) && look(130, true));
    }

    #[test]
    fn old_pauses_are_forgotten() {
        let mut waits = LeaderWaits::default();
        at(&mut waits, 0);
        waits.note_unfollowed(1, 2);
        at(&mut waits, 319);
        assert_eq!(waits.pauses.len(), 1);
        at(&mut waits, 320);
        assert!(waits.pauses.is_empty());
    }

    #[test]
    fn a_copy_that_the_active_one_left_out_pauses() {
        let place = VbucketPlace { uuid: "1".to_owned(), vbid: Vbid(3) };
        let copy = |node| CopyId { node, copy: 1 };
        let both = CopiesRecord {
            epoch: CopiesEpoch(4),
            active: copy(1),
            members: vec![copy(1), copy(2)],
            joining: Vec::new(),
            configured: 2,
            joining_configured: None,
            handover: None,
        };
        let mut waits = LeaderWaits::default();
        let mut look = |now_ns, record: CopiesRecord| {
            let (key, bucket) = (String::new(), String::new());
            let entry = CopiesEntry { key, bucket, revision: 1, record };
            waits.begin(&BTreeMap::from([(place.clone(), entry)]), now_ns, 10);
            waits.pauses(1, 2)
        };
        assert!(!look(100, both.clone()));
        assert!(look(101, both.promoted(copy(1))));
        assert!(!look(111, both.promoted(copy(1))), "it happened once");
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
