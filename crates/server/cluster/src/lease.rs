//! The lease: until when this node may serve what it owns.
//!
//! Owns: the deadline, by a clock that counts while the machine sleeps, and the serving number by
//! which a worker notices that vbuckets went out of service while it served. Invariants:
//! 1. The deadline is not later than the end of the lease in etcd, which counts from before a
//!    renewal was sent, and is shortened by a margin for clocks of different speeds; and not later
//!    than the end of the [grants](crate::grants) of any vbucket that is served.
//! 2. Once a thread has found the lease over, the session has ended: a late renewal does not revive
//!    it. Every vbucket of a shared bucket has stopped serving before any thread continues.
//! 3. A worker sends an answer only if two conditions hold after it has served: the serving number
//!    with which it began is still current, and the deadline is not over. So all data that it read
//!    was current when it read it.
//! 4. A vbucket is taken out of service before its grants end, and the serving number rises: by
//!    [`NodeLease::follow_grants`], or by the first thread that finds the deadline over. The
//!    connections that a worker serves then are closed; the session continues.
//!
//! Called by workers (each turn), stores (each time another owner shows up), the agent (renewals)
//! and the thread of `serving`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use oribi_engine::{Bucket, VBucket};
use oribi_storage::Ownership;
use oribi_types::Vbid;
use parking_lot::Mutex;

use crate::buckets::ClusterBuckets;
use crate::grants::{Grants, ServingCondition};
use crate::records::VbucketPlace;

/// Margin of the deadline, as divisor of the lease: clocks differ in speed by less.
const MARGIN_DIVISOR: u32 = 10;

/// Suspicion where no setting says another.
const SUSPICION_MS: u64 = 2000;

/// Nanoseconds since boot, sleep included.
pub(crate) fn boot_time_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (s, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    s.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}

/// See the module text.
pub struct NodeLease {
    buckets: Arc<dyn ClusterBuckets>,
    /// By [`boot_time_ns`]; 0 while there is no lease.
    deadline_ns: AtomicU64,
    /// End of the lease alone; 0 while there is none. Both change with `change` held.
    lease_ns: AtomicU64,
    /// Becomes odd when vbuckets begin to go out of service, and even again when they have.
    serving: AtomicU64,
    /// Sessions that have ended.
    session: AtomicU64,
    pub(crate) grants: Grants,
    /// The thread that follows the grants.
    pub(crate) follower: OnceLock<Thread>,
    /// Held while a session begins or ends, and while vbuckets begin or end to be served.
    change: Mutex<()>,
    clock: fn() -> u64,
}

impl NodeLease {
    pub fn new(buckets: Arc<dyn ClusterBuckets>) -> NodeLease {
        NodeLease::with_clock(buckets, SUSPICION_MS, boot_time_ns)
    }

    pub(crate) fn with_clock(
        buckets: Arc<dyn ClusterBuckets>,
        suspicion_ms: u64,
        clock: fn() -> u64,
    ) -> NodeLease {
        NodeLease {
            buckets,
            deadline_ns: AtomicU64::new(0),
            lease_ns: AtomicU64::new(0),
            serving: AtomicU64::new(0),
            session: AtomicU64::new(0),
            grants: Grants::at_start(suspicion_ms, clock()),
            follower: OnceLock::new(),
            change: Mutex::new(()),
            clock,
        }
    }

    /// Current time of the lease's clock; read it before sending a grant or a renewal.
    pub fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    /// The serving number, which a worker reads before it serves.
    pub fn serving(&self) -> u64 {
        self.serving.load(Ordering::Acquire)
    }

    /// Number of the current session.
    pub(crate) fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// Begins a session with a lease of `ttl`, granted by a request that was sent at `sent_ns`.
    pub fn begin(&self, sent_ns: u64, ttl: Duration) {
        let _alone = self.change.lock();
        assert!(self.serving().is_multiple_of(2), "the last session has ended");
        assert_eq!(self.deadline_ns.load(Ordering::Acquire), 0, "one lease at a time");
        self.lease_ns.store(deadline(sent_ns, ttl), Ordering::Release);
        self.update_deadline();
    }

    /// Renews the lease of `session` by a request that was sent at `sent_ns`. False when the
    /// session has ended.
    pub(crate) fn renew(&self, session: u64, sent_ns: u64, ttl: Duration) -> bool {
        self.end_if_over();
        let _alone = self.change.lock();
        let is_same = self.session() == session;
        if is_same {
            debug_assert_ne!(self.lease_ns.load(Ordering::Acquire), 0, "it has not ended");
            self.lease_ns.fetch_max(deadline(sent_ns, ttl), Ordering::AcqRel);
            self.update_deadline();
        }
        is_same
    }

