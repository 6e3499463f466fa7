//! One TCP connection: many requests in flight, answers matched by opaque.
//!
//! Two tasks serve a connection. The writer takes everything that was queued since its last write and
//! sends it with vectored writes, so that requests gather into large writes by themselves when
//! many are queued. The reader decodes answers out of a [`ReadBuffer`] and hands each to
//! whoever waits for it.
//!
//! An opaque is an index into the table of waiting requests. Its entry is freed only by the answer, not
//! when a caller stops waiting, so an answer that comes late is never taken for another one's.
//!
//! Invariant: every entry receives its answer or, when the connection ends, [`ClientError::Closed`].

mod send_queue;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::frame::{self, Decoded, Frame, Header};
use oribi_protocol::limits::FRAME_BYTES_MAX;
use oribi_protocol::magic::Magic;
use oribi_protocol::read_buffer::ReadBuffer;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use parking_lot::Mutex;
use slab::Slab;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::error::{ClientError, Refused};
use send_queue::SendQueue;

/// A read buffer that grew beyond this is given back once it is empty.
const READ_BLOCK_KEPT_BYTES_MAX: usize = 256 * 1024;

/// One answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Response {
    /// Header.
    pub header: Header,
    /// Body without framing extras: extras, key, value.
    body: Bytes,
}

impl Response {
    fn copy_of(frame: &Frame<'_>) -> Response {
        let body = match frame.header.body_bytes {
            0 => Bytes::new(),
            _ => Bytes::from([frame.extras, frame.key, frame.value].concat()),
        };
        Response { header: frame.header, body }
    }

    /// Extras.
    pub fn extras(&self) -> &[u8] {
        &self.body[..self.key_start()]
    }

    /// Key.
    pub fn key(&self) -> &[u8] {
        &self.body[self.key_start()..self.value_start()]
    }

    /// Value; shares the response's memory.
    pub fn value(&self) -> Bytes {
        self.body.slice(self.value_start()..)
    }

    /// `Ok` for success, else what the server refused with.
    pub fn outcome(&self) -> Result<(), Refused> {
        Refused::from_status(self.header.vbucket_or_status)
    }

    fn key_start(&self) -> usize {
        usize::from(self.header.extras_bytes)
    }

    fn value_start(&self) -> usize {
        self.key_start() + usize::from(self.header.key_bytes)
    }
}

/// What an answer is, or why none comes.
pub(crate) type Answer = Result<Response, ClientError>;

/// Who waits for an answer.
pub(crate) enum Waiter {
    /// One caller for one answer.
    One(oneshot::Sender<Answer>),
    /// A batch, which numbers its requests itself.
    Numbered(mpsc::UnboundedSender<(u64, Answer)>, u64),
    /// Answers until one with neither key nor value, or one without success.
    Stream(mpsc::UnboundedSender<Answer>),
}

impl Waiter {
    /// A receiver that was dropped is no error: the caller stopped waiting.
    fn answer(self, answer: Answer) {
        match self {
            Waiter::One(sender) => drop(sender.send(answer)),
            Waiter::Numbered(sender, number) => drop(sender.send((number, answer))),
            Waiter::Stream(sender) => drop(sender.send(answer)),
        }
    }
}

struct InFlight {
    opcode: u8,
    waiter: Waiter,
}

struct State {
    queue: SendQueue,
    in_flight: Slab<InFlight>,
    /// Why the connection ended, once it has.
    closed: Option<Arc<str>>,
}

struct Shared {
    state: Mutex<State>,
    writer_wakeup: Notify,
}

/// An open connection. Dropping it closes it and fails what is in flight.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn open(host: &str, port: u16, timeout: Duration) -> Result<Connection, ClientError> {
        let connect = TcpStream::connect((host, port));
        let stream = tokio::time::timeout(timeout, connect)
            .await
            .map_err(|_| ClientError::Timeout)?
            .map_err(|error| ClientError::io(format!("connecting to {host}:{port}"), error))?;
        stream.set_nodelay(true).map_err(|error| ClientError::io("setting TCP_NODELAY", error))?;
        Ok(Connection::start(stream))
    }

    fn start(stream: TcpStream) -> Connection {
        let state = State { queue: SendQueue::default(), in_flight: Slab::new(), closed: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), writer_wakeup: Notify::new() });
        let (read_half, write_half) = stream.into_split();
        let reader = tokio::spawn(run_reader(read_half, shared.clone()));
        let writer = tokio::spawn(run_writer(write_half, shared.clone()));
        Connection { shared, reader, writer }
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
            return Err(ClientError::Closed(reason.clone()));
        }
        let slot = state.in_flight.insert(InFlight { opcode: parts.opcode as u8, waiter });
        let opaque = u32::try_from(slot).expect("memory ends long before four billion requests");
        state.queue.push(&RequestParts { opaque, ..*parts }, value);
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
            Ok(Err(_)) => Err(ClientError::Closed("the connection's task ended".into())),
            Err(_) => Err(ClientError::Timeout),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.close("closed by the client".into());
        self.reader.abort();
        self.writer.abort();
    }
}

