//! One TCP connection shared by many tasks: answers are matched to requests by opaque.
//!
//! Two tasks serve it. The writer takes everything that was queued since its last write and sends it
//! with vectored writes, so that requests gather into large writes by themselves when many are
//! queued. The reader takes answers out of a [`FrameReader`] and hands each to whoever waits for it.
//!
//! An opaque is an index into the table of waiting requests. Its entry is freed only by the answer, not
//! when a caller stops waiting, so an answer that comes late is never taken for another one's.
//!
//! Invariant: every entry receives its answer or, when the connection ends, [`ClientError::Closed`].

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Header;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::write_buffer::WriteBuffer;
use parking_lot::Mutex;
use slab::Slab;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::bootstrap::Negotiated;
use crate::connection::{Connection, Parts, queue_request, write_some};
use crate::error::{ClientError, Site};
use crate::frame_reader::FrameReader;
use crate::response::Response;

/// What an answer is, or why none comes.
pub(crate) type Answer = Result<Response, ClientError>;

/// Who waits for an answer.
pub(crate) enum Waiter {
    /// One caller for one answer.
    One(oneshot::Sender<Answer>),
    /// A batch, which numbers its requests itself.
    Numbered(mpsc::UnboundedSender<(u64, Answer)>, u64),
}

impl Waiter {
    /// A receiver that was dropped is no error: the caller stopped waiting.
    fn answer(self, answer: Answer) {
        match self {
            Waiter::One(sender) => drop(sender.send(answer)),
            Waiter::Numbered(sender, number) => drop(sender.send((number, answer))),
        }
    }
}

struct InFlight {
    opcode: Opcode,
    waiter: Waiter,
}

struct State {
    queue: WriteBuffer<Bytes>,
    in_flight: Slab<InFlight>,
    /// Why the connection ended, once it has.
    closed: Option<Arc<str>>,
}

struct Shared {
    peer: Arc<str>,
    state: Mutex<State>,
    writer_wakeup: Notify,
}

/// An open connection. Dropping it closes it and fails what is in flight.
pub(crate) struct Multiplexer {
    shared: Arc<Shared>,
    negotiated: Negotiated,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Multiplexer {
    /// Shares a connection that has nothing in flight.
    pub fn start(connection: Connection) -> Multiplexer {
        let Parts { stream, peer, reader, negotiated } = connection.into_parts();
        let state = State { queue: WriteBuffer::new(), in_flight: Slab::new(), closed: None };
        let shared =
            Arc::new(Shared { peer, state: Mutex::new(state), writer_wakeup: Notify::new() });
        let stream = Arc::new(stream);
        let reader = tokio::spawn(run_reader(stream.clone(), reader, shared.clone()));
        let writer = tokio::spawn(run_writer(stream, shared.clone()));
        Multiplexer { shared, negotiated, reader, writer }
    }

    /// The server, as `host:port`.
    pub fn peer(&self) -> &Arc<str> {
        &self.shared.peer
    }

    /// True when the server granted `feature`.
    pub fn has(&self, feature: Feature) -> bool {
        self.negotiated.has(feature)
    }

    /// Queues a request. `parts.opaque` and `parts.value` are not looked at.
    ///
    /// The caller has checked the lengths of key and value.
    pub fn submit(
        &self,
        parts: &RequestParts<'_>,
        value: &Bytes,
        waiter: Waiter,
    ) -> Result<(), ClientError> {
        let mut state = self.shared.state.lock();
        if let Some(reason) = &state.closed {
            return Err(self.shared.closed(parts.opcode, reason.clone()));
        }
        let slot = state.in_flight.insert(InFlight { opcode: parts.opcode, waiter });
        let opaque = u32::try_from(slot).expect("memory ends long before four billion requests");
        let parts = RequestParts { opaque, ..*parts };
        queue_request(&mut state.queue, &parts, value, GATHER_VALUE_BYTES_MIN);
        drop(state);
        self.shared.writer_wakeup.notify_one();
        Ok(())
    }

    /// Sends one request and waits for its answer.
    pub async fn call(
        &self,
        parts: &RequestParts<'_>,
        value: &Bytes,
        timeout: Duration,
    ) -> Result<Response, ClientError> {
        let (sender, receiver) = oneshot::channel();
        self.submit(parts, value, Waiter::One(sender))?;
        match tokio::time::timeout(timeout, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(self.shared.closed(parts.opcode, "the connection's task ended".into()))
            }
            Err(_) => {
                Err(ClientError::Timeout { at: self.shared.site(parts.opcode), after: timeout })
            }
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

    /// Ends the connection; only the first reason counts.
    fn close(&self, reason: Arc<str>) {
        let abandoned = {
            let mut state = self.state.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(reason.clone());
            state.queue = WriteBuffer::new();
            std::mem::take(&mut state.in_flight)
        };
        for (_, entry) in abandoned {
            entry.waiter.answer(Err(self.closed(entry.opcode, reason.clone())));
        }
        self.writer_wakeup.notify_one();
    }

    /// Hands every whole frame to whoever waits for it.
    fn receive_all(&self, reader: &mut FrameReader) -> Result<(), Arc<str>> {
        while reader.advance().map_err(|error| error.to_string())? {
            match reader.frame().map(|frame| frame.header.magic) {
                Some(Magic::ClientResponse | Magic::AltClientResponse) => {}
                Some(Magic::ServerRequest) => {
                    // Notifications need no answer; a changed map is found by the next refusal.
                    continue;
                }
                _ => return Err("the server sent a frame that only clients send".into()),
            }
            if let Some((header, body)) = reader.take_body() {
                self.answer(header, body)?;
            }
        }
        Ok(())
    }

    fn answer(&self, header: Header, body: Bytes) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        let opaque = header.opaque as usize;
        let Some(entry) = state.in_flight.get(opaque) else {
            return Err("the server answered a request that was not sent");
        };
        if entry.opcode as u8 != header.opcode {
            return Err("the server answered with another opcode than was asked");
        }
        let entry = state.in_flight.remove(opaque);
        drop(state);
        entry.waiter.answer(Ok(Response::new(header, body)));
        Ok(())
    }
}

async fn run_reader(stream: Arc<TcpStream>, mut reader: FrameReader, shared: Arc<Shared>) {
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
    };
    shared.close(reason);
}

async fn run_writer(stream: Arc<TcpStream>, shared: Arc<Shared>) {
    let mut queue = WriteBuffer::new();
    loop {
        {
            let mut state = shared.state.lock();
            if state.closed.is_some() {
                return;
            }
            // The buffer of the last round becomes the queue of the next one.
            std::mem::swap(&mut queue, &mut state.queue);
        }
        if queue.is_empty() {
            shared.writer_wakeup.notified().await;
        } else if let Err(error) = write_all(&stream, &mut queue).await {
            return shared.close(format!("writing failed: {error}").into());
        }
    }
}

async fn write_all(stream: &TcpStream, queue: &mut WriteBuffer<Bytes>) -> std::io::Result<()> {
    while !queue.is_empty() {
        match write_some(stream, queue) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            other => other?,
        }
    }
    Ok(())
}
