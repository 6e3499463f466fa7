//! `/healthz` and `/readyz`: whether the server is well, and whether clients should be sent to it.
//!
//! `/healthz` is for supervisors: every bucket has all its documents and its store works.
//! `/readyz` is for balancers: warmup has loaded enough to serve, writes are accepted, and the
//! server does not stop. It also says while memory refuses writes.
//!
//! Owns: the last answer, which it caches for a while. Every client may ask, and an answer checks
//! every vbucket and the disk, so concurrent requests cost as much as one. The answer names no
//! bucket. Called by `routes`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use oribi_engine::{BucketStats, WarmupStats};
use serde_json::json;
use tokio::sync::Mutex;

use super::blocking::blocking;
use super::message::{HttpRejection, HttpReply, whole};
use oribi_server::buckets::Buckets;

/// Lifetime of a cached answer. An unhealthy answer expires sooner, because a supervisor may be
/// waiting for recovery.
const HEALTHY_FOR: Duration = Duration::from_secs(1);
const UNHEALTHY_FOR: Duration = Duration::from_millis(100);

/// Part of the stored documents, in per cent, that makes a bucket warm enough to be sent clients.
const WARM_PERCENT: u64 = 90;

/// Reason why it is invalid, if it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthStatus {
    Healthy,
    StorageFailed,
    WarmingUp,
    OutOfMemory,
}

/// Both answers, of one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HealthReport {
    health: HealthStatus,
    readiness: HealthStatus,
}

impl HealthReport {
    fn holds_for(self) -> Duration {
        let is_well =
            self.health == HealthStatus::Healthy && self.readiness == HealthStatus::Healthy;
        if is_well { HEALTHY_FOR } else { UNHEALTHY_FOR }
    }
}

/// See the module text.
#[derive(Default)]
pub(crate) struct Health {
    last: Mutex<Option<(Instant, HealthReport)>>,
}

impl Health {
    /// The answer of `/healthz`, not older than its lifetime.
    pub(crate) async fn answer(&self, buckets: &Arc<Buckets>) -> HttpReply {
        self.looked(buckets).await.map_or_else(|reply| *reply, |looked| reply_of(looked.health))
    }

    /// The answer of `/readyz`, not older than its lifetime.
    pub(crate) async fn readiness(&self, buckets: &Arc<Buckets>) -> HttpReply {
        let looked = self.looked(buckets).await;
        looked.map_or_else(|reply| *reply, |looked| reply_of(looked.readiness))
    }

    async fn looked(&self, buckets: &Arc<Buckets>) -> Result<HealthReport, HttpRejection> {
        // Concurrent requests wait here and get the same answer.
        let mut last = self.last.lock().await;
        if let Some((at, looked)) = *last
            && at.elapsed() < looked.holds_for()
        {
            return Ok(looked);
        }
        let buckets = Arc::clone(buckets);
        let looked = blocking(move || look(&buckets)).await?;
        *last = Some((Instant::now(), looked));
        Ok(looked)
    }
}

fn look(buckets: &Buckets) -> HealthReport {
    let handles = buckets.list();
    let stats: Vec<BucketStats> = handles.iter().map(|handle| handle.bucket().stats()).collect();
    let lacks_memory = handles.iter().any(|handle| handle.bucket().lacks_memory());
    let has_failed = stats.iter().any(|stats| stats.failed.refuse_writes());
    let verdict = |is_warm: fn(&WarmupStats) -> bool| match has_failed {
        true => HealthStatus::StorageFailed,
        false if stats.iter().all(|stats| is_warm(&stats.warmup)) => HealthStatus::Healthy,
        false => HealthStatus::WarmingUp,
    };
    let readiness = match verdict(is_warm_enough) {
        HealthStatus::Healthy if lacks_memory => HealthStatus::OutOfMemory,
        other => other,
    };
    HealthReport { health: verdict(|warmup| warmup.done), readiness }
}

/// True when few requests would still wait for the disk.
fn is_warm_enough(warmup: &WarmupStats) -> bool {
    let is_estimated = warmup.items_estimate > 0;
    let seen = warmup.items.saturating_add(warmup.tombstones).saturating_mul(100);
    let needed = warmup.items_estimate.saturating_mul(WARM_PERCENT);
    warmup.done || is_estimated && seen >= needed
}

fn reply_of(verdict: HealthStatus) -> HttpReply {
    let (code, status) = match verdict {
        HealthStatus::Healthy => (StatusCode::OK, "ok"),
        HealthStatus::StorageFailed => (StatusCode::SERVICE_UNAVAILABLE, "storage failed"),
        HealthStatus::WarmingUp => (StatusCode::SERVICE_UNAVAILABLE, "warming up"),
        HealthStatus::OutOfMemory => (StatusCode::SERVICE_UNAVAILABLE, "out of memory"),
    };
    whole(code, "application/json", json!({ "status": status }).to_string())
}

#[cfg(test)]
mod tests {
    use super::{WarmupStats, is_warm_enough};

    #[test]
    fn nine_tenths_of_the_documents_are_enough() {
        let warmup = |items, tombstones, items_estimate, done| WarmupStats {
            items,
            tombstones,
            items_estimate,
            done,
            ..WarmupStats::default()
        };
        assert!(!is_warm_enough(&warmup(0, 0, 0, false)), "nothing is known yet");
        assert!(!is_warm_enough(&warmup(89, 0, 100, false)));
        assert!(is_warm_enough(&warmup(80, 10, 100, false)));
        assert!(is_warm_enough(&warmup(0, 0, 0, true)));
    }
}
