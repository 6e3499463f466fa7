//! A worker: one thread with its own poll, serving the connections handed to it.
//!
//! Owns: the sockets and state machines of its connections, the pools of free blocks, and the run queue.
//!
//! How it works: readiness is edge-triggered, therefore each connection remembers whether its socket may
//! have more to read and whether it may take more. A connection with something to do stands in the run
//! queue once; a turn reads at most one block, serves a bounded number of frames and sends, then the
//! next connection has its turn, so that one busy client delays the others by a bounded amount.
//! Time is read once per round. Deadlines are looked at once a second.
//!
//! Invariants: an idle connection holds no block; a turn never blocks; every connection that ends is
//! logged once with its reason. Sockets arrive, and completions of parked writes, through the mailbox.
//! It deliberately knows no opcode.

mod connections;
mod handshake;
mod transport;
mod turn;

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::{Events, Poll, Token, Waker};
use oribi_types::Timestamp;

use crate::blocking_thread::BlockingQueue;
use crate::connection::close_reason::CloseReason;
use crate::connection::parked::ParkToken;
use crate::environment::{Environment, LatencyClock};
use crate::limits::DEADLINE_SCAN_MS;
use crate::mailbox::{Mailbox, Message};
use crate::server_context::ServerContext;
use connections::Connections;

/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// Token of the waker; connections use their slots.
const WAKER: Token = Token(usize::MAX);

/// Longest time that a stopping worker tries to send what is pending.
const STOP_DRAIN: Duration = Duration::from_millis(500);

/// A running worker.
pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts worker number `index`.
    pub fn start(
        index: usize,
        server: Arc<ServerContext>,
        blocking: BlockingQueue,
    ) -> io::Result<Worker> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let mailbox = Mailbox::new(Some(waker));
        let latency_clock = LatencyClock::System(Instant::now());
        let environment = Environment::new(server, index, Arc::clone(&mailbox), latency_clock);
        let thread =
            std::thread::Builder::new().name(format!("oribi-worker-{index}")).spawn(move || {
                let worker = WorkerLoop {
                    poll,
                    environment,
                    blocking,
                    connections: Connections::default(),
                    messages: Vec::new(),
                    scanned_ms: 0,
                    stopping_since: None,
                };
                // A worker that panicked leaves its connections hanging and whatever it had locked in
                // an unknown state. A process that ends is noticed and started again; what was
                // acknowledged as durable is on disk.
                if std::panic::catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
                    tracing::error!(worker = index, "a worker panicked; the process ends");
                    std::process::abort();
                }
            })?;
        Ok(Worker { mailbox, thread })
    }

    /// Where the worker is reached.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Waits for the end of a worker that was told to stop.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

/// Milliseconds of a reading of the latency clock, at least 1 so that 0 can mean "never".
fn monotonic_ms(now_ns: u64) -> u64 {
    now_ns / 1_000_000 + 1
}

/// The wall clock. A clock set before 1970 counts as 1970.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
}

struct WorkerLoop {
    poll: Poll,
    environment: Environment,
    blocking: BlockingQueue,
    connections: Connections,
    messages: Vec<Message>,
    scanned_ms: u64,
    stopping_since: Option<Instant>,
}

impl WorkerLoop {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "poll failed; the worker ends");
                break;
            }
            self.environment.now = wall_clock();
            let now_ns = self.environment.latency_clock.now_ns();
            self.environment.now_ms = monotonic_ms(now_ns);
            self.environment.stretch.begin(now_ns);
            for event in &events {
                if event.token() != WAKER {
                    self.connections.on_event(event);
                }
            }
            self.take_messages();
            self.run_turns();
            self.scan_deadlines();
            if self.is_stopped() {
                break;
            }
        }
        self.connections.close_all(&self.environment, CloseReason::ServerStopping);
    }

    /// How long the kernel may keep us waiting for an event.
    fn patience(&self) -> Option<Duration> {
        if self.connections.has_runnable() {
            Some(Duration::ZERO)
        } else if self.stopping_since.is_some() {
            Some(Duration::from_millis(10))
        } else if self.connections.is_empty() {
            None
        } else {
            Some(Duration::from_millis(DEADLINE_SCAN_MS))
        }
    }

    fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.environment.mailbox.take(&mut messages);
        for message in messages.drain(..) {
            self.receive(message);
        }
        self.messages = messages;
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Socket(accepted) => {
                self.connections.add(accepted, self.poll.registry(), &self.environment);
            }
            Message::Persisted { token, outcome } => {
                let token = ParkToken::decode(token);
                let environment = &mut self.environment;
                self.connections.with_slot(token.slot, |connection| {
                    connection.persisted(environment, token, outcome);
                });
            }
            Message::Fetched { token, outcome } => {
                let token = ParkToken::decode(token);
                self.connections.with_slot(token.slot, |connection| {
                    connection.fetched(token, outcome);
                });
            }
            Message::JobDone { connection, session, result } => {
                let environment = &mut self.environment;
                self.connections.with_id(connection, |connection| {
                    connection.job_done(environment, session, result);
                });
            }
            Message::ClusterMapChanged => self.connections.announce_cluster_map(&self.environment),
            Message::Stop => {
                self.stopping_since = Some(Instant::now());
                self.connections.stop_all();
            }
        }
    }

    fn run_turns(&mut self) {
        // Those that wait for a handshake beside it get one turn together, whoever of them is next.
        self.connections.run_handshake(&self.environment);
        for _ in 0..self.connections.runnable() {
            self.connections.run_next(&mut self.environment);
            let session = self.environment.session();
            for (connection, job) in self.environment.jobs.drain(..) {
                self.blocking.submit(job, (connection, session), &self.environment.mailbox);
            }
        }
    }

    fn scan_deadlines(&mut self) {
        let now_ms = self.environment.now_ms;
        if now_ms.saturating_sub(self.scanned_ms) >= DEADLINE_SCAN_MS {
            self.scanned_ms = now_ms;
            self.connections.scan(&mut self.environment);
        }
    }

    fn is_stopped(&self) -> bool {
        let Some(since) = self.stopping_since else { return false };
        self.connections.is_empty() || since.elapsed() > STOP_DRAIN
    }
}

#[cfg(test)]
mod tests;
