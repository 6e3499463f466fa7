//! Beacons: datagrams between nodes that say that a node lives, and answers that grant.
//!
//! Owns: their form, and the threads that send and answer them and follow the grants. The thread of
//! beacons waits only for the socket and the short sections of [`Grants`] and [`BeaconPeers`]: for
//! no disk, no agreement. After its turn was delayed it suspects no node before it has listened for
//! a whole suspicion again. Invariants:
//! - each datagram is authenticated by the cluster's secret, and names its two nodes;
//! - only the process of a node's record is heard, and each of its beacons once, so datagrams that
//!   are repeated on purpose keep no dead node alive;
//! - an answer repeats the number of the process and the time of the beacon, so a process uses no
//!   grant that another got, and one that comes late or twice counts from when its beacon was sent.
//!
//! Datagrams, because a lost one must not delay the next: a connection repeats what was lost first.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ring::{digest, hmac};
use tokio::sync::Notify;

use crate::grants::{BeaconId, Grants, PeerChange};
use crate::lease::NodeLease;
use crate::secret::ClusterSecret;

const MAGIC: [u8; 4] = *b"ORBB";
const VERSION: u8 = 1;
const BEACON: u8 = 0;
const ANSWER: u8 = 1;
/// Size of a tag and of a name.
const DIGEST_BYTES: usize = 32;
const HEAD_BYTES: usize = 8;
/// Number of the process, time of the beacon, length of the grant.
const NUMBERS_BYTES: usize = 24;
const TAG_AT: usize = HEAD_BYTES + NUMBERS_BYTES + 2 * DIGEST_BYTES;
pub(crate) const DATAGRAM_BYTES: usize = TAG_AT + DIGEST_BYTES;
/// Datagrams that are taken in before the next beacons are sent.
const DRAINED_MAX: usize = 1024;
/// Looks for nodes that are silent, for each beacon.
const LOOKS: u64 = 5;
/// Shortest wait for a datagram; 0 would wait for ever.
const WAIT_MIN: Duration = Duration::from_millis(1);
const NS_PER_MS: u64 = 1_000_000;

/// Name of a node, in a fixed number of bytes.
type NameDigest = [u8; DIGEST_BYTES];

/// A datagram without its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) is_answer: bool,
    pub(crate) beacon: BeaconId,
    /// How long an answer grants; 0 when it does not.
    pub(crate) given_ns: u64,
    pub(crate) from: NameDigest,
    pub(crate) to: NameDigest,
}

pub(crate) fn name_digest(name: &str) -> NameDigest {
    let mut bytes = [0; DIGEST_BYTES];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, name.as_bytes()).as_ref());
    bytes
}

impl Datagram {
    pub(crate) fn encode(&self, key: &hmac::Key) -> [u8; DATAGRAM_BYTES] {
        let mut bytes = [0; DATAGRAM_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = if self.is_answer { ANSWER } else { BEACON };
        bytes[8..16].copy_from_slice(&self.beacon.process.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.beacon.sent_ns.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.given_ns.to_be_bytes());
        bytes[32..64].copy_from_slice(&self.from);
        bytes[64..TAG_AT].copy_from_slice(&self.to);
        let tag = hmac::sign(key, &bytes[..TAG_AT]);
        assert_eq!(tag.as_ref().len(), DIGEST_BYTES, "a tag has its place");
        bytes[TAG_AT..].copy_from_slice(tag.as_ref());
        bytes
    }

    /// `None` for anything that no node with the secret made.
    pub(crate) fn decode(bytes: &[u8], key: &hmac::Key) -> Option<Datagram> {
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().ok()?;
        let is_known = bytes[..4] == MAGIC && bytes[4] == VERSION && bytes[5] <= ANSWER;
        if !is_known || hmac::verify(key, &bytes[..TAG_AT], &bytes[TAG_AT..]).is_err() {
            return None;
        }
        let number = |at: usize| {
            let eight: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(eight)
        };
        let name = |at: usize| bytes[at..at + DIGEST_BYTES].try_into().expect("a digest");
        Some(Datagram {
            is_answer: bytes[5] == ANSWER,
            beacon: BeaconId { process: number(8), sent_ns: number(16) },
            given_ns: number(24),
            from: name(32),
            to: name(64),
        })
    }
}

/// The nodes that get beacons: those that ever had a record since this process started.
#[derive(Default)]
pub(crate) struct BeaconPeers(Mutex<BTreeMap<NameDigest, BeaconPeer>>);

#[derive(Clone)]
struct BeaconPeer {
    name: Arc<str>,
    /// The process of its record.
    process: u64,
    /// Where it gets beacons, once that is known.
    address: Option<SocketAddr>,
}

impl BeaconPeers {
    /// The beacons of this process of the node `name` are heard from now on.
    pub(crate) fn know(&self, name: &str, process: u64) {
        let peer = || BeaconPeer { name: name.into(), process, address: None };
        self.0.lock().entry(name_digest(name)).or_insert_with(peer).process = process;
    }

