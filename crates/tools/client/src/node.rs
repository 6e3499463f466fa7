//! One node of the cluster: its shared connections, opened on first use and again after they end.
//!
//! Each of a node's connections is a [`NodeLink`]. A caller that needs one while it is closed parks
//! a call ([`ParkedCall`]); a task connects, then makes the calls in the order in which they came.
//! It repeats failed attempts after growing pauses, as long as calls are parked. A server that
//! refuses name and password ends that at once: all parked calls get the refusal, and so do new
//! ones within [`PAUSE_MAX`]. Only then does a new call lead to another attempt.
//!
//! An unreachable server may have been replaced. So each failed attempt with calls parked is a
//! reason to fetch the map from another node. When the new map does not list this node, its calls
//! fail at once and their callers can try its successor.
//!
//! Invariants: at most one task connects a link; a parked call is made exactly once, or dropped
//! together with its link. The task keeps no link alive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use oribi_protocol::opcode::Opcode;
use oribi_types::Vbid;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::KvNode;
use crate::config_watch::ConfigWatch;
use crate::connection::Connection;
use crate::error::{ClientError, Site};
use crate::multiplexer::Multiplexer;
use crate::options::ConnectOptions;
use crate::retry::Backoff;

/// Pause before the first attempt to connect again, and the longest one.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How a connection came to be open, or why there is none.
pub(crate) type ConnectionResult<'a> = Result<&'a Arc<Multiplexer>, ClientError>;

/// A call to make once the connection is open, or cannot be opened.
pub(crate) struct ParkedCall {
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// Its purpose.
    pub opcode: Opcode,
    /// The call. It must not wait.
    pub resume: Box<dyn FnOnce(ConnectionResult<'_>) + Send>,
}

/// See the module text.
pub(crate) struct ClusterNode {
    address: KvNode,
    links: Box<[Arc<NodeLink>]>,
}

impl ClusterNode {
    /// A node without open connections, which are going to live on `runtime`. Host and port of
    /// `options` are not looked at.
    pub fn new(
        address: KvNode,
        options: &ConnectOptions,
        watch: &Arc<ConfigWatch>,
        runtime: &Handle,
    ) -> Arc<ClusterNode> {
        let options = Arc::new(options.clone().node(&address));
        let peer: Arc<str> = address.to_string().into();
        let link = || {
            Arc::new(NodeLink {
                peer: peer.clone(),
                options: options.clone(),
                watch: watch.clone(),
                runtime: runtime.clone(),
                state: Mutex::new(LinkState::new()),
            })
        };
        let links = (0..options.connections_per_node.max(1)).map(|_| link()).collect();
        Arc::new(ClusterNode { address, links })
    }

    /// Where it is.
    pub fn address(&self) -> &KvNode {
        &self.address
    }

    /// The connection for operations on a vbucket: always the same one, so that writes of one key
    /// are carried out in their order.
    pub fn link(&self, vbid: Vbid) -> &Arc<NodeLink> {
        // Nodes have every n-th vbucket; the product spreads them whatever n is.
        let spread = usize::from(vbid.0).wrapping_mul(0x9e37_79b1) >> 16;
        &self.links[spread % self.links.len()]
    }

    /// Any connection that is open already.
    pub fn open_connection(&self) -> Option<Arc<Multiplexer>> {
        self.links.iter().find_map(NodeLink::open_connection)
    }

    /// The map no longer lists it. Requests in flight continue; parked calls end unsent.
    pub fn leave(&self) {
        for link in &self.links {
            let waiting = {
                let mut state = link.state.lock();
                state.has_left = true;
                std::mem::take(&mut state.parked)
            };
            for parked in waiting {
                let error = link.has_left(parked.opcode);
                (parked.resume)(Err(error));
            }
        }
    }

    /// Begins to connect to it unless it is connected or connecting. Does not wait.
    pub fn connect(&self, opcode: Opcode) {
        let link = self.link(Vbid(0));
        if !matches!(link.state.lock().stage, Stage::Connecting) {
            let deadline = Instant::now() + PAUSE_MAX;
            link.park(ParkedCall { deadline, opcode, resume: Box::new(|_| ()) });
        }
    }

