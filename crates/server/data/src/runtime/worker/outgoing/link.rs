//! One link: its socket, and the consumer that drives it.
//!
//! Owns: connecting, receiving, sending, pauses between attempts, and the log lines. Invariant: the
//! memory of a link is counted as that of connections, and a large message is reserved before it is
//! received; until then the link does not read.

mod output;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use oribi_engine::{PersistOutcome, PersistenceSink};
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::limits::{FRAME_BYTES_MAX, READ_BLOCK_BYTES};
use oribi_protocol::read_buffer::ReadBuffer;
use oribi_types::Vbid;

use crate::connection::memory::Reservation;
use crate::dispatch::environment::Environment;
use crate::limits::{READ_ROOM_BYTES_MIN, UNRESERVED_REQUEST_BYTES_MAX};
use crate::replication::consumer::handshake::NOOP_INTERVAL_S;
use crate::replication::consumer::{LinkIdentity, ReplicaConsumer};
use crate::replication::failure::LinkFailure;
use crate::replication::followed_copy::FollowedCopy;
use crate::replication::links::{LinkSubmission, LinkWorker as _};
use crate::replication::message::{LinkId, LinkMessage};
use crate::replication::work::{LinkWork, LinkWorkResult};
use crate::runtime::mailbox::Mailbox;
use output::LinkOutput;

/// Tokens of links begin here; those of connections are below.
pub(in crate::runtime::worker) const LINK_TOKENS: usize = usize::MAX / 2;

/// Bytes that a link receives before the worker's clients have their turns again.
const TURN_BYTES: usize = 128 << 10;
/// Longest wait for a connection.
const CONNECT_TIMEOUT_S: u64 = 5;
/// Longest wait for any byte: the other node sends a noop in this time, thrice.
const SILENCE_S: u64 = 3 * NOOP_INTERVAL_S;
/// Pause after the first failed attempt, and the longest one.
const PAUSE_MIN_MS: u64 = 100;
const PAUSE_MAX_MS: u64 = 5_000;
/// Pause before memory for a large message is asked for again.
const MEMORY_RETRY_MS: u64 = 10;
const _: () = assert!(PAUSE_MIN_MS < PAUSE_MAX_MS && MEMORY_RETRY_MS < PAUSE_MIN_MS);
const _: () = assert!(SILENCE_S > NOOP_INTERVAL_S && TURN_BYTES >= READ_ROOM_BYTES_MIN);

/// The node and the bucket of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkKey {
    node: String,
    host: String,
    port: u16,
    bucket_uuid: String,
}

impl LinkKey {
    pub(super) fn of(copy: &FollowedCopy) -> LinkKey {
        let source = &copy.source;
        LinkKey {
            node: source.node.clone(),
            host: source.host.clone(),
            port: source.port,
            bucket_uuid: copy.bucket.bucket().config().uuid.clone(),
        }
    }
}

/// Follow-up of a turn.
pub(super) enum LinkTurn {
    Idle,
    Again,
    /// No copy follows any more.
    Over,
}

enum LinkState {
    Pausing { until_ms: u64 },
    Resolving { until_ms: u64 },
    Connecting { stream: TcpStream, until_ms: u64, rest: Vec<SocketAddr> },
    Open(Box<OpenLink>),
}

/// Notifies a link of a commit in the store of one of its copies; the token is the vbucket.
struct StoreWaiter {
    worker: Arc<Mailbox>,
    link: LinkId,
}

impl PersistenceSink for StoreWaiter {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        let vbid = Vbid(u16::try_from(token).expect("the token is a vbucket"));
        self.worker.post_link(LinkMessage::Stored { link: self.link, vbid, outcome });
    }
}

struct OpenLink {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    reader: ReadBuffer,
    out: LinkOutput,
    consumer: ReplicaConsumer,
    /// Memory for the large message that is being received.
    reservation: Option<Reservation>,
    waits_for_memory: bool,
    received_ms: u64,
    /// Bytes counted as those of connections.
    counted: usize,
    is_up: bool,
}

/// See the module text.
pub(super) struct OutgoingLink {
    key: LinkKey,
    identity: LinkIdentity,
    copies: Vec<Arc<FollowedCopy>>,
    state: LinkState,
    attempt: u64,
    failures: u32,
    /// The reason that was logged last, while the link is down.
    logged: Option<String>,
    results: Vec<LinkWorkResult>,
    /// A copy has stopped to follow.
    has_stopped: bool,
}

impl OutgoingLink {
    pub(super) fn new(
        key: LinkKey,
        (own, secret): (String, Arc<[u8]>),
        copy: &FollowedCopy,
    ) -> OutgoingLink {
        let (source, bucket) = (key.node.clone(), Arc::clone(&copy.bucket));
        OutgoingLink {
            key,
            identity: LinkIdentity { own, source, bucket, secret },
            copies: Vec::new(),
            state: LinkState::Pausing { until_ms: 0 },
            attempt: 0,
            failures: 0,
            logged: None,
            results: Vec::new(),
            has_stopped: false,
        }
    }

