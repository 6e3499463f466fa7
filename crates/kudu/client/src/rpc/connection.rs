//! The connection to one server, as a task that owns the socket and a handle that callers share.
//!
//! The task sleeps without a socket until a call comes. Then it opens a link, sends calls and hands
//! each reply to its caller. It closes an idle link after a while; the server may close it too. The
//! next call opens another. When a link is lost, its calls in flight fail and are not sent again;
//! queued calls use the next link.
//!
//! Invariants: a call is sent at most once, and not after its deadline or after its caller has
//! gone. The bytes queued for the socket and the calls in flight are bounded, and callers wait for
//! room (back-pressure). A server cannot keep a caller past its deadline, because callers wait with
//! their own timer. The messenger calls it.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::error::RpcError;
use super::frame::ReplyFrame;
use super::limits::CALL_OVERHEAD_BYTES;
use super::shared::Shared;
use super::{CallOptions, Method};
use crate::types::HostPort;

mod open;
mod queued_call;
mod served;

use open::Opener;
use queued_call::{CALLS_PER_TURN, QueuedCall};
use served::ServedConnection;

/// A handle to the task of a connection.
#[derive(Debug)]
pub(crate) struct RpcConnection {
    server: HostPort,
    calls: mpsc::UnboundedSender<QueuedCall>,
    /// Room in the queue for the socket, in bytes.
    queue_room: Arc<Semaphore>,
    queue_room_bytes: usize,
    /// Room for calls in flight.
    call_room: Semaphore,
}

impl RpcConnection {
    /// Starts the task of a server. It ends when the handle is dropped. With `primary_credentials`,
    /// its links never authenticate by token.
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

    /// True when the task has ended together with its runtime.
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
        // A call that is larger than the whole queue waits until the queue is empty.
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

    /// The task is gone; that happens only when its runtime ends.
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
                    let served =
                        ServedConnection::new(link, self.server.clone(), self.shared.clone());
                    served.serve(&mut waiting, &mut self.calls).await;
                }
                Err(error) => self.fail_waiting(&mut waiting, &error),
            }
        }
    }

    /// Fails every call that waits for the link.
    fn fail_waiting(&mut self, waiting: &mut Vec<QueuedCall>, error: &RpcError) {
        while let Ok(call) = self.calls.try_recv() {
            waiting.push(call);
        }
        for call in waiting.drain(..) {
            // The caller may have given up by now.
            let _ = call.reply.send(Err(error.clone()));
        }
    }
}
