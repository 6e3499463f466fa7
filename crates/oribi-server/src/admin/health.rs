//! `/healthz`: whether every bucket serves all its documents and its store works.
//!
//! Owns: the last answer, which it caches for a while. Every client may ask, and an answer checks
//! every vbucket and the disk, so concurrent requests cost as much as one. The answer names no
//! bucket. Called by `routes`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use oribi_engine::BucketStats;
use serde_json::json;
use tokio::sync::Mutex;

use super::blocking::blocking;
use super::message::{Reply, whole};
use crate::buckets::Buckets;

/// Lifetime of a cached answer. An unhealthy answer expires sooner, because a supervisor may be
/// waiting for recovery.
const HEALTHY_FOR: Duration = Duration::from_secs(1);
const UNHEALTHY_FOR: Duration = Duration::from_millis(100);

/// The cached answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Healthy,
    StorageFailed,
    WarmingUp,
}

impl Verdict {
    fn holds_for(self) -> Duration {
        if self == Verdict::Healthy { HEALTHY_FOR } else { UNHEALTHY_FOR }
    }
}

/// See the module text.
#[derive(Default)]
pub(crate) struct Health {
    last: Mutex<Option<(Instant, Verdict)>>,
}

impl Health {
    /// The answer, not older than its lifetime.
    pub(crate) async fn answer(&self, buckets: &Arc<Buckets>) -> Reply {
        // Concurrent requests wait here and get the same answer.
        let mut last = self.last.lock().await;
        let verdict = match *last {
            Some((at, verdict)) if at.elapsed() < verdict.holds_for() => verdict,
            _ => {
                let buckets = Arc::clone(buckets);
                let verdict = match blocking(move || look(&buckets)).await {
                    Ok(verdict) => verdict,
                    Err(reply) => return *reply,
                };
                *last = Some((Instant::now(), verdict));
                verdict
            }
        };
        reply_of(verdict)
    }
}

fn look(buckets: &Buckets) -> Verdict {
    let stats: Vec<BucketStats> =
        buckets.list().iter().map(|handle| handle.bucket().stats()).collect();
    if stats.iter().any(|stats| stats.failed.refuse_writes()) {
        Verdict::StorageFailed
    } else if stats.iter().any(|stats| !stats.warmup.done) {
        Verdict::WarmingUp
    } else {
        Verdict::Healthy
    }
}

fn reply_of(verdict: Verdict) -> Reply {
    let (code, status) = match verdict {
        Verdict::Healthy => (StatusCode::OK, "ok"),
        Verdict::StorageFailed => (StatusCode::SERVICE_UNAVAILABLE, "storage failed"),
        Verdict::WarmingUp => (StatusCode::SERVICE_UNAVAILABLE, "warming up"),
    };
    whole(code, "application/json", json!({ "status": status }).to_string())
}
