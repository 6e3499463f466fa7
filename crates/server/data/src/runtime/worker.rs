//! A worker: one thread with its own poll that serves the connections handed to it.
//!
//! Owns: the sockets and state machines of its connections, the pools of free blocks, and the run
//! queue.
//!
//! Readiness is edge-triggered, so each connection remembers whether its socket may have more to
//! read and may accept more output. A connection with work is in the run queue exactly once. A turn
//! reads at most one block, serves a bounded number of frames and sends; then the next connection
//! has its turn. So one busy client delays the others by a bounded amount. A round gives each
//! connection that waits a turn, and then moves one slice of large values, or of a backfill. The
//! worker reads the clock once per round, and checks deadlines once a second.
//!
//! Invariants: an idle connection holds no block; a turn never blocks; every connection that ends
//! is logged once with its reason. Sockets, and completions of parked writes, arrive through the
//! mailbox. A worker does not depend on opcodes.

mod connections;
mod handshake;
mod outgoing;
mod pauses;
mod proxied;
mod slot;
mod transfer;
mod transport;
mod turn;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};
use oribi_engine::block_arena;
use oribi_system::clock::wall_clock;

use crate::connection::close_reason::CloseReason;
use crate::connection::latency_clock::LatencyClock;
use crate::connection::parked::ParkToken;
use crate::dcp::pace::Moment;
use crate::dispatch::environment::Environment;
use crate::limits::{CHANGES_LOOK_BYTES, DEADLINE_SCAN_MS, ROOM_RETRY_MS, TRANSFER_SLICE_BYTES};
use crate::runtime::blocking_thread::BlockingQueue;
use crate::runtime::driver::ConnectionDriver;
use crate::runtime::mailbox::{Mailbox, WorkerMessage};
use crate::server_context::ServerContext;
use connections::WorkerConnections;
use outgoing::{LINK_TOKENS, OutgoingLinks};

/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
const _: () =
    assert!(LINK_TOKENS >= crate::limits::WORKER_CONNECTIONS_MAX, "tokens do not overlap");

/// Token of the waker; connections use their slots.
const WAKER: Token = Token(usize::MAX);

/// Longest time that a stopping worker tries to send pending output.
const STOP_DRAIN: Duration = Duration::from_millis(500);

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
        let environment = Environment::new(server, index, &mailbox, latency_clock);
        let inbox = Arc::clone(&mailbox);
        let thread = oribi_supervisor::spawn(format!("oribi-worker-{index}"), move || {
            oribi_supervisor::take_short_slices();
            WorkerLoop::new(poll, environment, inbox, blocking).run();
        })?;
        Ok(Worker { mailbox, thread })
    }

    /// The mailbox through which other threads reach the worker.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Waits for the end of a worker that is stopping.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

/// Converts a reading of the latency clock to milliseconds, at least 1 so that 0 can mean "never".
fn monotonic_ms(now_ns: u64) -> u64 {
    now_ns / 1_000_000 + 1
}

struct WorkerLoop {
    poll: Poll,
    environment: Environment,
    mailbox: Arc<Mailbox>,
    blocking: BlockingQueue,
    connections: WorkerConnections,
    links: OutgoingLinks,
    messages: Vec<WorkerMessage>,
    /// Monotonic clock of this round.
    now_ns: u64,
    scanned_ms: u64,
    /// Bytes received when it looked into its mailbox last.
    taken_at_bytes: u64,
    /// When writes that wait for memory try again.
    room_retry_ms: u64,
    stopping_since: Option<Instant>,
}

