//! The record of a vbucket's copies, which agreement keeps, and the quorums that it defines.
//!
//! Invariant: any write quorum of a record meets any set of promises that decides its successor.
//! While a record is joint, this holds in both sets, so one of them can be left.

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
    /// The last seqno of the epoch before, when its active handed over. A copy that holds exactly
    /// this prefix may begin without promises.
    pub handover: Option<Seqno>,
}

impl CopiesRecord {
    /// Copies that a durable write waits for.
    pub fn majority(&self) -> usize {
        self.configured / 2 + 1
    }

    pub fn is_joint(&self) -> bool {
        !self.joining.is_empty()
    }

    fn sets(&self) -> impl Iterator<Item = &[CopyId]> {
        [&self.members[..], &self.joining[..]].into_iter().filter(|set| !set.is_empty())
    }

    fn write_quorum(&self, set: &[CopyId]) -> usize {
        self.majority().min(set.len())
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
        self.sets().all(|set| set.len() >= self.majority())
    }

    /// True when the copies for which `holds` is true are a write quorum of each set.
    pub fn is_write_quorum(&self, holds: impl Fn(CopyId) -> bool) -> bool {
        self.sets().all(|set| {
            set.iter().filter(|member| holds(**member)).count() >= self.write_quorum(set)
        })
    }

    /// True while the joining set only leaves members out.
    pub fn is_shrinking(&self) -> bool {
        self.is_joint() && self.joining.iter().all(|copy| self.members.contains(copy))
    }

    /// True when the promises decide who is next: `promise` says whether a member that promised is
    /// intact.
    pub fn promises_decide(&self, promise: impl Fn(CopyId) -> Option<bool>) -> bool {
        self.sets().all(|set| {
            let intact = set.iter().filter(|member| promise(**member) == Some(true)).count();
            let answers = set.iter().filter(|member| promise(**member).is_some()).count();
            intact > set.len() - self.write_quorum(set) || answers == set.len()
        })
    }

    /// True when the joining set can replace the members: a write quorum of it stores the record of
    /// this epoch, and so everything before it.
    pub fn can_settle(&self, stores: impl Fn(CopyId) -> bool) -> bool {
        let stored = self.joining.iter().filter(|member| stores(**member)).count();
        self.is_joint() && stored >= self.write_quorum(&self.joining)
    }

    /// The record once `winner` is promoted. Of two members the winner stays alone, because it
    /// alone is known to hold everything.
    pub fn promoted(&self, winner: CopyId) -> CopiesRecord {
        assert!(self.sets().any(|set| set.contains(&winner)), "a winner is a copy of the record");
        let is_alone = self.sets().any(|set| set.len() <= 2);
        let (members, joining) = match is_alone {
            true => (vec![winner], Vec::new()),
            false => (self.members.clone(), self.joining.clone()),
        };
        self.next(winner, members, joining)
    }

    /// The record that takes in `joining`, which has the active.
    pub fn joint(&self, joining: Vec<CopyId>) -> CopiesRecord {
        self.next(self.active, self.members.clone(), joining)
    }

    /// The record that leaves the old members.
    pub fn settled(&self) -> CopiesRecord {
        assert!(self.is_joint(), "only a change of members is settled");
        self.next(self.active, self.joining.clone(), Vec::new())
    }

    /// The record that gives the joining set up again.
    pub fn abandoned(&self) -> CopiesRecord {
        self.next(self.active, self.members.clone(), Vec::new())
    }

    /// The record that ends promises which led to no promotion. Copies that join begin again; a
    /// member that is being left out does not return.
    pub fn renewed(&self) -> CopiesRecord {
        let next = match self.is_shrinking() {
            true => self.joint(self.joining.clone()),
            false => self.abandoned(),
        };
        assert_eq!(next.active, self.active, "nothing is promoted");
        next
    }

    /// The record in which another member is active; the old one appended its last seqno.
    pub fn handed_over(&self, active: CopyId, last: Seqno) -> CopiesRecord {
        let record = self.next(active, self.members.clone(), self.joining.clone());
        CopiesRecord { handover: Some(last), ..record }
    }

    fn next(&self, active: CopyId, members: Vec<CopyId>, joining: Vec<CopyId>) -> CopiesRecord {
        debug_assert!(self.epoch < self.epoch.next(), "every record has a later epoch");
        let (epoch, configured) = (self.epoch.next(), self.configured);
        CopiesRecord { epoch, active, members, joining, configured, handover: None }
    }
}
