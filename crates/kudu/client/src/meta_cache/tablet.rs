//! The client's view of a tablet: its part of the table, and the addresses of its replicas.
//!
//! The cache, the snapshots of sessions and the calls in flight share a [`Tablet`]. Its bounds
//! never change. Each answer of the master replaces its replicas as a whole, so an earlier snapshot
//! follows a leader that moved. Between two answers the client itself learns which replica leads
//! and which is unreachable. It keeps that knowledge in atomics next to the list and drops both
//! together. Invariant: the leader is the replica that the master named or that executed a Write; a
//! guess is kept apart. Choosing a replica for a call is the job of `retry/replica_picker.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::partition::Partition;
use crate::types::HostPort;

/// A tablet and its replicas.
#[derive(Debug)]
pub(crate) struct Tablet {
    id: String,
    partition: Partition,
    replicas: RwLock<Arc<ReplicaSet>>,
    /// Counts the answers of the master that this tablet has taken over.
    generation: AtomicU64,
    /// A server said that it does not have this tablet, so the client must ask for its replicas
    /// again.
    is_stale: AtomicBool,
}

impl Tablet {
    /// A tablet with the master's data only.
    pub(crate) fn new(id: String, partition: Partition, replicas: Vec<Replica>) -> Tablet {
        Tablet {
            id,
            partition,
            replicas: RwLock::new(Arc::new(ReplicaSet::new(replicas))),
            generation: AtomicU64::new(1),
            is_stale: AtomicBool::new(false),
        }
    }

    /// 32 hexadecimal digits.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The part of the table that the tablet holds.
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether the tablet holds rows with this partition key. The code that routes rows uses its
    /// own index.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn contains(&self, partition_key: &[u8]) -> bool {
        let Partition { start, end, .. } = &self.partition;
        start.as_ref() <= partition_key && (end.is_empty() || partition_key < end.as_ref())
    }

    /// The replicas of the master's last answer.
    pub(crate) fn replicas(&self) -> Arc<ReplicaSet> {
        self.replicas.read().clone()
    }

    /// Takes over a newer list of replicas, and forgets what the client learnt about the old one.
    pub(crate) fn refresh(&self, replicas: Arc<ReplicaSet>) {
        *self.replicas.write() = replicas;
        self.is_stale.store(false, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Grows with every refresh. A caller that needs newer replicas than those of some generation
    /// can tell whether another caller has already asked.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes the client ask for the replicas again before the next call.
    pub(crate) fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// Whether [`Tablet::mark_stale`] was called since the last refresh.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }
}

/// One replica of a tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    /// Permanent id of the server that has the replica.
    pub(crate) server_uuid: String,
    /// Where that server listens; the first address that it registered.
    pub(crate) address: HostPort,
    /// The server's location, such as `/rack1`; empty when the cluster assigns none.
    pub(crate) location: String,
    /// Whether the master believes that this replica leads.
    pub(crate) is_leader: bool,
}

/// The replicas of a tablet in one answer of the master, and what the client has learnt since.
#[derive(Debug)]
pub(crate) struct ReplicaSet {
    replicas: Vec<Replica>,
    /// Index of the presumed leader, or `NO_LEADER`.
    leader: AtomicUsize,
    /// Index of the replica that Writes try while the leader is of no use, or `NO_LEADER`.
    guess: AtomicUsize,
    /// Bit i: replica i is unreachable. A tablet has at most 7 voters, so 64 bits are plenty; a
    /// replica beyond them is never marked.
    failed: AtomicU64,
}

const NO_LEADER: usize = usize::MAX;

impl ReplicaSet {
    /// A set with the master's data only.
    pub(crate) fn new(replicas: Vec<Replica>) -> ReplicaSet {
        let leader = replicas.iter().position(|replica| replica.is_leader).unwrap_or(NO_LEADER);
        let guess = AtomicUsize::new(NO_LEADER);
        ReplicaSet { replicas, leader: AtomicUsize::new(leader), guess, failed: AtomicU64::new(0) }
    }