    pub(super) fn note_stopped(&mut self) {
        self.has_stopped = true;
    }

    pub(super) fn key(&self) -> &LinkKey {
        &self.key
    }

    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    pub(super) fn follow(&mut self, copy: Arc<FollowedCopy>) {
        if self.copies.iter().any(|known| Arc::ptr_eq(known, &copy)) {
            return;
        }
        if let LinkState::Open(open) = &mut self.state {
            open.consumer.follow(Arc::clone(&copy), open.out.tail());
        }
        self.copies.push(copy);
        debug_assert!(
            self.copies.iter().all(|copy| copy.source.node == self.key.node),
            "a link is to one node"
        );
    }

    pub(super) fn note_event(&mut self, event: &Event) {
        if let LinkState::Open(open) = &mut self.state {
            open.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
            open.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        }
    }

    pub(super) fn note_stored(&mut self, vbid: Vbid, outcome: PersistOutcome, now_ms: u64) {
        if let LinkState::Open(open) = &mut self.state {
            open.consumer.stored(vbid, outcome, now_ms);
        }
    }

    pub(super) fn work_done(&mut self, result: LinkWorkResult) {
        self.results.push(result);
    }

    /// When the link has something to do without an event.
    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        match &self.state {
            LinkState::Pausing { until_ms }
            | LinkState::Resolving { until_ms }
            | LinkState::Connecting { until_ms, .. } => Some(*until_ms),
            LinkState::Open(open) => {
                let silent_ms = open.received_ms + SILENCE_S * 1000;
                let memory_ms = open.waits_for_memory.then_some(now_ms + MEMORY_RETRY_MS);
                [Some(silent_ms), memory_ms, open.consumer.due_ms()].into_iter().flatten().min()
            }
        }
    }

    pub(super) fn turn(
        &mut self,
        (slot, next_attempt): (usize, u64),
        env: &mut Environment,
        registry: &Registry,
        mailbox: &Arc<Mailbox>,
    ) -> LinkTurn {
        let is_down = !matches!(self.state, LinkState::Open(_));
        if std::mem::take(&mut self.has_stopped) || is_down {
            self.copies.retain(|copy| !copy.is_stopped());
            if let LinkState::Open(open) = &mut self.state {
                open.consumer.drop_stopped(open.out.tail());
            }
        }
        if self.copies.is_empty() || self.identity.bucket.is_deleted() {
            self.close(env);
            return LinkTurn::Over;
        }
        let result = match &mut self.state {
            LinkState::Pausing { until_ms } if env.now_ms < *until_ms => Ok(false),
            LinkState::Pausing { .. } => {
                self.attempt = next_attempt;
                self.results.clear();
                let LinkKey { host, port, .. } = &self.key;
                let work = LinkWork::Resolve { host: host.clone(), port: *port };
                self.submit(slot, work, env, mailbox);
                let until_ms = env.now_ms + CONNECT_TIMEOUT_S * 1000;
                self.state = LinkState::Resolving { until_ms };
                Ok(false)
            }
            LinkState::Resolving { until_ms } => {
                let is_late = env.now_ms >= *until_ms;
                match self.results.pop() {
                    Some(LinkWorkResult::Resolved(Ok(addresses))) => {
                        self.connect(slot, addresses, env, registry)
                    }
                    Some(LinkWorkResult::Resolved(Err(failure))) => Err(failure),
                    _ if is_late => Err(LinkFailure::Silent(CONNECT_TIMEOUT_S)),
                    _ => Ok(false),
                }
            }
            LinkState::Connecting { .. } => self.check_connection(slot, env, registry),
            LinkState::Open(_) => self.exchange(slot, env, mailbox),
        };
        match result {
            Ok(true) => LinkTurn::Again,
            Ok(false) => LinkTurn::Idle,
            Err(failure) => {
                self.fail(&failure, env);
                LinkTurn::Idle
            }
        }
    }

    fn submit(&self, slot: usize, work: LinkWork, env: &Environment, mailbox: &Arc<Mailbox>) {
        let link = LinkId { slot, attempt: self.attempt };
        let submission = LinkSubmission { work, link, reply_to: Arc::clone(mailbox) as _ };
        env.server.cluster.links.submit(submission);
    }

    /// Begins to connect to the first of the addresses.
    fn connect(
        &mut self,
        slot: usize,
        mut addresses: Vec<SocketAddr>,
        env: &Environment,
        registry: &Registry,
    ) -> Result<bool, LinkFailure> {
        if addresses.is_empty() {
            return Err(LinkFailure::Resolve(format!("{} has no address", self.key.host)));
        }
        let address = addresses.remove(0);
        let io = |error: std::io::Error| LinkFailure::Io(format!("{address}: {error}"));
        let mut stream = TcpStream::connect(address).map_err(io)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, Token(LINK_TOKENS + slot), interest).map_err(io)?;
        let until_ms = env.now_ms + CONNECT_TIMEOUT_S * 1000;
        self.state = LinkState::Connecting { stream, until_ms, rest: addresses };
        Ok(false)
    }

    fn check_connection(
        &mut self,
        slot: usize,
        env: &mut Environment,
        registry: &Registry,
    ) -> Result<bool, LinkFailure> {
        let LinkState::Connecting { stream, until_ms, rest } = &mut self.state else {
            return Ok(false);
        };
        let failure = match (stream.take_error(), stream.peer_addr()) {
            (Ok(None), Ok(_)) => None,
            (Ok(Some(error)) | Err(error), _) => Some(error.to_string()),
            (Ok(None), Err(_)) if env.now_ms < *until_ms => return Ok(false),
            (Ok(None), Err(_)) => Some(format!("no connection in {CONNECT_TIMEOUT_S} s")),
        };
        if let Some(failure) = failure {
            let rest = std::mem::take(rest);
            return match rest.is_empty() {
                true => {
                    let LinkKey { host, port, .. } = &self.key;
                    Err(LinkFailure::Io(format!("{host}:{port}: {failure}")))
                }
                false => self.connect(slot, rest, env, registry),
            };
        }
        let pausing = LinkState::Pausing { until_ms: 0 };
        let LinkState::Connecting { stream, .. } = std::mem::replace(&mut self.state, pausing)
        else {
            return Ok(false);
        };
        // Changes go out in large pieces; requests and acknowledgements are not to wait.
        let _ = stream.set_nodelay(true);
        let mut out = LinkOutput::default();
        let mut consumer = ReplicaConsumer::begin(self.identity.clone(), out.tail());
        for copy in &self.copies {
            consumer.follow(Arc::clone(copy), out.tail());
        }
        self.state = LinkState::Open(Box::new(OpenLink {
            stream,
            readable: true,
            writable: true,
            reader: ReadBuffer::new(),
            out,
            consumer,
            reservation: None,
            waits_for_memory: false,
            received_ms: env.now_ms,
            counted: 0,
            is_up: false,
        }));
        Ok(true)
    }

    /// Receives, applies, works and sends. True when there is more to do at once.
    fn exchange(
        &mut self,
        slot: usize,
        env: &mut Environment,
        mailbox: &Arc<Mailbox>,
    ) -> Result<bool, LinkFailure> {
        let LinkState::Open(open) = &mut self.state else { return Ok(false) };
        for result in self.results.drain(..) {
            open.consumer.work_done(result, open.out.tail())?;
        }
        let mut has_more = open.receive(env)?;
        open.consumer.turn(env.now, env.now_ms, open.out.tail())?;
        let link = LinkId { slot, attempt: self.attempt };
        for (copy, seqno) in open.consumer.take_store_waits() {
            let worker = Arc::clone(mailbox);
            let sink: Arc<dyn PersistenceSink> = Arc::new(StoreWaiter { worker, link });
            let (bucket, vbid) = (copy.bucket.bucket(), copy.vbid);
            if bucket.when_stored(vbid, seqno, &sink, u64::from(vbid.0)) {
                open.consumer.stored(vbid, PersistOutcome::Persisted, env.now_ms);
                has_more = true;
            }
        }
        open.send()?;
        open.count(env);
        let mut works = Vec::new();
        while let Some(work) = open.consumer.take_work() {
            works.push(work);
        }
        let emptied = open.consumer.take_emptied();
        let comes_up =
            open.consumer.is_open() && !std::mem::replace(&mut open.is_up, open.consumer.is_open());
        if !emptied.is_empty() {
            tracing::info!(
                bucket = self.identity.bucket.name(),
                node = self.key.node,
                vbuckets = emptied.len(),
                first = emptied[0].0,
                "replicas had changes that the active copies do not have, and are copied afresh"
            );
        }
        if comes_up {
            (self.failures, self.logged) = (0, None);
            tracing::info!(
                bucket = self.identity.bucket.name(),
                node = self.key.node,
                vbuckets = self.copies.len(),
                "replicas follow a node"
            );
        }
        works.into_iter().for_each(|work| self.submit(slot, work, env, mailbox));
        Ok(has_more)
    }

    fn fail(&mut self, failure: &LinkFailure, env: &mut Environment) {
        let was_up = matches!(&self.state, LinkState::Open(open) if open.is_up);
        self.close(env);
        let pause_ms = PAUSE_MAX_MS.min(PAUSE_MIN_MS << self.failures.min(10));
        debug_assert!((PAUSE_MIN_MS..=PAUSE_MAX_MS).contains(&pause_ms), "a pause is bounded");
        self.failures = self.failures.saturating_add(1);
        self.state = LinkState::Pausing { until_ms: env.now_ms + pause_ms };
        let reason = failure.to_string();
        if was_up || self.logged.as_ref() != Some(&reason) {
            tracing::warn!(
                bucket = self.identity.bucket.name(),
                node = self.key.node,
                vbuckets = self.copies.len(),
                %reason,
                "replicas cannot follow a node; the link is tried again until it works"
            );
            self.logged = Some(reason);
        }
    }

    /// Ends the connection, if there is one.
    pub(super) fn close(&mut self, env: &mut Environment) {
        if let LinkState::Open(open) = &mut self.state {
            open.consumer.end();
            env.memory.note(open.counted, 0);
        }
        self.attempt = 0;
        self.results.clear();
        self.state = LinkState::Pausing { until_ms: 0 };
    }
}

