//! Renewal of the lease, on a dedicated thread.
//!
//! Owns: the requests that keep a session's lease alive. Invariants: no wait of the agent delays
//! them; once the session has ended, here or in etcd, this thread stops renewing its lease. The
//! agent tells it which lease to renew; it wakes the agent when a session is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::agreement::{SessionId, Sessions};
use crate::lease::NodeLease;

/// Renewals that fit into a lease.
pub(crate) const RENEWALS: u32 = 3;
/// Pause after a renewal that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// The session to renew, in the agreement and on this node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewalTarget {
    pub(crate) session_id: SessionId,
    pub(crate) session: u64,
    pub(crate) ttl: Duration,
}

/// See the module text.
pub(crate) struct Renewal {
    pub(crate) agreement: Arc<dyn Sessions>,
    pub(crate) lease: Arc<NodeLease>,
    pub(crate) wake: Arc<Notify>,
}

impl Renewal {
    /// Renews one session after the other, until the sender is dropped.
    pub(crate) async fn run(self, mut targets: watch::Receiver<Option<RenewalTarget>>) {
        loop {
            let target = *targets.borrow_and_update();
            let changed = tokio::select! {
                changed = targets.changed() => changed,
                () = self.renew(target) => targets.changed().await,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Renews until the session is over.
    async fn renew(&self, target: Option<RenewalTarget>) {
        let Some(RenewalTarget { session_id, session, ttl }) = target else { return };
        let mut pause = ttl / RENEWALS;
        loop {
            let left = self.lease.left().unwrap_or_default();
            tokio::time::sleep(pause.min(left)).await;
            if !self.lease.is_in(session) {
                return self.wake.notify_one();
            }
            let (sent_ns, left) = (self.lease.now_ns(), self.lease.left().unwrap_or_default());
            let limit = (ttl / RENEWALS).min(left);
            pause = match self.agreement.renew_session(session_id, limit).await {
                Ok(None) => {
                    tracing::warn!("etcd has ended the lease");
                    self.lease.end();
                    return self.wake.notify_one();
                }
                Ok(Some(left)) => {
                    self.lease.renew(session, sent_ns, left);
                    ttl / RENEWALS
                }
                Err(error) => {
                    tracing::debug!(%error, "the lease was not renewed");
                    RETRY_PAUSE
                }
            };
        }
    }
}
