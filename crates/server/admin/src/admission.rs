//! Admission control of the admin HTTP: which connections it keeps when there are too many.
//!
//! Owns: one place for each connection, and the choice of the connection to evict. Invariants:
//! - a new connection is refused only when no place is idle, and a limit on another user never
//!   keeps a place idle: users without the role `admin` have at most half of the places, passwords
//!   under verification an eighth;
//! - so whatever other clients hold open, `/healthz` and an administrator find a place
//!   (`admission::tests`);
//! - idle places are evicted in this order: connections that never authenticated (of the network
//!   that has most of them, oldest first), then those of users, then those of administrators, least
//!   recently used first;
//! - a place in which a request is served, or a stream runs, is never evicted.
//!
//! Callers: `admin`, which accepts, and `routes`, which knows the user. This module does not
//! inspect requests.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oribi_auth::Identity;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::{
    ADMIN_ANONYMOUS_PER_NETWORK_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_LOGINS_MAX,
    ADMIN_LOGINS_PER_NETWORK_MAX, ADMIN_STREAMS_PER_USER_MAX, ADMIN_USER_CONNECTIONS_MAX,
    ADMIN_USERS_CONNECTIONS_MAX, QUERY_CONNECTIONS_MAX, QUERY_USER_CONNECTIONS_MAX,
};

/// Least time between two log lines about evicted or refused connections.
const LOG_PAUSE: Duration = Duration::from_secs(1);
const _: () = assert!(ADMIN_ANONYMOUS_PER_NETWORK_MAX <= ADMIN_CONNECTIONS_MAX);
const _: () =
    assert!(ADMIN_USERS_CONNECTIONS_MAX < ADMIN_CONNECTIONS_MAX, "an administrator enters");
const _: () = assert!(ADMIN_USER_CONNECTIONS_MAX <= ADMIN_USERS_CONNECTIONS_MAX);
const _: () = assert!(ADMIN_LOGINS_PER_NETWORK_MAX <= ADMIN_LOGINS_MAX);
const _: () = assert!(QUERY_USER_CONNECTIONS_MAX <= QUERY_CONNECTIONS_MAX);

/// The network of a client: its IPv4 address, or the /64 network from which it can choose its IPv6
/// addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Network(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            address => Network(address),
        }
    }
}

/// The activity in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Nothing, or an answer that needs no credentials.
    Idle,
    /// A password is being checked.
    Login,
    /// A request by an authenticated user.
    Request,
}

struct Entry {
    network: Network,
    /// The last user, and whether that is an administrator.
    user: Option<(String, bool)>,
    work: Work,
    /// Last use, by [`Table::clock`].
    used: u64,
    end: Arc<Notify>,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.work == Work::Idle
    }

    fn is_anonymous(&self) -> bool {
        self.user.is_none()
    }

    fn is_of_user(&self, name: &str) -> bool {
        self.user.as_ref().is_some_and(|(user, _)| user == name)
    }

    /// True for a user who is not an administrator.
    fn is_ordinary(&self) -> bool {
        self.user.as_ref().is_some_and(|(_, is_admin)| !is_admin)
    }
}

/// Numbers of evictions and refusals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turnover {
    /// Idle connections closed to make space for others.
    pub(crate) evicted: u64,
    /// Connections, logins, requests and streams refused.
    pub(crate) refused: u64,
}

/// Bounds of a port, or of ports that share their places.
#[derive(Debug, Clone, Copy)]
struct AdmissionLimits {
    connections: usize,
    /// Of those that never authenticated, from one network.
    anonymous_per_network: usize,
    /// Of all users without the role `admin`.
    users_connections: usize,
    user_connections: usize,
    streams_per_user: usize,
}

impl Default for AdmissionLimits {
    fn default() -> AdmissionLimits {
        AdmissionLimits {
            connections: ADMIN_CONNECTIONS_MAX,
            anonymous_per_network: ADMIN_ANONYMOUS_PER_NETWORK_MAX,
            users_connections: ADMIN_USERS_CONNECTIONS_MAX,
            user_connections: ADMIN_USER_CONNECTIONS_MAX,
            streams_per_user: ADMIN_STREAMS_PER_USER_MAX,
        }
    }
}

/// Any number of an application's connections is the usual case at a port for queries, and no
/// administrator needs a place there.
const QUERY_LIMITS: AdmissionLimits = AdmissionLimits {
    connections: QUERY_CONNECTIONS_MAX,
    anonymous_per_network: QUERY_USER_CONNECTIONS_MAX,
    users_connections: QUERY_USER_CONNECTIONS_MAX,
    user_connections: QUERY_USER_CONNECTIONS_MAX,
    streams_per_user: QUERY_USER_CONNECTIONS_MAX,
};

