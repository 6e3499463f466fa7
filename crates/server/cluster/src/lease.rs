//! The lease: until when this node may serve what it owns.
//!
//! Owns: the deadline, by a clock that counts while the machine sleeps, and the session number by
//! which a worker notices that ownership ended while it served. Invariants:
//! 1. The deadline is earlier than the end of the lease in etcd: it counts from before a renewal
//!    was sent, and is shortened by a margin for clocks of different speeds.
//! 2. Once a thread has found the deadline over, the session has ended: a late renewal does not
//!    revive it. Every vbucket of a shared bucket has stopped serving before any thread continues.
//! 3. A worker sends an answer only if two conditions hold after it has served: the session in
//!    which it began to serve is still current, and the deadline is not over. So all data that it
//!    read was current when it read it.
//!
//! Called by workers (each turn), stores (each time another owner shows up) and the agent
//! (renewals).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oribi_engine::{Bucket, VBucket};
use oribi_storage::Ownership;
use oribi_types::Vbid;
use parking_lot::Mutex;

use crate::buckets::ClusterBuckets;

/// Margin of the deadline, as divisor of the lease: clocks differ in speed by less.
const MARGIN_DIVISOR: u32 = 10;

/// Nanoseconds since boot, sleep included.
fn boot_time_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (s, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    s.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}

/// See the module text.
pub struct NodeLease {
    buckets: Arc<dyn ClusterBuckets>,
    /// By [`boot_time_ns`]; 0 while there is no lease.
    deadline_ns: AtomicU64,
    /// Becomes odd when a session begins to end, and even again when it has ended.
    session: AtomicU64,
    /// Held while a session begins or ends.
    change: Mutex<()>,
    clock: fn() -> u64,
}

impl NodeLease {
    pub fn new(buckets: Arc<dyn ClusterBuckets>) -> NodeLease {
        NodeLease::with_clock(buckets, boot_time_ns)
    }

    pub(crate) fn with_clock(buckets: Arc<dyn ClusterBuckets>, clock: fn() -> u64) -> NodeLease {
        NodeLease {
            buckets,
            deadline_ns: AtomicU64::new(0),
            session: AtomicU64::new(0),
            change: Mutex::new(()),
            clock,
        }
    }

    /// Current time of the lease's clock; read it before sending a grant or a renewal.
    pub fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    /// Number of the current session.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// Begins a session with a lease of `ttl`, granted by a request that was sent at `sent_ns`.
    pub fn begin(&self, sent_ns: u64, ttl: Duration) {
        let _alone = self.change.lock();
        assert!(self.session().is_multiple_of(2), "the last session has ended");
        assert_eq!(self.deadline_ns.load(Ordering::Acquire), 0, "one lease at a time");
        self.deadline_ns.store(deadline(sent_ns, ttl), Ordering::Release);
    }

    /// Renews the lease of `session` by a request that was sent at `sent_ns`. False when the
    /// session has ended.
    pub(crate) fn renew(&self, session: u64, sent_ns: u64, ttl: Duration) -> bool {
        if !self.is_held() {
            self.end();
        }
        let _alone = self.change.lock();
        let is_same = self.session() == session;
        if is_same {
            debug_assert!(session.is_multiple_of(2), "a session that is renewed has not ended");
            self.deadline_ns.fetch_max(deadline(sent_ns, ttl), Ordering::AcqRel);
        }
        is_same
    }

    /// True before the deadline.
    pub(crate) fn is_held(&self) -> bool {
        self.now_ns() < self.deadline_ns.load(Ordering::Acquire)
    }

    /// True when answers served since `session` was read may be sent. If the time is up, no shared
    /// bucket is served any more when this returns.
    pub fn still_holds(&self, session: u64) -> bool {
        let deadline = self.deadline_ns.load(Ordering::Acquire);
        if deadline != 0 && self.now_ns() >= deadline {
            self.end();
        }
        // During an odd session its vbuckets are being taken out of service.
        self.session() == session && session.is_multiple_of(2)
    }

    /// Ends the session: no shared bucket is served any more, and requests in progress are not
    /// answered.
    pub fn end(&self) {
        let _alone = self.change.lock();
        if self.deadline_ns.load(Ordering::Acquire) == 0 {
            return;
        }
        let ending = self.session.fetch_add(1, Ordering::AcqRel);
        assert!(ending.is_multiple_of(2), "a session ends once");
        for shared in self.buckets.shared() {
            let bucket = shared.bucket();
            if let Some(copies) = shared.copies() {
                let vbuckets = (0..bucket.config().vbuckets).map(Vbid);
                vbuckets.for_each(|vbid| copies.stop_serving(vbid));
                continue;
            }
            bucket.owned().into_iter().for_each(|vbid| bucket.stop_serving(vbid));
        }
        self.deadline_ns.store(0, Ordering::Release);
        let ended = self.session.fetch_add(1, Ordering::AcqRel);
        assert_eq!(ended, ending + 1, "one thread ends a session");
        assert!(!self.is_held(), "a lease that ended is not held");
    }

