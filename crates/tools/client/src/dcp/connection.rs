//! The connection to one node's producer, owned by a task.
//!
//! The task connects, opens the producer, and hands frames to the stream in batches. It answers
//! questions whether the client lives itself, so a slow application does not end the connection.
//! Requests come from the stream as bytes. What the application takes is acknowledged.
//!
//! Memory: a server sends at most its window ahead, and one message. The task stops reading when a
//! server does not keep to that. Frames are handed over in the blocks that they were received into
//! ([`super::blocks`]).

use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use oribi_protocol::limits::FRAME_BYTES_MAX;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::blocks::{BlockPool, BlockReader, Frames};
use super::handshake::{ProducerConnection, ProducerOptions};
use super::ledger::Ledger;
use super::machine::DcpConnectionId;
use crate::connection::ConnectionParts;
use crate::error::{ClientError, Site};
use crate::options::ConnectOptions;
use crate::socket::Socket;

/// Additional time, after twice the interval, in which a node has to answer.
const NOOP_GRACE: Duration = Duration::from_secs(2);

/// Message of a connection to the stream.
#[derive(Debug)]
pub(super) enum ConnectionEvent {
    /// Requests can be sent.
    Opened { has_collections: bool },
    /// Frames, in their order.
    Frames(Frames),
    /// It ended, or could not be opened. Nothing comes after it.
    Closed(ClientError),
}

/// A connection, as the stream sees it. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct DcpConnection {
    pub id: DcpConnectionId,
    pub ledger: Arc<Ledger>,
    /// Where blocks go whose frames were taken.
    pub pool: Arc<BlockPool>,
    /// None until it is open: whether keys come with collections.
    pub has_collections: Option<bool>,
    requests: UnboundedSender<Vec<u8>>,
    task: JoinHandle<()>,
}

impl DcpConnection {
    /// Begins to connect on `runtime`.
    pub fn start(
        id: DcpConnectionId,
        connect: ConnectOptions,
        options: ProducerOptions,
        events: UnboundedSender<(DcpConnectionId, ConnectionEvent)>,
        runtime: &Handle,
    ) -> DcpConnection {
        let (requests, received) = unbounded_channel();
        let ledger = Arc::new(Ledger::new(options.window_bytes));
        let pool = Arc::new(BlockPool::default());
        let (for_task, of_task) = (ledger.clone(), pool.clone());
        let task = runtime.spawn(async move {
            let error = match ProducerConnection::open(&connect, &options).await {
                Ok(producer) => {
                    let has_collections = producer.has_collections;
                    let opened = ConnectionEvent::Opened { has_collections };
                    if events.send((id, opened)).is_err() {
                        return;
                    }
                    let silence_max =
                        producer.has_noops.then(|| options.noop_interval * 2 + NOOP_GRACE);
                    let waiting_max = match producer.has_window {
                        true => u64::from(options.window_bytes) + FRAME_BYTES_MAX as u64,
                        false => u64::from(options.window_bytes),
                    };
                    let ConnectionParts { stream, peer, reader, .. } =
                        producer.connection.into_parts();
                    let task = Task {
                        id,
                        stream,
                        reader: BlockReader::new(&reader.into_unread()),
                        pool: of_task,
                        out: Vec::new(),
                        sent_bytes: 0,
                        is_flushed: true,
                        has_window: producer.has_window,
                        waiting_max,
                        ledger: for_task,
                        requests: received,
                        events: events.clone(),
                    };
                    let reason = task.run(silence_max).await;
                    ClientError::Closed { at: Site { peer, operation: "changes" }, reason }
                }
                Err(error) => error,
            };
            // Without a receiver the stream is gone, and its task with it.
            let _ = events.send((id, ConnectionEvent::Closed(error)));
        });
        DcpConnection { id, ledger, pool, has_collections: None, requests, task }
    }

    /// Sends requests. A connection that has ended tells so by itself.
    pub fn send(&self, requests: Vec<u8>) {
        let _ = self.requests.send(requests);
    }
}

impl Drop for DcpConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Task {
    id: DcpConnectionId,
    stream: Socket,
    reader: BlockReader,
    pool: Arc<BlockPool>,
    out: Vec<u8>,
    /// Of `out`.
    sent_bytes: usize,
    /// TLS holds nothing of what was sent.
    is_flushed: bool,
    has_window: bool,
    waiting_max: u64,
    ledger: Arc<Ledger>,
    requests: UnboundedReceiver<Vec<u8>>,
    events: UnboundedSender<(DcpConnectionId, ConnectionEvent)>,
}

