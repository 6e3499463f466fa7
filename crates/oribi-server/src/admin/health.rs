//! `/healthz`: whether every bucket serves all its documents and its store works.
//!
//! Owns: the last answer, for a while. Anybody may ask, and to find out takes a look at every vbucket and at the
//! disk: so many asking at once cost as much as one, and nobody is told the name of a bucket. Called by `routes`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use oribi_engine::BucketStats;
use serde_json::json;
use tokio::sync::Mutex;

use super::AdminState;
use super::buckets::blocking;
use super::message::{Reply, whole};
use crate::buckets::Buckets;

/// How long an answer holds, when all is well and otherwise: then somebody may be waiting for the end of it.
const HEALTHY_FOR: Duration = Duration::from_secs(1);
const UNHEALTHY_FOR: Duration = Duration::from_millis(100);

/// What is answered.
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
    /// The answer, at most as old as it may be.
    pub(crate) async fn answer(&self, state: &AdminState) -> Reply {
        // Those who ask meanwhile wait here, and are told the same.
        let mut last = self.last.lock().await;
        let verdict = match *last {
            Some((at, verdict)) if at.elapsed() < verdict.holds_for() => verdict,
            _ => {
                let buckets = Arc::clone(&state.server.buckets);
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
    if stats.iter().any(|stats| stats.storage_failed) {
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