impl OpenLink {
    /// Receives up to a turn's bytes. True when there may be more.
    fn receive(&mut self, env: &mut Environment) -> Result<bool, LinkFailure> {
        let mut left = TURN_BYTES;
        self.waits_for_memory = false;
        loop {
            if !self.take_frames(env)? {
                // Without memory it does not read, and the silence is its own.
                self.waits_for_memory = true;
                self.received_ms = env.now_ms;
                return Ok(false);
            }
            if !self.readable {
                break;
            }
            if left == 0 {
                return Ok(true);
            }
            let room = self.reader.spare(READ_ROOM_BYTES_MIN);
            let room_bytes = room.len().min(left.max(READ_ROOM_BYTES_MIN));
            match self.stream.read(&mut room[..room_bytes]) {
                Ok(0) => return Err(LinkFailure::Closed),
                Ok(received) => {
                    self.reader.commit(received);
                    debug_assert!(received <= room_bytes, "a read fills its buffer at most");
                    self.received_ms = env.now_ms;
                    env.counters.bytes_read.add(received as u64);
                    left = left.saturating_sub(received);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkFailure::Io(error.to_string())),
            }
        }
        if env.now_ms >= self.received_ms + SILENCE_S * 1000 {
            return Err(LinkFailure::Silent(SILENCE_S));
        }
        if self.reader.is_empty() {
            self.reader.release();
        }
        Ok(false)
    }

