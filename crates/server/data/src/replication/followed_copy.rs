//! One copy that follows the active of its vbucket.
//!
//! Owns: where the active is, whether the copy still follows it, and what is known of its lag.
//! Invariant: everything that a link does to a copy happens under [`FollowedCopy::enter`], so after
//! [`FollowedCopy::stop`] nothing of the stream reaches the copy any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_cluster::buckets::SharedBucket;
use oribi_types::{Seqno, Vbid};
use parking_lot::{Mutex, MutexGuard};

use crate::buckets::ReplicaSource;

/// How far a copy got with its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ReplicaPhase {
    /// No stream: there is no connection, or the active has not accepted the stream yet.
    #[default]
    Waiting,
    /// The stream reads from the active's disk.
    Backfilling,
    /// The stream has what the active has in memory.
    Streaming,
}

/// A copy that follows, for operators and for the choice of a new active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaStatus {
    pub vbid: Vbid,
    pub source: ReplicaSource,
    pub phase: ReplicaPhase,
    /// The copy has everything up to here.
    pub complete_end: Seqno,
    /// The last seqno of the active that the link knows of.
    pub active_seqno: Seqno,
}

impl ReplicaStatus {
    /// Seqnos that the copy lacks, as far as the link knows.
    pub fn lag(&self) -> u64 {
        self.active_seqno.0.saturating_sub(self.complete_end.0)
    }
}

/// What a link knows of a copy's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaProgress {
    pub phase: ReplicaPhase,
    pub active_seqno: Seqno,
}

/// See the module text.
pub struct FollowedCopy {
    pub(crate) bucket: Arc<dyn SharedBucket>,
    pub(crate) vbid: Vbid,
    pub(crate) source: ReplicaSource,
    is_stopped: AtomicBool,
    /// Held by whoever changes the copy.
    gate: Mutex<()>,
    progress: Mutex<ReplicaProgress>,
}

impl FollowedCopy {
    pub(crate) fn new(bucket: Arc<dyn SharedBucket>, vbid: Vbid, source: ReplicaSource) -> Self {
        FollowedCopy {
            bucket,
            vbid,
            source,
            is_stopped: AtomicBool::new(false),
            gate: Mutex::default(),
            progress: Mutex::default(),
        }
    }

    /// Leave to change the copy, unless it has stopped following. Nothing else of the stream
    /// changes it, and nothing stops it, while the guard lives.
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let gate = self.gate.lock();
        (!self.is_stopped()).then_some(gate)
    }

    /// Waits for the change under way; there is no other afterwards.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        drop(self.gate.lock());
    }

    /// Does not wait for a change under way.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire) || self.bucket.is_deleted()
    }

    pub(crate) fn note(&self, progress: ReplicaProgress) {
        *self.progress.lock() = progress;
    }

    pub(crate) fn note_waiting(&self) {
        self.progress.lock().phase = ReplicaPhase::Waiting;
    }

    pub(crate) fn status(&self) -> ReplicaStatus {
        let progress = *self.progress.lock();
        let vbucket = self.bucket.bucket().vbucket(self.vbid);
        let position = vbucket.and_then(|vbucket| vbucket.replica_position());
        ReplicaStatus {
            vbid: self.vbid,
            source: self.source.clone(),
            phase: progress.phase,
            complete_end: position.map_or(Seqno(0), |position| position.complete_end),
            active_seqno: progress.active_seqno,
        }
    }
}
