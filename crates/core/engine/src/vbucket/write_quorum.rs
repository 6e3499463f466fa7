//! The copies that a durable write of a vbucket waits for, and what they acknowledged.
//!
//! Owns: that decision, as plain data. A write is committed when a write quorum of each set of the
//! record acknowledged it in the record's epoch, the active among them. A set's quorum is the
//! majority of the configured copies, or all of fewer members. Acknowledgements of other epochs
//! count nothing; a later one may come before its record, so it is kept. A copy that is alone of
//! several, or may soon be, commits only what its disk has: no other memory counts then.

use std::collections::BTreeMap;

use oribi_types::{CopiesEpoch, CopyId, DurabilityLevel, Seqno};

/// The members of a vbucket's copies in one epoch, as the active copy sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteQuorum {
    pub epoch: CopiesEpoch,
    pub active: CopyId,
    pub members: Vec<CopyId>,
    /// The members that replace `members`; empty outside of such a change.
    pub joining: Vec<CopyId>,
    /// Copies that a durable write waits for, the active among them, if there are so many.
    pub majority: usize,
    /// Those of `joining`, which may be members of another number of configured copies.
    pub joining_majority: usize,
}

impl WriteQuorum {
    /// The sets with their majorities.
    fn sets(&self) -> impl Iterator<Item = (&[CopyId], usize)> {
        let sets = [(&self.members[..], self.majority), (&self.joining[..], self.joining_majority)];
        sets.into_iter().filter(|(set, _)| !set.is_empty())
    }

    fn is_possible(&self) -> bool {
        self.sets().all(|(set, majority)| set.len() >= majority)
    }

    /// True when a set is left to one copy of several.
    fn is_lone(&self) -> bool {
        debug_assert!(self.members.contains(&self.active), "the active copy is a member");
        self.majority > 1 && self.sets().any(|(set, _)| set.len() == 1)
    }

    fn is_met(&self, holds: impl Fn(CopyId) -> bool) -> bool {
        self.sets().all(|(set, majority)| {
            let holding = set.iter().filter(|member| holds(**member)).count();
            holding >= majority.min(set.len())
        })
    }
}

/// See the module text.
#[derive(Default)]
pub(super) struct CopyAcknowledgements {
    /// `None` until the copy is active.
    quorum: Option<WriteQuorum>,
    acknowledged: BTreeMap<CopyId, (CopiesEpoch, Seqno)>,
    /// Commits demand the disk from here on, until the next epoch.
    stored_after: Option<Seqno>,
}

impl CopyAcknowledgements {
    /// Begins an epoch. What members acknowledged in it before counts.
    pub(super) fn begin(&mut self, quorum: WriteQuorum) {
        assert!(quorum.members.contains(&quorum.active), "the active copy is a member");
        let least = quorum.majority.min(quorum.joining_majority);
        assert!(least > 0, "the active copy counts");
        self.acknowledged.retain(|member, (epoch, _)| {
            let is_member = quorum.members.contains(member) || quorum.joining.contains(member);
            is_member && *epoch >= quorum.epoch
        });
        self.quorum = Some(quorum);
        self.stored_after = None;
    }

    /// Commits demand the disk from now on, while the high seqno is `high`. Returns the end of
    /// everything that was committed without.
    pub(super) fn demand_storage(&mut self, high: Seqno) -> Seqno {
        let end = *self.stored_after.get_or_insert(high);
        debug_assert!(end <= high, "the high seqno of an epoch only grows");
        end
    }

    /// Commits demand what their levels say.
    pub(super) fn waive_storage(&mut self) {
        self.stored_after = None;
    }

    /// A member has everything up to `seqno`, as far as durability demands, in `epoch`.
    pub(super) fn acknowledged(&mut self, member: CopyId, epoch: CopiesEpoch, seqno: Seqno) {
        let newest = self.quorum.as_ref().map_or(CopiesEpoch(0), |quorum| quorum.epoch);
        if epoch < newest {
            return;
        }
        let known = self.acknowledged.entry(member).or_insert((epoch, seqno));
        *known = (*known).max((epoch, seqno));
    }

    /// What a member acknowledged in the present epoch.
    pub(super) fn acknowledged_by(&self, member: CopyId) -> Option<Seqno> {
        let quorum = self.quorum.as_ref()?;
        let known = self.acknowledged.get(&member);
        known.filter(|(epoch, _)| *epoch == quorum.epoch).map(|(_, seqno)| *seqno)
    }

    /// False while fewer copies exist than a durable write requires.
    pub(super) fn is_possible(&self) -> bool {
        self.quorum.as_ref().is_some_and(WriteQuorum::is_possible)
    }

