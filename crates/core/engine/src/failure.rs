//! Failures of a bucket's store, and their consequences until it works again.
//!
//! Owns: which operations fail and why. One table ([`StoreOperation`]) says for each what it
//! refuses and which success ends its failure. Invariants: a failure ends by a success of its
//! operation, or of one that proves the same, in the same group of vbuckets where the store commits
//! several side by side. While a failure refuses writes, the flusher tries again, so writes come
//! back without a restart and without new work. Each change is logged once, the end of a failure
//! when the last group works again.
//!
//! | operation | refused until then | ended by | tried again by |
//! |---|---|---|---|
//! | commit | writes | a commit of that group | the flusher; with nothing to write it commits a state (a probe) |
//! | purge of dropped collections | writes, because commits of the first group wait behind it | a whole purge | the flusher |
//! | manifest | that change | a change, or a commit of the first group | the flusher's probe |
//! | purge of tombstones | nothing | a pass without an error | the purger, a minute later |
//! | read | that read | a read without an error | the next read |
//! | compaction of the store | nothing | a step without an error | the store's own thread |
//!
//! A store that another node has taken over has not failed. A store that answers `Poisoned` needs a
//! restart, and its error says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

use oribi_storage::StoreError;
use parking_lot::Mutex;

/// An operation of a bucket on its store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum StoreOperation {
    Commit,
    /// Removes documents of dropped collections.
    CollectionPurge,
    TombstonePurge,
    /// Writes the collections manifest.
    Manifest,
    /// Reads documents that are not in memory.
    Read,
    /// Frees space, on a thread of the store.
    Compaction,
}

impl StoreOperation {
    /// All, in the order of their numbers.
    pub const ALL: [StoreOperation; 6] = [
        StoreOperation::Commit,
        StoreOperation::CollectionPurge,
        StoreOperation::TombstonePurge,
        StoreOperation::Manifest,
        StoreOperation::Read,
        StoreOperation::Compaction,
    ];

    /// For stats, metrics and the log.
    pub fn name(self) -> &'static str {
        match self {
            StoreOperation::Commit => "commit",
            StoreOperation::CollectionPurge => "collection_purge",
            StoreOperation::TombstonePurge => "tombstone_purge",
            StoreOperation::Manifest => "manifest",
            StoreOperation::Read => "read",
            StoreOperation::Compaction => "compaction",
        }
    }

    fn refuses_writes(self) -> bool {
        matches!(self, StoreOperation::Commit | StoreOperation::CollectionPurge)
    }

    /// The operations of which a success of this one in the same group ends the failure.
    fn ends(self) -> FailedOperations {
        match self {
            StoreOperation::Commit => self.bit().and(StoreOperation::Manifest.bit()),
            _ => self.bit(),
        }
    }

    const fn bit(self) -> FailedOperations {
        assert!((self as u8) < u8::BITS as u8, "a set has a bit for each operation");
        FailedOperations(1 << self as u8)
    }
}

/// A set of failing operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FailedOperations(u8);

impl FailedOperations {
    pub fn iter(self) -> impl Iterator<Item = StoreOperation> {
        StoreOperation::ALL.into_iter().filter(move |operation| self.has(*operation))
    }

    /// Whether this one is among them.
    pub fn has(self, operation: StoreOperation) -> bool {
        self.0 & operation.bit().0 != 0
    }

    /// Whether writes are refused because of them.
    pub fn refuse_writes(self) -> bool {
        self.iter().any(StoreOperation::refuses_writes)
    }

    #[must_use]
    pub(crate) fn with(self, operation: StoreOperation) -> FailedOperations {
        self.and(operation.bit())
    }

    const fn and(self, other: FailedOperations) -> FailedOperations {
        debug_assert!(other.0 < 1 << StoreOperation::ALL.len(), "a set has known operations");
        FailedOperations(self.0 | other.0)
    }
}

/// An operation and the group of vbuckets in which it is, 0 where there is no group.
type TablePlace = (StoreOperation, usize);

/// See the module text.
#[derive(Default)]
pub(crate) struct Failures {
    /// The operations of which `why` has an entry, so that a success costs one load.
    failed: AtomicU8,
    why: Mutex<BTreeMap<TablePlace, String>>,
}

impl Failures {
    /// The store has refused an operation.
    pub fn failed(&self, bucket: &str, (operation, group): TablePlace, error: &StoreError) {
        if matches!(error, StoreError::Fenced(_)) {
            return;
        }
        let error = error.to_string();
        let mut why = self.why.lock();
        self.failed.fetch_or(operation.bit().0, Ordering::Relaxed);
        debug_assert!(self.now().has(operation), "a failure is seen at once");
        let known = why.entry((operation, group)).or_default();
        if *known == error {
            return;
        }
        let operation_name = operation.name();
        let refused = if operation.refuses_writes() {
            "writes are refused until it succeeds"
        } else {
            "it is tried again"
        };
        // Each document has its own reason, and its reader has logged it.
        if operation != StoreOperation::Read {
            tracing::error!(
                bucket,
                operation = operation_name,
                error,
                "the store failed; {refused}"
            );
        }
        *known = error;
    }