    /// Takes the frames that are complete. False when the next one waits for memory.
    fn take_frames(&mut self, env: &Environment) -> Result<bool, LinkFailure> {
        loop {
            let decoded = decode(self.reader.unread());
            match decoded.map_err(|_| LinkFailure::Protocol("bytes that are no frame"))? {
                DecodedFrame::Complete { frame, consumed } => {
                    let mut reservation = self.reservation.take();
                    if let Some(reservation) = &mut reservation {
                        // The block stays; the received bytes go at once.
                        reservation.keep(consumed);
                        debug_assert!(consumed <= FRAME_BYTES_MAX, "a frame is within its limit");
                    }
                    self.consumer.take(&frame, reservation, env.now, self.out.tail())?;
                    self.reader.consume(consumed);
                    if self.reader.is_empty() && self.reader.capacity() > READ_BLOCK_BYTES {
                        self.reader.release();
                    }
                }
                DecodedFrame::Incomplete { needed } if needed > FRAME_BYTES_MAX => {
                    return Err(LinkFailure::Protocol("a frame that is too long"));
                }
                DecodedFrame::Incomplete { needed } => {
                    if needed > UNRESERVED_REQUEST_BYTES_MAX {
                        if self.reservation.is_none() {
                            // The message, and the block that is made of it.
                            self.reservation = env.server.connections.memory.hold(2 * needed);
                        }
                        if self.reservation.is_none() {
                            return Ok(false);
                        }
                        self.reader.reserve_whole(needed);
                    } else {
                        self.reader.reserve_frame(needed);
                    }
                    return Ok(true);
                }
            }
        }
    }

    fn send(&mut self) -> Result<(), LinkFailure> {
        while self.writable && !self.out.unsent().is_empty() {
            match self.stream.write(self.out.unsent()) {
                Ok(0) => return Err(LinkFailure::Closed),
                Ok(sent) => self.out.advance(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkFailure::Io(error.to_string())),
            }
        }
        self.out.check()
    }

    /// Counts the held bytes. Large messages are reserved, and not counted here.
    fn count(&mut self, env: &mut Environment) {
        let buffers = self.reader.capacity().min(2 * READ_BLOCK_BYTES) + self.out.held_bytes();
        let counted = buffers + self.consumer.held_bytes().min(2 * (1 << 20));
        env.memory.note(self.counted, counted);
        self.counted = counted;
    }
}