    /// A known node gets beacons at this address from now on.
    pub(crate) fn set_address(&self, name: &str, address: SocketAddr) {
        let mut peers = self.0.lock();
        let peer = peers.get_mut(&name_digest(name)).expect("a node is known before its address");
        peer.address = Some(address);
    }

    /// True when a beacon is of the process of the node's record.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn hears(&self, name: &str, beacon: BeaconId) -> bool {
        self.peer(&name_digest(name)).is_some_and(|peer| peer.process == beacon.process)
    }

    fn peer(&self, digest: &NameDigest) -> Option<BeaconPeer> {
        self.0.lock().get(digest).cloned()
    }

    fn addresses(&self) -> Vec<(NameDigest, SocketAddr)> {
        let peers = self.0.lock();
        peers.iter().filter_map(|(digest, peer)| Some((*digest, peer.address?))).collect()
    }
}

/// When the thread of beacons sends, and looks for silent nodes.
#[derive(Debug)]
pub(crate) struct BeaconSchedule {
    look_at_ns: u64,
    send_at_ns: u64,
}

/// What the thread of beacons found in one of its turns.
pub(crate) struct BeaconTurn {
    /// The delay of this turn, where it was too long to say anything of other nodes.
    pub(crate) delayed_ns: Option<u64>,
    pub(crate) changes: Vec<(String, PeerChange)>,
    /// Beacons are to be sent.
    pub(crate) sends: bool,
}

impl BeaconSchedule {
    pub(crate) fn beginning(now_ns: u64) -> BeaconSchedule {
        BeaconSchedule { look_at_ns: now_ns, send_at_ns: now_ns }
    }

    /// Time until the next turn; `None` when it is due.
    pub(crate) fn left_ns(&self, now_ns: u64) -> Option<u64> {
        self.look_at_ns.checked_sub(now_ns).filter(|left_ns| *left_ns > 0)
    }

    /// A turn that is due. `begun_ns` was read before all datagrams were taken in that came until
    /// then.
    pub(crate) fn turn(&mut self, grants: &Grants, begun_ns: u64) -> BeaconTurn {
        assert!(self.left_ns(begun_ns).is_none(), "the turn is due");
        let late_ns = begun_ns - self.look_at_ns;
        let is_delayed = grants.note_lateness(late_ns, begun_ns);
        let changes = grants.look(begun_ns);
        let (sends, beacon_ns) = (begun_ns >= self.send_at_ns, grants.periods().beacon_ns);
        if sends {
            self.send_at_ns = begun_ns + beacon_ns;
        }
        self.look_at_ns = self.send_at_ns.min(begun_ns + beacon_ns / LOOKS);
        BeaconTurn { delayed_ns: is_delayed.then_some(late_ns), changes, sends }
    }
}

/// See the module text.
pub(crate) struct Beacons {
    socket: UdpSocket,
    key: hmac::Key,
    own: NameDigest,
    pub(crate) lease: Arc<NodeLease>,
    peers: Arc<BeaconPeers>,
    pub(crate) wake: Arc<Notify>,
    pub(crate) is_ending: Arc<AtomicBool>,
}

impl Beacons {
    pub(crate) fn new(
        socket: UdpSocket,
        (cluster, own, secret): (&str, &str, &ClusterSecret),
        (lease, peers): (Arc<NodeLease>, Arc<BeaconPeers>),
        (wake, is_ending): (Arc<Notify>, Arc<AtomicBool>),
    ) -> Beacons {
        Beacons {
            socket,
            key: secret.beacon_key(cluster),
            own: name_digest(own),
            lease,
            peers,
            wake,
            is_ending,
        }
    }

    /// Sends, receives and answers, until it is stopped.
    pub(crate) fn run(self) {
        oribi_supervisor::take_short_slices();
        let mut schedule = BeaconSchedule::beginning(self.lease.now_ns());
        while !self.is_ending.load(Ordering::Relaxed) {
            let begun_ns = self.lease.now_ns();
            match schedule.left_ns(begun_ns) {
                Some(left_ns) => self.wait(Duration::from_nanos(left_ns)),
                None => {
                    self.drain();
                    let turn = schedule.turn(&self.lease.grants, begun_ns);
                    self.note(&turn);
                    if turn.sends {
                        self.send();
                    }
                }
            }
        }
    }

    /// Takes in the next datagram that comes within the time.
    fn wait(&self, limit: Duration) {
        let set = self.socket.set_read_timeout(Some(limit.max(WAIT_MIN)));
        if let Err(error) = set.and_then(|()| self.receive().map(drop)) {
            tracing::debug!(%error, "no beacon could be received");
            std::thread::sleep(limit);
        }
    }

    /// Takes in all that has come.
    fn drain(&self) {
        if self.socket.set_nonblocking(true).is_err() {
            return;
        }
        for _ in 0..DRAINED_MAX {
            if !matches!(self.receive(), Ok(true)) {
                break;
            }
        }
        if let Err(error) = self.socket.set_nonblocking(false) {
            tracing::debug!(%error, "the socket of beacons does not wait");
        }
    }