    /// The earlier one of the lease's end and the first end of grants. The caller holds `change`.
    fn update_deadline(&self) {
        let lease_ns = self.lease_ns.load(Ordering::Acquire);
        assert_ne!(lease_ns, 0, "a session that has ended has no deadline");
        // Not 0: that would be no lease.
        let deadline_ns = lease_ns.min(self.grants.end_ns()).max(1);
        assert!(deadline_ns <= lease_ns, "no answer is sent after the lease");
        self.deadline_ns.store(deadline_ns, Ordering::Release);
    }

    /// True before the end of the lease.
    pub(crate) fn is_held(&self) -> bool {
        self.now_ns() < self.lease_ns.load(Ordering::Acquire)
    }

    /// True before the deadline: answers computed until now may be sent.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn may_answer(&self) -> bool {
        self.now_ns() < self.deadline_ns.load(Ordering::Acquire)
    }

    /// True when answers served since `serving` was read may be sent. If the time of the lease is
    /// up, no shared bucket is served any more when this returns; if grants have ended, no vbucket
    /// that needs them.
    pub fn still_holds(&self, serving: u64) -> bool {
        self.end_if_over();
        // While it is odd, vbuckets are being taken out of service.
        self.serving() == serving && serving.is_multiple_of(2)
    }

    /// True while the session lasts. If its lease is over, it has ended when this returns.
    pub(crate) fn is_in(&self, session: u64) -> bool {
        self.end_if_over();
        self.session() == session
    }

    fn end_if_over(&self) {
        let is_over = || {
            let deadline = self.deadline_ns.load(Ordering::Acquire);
            deadline != 0 && self.now_ns() >= deadline
        };
        if is_over() {
            let _alone = self.change.lock();
            if is_over() {
                self.end_what_is_over();
            }
        }
    }

    /// Ends the session if its lease is over, else takes the vbuckets out of service whose grants
    /// are about to end; returns how many. The caller holds `change`, and there is a session.
    fn end_what_is_over(&self) -> usize {
        if !self.is_held() {
            self.end_alone();
            return 0;
        }
        let due = self.grants.end_those_due(self.now_ns());
        if !due.is_empty() {
            tracing::info!(
                vbuckets = due.len(),
                "too few nodes grant: vbuckets are not served until they do, or others serve them"
            );
            self.end_serving(|| {
                let shared = self.buckets.shared();
                for place in &due {
                    let handle = shared.iter().find(|handle| handle.uuid() == place.uuid);
                    let copies = handle.and_then(|handle| handle.copies());
                    copies.into_iter().for_each(|copies| copies.stop_serving(place.vbid));
                }
            });
        }
        self.update_deadline();
        due.len()
    }

    /// Takes vbuckets out of service by `stop`. Workers that are in a turn send no answers then.
    /// The caller holds `change`.
    fn end_serving(&self, stop: impl FnOnce()) {
        let ending = self.serving.fetch_add(1, Ordering::AcqRel);
        assert!(ending.is_multiple_of(2), "vbuckets go out of service in one thread");
        stop();
        let ended = self.serving.fetch_add(1, Ordering::AcqRel);
        assert_eq!(ended, ending + 1, "one thread takes vbuckets out of service");
    }

    /// Ends the session: no shared bucket is served any more, and requests in progress are not
    /// answered.
    pub fn end(&self) {
        let _alone = self.change.lock();
        if self.lease_ns.load(Ordering::Acquire) != 0 {
            self.end_alone();
        }
    }

    /// Ends the session. The caller holds `change`.
    fn end_alone(&self) {
        self.end_serving(|| {
            for shared in self.buckets.shared() {
                let bucket = shared.bucket();
                if let Some(copies) = shared.copies() {
                    let vbuckets = (0..bucket.config().vbuckets).map(Vbid);
                    vbuckets.for_each(|vbid| copies.stop_serving(vbid));
                    continue;
                }
                bucket.owned().into_iter().for_each(|vbid| bucket.stop_serving(vbid));
            }
            self.grants.end_all();
            self.lease_ns.store(0, Ordering::Release);
            self.deadline_ns.store(0, Ordering::Release);
            self.session.fetch_add(1, Ordering::AcqRel);
        });
        assert!(!self.is_held(), "a lease that ended is not held");
    }

    /// Takes the vbuckets out of service whose grants are about to end, and moves the deadline to
    /// the end of the others. Returns how many went out of service, and when to call it again at
    /// the latest.
    pub(crate) fn follow_grants(&self) -> (usize, u64) {
        let _alone = self.change.lock();
        if self.lease_ns.load(Ordering::Acquire) == 0 {
            return (0, u64::MAX);
        }
        let ended = self.end_what_is_over();
        let margin_ns = self.grants.periods().margin_ns;
        (ended, self.grants.end_ns().saturating_sub(margin_ns))
    }

    /// Lets a vbucket serve as long as its grants run. False when the session is over, or too few
    /// grants run.
    pub(crate) fn admit(
        &self,
        session: u64,
        place: &VbucketPlace,
        condition: &ServingCondition,
    ) -> bool {
        let _alone = self.change.lock();
        if self.session() != session || !self.is_held() {
            return false;
        }
        let Some(end_ns) = self.grants.admit(place, condition, self.now_ns()) else { return false };
        let before_ns = self.deadline_ns.fetch_min(end_ns, Ordering::AcqRel);
        if end_ns < before_ns {
            self.follower.get().inspect(|thread| thread.unpark());
        }
        true
    }

    /// Begins to serve by `start`, if the lease of `session` holds and the vbucket is admitted.
    /// Neither ends before `start` has returned, so it must not block.
    pub(crate) fn start_in(
        &self,
        session: u64,
        (place, condition): (&VbucketPlace, &ServingCondition),
        start: impl FnOnce(),
    ) {
        let _alone = self.change.lock();
        let is_admitted = self.grants.admits(place, condition);
        if self.session() == session && is_admitted && self.is_held() {
            start();
            assert_eq!(self.session(), session, "a session does not end while it starts to serve");
        }
    }

    /// Time until the lease ends; `None` without one.
    pub(crate) fn left(&self) -> Option<Duration> {
        let deadline = self.lease_ns.load(Ordering::Acquire);
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

    use oribi_replication::copies::CopiesEpoch;
    use oribi_types::Vbid;

    use super::NodeLease;
    use crate::grants::{BeaconId, ServingCondition};
    use crate::records::VbucketPlace;
    use crate::tests::registry::MemoryBuckets;

    thread_local!(static NOW: Cell<u64> = const { Cell::new(1) });

    const TTL: Duration = Duration::from_secs(10);
    const S: u64 = 1_000_000_000;

    fn lease() -> NodeLease {
        NOW.set(S);
        NodeLease::with_clock(Arc::new(MemoryBuckets::default()), 2000, || NOW.get())
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
        let (session, serving) = (lease.session(), lease.serving());
        assert!(lease.still_holds(serving));
        NOW.set(20 * S);
        assert!(!lease.still_holds(serving));
        assert!(!lease.renew(session, 19 * S, TTL));
        assert!(!lease.is_held());
        // Another worker that began to serve before, and checks after a new session has begun.
        lease.begin(lease.now_ns(), TTL);
        assert!(!lease.still_holds(serving) && !lease.is_in(session));
        assert!(lease.still_holds(lease.serving()));
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
        assert!(lease.still_holds(lease.serving()));
    }

    fn admitted(lease: &NodeLease) -> VbucketPlace {
        let place = VbucketPlace { uuid: "u".to_owned(), vbid: Vbid(1) };
        let sets = vec![(vec!["b".to_owned()], 1)];
        let (process, sent_ns) = (lease.grants.process(), lease.now_ns());
        lease.grants.receive("b", (BeaconId { process, sent_ns }, 2 * S), sent_ns);
        NOW.set(NOW.get() + 1);
        let condition = ServingCondition { epoch: CopiesEpoch(2), sets, read_ns: lease.now_ns() };
        assert!(lease.admit(lease.session(), &place, &condition));
        place
    }

    #[test]
    fn results_past_the_end_of_grants_are_not_sent() {
        let lease = lease();
        lease.begin(lease.now_ns(), TTL);
        admitted(&lease);
        let (session, serving) = (lease.session(), lease.serving());
        assert!(lease.still_holds(serving) && lease.may_answer());
        // This process was paused, and the lease still holds.
        NOW.set(3 * S);
        assert!(!lease.may_answer() && !lease.still_holds(serving));
        assert!(lease.is_in(session) && lease.is_held(), "buckets without copies are served");
        assert!(lease.may_answer() && lease.still_holds(lease.serving()));
    }

    #[test]
    fn the_session_outlives_the_grants_of_a_vbucket() {
        let lease = lease();
        lease.begin(lease.now_ns(), TTL);
        admitted(&lease);
        let (session, serving) = (lease.session(), lease.serving());
        assert_eq!(lease.follow_grants().0, 0);
        assert!(lease.still_holds(serving));
        NOW.set(S + S * 3 / 2);
        assert_eq!(lease.follow_grants().0, 1);
        assert!(!lease.still_holds(serving), "a worker in a turn may have read before");
        NOW.set(3 * S);
        assert!(lease.is_in(session) && lease.still_holds(lease.serving()));
        NOW.set(11 * S);
        assert!(!lease.is_in(session));
    }
}
