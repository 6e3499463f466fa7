//! One TCP connection shared by many tasks: answers are matched to requests by opaque.
//!
//! Two tasks serve it. The writer sends everything that was queued since its last write with
//! vectored writes, so requests coalesce under load. The reader takes answers out of a
//! [`FrameReader`] and hands each to its waiter.
//!
//! An opaque is an index into the table of requests in flight. Only the answer frees its entry, not
//! a caller that stops waiting, so a late answer is never taken for another request's.
//!
//! Invariants: every entry receives its answer or, when the connection ends,
//! [`ClientError::Closed`], or [`ClientError::NotSent`] when the socket cannot have taken its whole
//! request. That is known because the writer says how far it may get before each write, under the
//! lock that closing takes. When a request times out on a connection that was silent for
//! [`SILENCE_MAX`], the connection is closed; otherwise abandoned requests would pile up on it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ConfigVersion, RequestParts};
use oribi_protocol::response::SERVER_CLUSTERMAP_CHANGE;
use oribi_protocol::write_buffer::WriteBuffer;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::batch::RequestBatch;
use crate::config_watch::ConfigWatch;
use crate::connection::{Connection, ConnectionParts};
use crate::error::{ClientError, Site};
use crate::features::FeatureSet;
use crate::frame_reader::FrameReader;
use crate::outbound::{queue_request, write_some};
use crate::response::{Response, ResponseResult};
use crate::socket::Socket;

/// How long a connection may be silent while requests wait: longer than a server takes for a
/// synchronous write on a slow disk, shorter than the system takes to notice a lost peer.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The receiver of an answer.
pub(crate) enum ResponseWaiter {
    /// One caller for one answer.
    One(oneshot::Sender<ResponseResult>),
    /// A batch, which numbers its requests itself.
    Numbered(Arc<RequestBatch>, u64),
}

impl ResponseWaiter {
    /// A receiver that was dropped is no error: the caller stopped waiting.
    pub fn answer(self, answer: ResponseResult) {
        match self {
            ResponseWaiter::One(sender) => drop(sender.send(answer)),
            ResponseWaiter::Numbered(batch, number) => batch.put(number, answer),
        }
    }
}

struct InFlight {
    opcode: Opcode,
    /// Where the request ends in the stream of all bytes that were ever queued.
    end: u64,
    waiter: ResponseWaiter,
}

struct State {
    queue: WriteBuffer<Bytes>,
    /// Bytes that were ever queued.
    queued_bytes: u64,
    /// How many of them the socket may have taken by the end of the write that is under way.
    offered_bytes: u64,
    in_flight: Slab<InFlight>,
    /// When something was received last, or the first of the waiting requests was queued.
    heard: Instant,
    /// Why the connection ended, once it has.
    closed: Option<Arc<str>>,
}

struct Shared {
    peer: Arc<str>,
    state: Mutex<State>,
    writer_wakeup: Notify,
    /// The same as `State::closed`, to be looked at without the lock.
    is_closed: AtomicBool,
    watch: Arc<ConfigWatch>,
}