    /// True when a prepare is committed; the active has persisted everything up to `persisted`.
    pub(super) fn commits(&self, prepare: Seqno, level: DurabilityLevel, persisted: Seqno) -> bool {
        debug_assert!(prepare > Seqno(0), "a prepare has a seqno");
        let Some(quorum) = &self.quorum else { return false };
        let holds = |member: CopyId| {
            let acknowledged = self.acknowledged.get(&member);
            let is_acknowledged = acknowledged
                .is_some_and(|(epoch, seqno)| *epoch == quorum.epoch && *seqno >= prepare);
            member == quorum.active || is_acknowledged
        };
        let is_stored = prepare <= persisted;
        let needs_storage =
            level.needs_persistence() || self.stored_after.is_some() || quorum.is_lone();
        (is_stored || !needs_storage) && quorum.is_met(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Seqno = Seqno(0);

    fn copy(node: u16) -> CopyId {
        CopyId { node, copy: 1 }
    }

    fn of(epoch: u64, nodes: &[u16], joining: &[u16], majority: usize) -> WriteQuorum {
        let set = |nodes: &[u16]| nodes.iter().map(|node| copy(*node)).collect();
        WriteQuorum {
            epoch: CopiesEpoch(epoch),
            active: copy(1),
            members: set(nodes),
            joining: set(joining),
            majority,
            joining_majority: majority,
        }
    }

    #[test]
    fn a_majority_of_this_epoch_commits() {
        let level = DurabilityLevel::Majority;
        let mut monitor = CopyAcknowledgements::default();
        assert!(!monitor.commits(Seqno(1), level, NONE) && !monitor.is_possible());
        monitor.begin(of(2, &[1, 2, 3], &[], 2));
        assert!(monitor.is_possible());
        monitor.acknowledged(copy(2), CopiesEpoch(1), Seqno(9));
        monitor.acknowledged(copy(9), CopiesEpoch(2), Seqno(9));
        assert!(!monitor.commits(Seqno(1), level, NONE), "neither epoch nor member is right");
        monitor.acknowledged(copy(3), CopiesEpoch(2), Seqno(4));
        monitor.acknowledged(copy(3), CopiesEpoch(2), Seqno(3));
        assert!(monitor.commits(Seqno(4), level, NONE) && !monitor.commits(Seqno(5), level, NONE));
        let persists = DurabilityLevel::MajorityAndPersistOnMaster;
        assert!(!monitor.commits(Seqno(4), persists, Seqno(3)));
        assert!(monitor.commits(Seqno(4), persists, Seqno(4)));
        monitor.begin(of(3, &[1, 2, 3], &[], 2));
        assert!(!monitor.commits(Seqno(1), level, NONE), "members acknowledge again");
    }

    #[test]
    fn a_joint_record_asks_both_sets() {
        let mut monitor = CopyAcknowledgements::default();
        monitor.begin(of(1, &[1, 2], &[1, 3], 2));
        monitor.acknowledged(copy(2), CopiesEpoch(1), Seqno(5));
        assert!(!monitor.commits(Seqno(5), DurabilityLevel::Majority, NONE));
        monitor.acknowledged(copy(3), CopiesEpoch(1), Seqno(5));
        assert!(monitor.commits(Seqno(5), DurabilityLevel::Majority, NONE));
    }

    #[test]
    fn each_set_has_its_majority() {
        let level = DurabilityLevel::Majority;
        let mut monitor = CopyAcknowledgements::default();
        let quorum = of(1, &[1, 2, 3], &[1, 2, 3], 2);
        monitor.begin(WriteQuorum { joining_majority: 3, ..quorum });
        monitor.acknowledged(copy(2), CopiesEpoch(1), Seqno(5));
        assert!(monitor.is_possible() && !monitor.commits(Seqno(5), level, NONE));
        monitor.acknowledged(copy(3), CopiesEpoch(1), Seqno(5));
        assert!(monitor.commits(Seqno(5), level, NONE));
    }

    #[test]
    fn a_lone_copy_commits_and_admits_no_write() {
        let mut monitor = CopyAcknowledgements::default();
        monitor.begin(of(1, &[1], &[], 2));
        assert!(!monitor.is_possible());
        let level = DurabilityLevel::Majority;
        assert!(!monitor.commits(Seqno(5), level, Seqno(4)), "its memory is the only one");
        assert!(monitor.commits(Seqno(5), level, Seqno(5)));
        monitor.begin(of(2, &[1], &[], 1));
        assert!(monitor.commits(Seqno(5), level, NONE), "the bucket has no other copy");
    }

    // The active copy left a silent one out, and its own memory had what both had acknowledged.
    #[test]
    fn a_copy_that_may_be_alone_commits_what_it_stores() {
        let (level, mut monitor) = (DurabilityLevel::Majority, CopyAcknowledgements::default());
        monitor.begin(of(1, &[1, 2], &[], 2));
        monitor.acknowledged(copy(2), CopiesEpoch(1), Seqno(9));
        assert!(monitor.commits(Seqno(5), level, NONE));
        assert_eq!(monitor.demand_storage(Seqno(6)), Seqno(6));
        assert_eq!(monitor.demand_storage(Seqno(8)), Seqno(6), "the first demand counts");
        assert!(!monitor.commits(Seqno(7), level, Seqno(6)));
        assert!(monitor.commits(Seqno(7), level, Seqno(7)));
        monitor.waive_storage();
        assert!(monitor.commits(Seqno(8), level, Seqno(7)));
        monitor.demand_storage(Seqno(9));
        monitor.begin(of(2, &[1, 2], &[], 2));
        monitor.acknowledged(copy(2), CopiesEpoch(2), Seqno(9));
        assert!(monitor.commits(Seqno(9), level, NONE), "another epoch begins");
        monitor.begin(of(3, &[1, 2], &[1], 2));
        monitor.acknowledged(copy(2), CopiesEpoch(3), Seqno(9));
        assert!(!monitor.commits(Seqno(9), level, Seqno(8)), "it is about to be alone");
    }

    // An acknowledgement that came before its record was forgotten, and the write waited for ever.
    #[test]
    fn an_acknowledgement_may_precede_its_record() {
        let mut monitor = CopyAcknowledgements::default();
        monitor.begin(of(1, &[1, 2], &[], 2));
        monitor.acknowledged(copy(2), CopiesEpoch(2), Seqno(5));
        assert!(!monitor.commits(Seqno(5), DurabilityLevel::Majority, NONE));
        monitor.begin(of(2, &[1, 2], &[], 2));
        assert!(monitor.commits(Seqno(5), DurabilityLevel::Majority, NONE));
    }
}