    /// Takes a connection to the node that was opened elsewhere.
    pub fn adopt(&self, connection: Connection) {
        let link = &self.links[0];
        let multiplexer = Multiplexer::start(connection, link.watch.clone());
        let mut state = link.state.lock();
        state.opened = Some(Instant::now());
        state.stage = Stage::Open(Arc::new(multiplexer));
    }
}

/// One of a node's connections, through all its openings.
pub(crate) struct NodeLink {
    peer: Arc<str>,
    options: Arc<ConnectOptions>,
    watch: Arc<ConfigWatch>,
    /// Where connecting happens, also when a pipeline is filled from outside.
    runtime: Handle,
    state: Mutex<LinkState>,
}

struct LinkState {
    stage: Stage,
    backoff: Backoff,
    /// When it was opened last.
    opened: Option<Instant>,
    /// Earliest time of the next attempt.
    not_before: Option<Instant>,
    /// Why the last attempt failed.
    last_failure: Option<Arc<str>>,
    parked: Vec<ParkedCall>,
    /// The map no longer lists the node. A node that comes back gets a new value.
    has_left: bool,
}

enum Stage {
    Idle,
    Connecting,
    Open(Arc<Multiplexer>),
    Refused(ClientError),
}

impl LinkState {
    fn new() -> LinkState {
        LinkState {
            stage: Stage::Idle,
            backoff: Backoff::new(PAUSE, PAUSE_MAX),
            opened: None,
            not_before: None,
            last_failure: None,
            parked: Vec::new(),
            has_left: false,
        }
    }

    /// How long the next attempt has to wait, when the connection is found closed or never was
    /// open.
    fn pause(&mut self) -> Duration {
        if let Some(opened) = self.opened.take() {
            // A server that accepts connections only to drop them is not healthy.
            if opened.elapsed() > PAUSE_MAX {
                self.backoff.reset();
            }
            return self.backoff.pause();
        }
        let not_before = self.not_before.take();
        not_before.map_or(Duration::ZERO, |time| time.saturating_duration_since(Instant::now()))
    }
}

impl NodeLink {
    /// The server, as `host:port`.
    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// The connection, if it is open.
    pub fn open_connection(self: &Arc<NodeLink>) -> Option<Arc<Multiplexer>> {
        match &self.state.lock().stage {
            Stage::Open(multiplexer) if !multiplexer.is_closed() => Some(multiplexer.clone()),
            _ => None,
        }
    }

    /// Makes the call as soon as the connection is open or cannot be opened, perhaps at once.
    pub fn park(self: &Arc<NodeLink>, parked: ParkedCall) {
        let mut state = self.state.lock();
        match &state.stage {
            Stage::Open(multiplexer) if !multiplexer.is_closed() => {
                return (parked.resume)(Ok(multiplexer));
            }
            Stage::Refused(error) if state.not_before.is_some_and(|time| Instant::now() < time) => {
                return (parked.resume)(Err(error.clone()));
            }
            // A caller that still holds the old map would wait here until its timeout.
            _ if state.has_left => {
                drop(state);
                let error = self.has_left(parked.opcode);
                return (parked.resume)(Err(error));
            }
            Stage::Connecting => return state.parked.push(parked),
            Stage::Idle | Stage::Open(_) | Stage::Refused(_) => {}
        }
        if let Stage::Open(multiplexer) = &state.stage {
            state.last_failure = multiplexer.closing_reason();
        }
        state.parked.push(parked);
        state.stage = Stage::Connecting;
        let pause = state.pause();
        drop(state);
        self.runtime.spawn(connect(Arc::downgrade(self), self.options.clone(), pause));
    }

    /// Waits until `deadline`, which was `after` from the start, for the connection to be open.
    pub async fn connection(
        self: &Arc<NodeLink>,
        opcode: Opcode,
        deadline: Instant,
        after: Duration,
    ) -> Result<Arc<Multiplexer>, ClientError> {
        if let Some(multiplexer) = self.open_connection() {
            return Ok(multiplexer);
        }
        let (sender, receiver) = oneshot::channel();
        let resume =
            Box::new(move |opened: ConnectionResult<'_>| drop(sender.send(opened.cloned())));
        self.park(ParkedCall { deadline, opcode, resume });
        match tokio::time::timeout_at(deadline, receiver).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(self.not_sent(opcode, "the client was dropped".into())),
            Err(_) => Err(self.not_connected(opcode, after)),
        }
    }