/// An open connection. Dropping it closes it and fails what is in flight.
pub(crate) struct Multiplexer {
    shared: Arc<Shared>,
    features: FeatureSet,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Multiplexer {
    /// Shares a connection that has nothing in flight. Announcements of cluster maps go to `watch`.
    pub fn start(connection: Connection, watch: Arc<ConfigWatch>) -> Multiplexer {
        let ConnectionParts { stream, peer, reader, features } = connection.into_parts();
        let state = State {
            queue: WriteBuffer::new(),
            queued_bytes: 0,
            offered_bytes: 0,
            in_flight: Slab::new(),
            heard: Instant::now(),
            closed: None,
        };
        let shared = Arc::new(Shared {
            peer,
            state: Mutex::new(state),
            writer_wakeup: Notify::new(),
            is_closed: AtomicBool::new(false),
            watch,
        });
        let stream = Arc::new(stream);
        let reader = tokio::spawn(run_reader(stream.clone(), reader, shared.clone()));
        let writer = tokio::spawn(run_writer(stream, shared.clone()));
        Multiplexer { shared, features, reader, writer }
    }

    /// The server, as `host:port`.
    pub fn peer(&self) -> &Arc<str> {
        &self.shared.peer
    }

    /// Features that the server granted.
    pub fn features(&self) -> FeatureSet {
        self.features
    }

    /// True when the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }

    /// Why the connection ended, if it has.
    pub fn closing_reason(&self) -> Option<Arc<str>> {
        self.shared.state.lock().closed.clone()
    }

    /// Queues a request. `parts.opaque` and `parts.value` are not looked at. `waiter` is answered
    /// in any case, at once when the connection has ended.
    ///
    /// The caller has checked the lengths of key and value.
    pub fn submit(&self, parts: &RequestParts<'_>, value: &Bytes, waiter: ResponseWaiter) {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if let Some(reason) = state.closed.clone() {
            drop(guard);
            return waiter.answer(Err(self.shared.not_sent(parts.opcode, reason)));
        }
        if state.in_flight.is_empty() {
            state.heard = Instant::now();
        }
        let entry = state.in_flight.vacant_entry();
        let opaque = u32::try_from(entry.key()).expect("memory ends before four billion requests");
        let parts = RequestParts { opaque, ..*parts };
        let pending_bytes = state.queue.pending_bytes();
        queue_request(&mut state.queue, &parts, value, GATHER_VALUE_BYTES_MIN);
        state.queued_bytes += (state.queue.pending_bytes() - pending_bytes) as u64;
        entry.insert(InFlight { opcode: parts.opcode, end: state.queued_bytes, waiter });
        drop(guard);
        // A queue that was not empty has not been seen by the writer since it was woken for it.
        if pending_bytes == 0 {
            self.shared.writer_wakeup.notify_one();
        }
    }

    /// Sends one request and waits for its answer until `deadline`, which was `after` from the
    /// start.
    pub async fn call(
        &self,
        parts: &RequestParts<'_>,
        value: &Bytes,
        deadline: Instant,
        after: Duration,
    ) -> ResponseResult {
        let (sender, receiver) = oneshot::channel();
        self.submit(parts, value, ResponseWaiter::One(sender));
        match tokio::time::timeout_at(deadline, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(self.shared.closed(parts.opcode, "the connection's task ended".into()))
            }
            Err(_) => {
                self.note_timeout();
                Err(ClientError::Timeout { at: self.shared.site(parts.opcode), after })
            }
        }
    }

    /// A request got no answer in time. Closes the connection if it has been silent for too long.
    pub fn note_timeout(&self) {
        let state = self.shared.state.lock();
        let silent = state.heard.elapsed();
        let is_stuck = !state.in_flight.is_empty() && silent >= SILENCE_MAX;
        drop(state);
        if is_stuck {
            self.shared.close(format!("nothing was received for {silent:.1?}").into());
        }
    }
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        self.shared.close("closed by the client".into());
        self.reader.abort();
        self.writer.abort();
    }
}

impl Shared {
    fn site(&self, opcode: Opcode) -> Site {
        Site { peer: self.peer.clone(), operation: opcode.name() }
    }

    fn closed(&self, opcode: Opcode, reason: Arc<str>) -> ClientError {
        ClientError::Closed { at: self.site(opcode), reason }
    }

    fn not_sent(&self, opcode: Opcode, reason: Arc<str>) -> ClientError {
        ClientError::NotSent { at: self.site(opcode), reason }
    }

    /// Ends the connection; only the first reason counts.
    fn close(&self, reason: Arc<str>) {
        let (abandoned, offered_bytes) = {
            let mut state = self.state.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(reason.clone());
            self.is_closed.store(true, Ordering::Release);
            state.queue = WriteBuffer::new();
            (std::mem::take(&mut state.in_flight), state.offered_bytes)
        };
        tracing::debug!(peer = %self.peer, %reason, in_flight = abandoned.len(), "connection ended");
        for (_, entry) in abandoned {
            let error = match entry.end > offered_bytes {
                true => self.not_sent(entry.opcode, reason.clone()),
                false => self.closed(entry.opcode, reason.clone()),
            };
            entry.waiter.answer(Err(error));
        }
        self.writer_wakeup.notify_one();
    }