#[derive(Default)]
struct Table {
    limits: AdmissionLimits,
    clock: u64,
    places: BTreeMap<u64, Entry>,
    /// Streams of each user.
    streams: HashMap<String, usize>,
    turnover: Turnover,
    logged: Option<Instant>,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct AdmissionControl {
    table: Mutex<Table>,
}

/// The place of one connection, released when the connection ends.
pub(crate) struct ConnectionSlot {
    admission: Arc<AdmissionControl>,
    id: u64,
    end: Arc<Notify>,
    has_sent_request: AtomicBool,
}

/// A busy place, until this is dropped.
pub(crate) struct ActiveRequest {
    place: Arc<ConnectionSlot>,
}

/// One of the streams of a user, until this is dropped.
pub(crate) struct StreamPlace {
    busy: ActiveRequest,
    user: String,
}

/// A connection to be closed.
pub(crate) struct AdminConnection(Arc<Notify>);

impl AdmissionControl {
    /// The places of ports for queries.
    pub(crate) fn of_queries() -> AdmissionControl {
        AdmissionControl { table: Mutex::new(Table { limits: QUERY_LIMITS, ..Table::default() }) }
    }

    /// A place for a new connection, evicting another one if necessary; `None` when none can be
    /// evicted.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<ConnectionSlot>> {
        let network = Network::of(peer);
        let mut table = self.table.lock();
        if !table.make_room(network) {
            table.refuse();
            return None;
        }
        let id = table.tick();
        let end = Arc::new(Notify::new());
        let entry =
            Entry { network, user: None, work: Work::Idle, used: id, end: Arc::clone(&end) };
        let previous = table.places.insert(id, entry);
        assert!(previous.is_none(), "each connection has its own id");
        assert!(
            table.places.len() <= table.limits.connections,
            "a connection enters only when there is capacity"
        );
        let has_sent_request = AtomicBool::new(false);
        Some(Arc::new(ConnectionSlot { admission: Arc::clone(self), id, end, has_sent_request }))
    }

    pub(crate) fn connections(&self) -> usize {
        self.table.lock().places.len()
    }

    /// Numbers of evictions and refusals.
    pub(crate) fn turnover(&self) -> Turnover {
        self.table.lock().turnover
    }

    /// True when a log line about evictions or refusals is due.
    pub(crate) fn may_log(&self) -> bool {
        let mut table = self.table.lock();
        let is_due = table.logged.is_none_or(|logged| logged.elapsed() >= LOG_PAUSE);
        if is_due {
            table.logged = Some(Instant::now());
        }
        is_due
    }
}

impl ConnectionSlot {
    /// Returns when the connection is evicted.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }

    /// Call with each complete request.
    pub(crate) fn note_request(&self) {
        self.has_sent_request.store(true, Ordering::Relaxed);
    }

    /// True after the first complete request.
    pub(crate) fn has_sent_request(&self) -> bool {
        self.has_sent_request.load(Ordering::Relaxed)
    }

    /// Starts to verify a password; `None` when too many verifications are in progress.
    pub(crate) fn begin_login(self: &Arc<Self>) -> Option<ActiveRequest> {
        let mut table = self.admission.table.lock();
        let network = table.places.get(&self.id)?.network;
        let logins = |entry: &&Entry| entry.work == Work::Login;
        let all = table.places.values().filter(logins).count();
        let near = table.places.values().filter(logins).filter(|e| e.network == network).count();
        if all >= ADMIN_LOGINS_MAX || near >= ADMIN_LOGINS_PER_NETWORK_MAX {
            table.refuse();
            return None;
        }
        self.begin(&mut table, Work::Login)
    }

    /// Starts a request of a user; `None` when the user, or all users together, have too many
    /// connections with requests in progress.
    pub(crate) fn begin_request(self: &Arc<Self>, identity: &Identity) -> Option<ActiveRequest> {
        let (name, is_admin) = (&identity.name, identity.access.is_admin());
        let mut table = self.admission.table.lock();
        let limits = table.limits;
        let known = table.places.get(&self.id)?.user.clone();
        let is_known = known.as_ref().is_some_and(|(user, was)| user == name && *was == is_admin);
        let is_admitted = is_known
            || (table.admit(self.id, limits.user_connections, |entry| entry.is_of_user(name))
                && (is_admin
                    || table.admit(self.id, limits.users_connections, Entry::is_ordinary)));
        if !is_admitted {
            table.refuse();
            return None;
        }
        table.places.get_mut(&self.id)?.user = Some((name.clone(), is_admin));
        debug_assert!(
            table.places.values().filter(|entry| entry.is_of_user(name)).count()
                <= limits.user_connections,
            "a user's connections are within the limit"
        );
        self.begin(&mut table, Work::Request)
    }

