//! One TCP connection that one task owns: requests out, answers in, nothing in between.
//!
//! Requests are queued by [`Connection::push`] and [`Connection::push_value`], sent together by
//! [`Connection::flush`], and their answers read one by one by [`Connection::next`], borrowed from
//! the buffer that the socket filled. No background task, no lock and no allocation per operation:
//! this is what statistics, bulk work and load generators run on, and what the shared connection of
//! [`crate::Client`] is made from.
//!
//! ```standalone_crate
//! # #[path = "../tests/support/mod.rs"] mod support;
//! use oribi_client::Connection;
//! use oribi_protocol::{opcode::Opcode, request::RequestParts};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let options = support::serve_documents();
//! let mut connection = Connection::open(&options).await?;
//! for opaque in 0..1000 {
//!     connection.push(&RequestParts { opaque, ..RequestParts::new(Opcode::Noop) });
//! }
//! connection.flush().await?;
//! for opaque in 0..1000 {
//!     assert_eq!(connection.next().await?.header.opaque, opaque);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: sending never waits without also receiving, so it cannot deadlock with a server that
//! stops reading until its answers are read. What it receives concurrently is bounded. Every wait
//! has a deadline. After an error the connection is unusable: a late answer would be taken for
//! another request's.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request, encode_request_head};
use oribi_protocol::write_buffer::WriteBuffer;
use tokio::io::Interest;
use tokio::time::Instant;

use crate::config::ClusterMap;
use crate::error::{ClientError, Site};
use crate::features::FeatureSet;
use crate::frame_reader::FrameReader;
use crate::outbound::{queue_request, write_some};
use crate::response::Response;
use crate::socket::Socket;

/// A connection keeps a send block up to this size: a hundred values just below the size from which
/// they are sent from where they are, and what a growing block reaches beyond that.
const SEND_BLOCK_KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;

const _: () = assert!(SEND_BLOCK_KEPT_BYTES_MAX >= 2 * 100 * GATHER_VALUE_BYTES_MIN);

/// Most bytes of answers that are received before all requests of a flush are sent: far more than
/// those of any sensible batch, far less than a server that floods could send until the deadline.
const UNREAD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// See the module text.
#[derive(Debug)]
pub struct Connection {
    stream: Socket,
    peer: Arc<str>,
    reader: FrameReader,
    writer: WriteBuffer<Bytes>,
    features: FeatureSet,
    timeout: Duration,
    gather_value_bytes_min: usize,
    /// Why nothing more can be done with the connection.
    failed: Option<Arc<str>>,
}

/// The parts of a connection, for the multiplexer, which drives the socket by two tasks.
pub(crate) struct ConnectionParts {
    pub stream: Socket,
    pub peer: Arc<str>,
    pub reader: FrameReader,
    pub features: FeatureSet,
}

impl Connection {
    /// A connection that has said nothing yet. `timeout` limits each wait.
    pub(crate) fn new(stream: Socket, peer: Arc<str>, timeout: Duration) -> Connection {
        Connection {
            stream,
            peer,
            reader: FrameReader::new(),
            writer: WriteBuffer::keeping(SEND_BLOCK_KEPT_BYTES_MAX),
            features: FeatureSet::default(),
            timeout,
            gather_value_bytes_min: GATHER_VALUE_BYTES_MIN,
            failed: None,
        }
    }

    /// The server, as `host:port`.
    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// True when the server granted `feature`.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    /// Limits every wait from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Changes from which size on [`Connection::push_value`] leaves a value where it is; 0 for
    /// always, `usize::MAX` for never. Exists so that the usual switch point can be measured.
    pub fn set_gather_value_bytes_min(&mut self, bytes: usize) {
        self.gather_value_bytes_min = bytes;
    }

    /// Queues a request; everything is copied. The caller has checked the lengths of key and value.
    pub fn push(&mut self, parts: &RequestParts<'_>) {
        encode_request(self.writer.tail(), parts);
    }

    /// Queues a request with `value` for `parts.value`, which is not looked at. A large value is
    /// sent from where it is. The caller has checked the lengths of key and value.
    pub fn push_value(&mut self, parts: &RequestParts<'_>, value: &Bytes) {
        queue_request(&mut self.writer, parts, value, self.gather_value_bytes_min);
    }

