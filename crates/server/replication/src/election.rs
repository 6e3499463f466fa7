//! An election: promises of members and what they report decide who is promoted (R5).

use std::collections::{BTreeMap, BTreeSet};

use oribi_types::Seqno;

use crate::copies::{CopiesEpoch, CopiesRecord, CopyId};

/// A member's state when it promises. It accepts nothing more of the epoch before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromiseReport {
    /// Newest epoch that the member recorded.
    pub recorded: CopiesEpoch,
    /// End of its last complete snapshot.
    pub complete_end: Seqno,
    pub is_intact: bool,
}

/// A candidate's view of one election, for the successor of `base`.
#[derive(Clone, Debug)]
pub struct Election {
    pub base: CopiesRecord,
    reports: BTreeMap<CopyId, PromiseReport>,
    /// Members whose disk has lost them.
    lost: BTreeSet<CopyId>,
}

impl Election {
    pub fn new(base: CopiesRecord) -> Election {
        Election { base, reports: BTreeMap::new(), lost: BTreeSet::new() }
    }

    /// The epoch that members promise.
    pub fn epoch(&self) -> CopiesEpoch {
        self.base.epoch.next()
    }

    /// The report of a durable promise of [`Election::epoch`].
    pub fn promised(&mut self, member: CopyId, report: PromiseReport) {
        self.reports.insert(member, report);
    }

    /// The node of a member has no such copy any more: an answer while few are lost, and never a
    /// winner.
    pub fn lost(&mut self, member: CopyId) {
        assert!(self.base.all().contains(&member), "only copies of the record answer");
        self.lost.insert(member);
    }

    /// The record to write by compare-and-set in place of `base`, once the promises decide. A
    /// seqno says something only within its epoch, so the epoch is compared first.
    pub fn decided(&self) -> Option<CopiesRecord> {
        let reports = &self.reports;
        let promise = |member| reports.get(&member).map(|report| report.is_intact);
        let voters = self.base.voters();
        if !voters.promises_decide(promise, |member| self.lost.contains(&member)) {
            return None;
        }
        let candidates = self.base.members.iter().copied();
        let (winner, _) = candidates
            .filter_map(|member| Some((member, reports.get(&member)?)))
            .max_by_key(|(_, report)| (report.recorded, report.complete_end))?;
        assert!(self.reports.contains_key(&winner), "a copy wins by its report");
        Some(self.base.promoted(winner))
    }
}