    fn begin(self: &Arc<Self>, table: &mut Table, work: Work) -> Option<ActiveRequest> {
        assert_ne!(work, Work::Idle, "a request or a login makes a connection busy");
        let now = table.tick();
        let entry = table.places.get_mut(&self.id)?;
        (entry.work, entry.used) = (work, now);
        debug_assert!(!entry.is_idle(), "a connection with a request is busy");
        Some(ActiveRequest { place: Arc::clone(self) })
    }
}

impl ActiveRequest {
    /// Turns the request into a stream of its user; `None` when the user has too many.
    pub(crate) fn into_stream(self, identity: &Identity) -> Option<StreamPlace> {
        let user = identity.name.clone();
        {
            let mut table = self.place.admission.table.lock();
            let most = table.limits.streams_per_user;
            let streams = table.streams.entry(user.clone()).or_default();
            if *streams >= most {
                table.refuse();
                return None;
            }
            *streams += 1;
            assert!(*streams <= most, "a user has a bounded number of streams");
        }
        Some(StreamPlace { busy: self, user })
    }
}

impl StreamPlace {
    /// The connection, which outlasts the stream.
    pub(crate) fn connection(&self) -> AdminConnection {
        AdminConnection(Arc::clone(&self.busy.place.end))
    }
}

impl AdminConnection {
    pub(crate) fn close(&self) {
        self.0.notify_one();
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let left = self.admission.table.lock().places.remove(&self.id);
        debug_assert!(
            left.is_none_or(|entry| entry.is_idle()),
            "a connection ends after its request"
        );
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut table = self.place.admission.table.lock();
        let now = table.tick();
        if let Some(entry) = table.places.get_mut(&self.place.id) {
            (entry.work, entry.used) = (Work::Idle, now);
        }
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut table = self.busy.place.admission.table.lock();
        if let Some(streams) = table.streams.get_mut(&self.user) {
            assert!(*streams > 0, "a stream that ends was counted");
            *streams -= 1;
            if *streams == 0 {
                table.streams.remove(&self.user);
            }
        }
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn refuse(&mut self) {
        self.turnover.refused += 1;
    }

    /// Makes space for a connection from `network`. False when nothing can be evicted.
    fn make_room(&mut self, network: Network) -> bool {
        assert!(
            self.places.len() <= self.limits.connections,
            "evictions keep the table within its limit"
        );
        let of_network = |entry: &Entry| entry.is_anonymous() && entry.network == network;
        if self.places.values().filter(|entry| of_network(entry)).count()
            >= self.limits.anonymous_per_network
        {
            return self.evict(of_network);
        }
        if self.places.len() < self.limits.connections {
            return true;
        }
        let crowded = self.crowded_network();
        self.evict(|entry| entry.is_anonymous() && Some(entry.network) == crowded)
            || self.evict(Entry::is_ordinary)
            || self.evict(|_| true)
    }

    /// The network with the most idle connections that never authenticated.
    fn crowded_network(&self) -> Option<Network> {
        let mut counts: HashMap<Network, usize> = HashMap::new();
        for entry in self.places.values().filter(|entry| entry.is_anonymous() && entry.is_idle()) {
            *counts.entry(entry.network).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(network, _)| network)
    }

    /// Admits the place `id` to those that `counts` counts, of which there are at most `most`;
    /// evicts another one of them if necessary.
    fn admit(&mut self, id: u64, most: usize, counts: impl Fn(&Entry) -> bool) -> bool {
        let others = self.places.iter().filter(|(other, entry)| **other != id && counts(entry));
        others.count() < most || self.evict_but(Some(id), counts)
    }

    fn evict(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        self.evict_but(None, may_go)
    }

    /// Evicts the least recently used idle connection among these. An anonymous connection counts
    /// as never used, so among those the oldest is evicted.
    fn evict_but(&mut self, spared: Option<u64>, may_go: impl Fn(&Entry) -> bool) -> bool {
        let candidates = self
            .places
            .iter()
            .filter(|(id, entry)| Some(**id) != spared && entry.is_idle() && may_go(entry));
        let Some((id, _)) = candidates.min_by_key(|(_, entry)| entry.used) else { return false };
        let id = *id;
        if let Some(entry) = self.places.remove(&id) {
            assert!(entry.is_idle(), "a connection with a request is not evicted");
            entry.end.notify_one();
            self.turnover.evicted += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests;