    /// Queues a request whose value is `head`, `body` and `tail`, one after the other;
    /// `parts.value` is not looked at. A large body is sent from where it is, all else is copied.
    /// For callers that put something around bytes that they already have. The caller has checked
    /// the lengths.
    pub fn push_pieces(
        &mut self,
        parts: &RequestParts<'_>,
        head: &[u8],
        body: &Bytes,
        tail: &[u8],
    ) {
        let out = &mut self.writer;
        encode_request_head(out.tail(), parts, head.len() + body.len() + tail.len());
        out.tail().extend_from_slice(head);
        match body.len() < self.gather_value_bytes_min {
            true => out.tail().extend_from_slice(body),
            false => out.pin(body.clone()),
        }
        out.tail().extend_from_slice(tail);
    }

    /// Bytes that are queued.
    pub fn queued_bytes(&self) -> usize {
        self.writer.pending_bytes()
    }

    /// Sends everything that is queued. The deadline moves on whenever the server takes some of it.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.check_usable("flush")?;
        let mut deadline = None;
        while !self.writer.is_empty() || !self.is_flushed()? {
            match write_some(&self.stream, &mut self.writer) {
                Ok(()) => deadline = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_to_write(&mut deadline).await?;
                }
                Err(error) => return Err(self.closed("flush", format!("writing failed: {error}"))),
            }
        }
        Ok(())
    }

    /// True when the socket has everything that was written.
    fn is_flushed(&mut self) -> Result<bool, ClientError> {
        let flushed = self.stream.try_flush();
        flushed.map_err(|error| self.closed("flush", format!("writing failed: {error}")))
    }

    /// The next answer, in the server's order. What the frame borrows is given up with the next
    /// call of any method. Requests of the server are skipped.
    pub async fn next(&mut self) -> Result<Frame<'_>, ClientError> {
        let mut deadline = None;
        while !self.advance()? {
            self.receive(&mut deadline, "answer").await?;
        }
        self.present()
    }

    /// The next answer, if it has been received already.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Frame<'_>>, ClientError> {
        match self.advance()? {
            true => self.present().map(Some),
            false => Ok(None),
        }
    }

    /// Sends one request and waits for its answer. Nothing else may be in flight.
    pub async fn call(
        &mut self,
        parts: &RequestParts<'_>,
        value: &Bytes,
    ) -> Result<Response, ClientError> {
        let operation = parts.opcode.name();
        self.push_value(parts, value);
        self.flush().await.map_err(|error| error.named(operation))?;
        self.answer_to(parts.opcode, parts.opaque).await
    }

    /// Waits for the next answer, which has to be to this request.
    pub(crate) async fn answer_to(
        &mut self,
        opcode: Opcode,
        opaque: u32,
    ) -> Result<Response, ClientError> {
        let operation = opcode.name();
        let mut deadline = None;
        while !self.advance().map_err(|error| error.named(operation))? {
            self.receive(&mut deadline, operation).await?;
        }
        let (header, body) = self.reader.take_body().expect("advance has found a frame");
        if header.opaque != opaque || header.opcode != opcode as u8 {
            return Err(self.protocol_error(operation, "the answer is to another request"));
        }
        Ok(Response::new(header, body))
    }

    /// Fetches the cluster map of the selected bucket.
    pub async fn cluster_config(&mut self) -> Result<ClusterMap, ClientError> {
        let parts = RequestParts::new(Opcode::GetClusterConfig);
        let response = self.call(&parts, &Bytes::new()).await?;
        response.outcome()?;
        let with_tls = self.stream.is_tls();
        // The name that the server has proved to have, or the address that was reached.
        let host = match with_tls {
            true => {
                self.peer.rsplit_once(':').map(|peer| peer.0.trim_matches(['[', ']']).to_owned())
            }
            false => self.stream.peer_addr().map(|address| address.ip().to_string()).ok(),
        };
        let host = host.as_deref().unwrap_or("localhost");
        ClusterMap::parse_for(&response.value(), host, with_tls)
            .map_err(|error| error.at(self.site(parts.opcode.name())))
    }

    /// Bytes received in the connection's life.
    pub fn received_bytes(&self) -> u64 {
        self.reader.received_bytes()
    }

    /// Of these, bytes that were moved from one place in memory to another.
    pub fn moved_bytes(&self) -> u64 {
        self.reader.moved_bytes()
    }

    pub(crate) fn set_features(&mut self, features: FeatureSet) {
        self.features = features;
    }

    /// Takes the connection apart. Nothing may be queued.
    pub(crate) fn into_parts(self) -> ConnectionParts {
        let Connection { stream, peer, reader, features, .. } = self;
        ConnectionParts { stream, peer, reader, features }
    }

    pub(crate) fn site(&self, operation: &'static str) -> Site {
        Site { peer: self.peer.clone(), operation }
    }

    /// Header of the frame that `advance` has found.
    #[inline]
    pub(crate) fn header(&self) -> Option<Header> {
        self.reader.header().copied()
    }

    /// The frame that `advance` has found.
    #[inline]
    pub(crate) fn present(&self) -> Result<Frame<'_>, ClientError> {
        self.reader.frame().ok_or_else(|| {
            let reason = "no frame is there".into();
            ClientError::Closed { at: self.site("answer"), reason }
        })
    }

    /// Finds the next answer among what was received.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool, ClientError> {
        loop {
            match self.reader.advance() {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                Err(error) => return Err(self.protocol_error("answer", error.to_string())),
            }
            match self.header().map(|header| header.magic) {
                Some(Magic::ClientResponse | Magic::AltClientResponse) => return Ok(true),
                // Notifications need no answer; a changed map is found by the next refusal.
                Some(Magic::ServerRequest) => {}
                _ => return Err(self.protocol_error("answer", "a frame that only clients send")),
            }
        }
    }

    /// Receives once, waiting until `deadline`, which is set at the first wait.
    pub(crate) async fn receive(
        &mut self,
        deadline: &mut Option<Instant>,
        operation: &'static str,
    ) -> Result<(), ClientError> {
        self.check_usable(operation)?;
        let until = *deadline.get_or_insert_with(|| Instant::now() + self.timeout);
        let read = self.stream.read(self.reader.spare());
        match tokio::time::timeout_at(until, read).await {
            Err(_) => Err(self.timed_out(operation)),
            Ok(Ok(0)) => Err(self.closed(operation, "the server closed the connection")),
            Ok(Ok(bytes)) => {
                self.reader.commit(bytes);
                Ok(())
            }
            Ok(Err(error)) => Err(self.closed(operation, format!("reading failed: {error}"))),
        }
    }

    /// Waits until the socket takes more, and receives concurrently; until `deadline`, which is set
    /// at the first wait.
    async fn wait_to_write(&mut self, deadline: &mut Option<Instant>) -> Result<(), ClientError> {
        let until = *deadline.get_or_insert_with(|| Instant::now() + self.timeout);
        if Instant::now() >= until {
            return Err(self.timed_out("flush"));
        }
        if self.reader.unread_bytes() > UNREAD_BYTES_MAX {
            return Err(self.protocol_error("flush", "more answers than requests can have"));
        }
        let ready = self.stream.ready(Interest::READABLE | Interest::WRITABLE);
        let ready = match tokio::time::timeout_at(until, ready).await {
            Err(_) => return Err(self.timed_out("flush")),
            Ok(Err(error)) => return Err(self.closed("flush", error.to_string())),
            Ok(Ok(ready)) => ready,
        };
        if !ready.is_readable() {
            return Ok(());
        }
        match self.stream.try_read(self.reader.spare()) {
            Ok(0) => Err(self.closed("flush", "the server closed the connection")),
            Ok(bytes) => {
                self.reader.commit(bytes);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(self.closed("flush", format!("reading failed: {error}"))),
        }
    }

    fn check_usable(&self, operation: &'static str) -> Result<(), ClientError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => {
                Err(ClientError::Closed { at: self.site(operation), reason: reason.clone() })
            }
        }
    }

    /// Refuses everything from now on.
    pub(crate) fn fail(&mut self, reason: &'static str) {
        self.failed.get_or_insert_with(|| reason.into());
    }

    fn timed_out(&mut self, operation: &'static str) -> ClientError {
        self.failed = Some("an earlier operation got no answer in time".into());
        ClientError::Timeout { at: self.site(operation), after: self.timeout }
    }

    fn closed(&mut self, operation: &'static str, reason: impl Into<Arc<str>>) -> ClientError {
        let reason = reason.into();
        self.failed = Some(reason.clone());
        ClientError::Closed { at: self.site(operation), reason }
    }

    /// Gives the connection up because of an answer that makes no sense, and returns the error that
    /// says so. For callers that match answers to requests themselves.
    pub fn protocol_error(
        &mut self,
        operation: &'static str,
        reason: impl Into<std::borrow::Cow<'static, str>>,
    ) -> ClientError {
        let reason = reason.into();
        self.failed = Some(Arc::from(&*reason));
        ClientError::Protocol { at: self.site(operation), reason }
    }
}
