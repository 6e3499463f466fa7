//! Kinds of changes, and what may happen to them on their way to a copy.

use oribi_types::{DurabilityLevel, Seqno};

/// The change with one seqno of a vbucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyChangeKind {
    /// A plain write or deletion, or a committed one read from disk.
    Mutation,
    Prepare(DurabilityLevel),
    Commit {
        prepared: Seqno,
    },
    Abort {
        prepared: Seqno,
    },
}

impl CopyChangeKind {
    /// True when a snapshot needs not carry `earlier`, a change of the same key, because this one
    /// follows. A completion names its prepare, so neither is missing from a snapshot from memory.
    pub fn replaces(self, earlier: CopyChangeKind) -> bool {
        let is_version = matches!(self, CopyChangeKind::Mutation | CopyChangeKind::Commit { .. });
        is_version && matches!(earlier, CopyChangeKind::Mutation)
    }
}

/// A copy's action on a local version above its rollback point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewind {
    /// Installs the version of the active, which is not above the rollback point.
    Install,
    /// Removes the local version. The key has no version at that point, or the stream brings one.
    Forget,
}

/// Decides by the active's version of the key.
pub fn rewind(active_version: Option<Seqno>, rollback: Seqno) -> Rewind {
    match active_version {
        Some(seqno) if seqno <= rollback => Rewind::Install,
        Some(_) | None => Rewind::Forget,
    }
}