    /// Begins to serve by `start`, if the lease of `session` holds. The session cannot end before
    /// `start` has returned, so it must not block.
    pub(crate) fn start_in(&self, session: u64, start: impl FnOnce()) {
        let _alone = self.change.lock();
        if self.session() == session && session.is_multiple_of(2) && self.is_held() {
            start();
            assert_eq!(self.session(), session, "a session does not end while it starts to serve");
        }
    }

    /// Time until the deadline; `None` without a lease.
    pub(crate) fn left(&self) -> Option<Duration> {
        let deadline = self.deadline_ns.load(Ordering::Acquire);
        (deadline != 0).then(|| Duration::from_nanos(deadline.saturating_sub(self.now_ns())))
    }
}

fn deadline(sent_ns: u64, ttl: Duration) -> u64 {
    let safe = ttl - ttl / MARGIN_DIVISOR;
    debug_assert!(safe <= ttl, "a node gives up before others take over");
    sent_ns.saturating_add(u64::try_from(safe.as_nanos()).unwrap_or(u64::MAX)).max(1)
}

/// The ownership interface for the store of one bucket.
pub(crate) struct BucketOwnership {
    pub(crate) lease: Arc<NodeLease>,
    pub(crate) bucket: std::sync::Weak<Bucket>,
}

impl Ownership for BucketOwnership {
    fn owns(&self, vbid: Vbid) -> bool {
        let bucket = self.bucket.upgrade();
        let vbucket = bucket.as_ref().and_then(|bucket| bucket.vbucket(vbid));
        vbucket.is_some_and(VBucket::is_owned) && self.lease.is_held()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use super::NodeLease;
    use crate::tests::registry::MemoryBuckets;

    thread_local!(static NOW: Cell<u64> = const { Cell::new(1) });

    const TTL: Duration = Duration::from_secs(10);
    const S: u64 = 1_000_000_000;

    fn lease() -> NodeLease {
        NOW.set(S);
        NodeLease::with_clock(Arc::new(MemoryBuckets::default()), || NOW.get())
    }

    #[test]
    fn the_lease_deadline_counts_from_before_the_request() {
        let lease = lease();
        assert!(!lease.is_held());
        let sent = lease.now_ns();
        NOW.set(5 * S);
        lease.begin(sent, TTL);
        NOW.set(10 * S - 1);
        assert!(lease.is_held());
        NOW.set(10 * S);
        assert!(!lease.is_held());
    }

    #[test]
    fn a_renewal_counts_from_before_its_request() {
        let lease = lease();
        lease.begin(lease.now_ns(), TTL);
        NOW.set(2 * S);
        let sent = lease.now_ns();
        NOW.set(8 * S);
        assert!(lease.renew(lease.session(), sent, TTL));
        NOW.set(11 * S - 1);
        assert!(lease.is_held());
        NOW.set(11 * S);
        assert!(!lease.is_held());
    }

    // Invariant: Answers computed past the lease's deadline are not sent.
    #[test]
    fn results_past_the_deadline_are_not_sent() {
        let lease = lease();
        lease.begin(lease.now_ns(), TTL);
        let session = lease.session();
        assert!(lease.still_holds(session));
        NOW.set(20 * S);
        assert!(!lease.still_holds(session));
        assert!(!lease.renew(session, 19 * S, TTL));
        assert!(!lease.is_held());
        // Another worker that began to serve before, and checks after a new session has begun.
        lease.begin(lease.now_ns(), TTL);
        assert!(!lease.still_holds(session));
        assert!(lease.still_holds(lease.session()));
    }

    #[test]
    fn a_renewal_past_its_deadline_ends_the_session() {
        let lease = lease();
        lease.begin(lease.now_ns(), TTL);
        let session = lease.session();
        NOW.set(15 * S);
        assert!(!lease.renew(session, 14 * S, TTL));
        assert!(lease.left().is_none());
    }

    #[test]
    fn without_a_lease_answers_of_other_buckets_go_out() {
        let lease = lease();
        assert!(lease.still_holds(lease.session()));
    }
}
