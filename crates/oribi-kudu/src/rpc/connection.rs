//! The connection to one server, as a task that owns the socket and a handle that callers share.
//!
//! The task sleeps without a socket until a call comes; then it opens a link, sends calls as they come
//! and hands each reply to its caller. A link that nobody waits on is closed after a while, or when the
//! server closes it; the next call opens another. When a link is lost, the calls that had been given to it
//! fail and are not sent again; calls that still wait here go over the next link.
//!
//! Invariants: a call is sent at most once, and not after its deadline or when its caller has gone; the
//! bytes that wait for the socket and the calls that wait for replies are bounded, and callers wait for
//! room; nothing a server does or omits keeps a caller past its deadline, because callers wait with their
//! own timer. Called by the messenger.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::error::RpcError;
use super::frame::ReplyFrame;
use super::in_flight::ReplySender;
use super::limits::CALL_OVERHEAD_BYTES;
use super::messenger::Shared;
use super::{CallOptions, Method};
use crate::types::HostPort;

mod open;
mod served;

use open::Opener;
use served::Served;

/// Calls that the task takes from its queue at a time.
const CALLS_PER_TURN: usize = 64;

/// A handle on the task of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    server: HostPort,
    calls: mpsc::UnboundedSender<QueuedCall>,
    /// Bytes that may wait for the socket.
    queue_room: Arc<Semaphore>,
    queue_room_bytes: usize,
    /// Calls that may wait for a reply.
    call_room: Semaphore,
}

/// A call on its way to the task.
#[derive(Debug)]
struct QueuedCall {
    method: Method,
    options: CallOptions,
    pieces: Vec<Bytes>,
    room: OwnedSemaphorePermit,
    reply: ReplySender,
}

impl Connection {
    /// Starts the task of a server. It ends when the handle is dropped. With `primary_credentials`, its
    /// links are never authenticated by token.
    pub(crate) fn spawn(server: HostPort, shared: Arc<Shared>, primary_credentials: bool) -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let options = &shared.options;
        let queue_room_bytes = options.queued_bytes_max.min(u32::MAX as usize);
        let connection = Self {
            server: server.clone(),
            calls: sender,
            queue_room: Arc::new(Semaphore::new(queue_room_bytes)),
            queue_room_bytes,
            call_room: Semaphore::new(options.calls_in_flight_max),
        };
        let opener = Opener::new(server.clone(), shared.clone(), primary_credentials);
        tokio::spawn(Task { server, shared, opener, calls }.run());
        connection
    }

    /// True when the task has ended, because the runtime that it ran on has.
    pub(crate) fn is_dead(&self) -> bool {
        self.calls.is_closed()
    }

    /// Sends a call and waits for its reply, at most until the deadline.
    pub(crate) async fn call(
        &self,
        method: &Method,
        pieces: Vec<Bytes>,
        options: &CallOptions,
    ) -> Result<ReplyFrame, RpcError> {
        match tokio::time::timeout_at(options.deadline, self.send(method, pieces, options)).await {
            Ok(result) => result,
            Err(_) => Err(RpcError::Timeout { server: self.server.clone(), method: method.name }),
        }
    }

    async fn send(
        &self,
        method: &Method,
        pieces: Vec<Bytes>,
        options: &CallOptions,
    ) -> Result<ReplyFrame, RpcError> {
        let body_bytes = pieces.iter().map(Bytes::len).sum::<usize>();
        // A call that is larger than the whole queue waits until it has the queue to itself.
        let room_bytes = body_bytes.saturating_add(CALL_OVERHEAD_BYTES).min(self.queue_room_bytes);
        let _call_room = self.call_room.acquire().await.map_err(|_| self.ended())?;
        let room = self
            .queue_room
            .clone()
            .acquire_many_owned(
                u32::try_from(room_bytes).expect("the queue's room is counted in a u32"),
            )
            .await
            .map_err(|_| self.ended())?;
        let (reply, answer) = oneshot::channel();
        let call = QueuedCall { method: *method, options: options.clone(), pieces, room, reply };
        self.calls.send(call).map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    /// The task is gone, which happens only with its runtime.
    fn ended(&self) -> RpcError {
        let source =
            io::Error::new(ErrorKind::NotConnected, "the runtime of the connection has ended");
        RpcError::Network {
            server: self.server.clone(),
            source: Arc::new(source),
            interrupted: Arc::default(),
        }
    }
}

/// The task of a connection.
struct Task {
    server: HostPort,
    shared: Arc<Shared>,
    opener: Opener,
    calls: mpsc::UnboundedReceiver<QueuedCall>,
}

impl Task {
    async fn run(mut self) {
        let mut waiting = Vec::new();
        while self.calls.recv_many(&mut waiting, CALLS_PER_TURN).await > 0 {
            waiting.retain(|call| !call.reply.is_closed());
            if waiting.is_empty() {
                continue;
            }
            match self.opener.open().await {
                Ok(link) => {
                    let served = Served::new(link, self.server.clone(), self.shared.clone());
                    served.serve(&mut waiting, &mut self.calls).await;
                }
                Err(error) => self.fail_waiting(&mut waiting, &error),
            }
        }
    }

    /// Fails every call that waited for the link.
    fn fail_waiting(&mut self, waiting: &mut Vec<QueuedCall>, error: &RpcError) {
        while let Ok(call) = self.calls.try_recv() {
            waiting.push(call);
        }
        for call in waiting.drain(..) {
            // The caller may have given up in the meantime.
            let _ = call.reply.send(Err(error.clone()));
        }
    }
}