type CloseText = Arc<str>;

impl Task {
    /// Runs until the connection ends; returns why.
    async fn run(mut self, silence_max: Option<Duration>) -> CloseText {
        let mut heard = Instant::now();
        loop {
            let outcome = self.turn(&mut heard);
            let is_drained = match outcome {
                Ok(is_drained) => is_drained,
                Err(reason) => return reason,
            };
            let is_paused = self.is_paused();
            if !is_drained && !is_paused {
                tokio::task::yield_now().await;
                continue;
            }
            // A task that does not read cannot hear.
            let silence_max = silence_max.filter(|_| !is_paused);
            let deadline = heard + silence_max.unwrap_or(Duration::from_secs(3600));
            let has_unsent = self.sent_bytes < self.out.len() || !self.is_flushed;
            let interest = match (is_paused, has_unsent) {
                (false, false) => Some(Interest::READABLE),
                (false, true) => Some(Interest::READABLE | Interest::WRITABLE),
                (true, true) => Some(Interest::WRITABLE),
                (true, false) => None,
            };
            let stream = &self.stream;
            let ready = async move {
                match interest {
                    Some(interest) => stream.ready(interest).await.map(drop),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                outcome = ready => if let Err(error) = outcome {
                    return format!("waiting failed: {error}").into();
                },
                requests = self.requests.recv() => match requests {
                    Some(requests) => self.out.extend_from_slice(&requests),
                    None => return "the stream is gone".into(),
                },
                () = self.ledger.portion_taken() => {}
                () = tokio::time::sleep_until(deadline) => {
                    if let Some(silence) = silence_max {
                        return format!("the server was silent for {silence:?}").into();
                    }
                }
            }
        }
    }

    /// Does what can be done without waiting; true when nothing more was there to read.
    fn turn(&mut self, heard: &mut Instant) -> Result<bool, CloseText> {
        let read = self.read(heard);
        let bytes = self.reader.window_bytes();
        if let Some(frames) = self.reader.take(&self.pool) {
            self.ledger.receive(bytes);
            if self.events.send((self.id, ConnectionEvent::Frames(frames))).is_err() {
                return Err("the stream is gone".into());
            }
        }
        let is_drained = read?;
        while self.has_window
            && let Some(bytes) = self.ledger.to_acknowledge()
        {
            let extras = bytes.to_be_bytes();
            let parts = RequestParts::new(Opcode::DcpBufferAcknowledgement);
            encode_request(&mut self.out, &RequestParts { extras: &extras, ..parts });
        }
        self.write()?;
        Ok(is_drained)
    }

    fn is_paused(&self) -> bool {
        self.ledger.waiting() > self.waiting_max
    }

    /// Reads until a block is full; true when nothing more is there.
    fn read(&mut self, heard: &mut Instant) -> Result<bool, CloseText> {
        // The first bytes may have come after the answers of the handshake.
        self.find()?;
        loop {
            if self.ledger.waiting() + self.reader.window_bytes() > self.waiting_max {
                return Ok(true);
            }
            let Some(spare) = self.reader.spare() else { return Ok(false) };
            match self.stream.try_read(spare) {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(bytes) => self.reader.commit(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(format!("reading failed: {error}").into()),
            }
            *heard = Instant::now();
            self.find()?;
        }
    }

    /// Finds whole frames in what was received, and answers questions among them.
    fn find(&mut self) -> Result<(), CloseText> {
        let (out, mut is_foreign) = (&mut self.out, false);
        let found = self.reader.find(|header| match header.magic {
            Magic::ServerResponse => is_foreign = true,
            Magic::ClientRequest | Magic::AltClientRequest
                if header.opcode == Opcode::DcpNoop as u8 =>
            {
                let opcode = Opcode::DcpNoop as u8;
                write_response(out, &ResponseParts::new(opcode, Status::Success, header.opaque));
            }
            _ => {}
        });
        found.map_err(|error| error.to_string())?;
        match is_foreign {
            true => Err("a frame that only clients send".into()),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), CloseText> {
        let failed =
            |error: std::io::Error| -> CloseText { format!("writing failed: {error}").into() };
        while self.sent_bytes < self.out.len() {
            match self.stream.try_write(&[IoSlice::new(&self.out[self.sent_bytes..])]) {
                Ok(0) => return Err("writing failed: nothing was taken".into()),
                Ok(bytes) => self.sent_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
        self.out.clear();
        self.sent_bytes = 0;
        self.is_flushed = self.stream.try_flush().map_err(failed)?;
        Ok(())
    }
}
