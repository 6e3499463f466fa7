//! The batches of one commit that belong to one log.
//!
//! Owns: the choice. Batches are borrowed and never copied: those of other logs are passed over.
//! Invariant: every pass over them sees the same batches in the order of the commit. Callers: the
//! store, which makes one for each log that a commit concerns, and commits.

use super::member::log_of;
use crate::VbBatch;

/// See the module text.
#[derive(Clone, Copy)]
pub(super) struct Batches<'s, 'b> {
    all: &'s [VbBatch<'b>],
    /// Number of the log and how many there are; `None` when all batches are of one log.
    only: Option<(usize, usize)>,
}

impl<'s, 'b> Batches<'s, 'b> {
    /// All of them: they are of one log.
    pub(super) fn all(all: &'s [VbBatch<'b>]) -> Batches<'s, 'b> {
        Batches { all, only: None }
    }

    /// Those of log `number` of a store of `logs`.
    pub(super) fn of_log(all: &'s [VbBatch<'b>], number: usize, logs: usize) -> Batches<'s, 'b> {
        assert!(number < logs, "a log is one of the store's");
        Batches { all, only: Some((number, logs)) }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = &'s VbBatch<'b>> + Clone {
        let is_of = move |batch: &&VbBatch<'b>| {
            self.only.is_none_or(|(number, logs)| log_of(batch.vbid, logs) == number)
        };
        self.all.iter().filter(is_of)
    }

    /// At least as many as there are.
    pub(super) fn len_max(self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }
}
