//! The task that sends changes to one client.
//!
//! Owns: when a piece of events is made and sent, ids and heartbeats, and why the stream ends. An
//! event is one line of JSON; `id:` is the token after it, with which a client reconnects. While a
//! piece is on its way nothing is taken from the engine's streams, so they drop what they hold for
//! a slow client and continue from the store.
//!
//! Invariants: at most one piece is on its way; the id that the client has covers exactly the
//! events before it; the last event says why the stream ends, unless the client does not read.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use oribi_engine::dcp::StreamFilter;
use oribi_protocol::change_line::write_end;
use oribi_system::clock::wall_clock;
use tokio::sync::mpsc;

use super::piece::{Outgoing, StreamPiece};
use super::wakeups::Wakeups;
use crate::limits::{
    ADMIN_CHANGES_ID_BYTES_MAX, ADMIN_CHANGES_LINE_PIECE_BYTES, ADMIN_CHANGES_PIECE_BYTES,
    DCP_IDLE_TIMEOUT_MS,
};
use crate::state::AdminState;
use oribi_server::admin_api::dcp_registry::{DcpProducerFigures, DcpProducerRecord};
use oribi_server::admin_api::feed::{DcpFeed, FeedEnd, FeedStep, LargeLine, LineBudget};
use oribi_server::admin_api::may_stream;
use oribi_server::admin_api::memory::Reservation;
use oribi_server::admin_api::memory::budget::Demand;
use oribi_server::admin_api::memory::ticket::Ticket;
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::BucketHandle;

/// Longest silence. Proxies close connections that are silent for half a minute or longer.
const HEARTBEAT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });

/// How often rights, the bucket and figures are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before memory is asked for again.
const MEMORY_PAUSE: Duration = Duration::from_millis(20);
const _: () = assert!(MEMORY_PAUSE.as_millis() < LOOK_INTERVAL.as_millis());
const _: () = assert!(HEARTBEAT.as_millis() < DCP_IDLE_TIMEOUT_MS as u128);

/// Beginning of an event's line.
const DATA: &[u8] = b"data: ";

/// Pause of a browser before it reconnects.
const RETRY_MS: u32 = 1000;

pub(super) struct StreamUser {
    pub user: String,
    pub filter: StreamFilter,
    /// The generation of the users in which the right was checked.
    pub users_generation: u64,
}

/// Parts of the stream.
pub(super) struct FollowerParts {
    pub state: Arc<AdminState>,
    pub bucket: Arc<BucketHandle>,
    pub feed: DcpFeed,
    pub viewer: StreamUser,
    pub record: Arc<DcpProducerRecord>,
    pub wakeups: Arc<Wakeups>,
    pub sparse_ids: bool,
}

/// See the module text.
pub(super) struct Follower {
    parts: FollowerParts,
    outgoing: Arc<Outgoing>,
    /// The id that the client got last.
    id: String,
    /// When the last piece was made.
    sent: Instant,
    published: Instant,
    acknowledged: u64,
    on_its_way: u64,
    /// Bytes that the next line needs, if it needs many.
    needed: usize,
    /// A line that is being sent in pieces.
    line: Option<Box<LargeLine>>,
    /// The place in the queue for memory, and what for.
    queued: Option<(Demand, Ticket)>,
    /// The block of the next line.
    block: Option<(Demand, Reservation)>,
    ending: Option<&'static str>,
    woken: Vec<u64>,
}

/// Whether the client gets the end reason of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowerEnd {
    /// It was, or it is gone.
    Told,
    /// It does not read.
    Stalled,
}

/// Result of a turn.
enum Turn {
    Send(Bytes),
    /// Others have their turn first.
    Yield,
    Wait(Instant),
    End(&'static str),
    Stalled,
}

impl Follower {
    /// The task of a feed that was just opened.
    pub fn new(parts: FollowerParts) -> Follower {
        let memory = Arc::clone(&parts.state.server.connections.memory);
        let outgoing = Outgoing::new(memory, Arc::clone(&parts.wakeups));
        let now = Instant::now();
        Follower {
            parts,
            outgoing,
            id: String::new(),
            sent: now,
            published: now,
            acknowledged: 0,
            on_its_way: 0,
            needed: 0,
            line: None,
            queued: None,
            block: None,
            ending: None,
            woken: Vec::new(),
        }
    }

    /// Counts what the body of the answer has handed to the socket.
    pub fn taken_bytes(&self) -> Arc<AtomicUsize> {
        self.outgoing.taken_bytes()
    }

