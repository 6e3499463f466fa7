//! Control state of a copy, which a store commits together with its records.

use oribi_types::Seqno;

use crate::copies::CopiesEpoch;
use crate::history::{History, ResumePoint};

/// Contents and promises of a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyState {
    /// The copy accepts nothing of earlier epochs. Stored before anyone learns of it.
    pub promised: CopiesEpoch,
    /// Newest epoch whose beginning the copy holds.
    pub recorded: CopiesEpoch,
    /// The copy holds everything up to here.
    pub complete_end: Seqno,
    /// Highest seqno of the copy; above `complete_end` within a snapshot from disk.
    pub high: Seqno,
    /// End of the snapshot from disk of which the copy holds a part.
    pub partial_end: Option<Seqno>,
    /// The copy rolled back and lacks versions that a snapshot from disk brings.
    pub is_rewound: bool,
    /// All prepares up to here are completed; the others are open.
    pub high_completed: Seqno,
    pub history: History,
    /// False after an unclean stop and during a rewind, until the copy caught up.
    pub is_intact: bool,
}

impl CopyState {
    /// Where the copy asks an active to resume.
    pub fn resume_point(&self) -> ResumePoint {
        ResumePoint {
            uuid: self.history.uuid_at(self.complete_end),
            complete_end: self.complete_end,
            partial_end: self.partial_end,
        }
    }

    /// The state to store with a batch: `at_end` is the state as it was at the batch's end. What
    /// completes later than the batch counts in a later one.
    pub fn of_batch(&self, at_end: &CopyState) -> CopyState {
        CopyState { promised: self.promised, ..at_end.clone() }
    }
}
