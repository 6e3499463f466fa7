//! One log among those of a store: its own vbuckets, and the parts that it shares with the others.
//!
//! Owns: the rule by which vbuckets belong to logs, and the shared parts. Invariant: vbucket `v` of
//! a store of `n` logs is in log `v % n` for as long as the store exists, so no two logs ever have
//! records of one vbucket. Callers: the store, and its logs.
//!
//! Memory: a further log takes a staging buffer of 1 MiB and some KiB. While it compacts, a
//! reader's window, a slice and its moves take some 4 MiB. The entries of the active segments are
//! 32 bytes a record. They hardly multiply, because several logs have shorter segments
//! ([`LogOptions::of_each`](super::LogOptions)): those of 8 MiB take 4 MiB at most, where records
//! are as short as can be. All logs share the chunks of the index. Test:
//! `a_further_log_takes_its_buffer_and_little_else`.

use std::sync::Arc;

use oribi_types::Vbid;

use super::index::IndexMemory;
use crate::StoreError;
use crate::counters::Counters;
use crate::directory::log_directory_name;

/// See the module text.
#[derive(Clone)]
pub(super) struct LogMember {
    /// Number of the log, from 0 on.
    number: usize,
    /// Logs of the store, at least one.
    logs: usize,
    pub(super) counters: Arc<Counters>,
    /// Of the tables of all logs.
    pub(super) index_memory: IndexMemory,
}

impl LogMember {
    /// The members of a store of so many logs, by number.
    pub(super) fn all(
        logs: usize,
        counters: &Arc<Counters>,
        index_memory: &IndexMemory,
    ) -> impl Iterator<Item = LogMember> {
        assert!(logs > 0, "a store has a log");
        let (counters, index_memory) = (Arc::clone(counters), index_memory.clone());
        (0..logs).map(move |number| LogMember {
            number,
            logs,
            counters: Arc::clone(&counters),
            index_memory: index_memory.clone(),
        })
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn logs(&self) -> usize {
        self.logs
    }

    /// True for a vbucket of this log.
    pub(super) fn has(&self, vbid: Vbid) -> bool {
        debug_assert!(self.number < self.logs, "a log is one of its store");
        log_of(vbid, self.logs) == self.number
    }

    /// The error with the name of the log, once, which its text needs where there are several.
    pub(super) fn named(&self, error: StoreError) -> StoreError {
        if self.logs == 1 {
            return error;
        }
        let name = log_directory_name(self.number);
        let in_log = |text: String| match text.starts_with(&name) {
            true => text,
            false => format!("{name}: {text}"),
        };
        match error {
            StoreError::Io(text) => StoreError::Io(in_log(text)),
            StoreError::Corrupt(text) => StoreError::Corrupt(in_log(text)),
            StoreError::Poisoned(text) => StoreError::Poisoned(in_log(text)),
            other => other,
        }
    }
}

/// Number of the log in which a vbucket is, for ever.
pub(super) fn log_of(vbid: Vbid, logs: usize) -> usize {
    debug_assert!(logs > 0, "a store has a log");
    usize::from(vbid.0) % logs
}