impl WorkerLoop {
    fn new(
        poll: Poll,
        environment: Environment,
        mailbox: Arc<Mailbox>,
        blocking: BlockingQueue,
    ) -> WorkerLoop {
        WorkerLoop {
            poll,
            environment,
            mailbox,
            blocking,
            connections: WorkerConnections::default(),
            links: OutgoingLinks::default(),
            messages: Vec::new(),
            now_ns: 0,
            scanned_ms: 0,
            taken_at_bytes: 0,
            room_retry_ms: 0,
            stopping_since: None,
        }
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                // The acceptor would still hand sockets to this worker, which would never serve
                // them.
                oribi_supervisor::end_process(&format!("poll failed: {error}"));
            }
            oribi_supervisor::plant("worker");
            self.environment.now = wall_clock();
            let now_ns = self.environment.latency_clock.now_ns();
            self.environment.now_ms = monotonic_ms(now_ns);
            self.environment.stretch.begin(now_ns);
            self.now_ns = now_ns;
            for event in &events {
                match event.token() {
                    Token(token) if token < LINK_TOKENS => self.connections.on_event(event),
                    WAKER => {}
                    Token(token) => self.links.on_event(token - LINK_TOKENS, event),
                }
            }
            self.take_messages();
            self.retry_writes();
            self.connections.run_timers(self.environment.now_ms);
            self.run_turns();
            self.run_links();
            self.scan_deadlines();
            if self.is_stopped() {
                break;
            }
        }
        self.connections.close_all(&mut self.environment, CloseReason::ServerStopping);
        assert!(self.connections.is_empty(), "a worker that ends has no connection");
        self.links.close_all(&mut self.environment);
    }

    fn run_links(&mut self) {
        if self.links.has_work(self.environment.now_ms) {
            self.links.run(&mut self.environment, self.poll.registry(), &self.mailbox);
        }
    }

    /// Longest time to wait for an event in the kernel.
    fn patience(&self) -> Option<Duration> {
        if self.connections.has_runnable() || self.links.has_work(0) {
            Some(Duration::ZERO)
        } else if !self.environment.bucket_waits.is_empty() {
            Some(Duration::from_millis(ROOM_RETRY_MS))
        } else if self.stopping_since.is_some() {
            Some(Duration::from_millis(10))
        } else if self.connections.is_empty() && self.links.is_empty() {
            block_arena::give_back_kept_blocks();
            None
        } else {
            Some(self.time_to_timer().min(Duration::from_millis(DEADLINE_SCAN_MS)))
        }
    }

    /// How long no connection has to act by itself.
    fn time_to_timer(&self) -> Duration {
        let (due_ms, pause_ns) = (self.connections.timer_due_ms(), self.connections.pause_due_ns());
        let due_ms = due_ms.into_iter().chain(self.links.due_ms()).min();
        if due_ms.is_none() && pause_ns.is_none() {
            return Duration::MAX;
        }
        let now_ns = self.environment.latency_clock.now_ns();
        let left = |due_ms: u64| Duration::from_millis(due_ms.saturating_sub(monotonic_ms(now_ns)));
        let pause = |due_ns: u64| Duration::from_nanos(due_ns.saturating_sub(now_ns));
        due_ms.map_or(Duration::MAX, left).min(pause_ns.map_or(Duration::MAX, pause))
    }

    fn moment(&self) -> Moment {
        Moment { ns: self.now_ns, received: self.environment.counters.bytes_read.get() }
    }

    fn take_messages(&mut self) {
        let now = self.moment();
        self.taken_at_bytes = now.received;
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox.take(&mut messages);
        for message in messages.drain(..) {
            self.receive(message);
        }
        self.messages = messages;
        self.connections.end_pauses(now);
    }

    fn receive(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Socket(accepted) => {
                self.connections.add(accepted, self.poll.registry(), &self.environment);
            }
            WorkerMessage::Persisted { token, outcome } => {
                let token = ParkToken::decode(token);
                let environment = &mut self.environment;
                self.connections.with_slot(token.slot, |connection| {
                    connection.persisted(environment, token, outcome);
                });
            }
            WorkerMessage::Fetched { token, outcome } => {
                let token = ParkToken::decode(token);
                self.connections.with_slot(token.slot, |connection| {
                    connection.fetched(token, outcome);
                });
            }
            WorkerMessage::JobDone { connection, session, result } => {
                let environment = &mut self.environment;
                self.connections.with_id(connection, |connection| {
                    connection.job_done(environment, session, result);
                });
            }
            WorkerMessage::MemoryGranted { connection, grant } => {
                self.connections.grant_memory(connection, grant, &mut self.environment);
            }
            WorkerMessage::DcpReady { connection } => {
                self.connections.announce_changes(connection, self.moment());
            }
            WorkerMessage::Link(message) => self.links.receive(message, &self.environment),
            WorkerMessage::ClusterMapChanged => {
                self.connections.announce_cluster_map(&self.environment)
            }
            // The channel has space for each worker's answer; it is closed when it comes too late.
            WorkerMessage::Answer(sender) => drop(sender.try_send(())),
            WorkerMessage::Stop => {
                self.stopping_since = Some(Instant::now());
                self.connections.stop_all();
            }
        }
    }

    /// Lets writes that wait for memory try again.
    fn retry_writes(&mut self) {
        let now_ms = self.environment.now_ms;
        if self.environment.bucket_waits.is_empty() || now_ms < self.room_retry_ms {
            return;
        }
        self.room_retry_ms = now_ms + ROOM_RETRY_MS;
        debug_assert!(self.room_retry_ms > now_ms, "a wait for a bucket is retried later");
        for connection in std::mem::take(&mut self.environment.bucket_waits) {
            self.connections.with_id(connection, ConnectionDriver::retry_write);
        }
    }

    fn run_turns(&mut self) {
        // All connections in their handshake share one turn per round.
        self.connections.run_handshake(&mut self.environment);
        for _ in 0..self.connections.runnable() {
            self.connections.run_next(&mut self.environment);
            self.after_turn();
        }
        // Sockets are looked at again after each slice, so that small requests wait for one only.
        let moved_before = self.environment.moved_bytes();
        for _ in 0..self.connections.transfers() {
            let sends_changes = self.connections.run_transfer(&mut self.environment);
            self.after_turn();
            let moved = self.environment.moved_bytes().wrapping_sub(moved_before);
            if sends_changes || moved >= TRANSFER_SLICE_BYTES as u64 {
                break;
            }
        }
    }

    fn after_turn(&mut self) {
        let session = self.environment.session();
        for (connection, job) in self.environment.jobs.drain(..) {
            self.blocking.submit(job, (connection, session), &self.mailbox);
        }
        // A round of many writers is long: changes are announced, and sent, within it.
        let received = self.environment.counters.bytes_read.get();
        if received.wrapping_sub(self.taken_at_bytes) >= CHANGES_LOOK_BYTES as u64 {
            self.take_messages();
        }
    }

    fn scan_deadlines(&mut self) {
        let now_ms = self.environment.now_ms;
        if now_ms.saturating_sub(self.scanned_ms) >= DEADLINE_SCAN_MS {
            self.scanned_ms = now_ms;
            self.connections.scan(&mut self.environment);
            block_arena::join_round();
        }
    }

    fn is_stopped(&self) -> bool {
        let Some(since) = self.stopping_since else { return false };
        self.connections.is_empty() || since.elapsed() > STOP_DRAIN
    }
}

#[cfg(test)]
pub(crate) mod tests;
