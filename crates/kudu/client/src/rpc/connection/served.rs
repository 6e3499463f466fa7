//! One link in use: calls go in, replies come out, until it ends.
//!
//! Invariants: every call that was given to the link gets a reply, or the error that ended the
//! link. A call is not sent after its deadline or after its caller has gone. The connection's task
//! calls it.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::queued_call::{CALLS_PER_TURN, QueuedCall};
use crate::rpc::error::{InterruptedCall, RpcError, decode_status, is_fatal};
use crate::rpc::frame::{CallHeader, FrameError, ReplyFrame};
use crate::rpc::in_flight::{InFlight, PendingCall};
use crate::rpc::link::Link;
use crate::rpc::read_block::ReadBlock;
use crate::rpc::shared::Shared;
use crate::rpc::write_queue::WriteQueue;
use crate::types::HostPort;

/// Reads from the socket before the task looks at its queue again.
const READS_PER_TURN: usize = 8;

/// While this many bytes wait for the socket, further calls stay in the queue, where callers can
/// still cancel them.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// Why a link ended.
#[derive(Debug)]
enum End {
    /// It was idle for a while.
    Idle,
    /// The handle is gone.
    Abandoned,
    /// The connection was lost, or the server closed it.
    Lost(Arc<io::Error>),
    /// The server violated the protocol.
    Malformed(FrameError),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(Arc::new(error))
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        Self::Malformed(error)
    }
}

/// A link and the calls that were given to it.
#[derive(Debug)]
pub(super) struct ServedConnection {
    link: Link,
    server: HostPort,
    shared: Arc<Shared>,
    block: ReadBlock,
    queue: WriteQueue,
    in_flight: InFlight,
    last_activity: Instant,
}

impl ServedConnection {
    pub(super) fn new(link: Link, server: HostPort, shared: Arc<Shared>) -> Self {
        let block = ReadBlock::new(shared.options.message_bytes_max);
        Self {
            link,
            server,
            shared,
            block,
            queue: WriteQueue::default(),
            in_flight: InFlight::default(),
            last_activity: Instant::now(),
        }
    }

    /// Serves calls, those in `waiting` first, until the link ends. Calls not given to the link
    /// stay in `calls`.
    pub(super) async fn serve(
        mut self,
        waiting: &mut Vec<QueuedCall>,
        calls: &mut mpsc::UnboundedReceiver<QueuedCall>,
    ) {
        let end = match self.turns(waiting, calls).await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        tracing::debug!(server = %self.server, ?end, "connection closed");
        self.interrupt(end);
    }

    async fn turns(
        &mut self,
        waiting: &mut Vec<QueuedCall>,
        calls: &mut mpsc::UnboundedReceiver<QueuedCall>,
    ) -> Result<std::convert::Infallible, End> {
        // Each link takes at least the calls that it was opened for. A server that closes every
        // link at once therefore cannot keep this task busy forever.
        self.admit(waiting)?;
        let keep_alive = self.shared.options.keep_alive;
        let mut idle = pin!(sleep_until(self.last_activity + keep_alive));
        loop {
            let takes_calls = self.queue.bytes() < WAITING_BYTES_MAX;
            let wants_write = self.link.wants_write(&self.queue);
            tokio::select! {
                taken = calls.recv_many(waiting, CALLS_PER_TURN), if takes_calls => {
                    if taken == 0 {
                        return Err(End::Abandoned);
                    }
                    self.admit(waiting)?;
                }
                ready = self.link.ready(wants_write) => {
                    let ready = ready?;
                    if ready.is_readable() || ready.is_read_closed() {
                        self.read()?;
                    }
                    if wants_write {
                        self.link.try_write(&mut self.queue)?;
                    }
                }
                () = &mut idle => {
                    let now = Instant::now();
                    let next = if self.in_flight.is_awaited(now) {
                        now + keep_alive
                    } else {
                        self.last_activity + keep_alive
                    };
                    if next <= now {
                        return Err(End::Idle);
                    }
                    idle.as_mut().reset(next);
                }
            }
        }
    }

