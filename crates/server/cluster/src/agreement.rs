//! The agreement: a small, linearizable key-value store that all nodes of a cluster share.
//!
//! Owns: the interface that an agreement offers, and nothing of a cluster's records. `etcd` is the
//! one that a cluster uses, `memory` is its twin for tests and simulations; `contract` has the
//! properties that both are tested for. Invariants of every implementation:
//! 1. Each transaction that changes something has one revision, and revisions only grow.
//! 2. [`Agreement::list`] and [`Agreement::get`] show the state of one revision, which is at least
//!    that of every transaction that was answered before.
//! 3. A transaction is applied as a whole or not at all, at one revision.
//! 4. [`AgreementError::Unreachable`] and [`AgreementError::Answer`] leave open whether a
//!    transaction was applied. Every other error says that it was not.
//! 5. A watch reports every change after its revision, in order, or that some of them are compacted
//!    and the caller has to list again. It may lag behind.
//!
//! Keys of [`Sessions`] live as long as their session. Leases are an extension: records without a
//! session need [`Agreement`] only.

mod error;
mod etcd;
pub mod memory;

#[cfg(test)]
mod contract;

use std::pin::Pin;
use std::time::Duration;

pub use error::AgreementError;
pub use etcd::Etcd;

/// The answer of an agreement, when it comes.
pub type AgreementAnswer<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, AgreementError>> + Send + 'a>>;

/// A session's number in the agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub i64);

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgreementRecord {
    pub key: String,
    pub value: Vec<u8>,
    /// Revision of the last change.
    pub mod_revision: i64,
    /// Revision of the creation.
    pub create_revision: i64,
    /// The session with which the key ends.
    pub session: Option<SessionId>,
}

/// Records, and the revision whose state they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordList {
    pub records: Vec<AgreementRecord>,
    pub revision: i64,
}

/// A precondition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordComparison {
    /// The key does not exist.
    Absent(String),
    /// The key was last changed in this revision.
    ModifiedAt(String, i64),
    /// The key was created in this revision.
    CreatedAt(String, i64),
    /// The key has this value.
    HasValue(String, Vec<u8>),
}

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordChange {
    Put {
        key: String,
        value: Vec<u8>,
        /// The key ends with this session.
        session: Option<SessionId>,
    },
    /// Deletes a key; does nothing when the key does not exist.
    Delete { key: String },
}

impl RecordChange {
    /// Sets a key that lives until it is deleted.
    pub fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> RecordChange {
        RecordChange::Put { key: key.into(), value: value.into(), session: None }
    }

    /// Sets a key that ends with a session.
    pub fn put_in(
        session: SessionId,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
    ) -> RecordChange {
        RecordChange::Put { key: key.into(), value: value.into(), session: Some(session) }
    }

    pub fn delete(key: impl Into<String>) -> RecordChange {
        RecordChange::Delete { key: key.into() }
    }
}

/// A change that a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    Put(AgreementRecord),
    Deleted {
        key: String,
        /// Revision of the deletion.
        revision: i64,
    },
}

impl WatchEvent {
    /// Revision of the change.
    pub fn revision(&self) -> i64 {
        match self {
            WatchEvent::Put(record) => record.mod_revision,
            WatchEvent::Deleted { revision, .. } => *revision,
        }
    }
}

/// What a watch has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchAnswer {
    /// The next changes in order, at least one. Continue after the revision of the last one.
    Changes(Vec<WatchEvent>),
    /// No change within the time; continue from the same revision.
    Quiet,
    /// Changes after the revision are no longer known. List again, and watch from there.
    Compacted,
}

/// See the module text.
pub trait Agreement: Send + Sync {
    /// One key, as of now.
    fn get<'a>(
        &'a self,
        key: &'a str,
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<AgreementRecord>>;

    /// All keys that begin with `prefix`, which is ASCII, as of now and in order.
    fn list<'a>(&'a self, prefix: &'a str, limit: Duration) -> AgreementAnswer<'a, RecordList>;

    /// Applies all of `changes` if all of `comparisons` hold, else none; returns the revision if it
    /// did. `changes` name no key twice.
    fn transact<'a>(
        &'a self,
        comparisons: &'a [RecordComparison],
        changes: &'a [RecordChange],
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<i64>>;

    /// Waits for changes of keys that begin with `prefix`, which is ASCII, after `revision`.
    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
        limit: Duration,
    ) -> AgreementAnswer<'a, WatchAnswer>;
}

/// A session that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionGrant {
    pub id: SessionId,
    /// How long the session lives after each renewal.
    pub ttl: Duration,
}

/// Sessions with a lease: keys that disappear when a node stops renewing.
pub trait Sessions: Agreement {
    /// Begins a session that lives `ttl_s` seconds from its last renewal.
    fn begin_session(&self, ttl_s: u64, limit: Duration) -> AgreementAnswer<'_, SessionGrant>;

    /// Renews a session; returns its remaining time, `None` when it is over.
    fn renew_session(
        &self,
        session: SessionId,
        limit: Duration,
    ) -> AgreementAnswer<'_, Option<Duration>>;

    /// Ends a session and deletes its keys. `Ok` also when the session is over already.
    fn end_session(&self, session: SessionId, limit: Duration) -> AgreementAnswer<'_, ()>;
}