    /// All replicas.
    pub(crate) fn all(&self) -> &[Replica] {
        &self.replicas
    }

    /// Index of the presumed leader, unless it is unreachable.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.reachable(self.leader.load(Ordering::Relaxed))
    }

    /// Index of the replica that Writes try first without a known leader.
    pub(crate) fn guess(&self) -> Option<usize> {
        self.reachable(self.guess.load(Ordering::Relaxed))
    }

    fn reachable(&self, index: usize) -> Option<usize> {
        (index != NO_LEADER && !self.has_failed(index)).then_some(index)
    }

    /// The replica has executed a Write, which only a leader does.
    pub(crate) fn mark_leader(&self, index: usize) {
        // The leader is nearly always known, and then this store to shared memory is skipped.
        if self.leader.load(Ordering::Relaxed) != index {
            self.leader.store(index, Ordering::Relaxed);
        }
    }

    /// Makes other Writes try this replica first.
    pub(crate) fn mark_guess(&self, index: usize) {
        self.guess.store(index, Ordering::Relaxed);
    }

    /// Clears the presumed leader if it is this replica.
    pub(crate) fn mark_follower(&self, index: usize) {
        for believed in [&self.leader, &self.guess] {
            let _ =
                believed.compare_exchange(index, NO_LEADER, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Excludes this replica until the client's next lookup at the master.
    pub(crate) fn mark_failed(&self, index: usize) {
        if index < 64 {
            self.failed.fetch_or(1 << index, Ordering::Relaxed);
        }
    }

    /// Whether the replica is unreachable.
    pub(crate) fn has_failed(&self, index: usize) -> bool {
        index < 64 && self.failed.load(Ordering::Relaxed) & (1 << index) != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;

    /// The keys from `start` to `end`, in no hash bucket.
    pub(crate) fn range(start: &[u8], end: &[u8]) -> Partition {
        Partition {
            hash_buckets: Vec::new(),
            start: Bytes::copy_from_slice(start),
            end: Bytes::copy_from_slice(end),
        }
    }

    /// Replicas on ports 1, 2, ...; the one at `leader` leads.
    pub(crate) fn replicas(count: u16, leader: Option<u16>) -> Vec<Replica> {
        (0..count)
            .map(|index| Replica {
                server_uuid: format!("uuid{index}"),
                address: HostPort::new("server", index + 1),
                location: String::new(),
                is_leader: leader == Some(index),
            })
            .collect()
    }

    #[test]
    fn an_empty_upper_bound_is_open() {
        let tablet = Tablet::new("t".into(), range(b"b", b"d"), Vec::new());
        assert!(!tablet.contains(b"a"));
        assert!(tablet.contains(b"b") && tablet.contains(b"czz"));
        assert!(!tablet.contains(b"d"));
        let last = Tablet::new("t".into(), range(b"b", b""), Vec::new());
        assert!(last.contains(b"\xff\xff"));
    }

    #[test]
    fn replica_state_ends_with_a_refresh() {
        let tablet = Tablet::new("t".into(), range(b"", b""), replicas(3, Some(1)));
        let before = tablet.generation();
        let set = tablet.replicas();
        assert_eq!(set.leader(), Some(1));
        set.mark_failed(1);
        assert_eq!(set.leader(), None);
        set.mark_guess(0);
        assert_eq!((set.leader(), set.guess()), (None, Some(0)), "a guess is no leader");
        set.mark_follower(0);
        assert_eq!(set.guess(), None);
        set.mark_leader(2);
        assert_eq!(tablet.replicas().leader(), Some(2));
        set.mark_follower(0);
        assert_eq!(set.leader(), Some(2));
        set.mark_follower(2);
        assert_eq!(set.leader(), None);
        tablet.mark_stale();
        tablet.refresh(Arc::new(ReplicaSet::new(replicas(3, Some(1)))));
        assert!(!tablet.is_stale() && tablet.generation() > before);
        assert_eq!(tablet.replicas().leader(), Some(1));
    }
}
