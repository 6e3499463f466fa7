//! The acceptor: one thread that accepts connections and hands them to workers in turn.
//!
//! Owns: the listening sockets, one without TLS and optionally one with. Invariants: a connection
//! beyond the cap is closed before anything is allocated for it. So is one from elsewhere where
//! balancers are configured, and one that would take a file from the store (`file_limit.rs`). Every
//! socket has TCP_NODELAY (the worker batches answers, not the kernel) and keepalive (which detects
//! peers that vanished). When descriptors run out, the acceptor pauses instead of spinning.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{SockRef, TcpKeepalive};

use crate::runtime::mailbox::{AcceptedSocket, Mailbox, WorkerMessage};
use crate::server_context::ServerContext;

const STOP: Token = Token(usize::MAX);

/// Pause after the operating system refused a connection for lack of resources.
const RETRY: Duration = Duration::from_millis(100);

/// Connections accepted from each port between two checks for a stop.
const ROUNDS_MAX: usize = 64;

/// Shortest time between two log lines about refused connections.
const REFUSAL_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Silence after which the kernel probes a peer, and interval between two probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Listener {
    waker: Waker,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Starts accepting from a bound socket, and from a second one for TLS clients.
    pub fn start(
        socket: std::net::TcpListener,
        tls_socket: Option<std::net::TcpListener>,
        server: Arc<ServerContext>,
        workers: Vec<Arc<Mailbox>>,
    ) -> io::Result<Listener> {
        assert!(!workers.is_empty(), "connections need a worker");
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let mut ports = Vec::new();
        let plain = (socket, AcceptedSocket::Plain as Kind);
        for (socket, kind) in
            [plain].into_iter().chain(tls_socket.map(|s| (s, AcceptedSocket::Tls as _)))
        {
            socket.set_nonblocking(true)?;
            let mut socket = TcpListener::from_std(socket);
            poll.registry().register(&mut socket, Token(ports.len()), Interest::READABLE)?;
            ports.push(Port { socket, kind });
        }
        let acceptor = Acceptor {
            poll,
            ports,
            server,
            workers,
            next: 0,
            refusal_logged: None,
            is_full: false,
        };
        let thread = oribi_supervisor::spawn("oribi-acceptor", move || acceptor.run())?;
        Ok(Listener { waker, thread })
    }

    /// Stops accepting and closes the socket.
    pub fn stop(self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot stop the acceptor");
            return;
        }
        if self.thread.join().is_err() {
            tracing::error!("the acceptor panicked");
        }
    }
}

/// Wraps an accepted socket according to its port.
type Kind = fn(TcpStream) -> AcceptedSocket;

struct Port {
    socket: TcpListener,
    kind: Kind,
}

/// Whether clients may be waiting. The kernel reports readiness once, so the acceptor remembers
/// clients that it left waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingClients {
    Nobody,
    Perhaps,
}

struct Acceptor {
    poll: Poll,
    ports: Vec<Port>,
    server: Arc<ServerContext>,
    workers: Vec<Arc<Mailbox>>,
    next: usize,
    /// Time of the last logged refusal; refusals come in floods.
    refusal_logged: Option<Instant>,
    /// The last connection was one too many.
    is_full: bool,
}

impl Acceptor {
    fn run(mut self) {
        let mut events = Events::with_capacity(8);
        let mut patience = None;
        loop {
            if let Err(error) = self.poll.poll(&mut events, patience)
                && error.kind() != ErrorKind::Interrupted
            {
                oribi_supervisor::end_process(&format!("poll failed: {error}"));
            }
            oribi_supervisor::plant("acceptor");
            if events.iter().any(|event| event.token() == STOP) {
                return;
            }
            patience = match self.accept_some() {
                Ok(PendingClients::Nobody) => None,
                // The acceptor can be stopped even during a flood.
                Ok(PendingClients::Perhaps) => Some(Duration::ZERO),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    Some(RETRY)
                }
            };
        }
    }

    /// Accepts from each port in turn, until no client is waiting or the limit per round is
    /// reached.
    fn accept_some(&mut self) -> io::Result<PendingClients> {
        for _ in 0..ROUNDS_MAX {
            let mut accepted = false;
            for index in 0..self.ports.len() {
                accepted |= self.accept_one(index)?;
            }
            if !accepted {
                return Ok(PendingClients::Nobody);
            }
        }
        Ok(PendingClients::Perhaps)
    }

    /// Accepts from a port; false when no client is waiting there.
    fn accept_one(&mut self, index: usize) -> io::Result<bool> {
        loop {
            let Port { socket, kind } = &self.ports[index];
            match socket.accept() {
                Ok((stream, peer)) => {
                    self.hand_over(stream, peer, *kind);
                    return Ok(true);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn hand_over(&mut self, stream: TcpStream, peer: SocketAddr, kind: Kind) {
        if !self.server.connections.admits_address(peer.ip()) {
            return self.log_refusal(peer, "its address is not in proxy_protocol");
        }
        if !self.server.connections.leaves_files(&stream) {
            return self.log_refusal(peer, "the other files of this process are the store's");
        }
        if !self.server.connections.admit() {
            self.is_full = true;
            return self.log_refusal(peer, "too many connections");
        }
        if std::mem::take(&mut self.is_full) {
            let refused = self.server.connections.rejected();
            tracing::info!(refused, "connections are accepted again");
        }
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%peer, %error, "connection gone before it was served");
            self.server.connections.release();
            return;
        }
        let worker = &self.workers[self.next % self.workers.len()];
        self.next = self.next.wrapping_add(1);
        worker.post(WorkerMessage::Socket(kind(stream)));
    }

    fn log_refusal(&mut self, peer: SocketAddr, reason: &str) {
        if self.refusal_logged.is_none_or(|logged| logged.elapsed() > REFUSAL_LOG_PAUSE) {
            let refused = self.server.connections.rejected();
            tracing::warn!(%peer, refused, "connection refused: {reason}");
            self.refusal_logged = Some(Instant::now());
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
