//! The record of a vbucket's copies, which agreement keeps, and the quorums that it defines.
//!
//! Invariant: any write quorum of a record meets any set of promises that decides its successor.
//! While a record is joint, a write quorum is one of each set, and the members alone promise:
//! copies that join have no vote. The old members are left once a write quorum of the joining set
//! stores the record, and so everything before it. The number of configured copies changes in the
//! same way, with the same members or others: each set is counted by its own number. Were a larger
//! number in force at once, fewer promises would decide than writes of before need.

use oribi_types::Seqno;
pub use oribi_types::{CopiesEpoch, CopyId};

/// The copies of a vbucket in one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiesRecord {
    pub epoch: CopiesEpoch,
    pub active: CopyId,
    pub members: Vec<CopyId>,
    /// The members that replace `members`; empty unless the record is joint.
    pub joining: Vec<CopyId>,
    /// Copies that the bucket asks for, the active among them.
    pub configured: usize,
    /// The number by which the joining set is counted, where another one replaces `configured`.
    pub joining_configured: Option<usize>,
    /// The last seqno of the epoch before, when its active handed over. A copy that holds exactly
    /// this prefix may begin without promises.
    pub handover: Option<Seqno>,
}

impl CopiesRecord {
    /// Copies that a durable write waits for.
    pub fn majority(&self) -> usize {
        majority(self.configured)
    }

    /// Those of the joining set.
    pub fn joining_majority(&self) -> usize {
        majority(self.joining_configured.unwrap_or(self.configured))
    }

    pub fn is_joint(&self) -> bool {
        !self.joining.is_empty()
    }

    /// The sets of members with their majorities.
    fn sets(&self) -> impl Iterator<Item = (&[CopyId], usize)> {
        let sets =
            [(&self.members[..], self.majority()), (&self.joining[..], self.joining_majority())];
        sets.into_iter().filter(|(set, _)| !set.is_empty())
    }