impl Shared {
    /// Ends the connection; only the first reason counts.
    fn close(&self, reason: Arc<str>) {
        let abandoned = {
            let mut state = self.state.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(reason.clone());
            state.queue.clear();
            std::mem::take(&mut state.in_flight)
        };
        for (_, entry) in abandoned {
            entry.waiter.answer(Err(ClientError::Closed(reason.clone())));
        }
        self.writer_wakeup.notify_one();
    }

    /// Hands one frame to whoever waits for it.
    fn receive(&self, frame: &Frame<'_>) -> Result<(), &'static str> {
        match frame.header.magic {
            Magic::ClientResponse | Magic::AltClientResponse => {}
            Magic::ServerRequest => {
                // Notifications need no answer; a changed map is found by the next refusal.
                tracing::debug!(opcode = frame.header.opcode, "notification from the server");
                return Ok(());
            }
            _ => return Err("the server sent a frame that only clients send"),
        }
        let opaque = frame.header.opaque as usize;
        let response = Response::copy_of(frame);
        let mut state = self.state.lock();
        let Some(entry) = state.in_flight.get(opaque) else {
            return Err("the server answered a request that was not sent");
        };
        if entry.opcode != frame.header.opcode {
            return Err("the server answered with another opcode than was asked");
        }
        if let Waiter::Stream(sender) = &entry.waiter
            && !ends_stream(frame)
        {
            // Nobody listening is fine: the rest of the stream is read and dropped.
            drop(sender.send(Ok(response)));
            return Ok(());
        }
        let entry = state.in_flight.remove(opaque);
        drop(state);
        entry.waiter.answer(Ok(response));
        Ok(())
    }
}

fn ends_stream(frame: &Frame<'_>) -> bool {
    let is_success = frame.header.vbucket_or_status == Status::Success.code();
    !is_success || (frame.key.is_empty() && frame.value.is_empty())
}

async fn run_reader(mut socket: OwnedReadHalf, shared: Arc<Shared>) {
    let mut buffer = ReadBuffer::new();
    let reason: Arc<str> = loop {
        match socket.read(buffer.spare(1)).await {
            Ok(0) => break "the server closed the connection".into(),
            Ok(bytes) => buffer.commit(bytes),
            Err(error) => break format!("reading failed: {error}").into(),
        }
        if let Err(reason) = receive_all(&mut buffer, &shared) {
            break reason.into();
        }
        if buffer.is_empty() && buffer.capacity() > READ_BLOCK_KEPT_BYTES_MAX {
            buffer.release();
        }
    };
    shared.close(reason);
}

/// Consumes every whole frame and makes room for the one after.
fn receive_all(buffer: &mut ReadBuffer, shared: &Shared) -> Result<(), String> {
    loop {
        match frame::decode(buffer.unread()) {
            Ok(Decoded::Complete { frame, consumed }) => {
                shared.receive(&frame)?;
                buffer.consume(consumed);
            }
            Ok(Decoded::Incomplete { needed }) if needed > FRAME_BYTES_MAX => {
                return Err(format!("the server announced a frame of {needed} bytes"));
            }
            Ok(Decoded::Incomplete { needed }) => {
                buffer.reserve_frame(needed);
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn run_writer(mut socket: OwnedWriteHalf, shared: Arc<Shared>) {
    let mut queue = SendQueue::default();
    loop {
        {
            let mut state = shared.state.lock();
            if state.closed.is_some() {
                return;
            }
            // The buffers of the last round become the queue of the next one.
            std::mem::swap(&mut queue, &mut state.queue);
        }
        if queue.is_empty() {
            shared.writer_wakeup.notified().await;
            continue;
        }
        if let Err(error) = queue.write_to(&mut socket).await {
            shared.close(format!("writing failed: {error}").into());
            return;
        }
        queue.clear();
    }
}