    /// Hands every whole frame to its waiter.
    fn receive_all(&self, reader: &mut FrameReader) -> Result<(), Arc<str>> {
        self.state.lock().heard = Instant::now();
        while reader.advance().map_err(|error| error.to_string())? {
            let Some(frame) = reader.frame() else { break };
            match frame.header.magic {
                Magic::ClientResponse | Magic::AltClientResponse => {}
                Magic::ServerRequest => {
                    self.hear_announcement(&frame);
                    continue;
                }
                _ => return Err("the server sent a frame that only clients send".into()),
            }
            if let Some(response) = Response::small(&frame) {
                self.answer(response)?;
            } else if let Some((header, body)) = reader.take_body() {
                self.answer(Response::new(header, body))?;
            }
        }
        Ok(())
    }

    /// Requests of the server need no answer. The client ignores those that it does not know.
    fn hear_announcement(&self, frame: &Frame<'_>) {
        if frame.header.opcode != SERVER_CLUSTERMAP_CHANGE {
            return;
        }
        if let Some(version) = ConfigVersion::decode(frame.extras) {
            self.watch.announce(version);
        }
    }

    fn answer(&self, response: Response) -> Result<(), &'static str> {
        let Header { opaque, opcode, .. } = response.header;
        let opaque = opaque as usize;
        let mut state = self.state.lock();
        let Some(entry) = state.in_flight.get(opaque) else {
            return Err("the server answered a request that was not sent");
        };
        if entry.opcode as u8 != opcode {
            return Err("the server answered with another opcode than was asked");
        }
        if entry.end > state.offered_bytes {
            return Err("the server answered a request that was not sent yet");
        }
        let entry = state.in_flight.remove(opaque);
        drop(state);
        entry.waiter.answer(Ok(response));
        Ok(())
    }

    /// Prepares the next write: fills an empty `out` with what was queued, and notes that all of it
    /// may be sent. `sent_bytes` were sent so far. False when the connection has ended.
    fn offer(&self, out: &mut WriteBuffer<Bytes>, sent_bytes: u64) -> bool {
        let mut state = self.state.lock();
        if state.closed.is_some() {
            return false;
        }
        if out.is_empty() {
            // The buffer of the last round becomes the queue of the next one.
            std::mem::swap(out, &mut state.queue);
        }
        state.offered_bytes = sent_bytes + out.pending_bytes() as u64;
        true
    }
}

async fn run_reader(stream: Arc<Socket>, mut reader: FrameReader, shared: Arc<Shared>) {
    let reason = loop {
        match stream.try_read(reader.spare()) {
            Ok(0) => break "the server closed the connection".into(),
            Ok(bytes) => reader.commit(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => match stream.readable().await {
                Ok(()) => continue,
                Err(error) => break format!("reading failed: {error}").into(),
            },
            Err(error) => break format!("reading failed: {error}").into(),
        }
        if let Err(reason) = shared.receive_all(&mut reader) {
            break reason;
        }
        // A server that sends without pause must not keep other tasks of this thread from running.
        tokio::task::consume_budget().await;
    };
    shared.close(reason);
}

async fn run_writer(stream: Arc<Socket>, shared: Arc<Shared>) {
    let mut out = WriteBuffer::new();
    let mut sent_bytes = 0;
    while shared.offer(&mut out, sent_bytes) {
        if out.is_empty() {
            if let Err(error) = flush(&stream).await {
                return shared.close(format!("writing failed: {error}").into());
            }
            shared.writer_wakeup.notified().await;
            continue;
        }
        let pending_bytes = out.pending_bytes();
        let mut written = write_some(&stream, &mut out);
        if let Err(error) = &written {
            // Nothing was sent, and that must be known while waiting or when closing.
            shared.state.lock().offered_bytes = sent_bytes;
            if error.kind() == ErrorKind::WouldBlock {
                written = stream.writable().await;
            }
        }
        sent_bytes += (pending_bytes - out.pending_bytes()) as u64;
        if let Err(error) = written {
            return shared.close(format!("writing failed: {error}").into());
        }
    }
}

/// Waits until the socket has everything that was written. Requests queued concurrently wait for
/// that too.
async fn flush(stream: &Socket) -> std::io::Result<()> {
    while !stream.try_flush()? {
        stream.writable().await?;
    }
    Ok(())
}
