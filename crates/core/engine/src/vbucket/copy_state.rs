//! The part of a vbucket's stored state that is about its copies.
//!
//! Owns: two views of it.

use oribi_storage::VbucketState;

use crate::checkpoint::IncompleteSnapshot;

/// The snapshot of which a stored state has a part.
pub(super) fn incomplete_of(state: &VbucketState) -> Option<IncompleteSnapshot> {
    (state.snapshot_end > state.high_seqno).then_some(IncompleteSnapshot {
        complete_end: state.snapshot_start.min(state.high_seqno),
        snapshot_end: state.snapshot_end,
    })
}

/// The part of a stored state that is written back.
pub(super) fn copy_state_of(state: &VbucketState) -> VbucketState {
    VbucketState { failover_table: Vec::new(), stopped_cleanly: false, ..state.clone() }
}