    /// Gives calls to the link.
    fn admit(&mut self, waiting: &mut Vec<QueuedCall>) -> Result<(), End> {
        let now = Instant::now();
        self.last_activity = now;
        for call in waiting.drain(..) {
            if call.options.deadline <= now {
                let method = call.method.name;
                // The caller's own timer may have been faster.
                let _ =
                    call.reply.send(Err(RpcError::Timeout { server: self.server.clone(), method }));
            } else if !call.reply.is_closed() {
                self.enqueue(call, now);
            }
        }
        Ok(self.link.try_write(&mut self.queue)?)
    }

    fn enqueue(&mut self, call: QueuedCall, now: Instant) {
        let QueuedCall { method, options, pieces, room, reply } = call;
        let call_id = self.in_flight.new_call_id();
        let header = CallHeader {
            call_id,
            method: Some(&method),
            timeout: Some(options.deadline - now),
            required_feature_flags: options.required_feature_flags,
            request_id: options.request_id.as_ref(),
        };
        let bytes_max = self.shared.options.message_bytes_max;
        match self.queue.push_call(&header, pieces, bytes_max, room) {
            Ok(()) => {
                let call = PendingCall { method: method.name, deadline: options.deadline, reply };
                self.in_flight.insert(call_id, call);
            }
            Err(error) => {
                let error = match error {
                    FrameError::TooLarge { bytes, bytes_max } => {
                        RpcError::TooLarge { method: method.name, bytes, bytes_max }
                    }
                    source => RpcError::Malformed { server: self.server.clone(), source },
                };
                // The caller may have given up by now.
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Reads the received bytes and delivers the replies in them.
    fn read(&mut self) -> Result<(), End> {
        for _ in 0..READS_PER_TURN {
            match self.link.try_read(self.block.room()?) {
                Ok(0) => return Err(self.end_of_stream().into()),
                Ok(_) => self.last_activity = Instant::now(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
            while let Some(frame) = self.block.next_frame()? {
                self.deliver(frame)?;
            }
        }
        Ok(())
    }

    fn end_of_stream(&self) -> io::Error {
        let what =
            if self.block.is_empty() { "the server closed it" } else { "it ended inside a frame" };
        io::Error::new(ErrorKind::UnexpectedEof, what)
    }

    /// Delivers a reply to its caller.
    fn deliver(&mut self, frame: Bytes) -> Result<(), End> {
        let frame = ReplyFrame::parse(frame)?;
        let call_id = frame.call_id;
        let Some(call) = self.in_flight.remove(call_id) else {
            return Err(End::Malformed(FrameError::UnknownCall(call_id)));
        };
        // If the caller has given up, the send fails, and there is nothing to do.
        if !frame.is_error {
            let _ = call.reply.send(Ok(frame));
            return Ok(());
        }
        let (body, _) = frame.into_parts()?;
        let (code, status) = decode_status(body)?;
        let fatal = is_fatal(code).then(|| {
            End::from(io::Error::new(ErrorKind::ConnectionAborted, status.message.clone()))
        });
        let _ = call.reply.send(Err(RpcError::Remote {
            server: self.server.clone(),
            method: call.method,
            code,
            message: status.message,
            unsupported_flags: status.unsupported_feature_flags,
        }));
        fatal.map_or(Ok(()), Err)
    }

    /// Fails the calls without a reply, and names them in the error.
    fn interrupt(mut self, end: End) {
        let (interrupted, replies) = self.in_flight.interrupt();
        let interrupted: Arc<[InterruptedCall]> = interrupted.into();
        let server = self.server;
        let error_of = |call: &InterruptedCall| match &end {
            // No caller waits for a reply on such a link, or at least not beyond its deadline.
            End::Idle | End::Abandoned => {
                RpcError::Timeout { server: server.clone(), method: call.method }
            }
            End::Lost(source) => RpcError::Network {
                server: server.clone(),
                source: source.clone(),
                interrupted: interrupted.clone(),
            },
            End::Malformed(source) => {
                RpcError::Malformed { server: server.clone(), source: source.clone() }
            }
        };
        for (call, reply) in interrupted.iter().zip(replies) {
            let _ = reply.send(Err(error_of(call)));
        }
    }
}