    /// An operation has succeeded. True when that ends a failure.
    #[inline]
    pub fn succeeded(&self, bucket: &str, (operation, group): TablePlace) -> bool {
        let ends = operation.ends().0;
        self.failed.load(Ordering::Relaxed) & ends != 0 && self.end(bucket, (operation, group))
    }

    #[cold]
    fn end(&self, bucket: &str, (operation, group): TablePlace) -> bool {
        let mut why = self.why.lock();
        let mut has_ended = false;
        debug_assert!(
            operation.ends().has(operation),
            "a success ends the failure of its operation"
        );
        for operation in operation.ends().iter() {
            if why.remove(&(operation, group)).is_none() {
                continue;
            }
            has_ended = true;
            if why.keys().any(|(other, _)| *other == operation) {
                continue;
            }
            self.failed.fetch_and(!operation.bit().0, Ordering::Relaxed);
            debug_assert!(!self.now().has(operation), "a failure ends with its last group");
            if operation != StoreOperation::Read {
                tracing::warn!(bucket, operation = operation.name(), "the store works again");
            }
        }
        has_ended
    }

    /// The operations that fail now.
    pub fn now(&self) -> FailedOperations {
        FailedOperations(self.failed.load(Ordering::Relaxed))
    }

    /// True when only a commit of the group can show that the store works again. There may be
    /// nothing to commit.
    pub fn need_a_probe(&self, group: usize) -> bool {
        let ends = StoreOperation::Commit.ends();
        self.now().0 & ends.0 != 0 && {
            let why = self.why.lock();
            ends.iter().any(|operation| why.contains_key(&(operation, group)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: &str = "test";

    fn error() -> StoreError {
        StoreError::Io("no space".to_owned())
    }

    // Invariant: A storage error acknowledges nothing, and only a success of the failed operation
    // ends the refusal of writes.
    #[test]
    fn only_success_of_the_failed_operation_clears_it() {
        for failed in StoreOperation::ALL {
            for succeeds in StoreOperation::ALL {
                let failures = Failures::default();
                failures.failed(BUCKET, (failed, 0), &error());
                assert!(failures.now().has(failed));
                let proves = succeeds == failed
                    || (succeeds, failed) == (StoreOperation::Commit, StoreOperation::Manifest);
                let ended = failures.succeeded(BUCKET, (succeeds, 0));
                assert_eq!(ended, proves, "{succeeds:?} after {failed:?}");
                assert_eq!(!failures.now().has(failed), proves);
                assert!(!failures.succeeded(BUCKET, (succeeds, 0)), "it ended once");
            }
        }
    }

    #[test]
    fn writes_are_refused_while_commits_cannot_be_made() {
        let refusing = [StoreOperation::Commit, StoreOperation::CollectionPurge];
        for operation in StoreOperation::ALL {
            let failures = Failures::default();
            failures.failed(BUCKET, (operation, 0), &error());
            assert_eq!(failures.now().refuse_writes(), refusing.contains(&operation));
        }
    }

    #[test]
    fn a_failure_ends_in_the_group_in_which_it_is() {
        let (commit, manifest) = (StoreOperation::Commit, StoreOperation::Manifest);
        let failures = Failures::default();
        for group in [1, 2] {
            failures.failed(BUCKET, (commit, group), &error());
        }
        failures.failed(BUCKET, (manifest, 0), &error());
        assert!((0..3).all(|group| failures.need_a_probe(group)) && !failures.need_a_probe(3));
        assert!(!failures.succeeded(BUCKET, (commit, 3)), "that group has not failed");
        assert!(failures.succeeded(BUCKET, (commit, 1)));
        assert!(
            failures.now().has(commit) && failures.now().refuse_writes(),
            "group 2 still fails"
        );
        assert!(!failures.need_a_probe(1) && failures.now().has(manifest));
        assert!(failures.succeeded(BUCKET, (commit, 2)) && !failures.now().has(commit));
        assert!(failures.succeeded(BUCKET, (commit, 0)), "it proves that of the manifest");
        assert_eq!(failures.now(), FailedOperations::default());
    }

    #[test]
    fn a_store_that_another_node_has_has_not_failed() {
        let failures = Failures::default();
        let fenced = StoreError::Fenced("another node".to_owned());
        failures.failed(BUCKET, (StoreOperation::Commit, 0), &fenced);
        assert_eq!(failures.now(), FailedOperations::default());
    }
}
