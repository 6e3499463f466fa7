//! The wait for a write of the server's own doors: documents over HTTP and changes by statements.
//!
//! Owns: how such a write is raised to its bucket's minimum durability, the wait of a thread that
//! may block, and the guard of a prepare, which writes of clients have as well. Invariant: a
//! prepare whose wait ends without an outcome may be aborted, as that of a client that stopped to
//! wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oribi_engine::{
    AppliedMutation, Bucket, OperationRejection, PersistOutcome, PersistenceSink, WriteVisibility,
};
use oribi_system::clock::wall_clock;
use oribi_types::{DurabilityLevel, Seqno, Vbid};
use parking_lot::{Condvar, Mutex};

use super::BucketHandle;
use crate::limits::DURABILITY_TIMEOUT_DEFAULT_MS;

/// How long such a write waits, like one of a client that names no time.
pub const DURABLE_WAIT: Duration = Duration::from_millis(DURABILITY_TIMEOUT_DEFAULT_MS);

/// Hands the outcome of one write to the thread that waits for it.
#[derive(Default)]
struct OutcomeWaiter {
    outcome: Mutex<Option<PersistOutcome>>,
    decided: Condvar,
}

impl PersistenceSink for OutcomeWaiter {
    fn persisted(&self, _token: u64, outcome: PersistOutcome) {
        let before = self.outcome.lock().replace(outcome);
        debug_assert!(before.is_none(), "a write is decided once");
        self.decided.notify_all();
    }
}

/// A write of this process that is not durable yet.
pub struct DurableWait {
    waiter: Arc<OutcomeWaiter>,
    _prepare: Option<PrepareGuard>,
}

impl DurableWait {
    /// Waits for a write that was made with [`BucketHandle::visibility`]. `None` when it is as
    /// durable as that.
    pub fn begin(
        handle: &BucketHandle,
        (vbid, visibility): (Vbid, WriteVisibility),
        AppliedMutation { seqno, vb_uuid, .. }: AppliedMutation,
    ) -> Option<DurableWait> {
        let (bucket, waiter) = (handle.bucket(), Arc::<OutcomeWaiter>::default());
        let sink: Arc<dyn PersistenceSink> = Arc::clone(&waiter) as _;
        let position = (seqno, Some(vb_uuid));
        let (is_over, prepare) = match visibility {
            WriteVisibility::AtOnce => return None,
            WriteVisibility::WhenStored => (bucket.when_persisted(vbid, position, &sink, 0), None),
            WriteVisibility::WhenCommitted(level) => {
                let asked = (position, level.needs_persistence());
                let commit = bucket.when_committed(vbid, asked, &sink, 0);
                (commit.is_some(), Some(PrepareGuard::new(bucket, vbid, seqno)))
            }
        };
        (!is_over).then_some(DurableWait { waiter, _prepare: prepare })
    }

    /// True once the write is durable, false when its outcome is not known, `None` while it is not
    /// decided after `patience`.
    pub fn wait(&self, patience: Duration) -> Option<bool> {
        let mut outcome = self.waiter.outcome.lock();
        if outcome.is_none() {
            self.waiter.decided.wait_for(&mut outcome, patience);
        }
        outcome.map(|outcome| outcome != PersistOutcome::Failed)
    }
}

/// A prepare whose client waits. When it waits no longer, because it was answered, its time is over
/// or its connection ends, a prepare without an outcome may be aborted.
pub(crate) struct PrepareGuard {
    bucket: Arc<Bucket>,
    vbid: Vbid,
    seqno: Seqno,
}

impl PrepareGuard {
    pub(crate) fn new(bucket: &Arc<Bucket>, vbid: Vbid, seqno: Seqno) -> PrepareGuard {
        debug_assert!(seqno > Seqno(0), "a prepare has a seqno");
        PrepareGuard { bucket: Arc::clone(bucket), vbid, seqno }
    }
}

impl fmt::Debug for PrepareGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrepareGuard({}, {})", self.vbid, self.seqno.0)
    }
}

impl Drop for PrepareGuard {
    fn drop(&mut self) {
        if let Some(vbucket) = self.bucket.vbucket(self.vbid) {
            vbucket.expire_prepare(&self.bucket.context(wall_clock()), self.seqno);
        }
    }
}

impl BucketHandle {
    /// When a write that asks for no level becomes visible; `None` while fewer copies of its
    /// vbucket exist than the bucket's minimum durability asks for.
    ///
    /// # Errors
    /// Another node serves the vbucket.
    pub fn raised_visibility(
        &self,
        vbid: Vbid,
    ) -> Result<Option<WriteVisibility>, OperationRejection> {
        let visibility = self.visibility(DurabilityLevel::None);
        let WriteVisibility::WhenCommitted(_) = visibility else { return Ok(Some(visibility)) };
        let vbucket = self.bucket().serving_vbucket(vbid)?;
        Ok(vbucket.is_durability_possible().then_some(visibility))
    }
}