    fn note(&self, turn: &BeaconTurn) {
        if let Some(late_ns) = turn.delayed_ns {
            let late_ms = late_ns / NS_PER_MS;
            tracing::info!(
                late_ms,
                "beacons were delayed here, because the machine is busy or the process was paused: \
                 no node is suspected before another full time without a beacon"
            );
        }
        let suspicion_ms = self.lease.grants.periods().given_ns / NS_PER_MS;
        for (node, change) in &turn.changes {
            match change {
                PeerChange::Suspected => tracing::info!(
                    node,
                    suspicion_ms,
                    "no beacon came for that long: other copies may replace those of the node"
                ),
                PeerChange::Heard => tracing::info!(node, "beacons of the node come again"),
                PeerChange::Silent => {
                    tracing::info!(node, "the node answers no beacon: its grants are about to end");
                }
                PeerChange::Grants => tracing::info!(node, "the node answers beacons again"),
            }
        }
        if !turn.changes.is_empty() {
            self.wake.notify_one();
        }
    }

    fn send(&self) {
        for (to, address) in self.peers.addresses() {
            let (process, sent_ns) = (self.lease.grants.process(), self.lease.now_ns());
            let (beacon, from) = (BeaconId { process, sent_ns }, self.own);
            self.send_to(&Datagram { is_answer: false, beacon, given_ns: 0, from, to }, address);
        }
    }

    fn send_to(&self, datagram: &Datagram, address: SocketAddr) {
        // A lost datagram is as one that the network lost.
        if let Err(error) = self.socket.send_to(&datagram.encode(&self.key), address) {
            tracing::trace!(%error, %address, "a beacon was not sent");
        }
    }

    /// Receives one datagram; false when there is none.
    fn receive(&self) -> io::Result<bool> {
        let mut buffer = [0; DATAGRAM_BYTES + 1];
        match self.socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                let datagram = buffer.get(..length).and_then(|it| Datagram::decode(it, &self.key));
                datagram.filter(|it| it.to == self.own).inspect(|it| self.take(it, from));
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    // Refused: the answer to an earlier datagram, from a node that is gone.
                    ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
                ) =>
            {
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn take(&self, datagram: &Datagram, address: SocketAddr) {
        let Some(peer) = self.peers.peer(&datagram.from) else { return };
        let Datagram { is_answer, beacon, given_ns, .. } = *datagram;
        let (grants, now_ns) = (&self.lease.grants, self.lease.now_ns());
        if is_answer {
            if grants.receive(&peer.name, (beacon, given_ns), now_ns) {
                // It counts for vbuckets once the agent has read the agreement.
                self.wake.notify_one();
            }
            self.lease.follower.get().inspect(|thread| thread.unpark());
        } else if beacon.process == peer.process
            && let Some(given_ns) = grants.hear(&peer.name, beacon, now_ns)
        {
            let (from, to) = (self.own, datagram.from);
            self.send_to(&Datagram { is_answer: true, beacon, given_ns, from, to }, address);
        }
    }
}

/// Follows the grants on a dedicated thread: it may wait for a vbucket that a worker has locked.
pub(crate) fn follow(lease: &NodeLease, wake: &Notify, is_ending: &AtomicBool) {
    oribi_supervisor::take_short_slices();
    let pause_ns_max = lease.grants.periods().given_ns;
    let _ = lease.follower.set(std::thread::current());
    while !is_ending.load(Ordering::Relaxed) {
        let (ended, next_ns) = lease.follow_grants();
        if ended > 0 {
            wake.notify_one();
        }
        let left_ns = next_ns.saturating_sub(lease.now_ns()).min(pause_ns_max);
        std::thread::park_timeout(Duration::from_nanos(left_ns));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagram() -> Datagram {
        let (from, to) = (name_digest("a"), name_digest("b"));
        let beacon = BeaconId { process: 7, sent_ns: 8 };
        Datagram { is_answer: true, beacon, given_ns: 9, from, to }
    }

    fn key() -> hmac::Key {
        ClusterSecret::of_test().beacon_key("c")
    }

    #[test]
    fn a_datagram_is_read_as_written() {
        let bytes = datagram().encode(&key());
        assert_eq!(Datagram::decode(&bytes, &key()), Some(datagram()));
        assert_eq!(Datagram::decode(&bytes[..DATAGRAM_BYTES - 1], &key()), None);
        let other = ClusterSecret::of_test().beacon_key("d");
        assert_eq!(Datagram::decode(&bytes, &other), None, "another cluster's");
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let bytes = datagram().encode(&key());
        for at in 0..DATAGRAM_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(Datagram::decode(&changed, &key()), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_datagram_or_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..DATAGRAM_BYTES + 2),
        ) {
            assert_eq!(Datagram::decode(&bytes, &key()), None);
        }
    }
}
