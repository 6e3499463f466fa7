//! Renewal of the lease, on a dedicated thread.
//!
//! Owns: the requests that keep a session's lease alive. Invariants: no wait of the agent delays
//! them; once the session has ended, here or in etcd, this thread stops renewing its lease. The
//! agent tells it which lease to renew; it wakes the agent when a session is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::etcd::Etcd;
use super::lease::NodeLease;

/// Renewals that fit into a lease.
pub(super) const RENEWALS: u32 = 3;
/// Pause after a renewal that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// The lease to renew, and its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renewed {
    pub(super) lease_id: i64,
    pub(super) session: u64,
    pub(super) ttl: Duration,
}

/// See the module text.
pub(super) struct Renewal {
    pub(super) etcd: Arc<Etcd>,
    pub(super) lease: Arc<NodeLease>,
    pub(super) wake: Arc<Notify>,
}

impl Renewal {
    /// Renews the leases it is told, one after the other, until the sender is dropped.
    pub(super) async fn run(self, mut told: watch::Receiver<Option<Renewed>>) {
        loop {
            let renewed = *told.borrow_and_update();
            let changed = tokio::select! {
                changed = told.changed() => changed,
                () = self.renew(renewed) => told.changed().await,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Renews until the session is over.
    async fn renew(&self, renewed: Option<Renewed>) {
        let Some(Renewed { lease_id, session, ttl }) = renewed else { return };
        let mut pause = ttl / RENEWALS;
        loop {
            let left = self.lease.left().unwrap_or_default();
            tokio::time::sleep(pause.min(left)).await;
            if !self.lease.still_holds(session) {
                return self.wake.notify_one();
            }
            let (sent_ns, left) = (self.lease.now_ns(), self.lease.left().unwrap_or_default());
            let limit = (ttl / RENEWALS).min(left);
            pause = match self.etcd.keep_alive(lease_id, limit).await {
                Ok(0) => {
                    tracing::warn!("etcd has ended the lease");
                    self.lease.end();
                    return self.wake.notify_one();
                }
                Ok(ttl_s) => {
                    self.lease.renew(session, sent_ns, Duration::from_secs(ttl_s));
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