    /// The error of an operation that waited for the connection without success.
    pub fn not_connected(&self, opcode: Opcode, after: Duration) -> ClientError {
        let reason = match &self.state.lock().last_failure {
            Some(failure) => format!("no connection within {after:?}: {failure}"),
            None => format!("no connection within {after:?}"),
        };
        self.not_sent(opcode, reason.into())
    }

    fn has_left(&self, opcode: Opcode) -> ClientError {
        self.not_sent(opcode, "the node has left the cluster".into())
    }

    fn not_sent(&self, opcode: Opcode, reason: Arc<str>) -> ClientError {
        let at = Site { peer: self.peer.clone(), operation: opcode.name() };
        ClientError::NotSent { at, reason }
    }

    /// Takes the outcome of an attempt. Returns the pause before the next one, if there is to be
    /// one.
    fn settle(&self, outcome: Result<Connection, ClientError>) -> Option<Duration> {
        match outcome {
            Ok(connection) => {
                self.open(connection);
                None
            }
            Err(error) if error.is_final() => {
                self.refuse(&error);
                None
            }
            Err(error) => self.keep_trying(&error),
        }
    }

    fn open(&self, connection: Connection) {
        let multiplexer = Arc::new(Multiplexer::start(connection, self.watch.clone()));
        let mut state = self.state.lock();
        state.opened = Some(Instant::now());
        state.last_failure = None;
        // Under the lock, so that no new call gets ahead of the parked ones.
        for parked in std::mem::take(&mut state.parked) {
            (parked.resume)(Ok(&multiplexer));
        }
        state.stage = Stage::Open(multiplexer);
    }

    fn refuse(&self, error: &ClientError) {
        tracing::warn!(peer = %self.peer, %error, "the server refuses the client");
        let mut state = self.state.lock();
        state.stage = Stage::Refused(error.clone());
        state.not_before = Some(Instant::now() + PAUSE_MAX);
        let waiting = std::mem::take(&mut state.parked);
        drop(state);
        for parked in waiting {
            (parked.resume)(Err(error.clone()));
        }
    }

    fn keep_trying(&self, error: &ClientError) -> Option<Duration> {
        tracing::debug!(peer = %self.peer, %error, "connecting failed");
        let now = Instant::now();
        let mut state = self.state.lock();
        let reason: Arc<str> = error.to_string().into();
        state.last_failure = Some(reason.clone());
        let pause = state.backoff.pause();
        let (waiting, late): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.parked).into_iter().partition(|p| p.deadline > now);
        state.parked = waiting;
        let goes_on = !state.parked.is_empty();
        // Not for fetches of the map themselves: an idle client would continue for ever.
        let is_missed = state.parked.iter().any(|p| p.opcode != Opcode::GetClusterConfig);
        if !goes_on {
            state.stage = Stage::Idle;
            state.not_before = Some(now + pause);
        }
        drop(state);
        if is_missed {
            self.watch.report_refusal();
        }
        for parked in late {
            let error = self.not_sent(parked.opcode, reason.clone());
            (parked.resume)(Err(error));
        }
        goes_on.then_some(pause)
    }
}

/// Connects a link, however often it takes.
async fn connect(link: Weak<NodeLink>, options: Arc<ConnectOptions>, mut pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let outcome = Connection::open(&options).await;
        let Some(link) = link.upgrade() else { return };
        match link.settle(outcome) {
            Some(longer) => pause = longer,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Nodes that leave.

    use super::*;

    /// Who had chosen the node just before it left waited for its own deadline.
    #[tokio::test]
    async fn no_request_waits_for_a_node_that_has_left() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = nobody.local_addr().expect("it is bound").port();
        drop(nobody);
        let address = KvNode { host: "127.0.0.1".to_owned(), port };
        let options = ConnectOptions::new("user", "secret", "default");
        let node = ClusterNode::new(address, &options, &Arc::default(), &Handle::current());
        let link = node.link(Vbid(0)).clone();
        let long = Duration::from_secs(600);
        let wait = || link.connection(Opcode::Get, Instant::now() + long, long);
        let (before, ()) = tokio::join!(wait(), async { node.leave() });
        let after = tokio::time::timeout(Duration::from_secs(60), wait()).await;
        for error in [before.err(), after.expect("nobody waits that long").err()] {
            let error = error.expect("the node is not there");
            assert!(error.was_not_sent() && error.to_string().contains("left"), "{error}");
        }
    }
}
