//! Prepares of a vbucket by where they and their completions are in the history.
//!
//! Owns: what a stored state says of them. A state belongs to the end of a batch: a prepare that is
//! completed above that end is open there, whatever memory knows by then. So the completed seqno
//! of a state is never ahead of its records. An entry is forgotten when its completion is stored.

use oribi_storage::VbucketState;
use oribi_types::Seqno;

use crate::persistence::PersistOutcome;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prepare {
    seqno: Seqno,
    /// The commit or abort, if there is one.
    completed: Option<Seqno>,
    is_committed: bool,
}

/// See the module text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PrepareLog(Vec<Prepare>);

impl PrepareLog {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn prepared(&mut self, seqno: Seqno) {
        let is_newest = self.0.last().is_none_or(|last| last.seqno < seqno);
        assert!(is_newest, "prepares ascend");
        self.0.push(Prepare { seqno, completed: None, is_committed: false });
    }

    pub(super) fn completed(&mut self, seqno: Seqno, at: Seqno, is_committed: bool) {
        debug_assert!(at > seqno, "a prepare is completed after it was made");
        let found = self.0.binary_search_by_key(&seqno, |prepare| prepare.seqno);
        if let Some(prepare) = found.ok().and_then(|found| self.0.get_mut(found)) {
            (prepare.completed, prepare.is_committed) = (Some(at), is_committed);
        }
    }

    /// The outcome of a completed prepare; `None` once the store has it.
    pub(super) fn outcome_of(&self, seqno: Seqno) -> Option<PersistOutcome> {
        let at = self.0.binary_search_by_key(&seqno, |prepare| prepare.seqno).ok()?;
        let prepare = self.0.get(at)?;
        debug_assert!(prepare.completed > Some(seqno), "an outcome follows its prepare");
        let commit = prepare.completed.filter(|_| prepare.is_committed);
        Some(commit.map_or(PersistOutcome::Failed, PersistOutcome::Committed))
    }

    /// Everything up to `end` is stored, and `state` says so.
    pub(super) fn stored(&mut self, end: Seqno) {
        self.0.retain(|prepare| prepare.completed.is_none_or(|at| at > end));
    }

    /// A state at `end` with what it says of prepares.
    pub(crate) fn describe(&self, state: VbucketState, end: Seqno) -> VbucketState {
        if self.is_empty() {
            return state;
        }
        let is_open = |prepare: &&Prepare| {
            prepare.seqno <= end && prepare.completed.is_none_or(|completed| completed > end)
        };
        let open = || self.0.iter().filter(is_open).map(|prepare| prepare.seqno);
        let high_completed_seqno = open().next().map_or(end, |lowest| Seqno(lowest.0 - 1));
        let high_prepared_seqno = open().next_back().unwrap_or(end);
        assert!(high_completed_seqno <= end, "a state is not ahead of its batch");
        assert!(high_prepared_seqno <= end, "a state knows no later prepare");
        debug_assert!(
            high_completed_seqno <= high_prepared_seqno,
            "completed prepares were prepared"
        );
        VbucketState { high_prepared_seqno, high_completed_seqno, ..state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The completed seqno was ahead of the batch, and a restart took the prepare for completed.
    #[test]
    fn a_state_knows_no_completion_above_its_end() {
        let mut log = PrepareLog::default();
        log.prepared(Seqno(3));
        log.prepared(Seqno(5));
        log.completed(Seqno(3), Seqno(7), true);
        assert_eq!(log.outcome_of(Seqno(3)), Some(PersistOutcome::Committed(Seqno(7))));
        let at = |log: &PrepareLog, end: u64| {
            let state = log.describe(VbucketState::empty(), Seqno(end));
            (state.high_completed_seqno.0, state.high_prepared_seqno.0)
        };
        assert_eq!([at(&log, 2), at(&log, 3), at(&log, 6)], [(2, 2), (2, 3), (2, 5)]);
        assert_eq!([at(&log, 7), at(&log, 9)], [(4, 5), (4, 5)]);
        log.stored(Seqno(6));
        assert_eq!(at(&log, 6), (2, 5), "the completion is not stored yet");
        log.stored(Seqno(7));
        assert_eq!(at(&log, 7), (4, 5));
        log.completed(Seqno(5), Seqno(8), false);
        let outcomes = (log.outcome_of(Seqno(3)), log.outcome_of(Seqno(5)));
        assert_eq!(outcomes, (None, Some(PersistOutcome::Failed)), "one is stored, one aborted");
        log.stored(Seqno(8));
        assert!(log.is_empty());
        let known = VbucketState { high_completed_seqno: Seqno(8), ..VbucketState::empty() };
        assert_eq!(log.describe(known.clone(), Seqno(9)), known);
    }
}