    /// All members, each once.
    pub fn all(&self) -> Vec<CopyId> {
        let mut all = [&self.members[..], &self.joining[..]].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// False when fewer copies exist than a durable write asks for.
    pub fn is_durability_possible(&self) -> bool {
        self.sets().all(|(set, majority)| set.len() >= majority)
    }

    /// True when the copies for which `holds` is true are a write quorum of each set.
    pub fn is_write_quorum(&self, holds: impl Fn(CopyId) -> bool) -> bool {
        self.sets().all(|(set, majority)| {
            set.iter().filter(|member| holds(**member)).count() >= majority.min(set.len())
        })
    }

    /// For each set the copies besides the active one, and how many of them have to grant that it
    /// serves (R7).
    pub fn granters(&self) -> impl Iterator<Item = (Vec<CopyId>, usize)> {
        self.sets().map(|(set, majority)| {
            let others: Vec<CopyId> =
                set.iter().copied().filter(|copy| *copy != self.active).collect();
            assert!(others.len() < set.len(), "the active copy is in each set");
            (others, majority.min(set.len()) - 1)
        })
    }

    /// The members that the joining set keeps; empty unless the record is joint.
    pub fn staying(&self) -> Vec<CopyId> {
        self.joining.iter().copied().filter(|copy| self.members.contains(copy)).collect()
    }

    /// The record as an election counts it. A write quorum has one of the members, so their
    /// promises decide, and copies that join have no vote. The members that stay decide by
    /// themselves, too: the others may lack plain writes.
    pub fn voters(&self) -> CopiesRecord {
        CopiesRecord { joining: self.staying(), joining_configured: None, ..self.clone() }
    }

    /// True when the promises decide who is next: `promise` says whether a member that promised is
    /// intact. The promises of all decide, too, unless a write quorum, or what a write quorum does
    /// not need, is lost: an acknowledged write may have been in lost copies alone.
    pub fn promises_decide(
        &self,
        promise: impl Fn(CopyId) -> Option<bool>,
        is_lost: impl Fn(CopyId) -> bool,
    ) -> bool {
        self.sets().all(|(set, majority)| {
            let intact = set.iter().filter(|member| promise(**member) == Some(true)).count();
            let answers = set.iter().filter(|member| promise(**member).is_some()).count();
            let lost = set.iter().filter(|member| is_lost(**member)).count();
            debug_assert!(answers + lost <= set.len(), "a lost copy promises nothing");
            let quorum = majority.min(set.len());
            let spared = set.len() - quorum;
            let is_survived = lost < quorum && lost <= spared;
            intact > spared || (answers + lost == set.len() && is_survived)
        })
    }

    /// True when the joining set can replace the members: a write quorum of it stores the record of
    /// this epoch, and so everything before it.
    pub fn can_settle(&self, stores: impl Fn(CopyId) -> bool) -> bool {
        let stored = self.joining.iter().filter(|member| stores(**member)).count();
        self.is_joint() && stored >= self.joining_majority().min(self.joining.len())
    }

    /// The record once `winner` is promoted. Of two voters the winner stays alone, because it alone
    /// is known to hold everything. Copies that join begin anew; members that are being left out do
    /// not return.
    pub fn promoted(&self, winner: CopyId) -> CopiesRecord {
        assert!(self.members.contains(&winner), "a member is promoted");
        if self.voters().sets().any(|(set, _)| set.len() <= 2) {
            return self.next(winner, vec![winner], Vec::new());
        }
        let mut joining = self.staying();
        if self.is_joint() && !joining.contains(&winner) {
            joining.push(winner);
        }
        if joining.len() == self.members.len() {
            joining.clear();
        }
        self.next(winner, self.members.clone(), joining)
    }

    /// The record that takes in `joining`, which has the active.
    pub fn joint(&self, joining: Vec<CopyId>) -> CopiesRecord {
        self.next(self.active, self.members.clone(), joining)
    }

    /// The record that takes in `joining`, which has the active, for another number of copies.
    pub fn resized(&self, joining: Vec<CopyId>, configured: usize) -> CopiesRecord {
        assert!(configured > 0, "the active is a copy");
        let joining_configured = (configured != self.configured).then_some(configured);
        CopiesRecord { joining_configured, ..self.joint(joining) }
    }

    /// The record that leaves the old members, and the old number of copies.
    pub fn settled(&self) -> CopiesRecord {
        assert!(self.is_joint(), "only a change of members is settled");
        let configured = self.joining_configured.unwrap_or(self.configured);
        CopiesRecord { configured, ..self.next(self.active, self.joining.clone(), Vec::new()) }
    }

    /// The record that gives the joining set up again.
    pub fn abandoned(&self) -> CopiesRecord {
        self.next(self.active, self.members.clone(), Vec::new())
    }

    /// The record that ends promises which led to no promotion. Copies that join begin again; a
    /// member that is being left out does not return.
    pub fn renewed(&self) -> CopiesRecord {
        let staying = self.staying();
        let next = match self.is_joint() && staying.len() < self.members.len() {
            true => self.joint(staying),
            false => self.abandoned(),
        };
        assert_eq!(next.active, self.active, "nothing is promoted");
        next
    }

    /// The record in which another member is active; the old one appended its last seqno.
    pub fn handed_over(&self, active: CopyId, last: Seqno) -> CopiesRecord {
        let record = self.next(active, self.members.clone(), self.joining.clone());
        CopiesRecord { handover: Some(last), joining_configured: self.joining_configured, ..record }
    }

    fn next(&self, active: CopyId, members: Vec<CopyId>, joining: Vec<CopyId>) -> CopiesRecord {
        debug_assert!(self.epoch < self.epoch.next(), "every record has a later epoch");
        let (epoch, configured) = (self.epoch.next(), self.configured);
        let (joining_configured, handover) = (None, None);
        CopiesRecord { epoch, active, members, joining, configured, joining_configured, handover }
    }
}

/// More than half of the copies.
fn majority(configured: usize) -> usize {
    configured / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(nodes: &[u16]) -> Vec<CopyId> {
        nodes.iter().map(|node| CopyId { node: *node, copy: 1 }).collect()
    }

    fn record(members: &[u16], joining: &[u16], configured: usize) -> CopiesRecord {
        let (members, joining) = (copies(members), copies(joining));
        let (epoch, active) = (CopiesEpoch(5), members[0]);
        let (joining_configured, handover) = (None, None);
        CopiesRecord { epoch, active, members, joining, configured, joining_configured, handover }
    }

    #[test]
    fn another_number_of_copies_counts_once_it_settles() {
        let before = record(&[1, 2, 3], &[], 3);
        let larger = before.resized(before.members.clone(), 4);
        let holds = |of: &[u16]| {
            let holding = copies(of);
            move |copy: CopyId| holding.contains(&copy)
        };
        assert!(before.is_write_quorum(holds(&[1, 2])) && !larger.is_write_quorum(holds(&[1, 2])));
        // A write that 1 and 2 have acknowledged before: 3 alone does not decide.
        let promise = |of: &[u16]| {
            let promised = copies(of);
            move |copy: CopyId| promised.contains(&copy).then_some(true)
        };
        assert!(!larger.voters().promises_decide(promise(&[3]), |_| false));
        assert!(larger.voters().promises_decide(promise(&[2, 3]), |_| false));
        assert!(!larger.can_settle(holds(&[1, 2])) && larger.can_settle(holds(&[1, 2, 3])));
        let settled = larger.settled();
        assert_eq!((settled.configured, settled.joining_configured), (4, None));
        assert!(settled.voters().promises_decide(promise(&[3]), |_| false));
        // What ends the change keeps the old number; a hand-over continues it.
        let three = CopyId { node: 3, copy: 1 };
        for ended in [larger.abandoned(), larger.renewed(), larger.promoted(three)] {
            assert_eq!((ended.configured, ended.joining_configured), (3, None));
        }
        assert_eq!(larger.handed_over(three, Seqno(1)).joining_configured, Some(4));
        assert_eq!(before.resized(before.members.clone(), 3).joining_configured, None);
    }

    #[test]
    fn a_member_that_is_left_out_does_not_return() {
        for (joining, next) in
            [(&[][..], &[][..]), (&[1, 2, 3], &[]), (&[1, 3], &[1]), (&[1], &[1])]
        {
            let renewed = record(&[1, 2], joining, 3).renewed();
            assert_eq!((renewed.members, renewed.joining), (copies(&[1, 2]), copies(next)));
        }
    }

    #[test]
    fn copies_that_join_have_no_vote() {
        let promise = |of: &[u16]| {
            let promised = copies(of);
            move |copy: CopyId| promised.contains(&copy).then_some(true)
        };
        let decides = |joint: &CopiesRecord, of: &[u16]| {
            joint.voters().promises_decide(promise(of), |_| false)
        };
        let grows = record(&[1, 2], &[1, 2, 3], 3);
        assert!(decides(&grows, &[2]) && !decides(&grows, &[3]));
        // 3 is being left out: it may lack plain writes, so that 1 or 2 has to promise.
        let replaces = record(&[1, 2, 3], &[1, 2, 4], 3);
        assert!(decides(&replaces, &[2, 3]) && !decides(&replaces, &[3, 4]));
        assert!(!decides(&record(&[1, 2], &[1, 3], 2), &[2, 3]), "1 alone stays");
    }

    #[test]
    fn granters_and_the_active_are_a_write_quorum() {
        for (members, joining, configured, needed) in [
            (&[1][..], &[][..], 2, &[0][..]),
            (&[1, 2], &[], 2, &[1]),
            (&[1, 2, 3], &[], 3, &[1]),
            (&[1, 2, 3, 4], &[], 4, &[2]),
            (&[1, 2], &[], 1, &[0]),
            (&[1, 2], &[1, 3], 2, &[1, 1]),
        ] {
            let record = record(members, joining, configured);
            let counts: Vec<usize> = record.granters().map(|(_, needed)| needed).collect();
            assert_eq!(counts, needed, "{record:?}");
            let first: Vec<CopyId> =
                record.granters().flat_map(|(others, needed)| others[..needed].to_vec()).collect();
            let holds = |copy| copy == record.active || first.contains(&copy);
            assert!(record.is_write_quorum(holds), "{record:?}");
        }
    }

    #[test]
    fn a_promotion_takes_no_copy_in() {
        for (members, joining, winner, next_members, next_joining) in [
            (&[1, 2, 3][..], &[][..], 2, &[1, 2, 3][..], &[][..]),
            (&[1, 2, 3], &[1, 2, 3, 4], 2, &[1, 2, 3], &[]),
            (&[1, 2, 3, 4], &[1, 2, 3, 5], 2, &[1, 2, 3, 4], &[1, 2, 3]),
            (&[1, 2, 3, 4], &[1, 2, 3, 5], 4, &[1, 2, 3, 4], &[]),
            (&[1, 2, 3], &[1, 2, 4], 2, &[2], &[]),
            (&[1, 2], &[1, 3], 1, &[1], &[]),
        ] {
            let promoted = record(members, joining, 3).promoted(CopyId { node: winner, copy: 1 });
            assert_eq!(promoted.members, copies(next_members), "{members:?} {joining:?}");
            assert_eq!(promoted.joining, copies(next_joining), "{members:?} {joining:?}");
        }
    }

    #[test]
    fn the_rest_of_a_loss_decides_nothing() {
        // Members, configured copies, lost ones; the others promise: all intact, or none.
        for (members, configured, lost, if_intact, if_not) in [
            (&[1, 2, 3][..], 3, &[][..], true, true),
            (&[1, 2, 3], 3, &[1], true, true),
            (&[1, 2, 3], 3, &[1, 2], false, false),
            (&[1, 2], 2, &[1], true, false),
            (&[1, 2], 1, &[1], false, false),
            (&[1, 2, 3, 4], 4, &[1, 2], true, false),
            (&[1], 1, &[1], false, false),
        ] {
            let (record, lost) = (record(members, &[], configured), copies(lost));
            let decides = |is_intact| {
                let promise = |copy| (!lost.contains(&copy)).then_some(is_intact);
                record.promises_decide(promise, |copy| lost.contains(&copy))
            };
            assert_eq!((decides(true), decides(false)), (if_intact, if_not), "{record:?} {lost:?}");
        }
    }
}
