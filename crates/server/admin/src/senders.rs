//! Couchbase clusters that replicate into this server (XDCR).
//!
//! Owns: the log line for a bucket that an old cluster cannot replicate into. The cluster reports
//! a separate error then, far from this server's operator. Invariant: at most one line in
//! [`PAUSE`]. Caller: `buckets`.

use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::USER_AGENT;
use parking_lot::Mutex;

use oribi_server::buckets::BucketHandle;

/// Least time between two lines. A cluster asks every few seconds.
const PAUSE: Duration = Duration::from_secs(3600);

/// How the user agent of a cluster that replicates begins.
const SENDER: &str = "couchbase-goxdcr";

/// The number of vbuckets that every Couchbase cluster replicates into.
const VBUCKETS: u16 = 1024;

/// See the module text.
#[derive(Default)]
pub(super) struct Senders {
    last_line: Mutex<Option<Instant>>,
}

impl Senders {
    /// Notes that a client has read about a bucket.
    pub(super) fn note(&self, headers: &HeaderMap, handle: &BucketHandle) {
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let vbuckets = handle.vbuckets();
        if needs_advice(agent.unwrap_or_default(), vbuckets) && self.may_log(Instant::now()) {
            tracing::warn!(
                bucket = handle.name(),
                vbuckets,
                "a Couchbase cluster wants to replicate into a bucket without 1024 vbuckets, which \
                 versions before 8.0 refuse: create the bucket with numVBuckets=1024"
            );
        }
    }

    fn may_log(&self, now: Instant) -> bool {
        let mut last = self.last_line.lock();
        if last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return false;
        }
        *last = Some(now);
        true
    }
}

fn needs_advice(agent: &str, vbuckets: u16) -> bool {
    agent.starts_with(SENDER) && vbuckets != VBUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_senders_to_other_vbuckets_need_advice() {
        assert!(needs_advice("couchbase-goxdcr/7.6.2", 64));
        assert!(!needs_advice("couchbase-goxdcr/7.6.2", 1024));
        assert!(!needs_advice("curl/8.1", 64) && !needs_advice("", 64));
    }

    #[test]
    fn a_sender_that_polls_is_logged_once_an_hour() {
        let (senders, now) = (Senders::default(), Instant::now());
        let logged =
            [0, 10, 3599, 3600, 3601].map(|s| senders.may_log(now + Duration::from_secs(s)));
        assert_eq!(logged, [true, false, false, true, false]);
    }
}