    /// Sends until the stream ends.
    pub async fn run(mut self, sender: mpsc::Sender<Bytes>) -> FollowerEnd {
        let mut stopping = self.parts.state.stopping.clone();
        let mut is_begun = false;
        loop {
            let turn = match is_begun {
                true => self.turn(Instant::now()),
                false => self.beginning(Instant::now()),
            };
            let due = match turn {
                Turn::Send(bytes) => {
                    is_begun = true;
                    if sender.send(bytes).await.is_err() {
                        return FollowerEnd::Told;
                    }
                    continue;
                }
                Turn::Yield => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Turn::Wait(due) => due,
                Turn::End(reason) => return self.end(reason, sender).await,
                Turn::Stalled => return FollowerEnd::Stalled,
            };
            tokio::select! {
                () = self.parts.wakeups.wait() => {}
                () = tokio::time::sleep_until(due.into()) => {}
                () = sender.closed() => return FollowerEnd::Told,
                _ = stopping.wait_for(|stop| *stop) => {}
            }
        }
    }

    /// Sends the last event and waits until the client has the earlier ones.
    async fn end(mut self, reason: &'static str, sender: mpsc::Sender<Bytes>) -> FollowerEnd {
        (self.queued, self.block) = (None, None);
        let user = &self.parts.viewer.user;
        tracing::debug!(user, reason, "a stream of changes over HTTP ends");
        let place = loop {
            match tokio::time::timeout(LOOK_INTERVAL, sender.reserve()).await {
                Ok(Ok(place)) => break place,
                // The client is gone.
                Ok(Err(_)) => return FollowerEnd::Told,
                Err(_) if self.is_stalled(Instant::now()) => return FollowerEnd::Stalled,
                Err(_) => {}
            }
        };
        place.send(end_event(reason));
        // The body ends when the sender is dropped.
        drop(sender);
        while self.outgoing.held_bytes() > 0 {
            if self.is_stalled(Instant::now()) {
                return FollowerEnd::Stalled;
            }
            tokio::select! {
                () = self.parts.wakeups.wait() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
        FollowerEnd::Told
    }

    /// The first piece: from here on the client knows where it began.
    fn beginning(&mut self, now: Instant) -> Turn {
        if let Some(reason) = self.reason_to_end() {
            return Turn::End(reason);
        }
        let Some(mut piece) = self.piece(ADMIN_CHANGES_ID_BYTES_MAX, true) else {
            return Turn::Wait(now + MEMORY_PAUSE);
        };
        let written = writeln!(piece.bytes, "retry: {RETRY_MS}");
        written.expect("a vector takes every byte");
        self.write_id(&mut piece);
        piece.bytes.push(b'\n');
        self.send(piece, now)
    }

    /// A piece of so many bytes. Until there is memory for it, the stream has a place in the queue
    /// if it `waits`. While it keeps memory it does not wait: others may wait for that.
    fn piece(&mut self, bytes: usize, waits: bool) -> Option<StreamPiece> {
        if self.block.is_some() || self.parts.feed.holds_granted() {
            self.queued = None;
            return Some(self.outgoing.piece_of(None));
        }
        if let Some(piece) = self.outgoing.piece(bytes) {
            self.queued = None;
            return Some(piece);
        }
        if !waits {
            return None;
        }
        let reservation = self.reserve(Demand::of_bytes(bytes))?;
        Some(self.outgoing.piece_of(Some(reservation)))
    }

    /// Memory, once it is granted. Until then the stream has a place in the queue.
    fn reserve(&mut self, demand: Demand) -> Option<Reservation> {
        self.queued.take_if(|(before, _)| *before != demand);
        let outgoing = &self.outgoing;
        let (_, ticket) = self.queued.get_or_insert_with(|| (demand, outgoing.queue(demand)));
        let reservation = ticket.poll()?;
        self.queued = None;
        Some(reservation)
    }

    fn turn(&mut self, now: Instant) -> Turn {
        let mut woken = std::mem::take(&mut self.woken);
        self.parts.wakeups.take(&mut woken);
        woken.drain(..).for_each(|vbid| self.parts.feed.wake(vbid));
        self.woken = woken;
        // A line that has begun is completed.
        if self.line.is_none()
            && let Some(reason) = self.ending.or_else(|| self.reason_to_end())
        {
            return Turn::End(reason);
        }
        self.publish(now);
        let next_look = now + LOOK_INTERVAL;
        if self.outgoing.held_bytes() > 0 {
            return if self.is_stalled(now) { Turn::Stalled } else { Turn::Wait(next_look) };
        }
        self.acknowledged += std::mem::take(&mut self.on_its_way);
        let turn = match self.line.take() {
            Some(line) => self.continue_line(line, now),
            None => self.fill(now),
        };
        match turn {
            Turn::Wait(due) if now < self.sent + HEARTBEAT => {
                Turn::Wait(due.min(next_look).min(self.sent + HEARTBEAT))
            }
            Turn::Wait(_) => self.heartbeat(now),
            other => other,
        }
    }

    /// Why the server ends the stream, if it does.
    fn reason_to_end(&mut self) -> Option<&'static str> {
        if self.parts.bucket.is_deleted() {
            return Some("bucket_deleted");
        }
        if *self.parts.state.stopping.borrow() {
            return Some("shutdown");
        }
        (!self.has_rights()).then_some("lost_privileges")
    }

    fn has_rights(&mut self) -> bool {
        let (users, viewer) = (&self.parts.state.server.access.users, &mut self.parts.viewer);
        let generation = users.generation();
        if generation == viewer.users_generation {
            return true;
        }
        viewer.users_generation = generation;
        let Some(identity) = users.current(&viewer.user) else { return false };
        let mut rights = Rights::of(&identity, self.parts.bucket.name());
        may_stream(&mut rights, &self.parts.bucket, &viewer.filter).is_ok()
    }

    /// True when a client has read nothing for too long, or for a while in which others wait for
    /// memory.
    fn is_stalled(&self, now: Instant) -> bool {
        let stalled_ms = now.duration_since(self.sent).as_millis();
        stalled_ms > u128::from(DCP_IDLE_TIMEOUT_MS)
            || self.outgoing.has_waiters() && self.outgoing.is_client_behind()
    }

    /// Work of once a second: figures for others, and a look for changes of the users, which
    /// workers without connections do not make.
    fn publish(&mut self, now: Instant) {
        let FollowerParts { record, feed, state, .. } = &self.parts;
        record.note_turn(feed.has_more(), wall_clock());
        if now < self.published + LOOK_INTERVAL {
            return;
        }
        self.published = now;
        state.server.access.users.reload_if_changed();
        let held = self.outgoing.held_bytes() as u64;
        record.publish(|| DcpProducerFigures {
            window: (ADMIN_CHANGES_PIECE_BYTES as u32, held, self.acknowledged),
            streams: feed.figures(),
            ..DcpProducerFigures::default()
        });
    }

    /// Makes a piece of the events that there are.
    fn fill(&mut self, now: Instant) -> Turn {
        let block = self.queued.as_ref().map(|(demand, _)| *demand);
        if let Some(demand) = block.filter(|demand| demand.block.is_some())
            && !self.reserve_block(demand)
        {
            return Turn::Wait(now + MEMORY_PAUSE);
        }
        let room = ADMIN_CHANGES_PIECE_BYTES.max(std::mem::take(&mut self.needed));
        debug_assert!(self.line.is_none(), "a large line ends before the next event");
        let has_more = room > ADMIN_CHANGES_PIECE_BYTES || self.parts.feed.has_more();
        // Others need not wait for a stream without news.
        let Some(mut piece) = self.piece(room + ADMIN_CHANGES_ID_BYTES_MAX, has_more) else {
            self.needed = room;
            return Turn::Wait(now + MEMORY_PAUSE);
        };
        let otherwise = loop {
            let begin = piece.bytes.len();
            if begin >= ADMIN_CHANGES_PIECE_BYTES {
                break Turn::Yield;
            }
            let offer = LineBudget {
                room: room.saturating_sub(begin),
                block: self.block.take(),
                out: &mut piece.bytes,
                prefix: DATA,
            };
            let is_change = match self.parts.feed.next(now, offer) {
                FeedStep::Line { is_change } => is_change,
                FeedStep::Large(line) => {
                    drop(piece);
                    return self.begin_line(line, now);
                }
                nothing => break self.after(nothing, now),
            };
            if !self.parts.sparse_ids {
                self.write_id(&mut piece);
            }
            piece.bytes.push(b'\n');
            self.parts.record.note_sent(piece.bytes.len() - begin, usize::from(is_change));
        };
        if piece.bytes.is_empty() {
            return otherwise;
        }
        if self.parts.sparse_ids {
            // Into the last event, before the empty line that ends it.
            let last = piece.bytes.pop();
            assert_eq!(last, Some(b'\n'), "an event ends with an empty line");
            self.write_id(&mut piece);
            piece.bytes.push(b'\n');
        }
        if let Turn::End(reason) = otherwise {
            self.ending = Some(reason);
        }
        self.send(piece, now)
    }

    /// Action when there is no line.
    fn after(&mut self, nothing: FeedStep, now: Instant) -> Turn {
        match nothing {
            FeedStep::Line { .. } | FeedStep::Large(_) | FeedStep::Again => Turn::Yield,
            FeedStep::Idle(due) => Turn::Wait(due.unwrap_or(now + HEARTBEAT)),
            FeedStep::NeedsBytes(bytes) => {
                self.needed = bytes;
                Turn::Yield
            }
            FeedStep::NeedsBlock(demand) => match self.reserve_block(demand) {
                true => Turn::Yield,
                false => Turn::Wait(now + MEMORY_PAUSE),
            },
            FeedStep::End(end) => Turn::End(name_of(end)),
        }
    }

    /// Reserves the block of the next line, or queues for it.
    fn reserve_block(&mut self, demand: Demand) -> bool {
        debug_assert!(self.block.is_none(), "a block is reserved for one line");
        self.block = self.reserve(demand).map(|block| (demand, block));
        self.block.is_some()
    }

    /// Begins an event that is sent in pieces.
    fn begin_line(&mut self, line: Box<LargeLine>, now: Instant) -> Turn {
        let mut piece = self.outgoing.piece_of(None);
        piece.bytes.extend_from_slice(DATA);
        self.write_line(line, piece, now)
    }

    fn continue_line(&mut self, line: Box<LargeLine>, now: Instant) -> Turn {
        let piece = self.outgoing.piece_of(None);
        self.write_line(line, piece, now)
    }

    /// Sends the next piece of an event, with its id after the last one.
    fn write_line(
        &mut self,
        mut line: Box<LargeLine>,
        mut piece: StreamPiece,
        now: Instant,
    ) -> Turn {
        assert!(self.line.is_none(), "one line is written at a time");
        match line.write(&mut piece.bytes, ADMIN_CHANGES_LINE_PIECE_BYTES) {
            Err(_) => {
                tracing::error!("a document in a change stream cannot be read");
                return Turn::Stalled;
            }
            Ok(false) => self.line = Some(line),
            Ok(true) => {
                self.write_id(&mut piece);
                piece.bytes.push(b'\n');
            }
        }
        let is_whole = self.line.is_none();
        self.parts.record.note_sent(piece.bytes.len(), usize::from(is_whole));
        self.send(piece, now)
    }

    /// A comment, with the place if it has moved without an event.
    fn heartbeat(&mut self, now: Instant) -> Turn {
        let Some(mut piece) = self.piece(ADMIN_CHANGES_ID_BYTES_MAX, false) else {
            return Turn::Wait(now + MEMORY_PAUSE);
        };
        piece.bytes.extend_from_slice(b":\n");
        if self.parts.feed.token().to_string() != self.id {
            self.write_id(&mut piece);
        }
        piece.bytes.push(b'\n');
        self.send(piece, now)
    }

    fn write_id(&mut self, piece: &mut StreamPiece) {
        self.id.clear();
        let written =
            std::fmt::Write::write_fmt(&mut self.id, format_args!("{}", self.parts.feed.token()));
        written.expect("a string takes every character");
        piece.bytes.extend_from_slice(b"id: ");
        piece.bytes.extend_from_slice(self.id.as_bytes());
        debug_assert!(self.id.len() <= ADMIN_CHANGES_ID_BYTES_MAX, "an id is within its limit");
        piece.bytes.push(b'\n');
    }

    fn send(&mut self, piece: StreamPiece, now: Instant) -> Turn {
        assert_eq!(self.on_its_way, 0, "the piece before this one was read by the client");
        self.sent = now;
        debug_assert!(!piece.bytes.is_empty(), "a piece has bytes");
        self.on_its_way = piece.bytes.len() as u64;
        Turn::Send(piece.into_bytes())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.parts.bucket.producers().leave(&self.parts.record);
    }
}

/// The word in the last event.
fn name_of(end: FeedEnd) -> &'static str {
    match end {
        FeedEnd::Complete => "complete",
        FeedEnd::FilterEmpty => "filter_empty",
        FeedEnd::NotMyVbucket => "vbucket_moved",
        FeedEnd::Range => "range",
        FeedEnd::Damaged => "damaged_document",
    }
}

/// The last event. Its type is separate, so that pages can close their stream, and no id.
fn end_event(reason: &str) -> Bytes {
    let mut event = b"event: end\ndata: ".to_vec();
    write_end(&mut event, reason);
    event.push(b'\n');
    event.into()
}
