//! A negotiated connection: the socket, and the TLS session if there is one.
//!
//! Invariants: only opening waits. Plain text goes from the queue's chunks to the socket in one
//! vectored write, and from the socket straight into the read block. TLS copies, because a record
//! is encrypted in one piece. The connection's task calls it: it waits for readiness, then reads or
//! writes as much as the socket takes.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;

use bytes::{BufMut, BytesMut};
use rustls::ClientConnection;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, Ready};
use tokio::net::TcpStream;

use super::error::NegotiationError;
#[cfg(target_os = "linux")]
use super::limits::TCP_UNACKNOWLEDGED_MAX;
use super::limits::{TCP_KEEPALIVE_IDLE, TCP_KEEPALIVE_INTERVAL, TCP_KEEPALIVE_PROBES};
use super::negotiation::{Negotiation, NegotiationOffer, TlsOffer};
use super::write_queue::WriteQueue;

/// Chunks of one vectored write.
const SLICES_MAX: usize = 64;

/// Plain text that a TLS session buffers before its records must go to the socket.
const TLS_BUFFER_BYTES: usize = 256 * 1024;

/// A connection over which calls can be sent.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// Why opening a link failed.
#[derive(Debug)]
pub(crate) enum OpenError {
    Network(io::Error),
    Negotiation(NegotiationError),
}

impl Link {
    /// Connects to a server.
    pub(crate) async fn connect(address: SocketAddr) -> Result<TcpStream, OpenError> {
        let stream = TcpStream::connect(address).await.map_err(OpenError::Network)?;
        configure(&stream).map_err(OpenError::Network)?;
        Ok(stream)
    }

    /// Makes a link of a new connection.
    pub(crate) async fn negotiate(
        mut stream: TcpStream,
        offer: NegotiationOffer,
    ) -> Result<Self, OpenError> {
        let tls = negotiate(&mut stream, offer).await?;
        Ok(Self { stream, tls })
    }

    /// True when the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Waits until the socket can be read or, if `writable` matters, written.
    pub(crate) async fn ready(&self, writable: bool) -> io::Result<Ready> {
        let interest =
            if writable { Interest::READABLE.add(Interest::WRITABLE) } else { Interest::READABLE };
        self.stream.ready(interest).await
    }

    /// True when the queue or the TLS session has bytes for the socket.
    pub(crate) fn wants_write(&self, queue: &WriteQueue) -> bool {
        !queue.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads into the spare capacity of the block. 0 is the end; `WouldBlock` means no data yet.
    pub(crate) fn try_read(&mut self, block: &mut BytesMut) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.try_read_buf(block),
            Some(tls) => try_read_tls(&self.stream, tls, block),
        }
    }

    /// Writes from the queue until it is empty or the socket is full.
    pub(crate) fn try_write(&mut self, queue: &mut WriteQueue) -> io::Result<()> {
        while self.wants_write(queue) {
            let written = match &mut self.tls {
                None => try_write_plain(&self.stream, queue),
                Some(tls) => try_write_tls(&self.stream, tls, queue),
            };
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn try_write_plain(stream: &TcpStream, queue: &mut WriteQueue) -> io::Result<()> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = queue.slices(&mut slices);
    match stream.try_write_vectored(&slices[..count])? {
        0 => Err(ErrorKind::WriteZero.into()),
        written_bytes => {
            queue.advance(written_bytes);
            Ok(())
        }
    }
}

fn try_write_tls(
    stream: &TcpStream,
    tls: &mut ClientConnection,
    queue: &mut WriteQueue,
) -> io::Result<()> {
    if !queue.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = queue.slices(&mut slices);
        let sealed_bytes = tls.writer().write_vectored(&slices[..count])?;
        queue.advance(sealed_bytes);
    }
    // If nothing was sealed because the session's buffer is full, this makes space or would block.
    tls.write_tls(&mut Nonblocking(stream)).map(|_| ())
}

fn try_read_tls(
    stream: &TcpStream,
    tls: &mut ClientConnection,
    block: &mut BytesMut,
) -> io::Result<usize> {
    loop {
        let mut reader = tls.reader();
        match reader.fill_buf() {
            Ok(plaintext) => {
                let bytes = plaintext.len().min(block.capacity() - block.len());
                block.put_slice(&plaintext[..bytes]);
                reader.consume(bytes);
                return Ok(bytes);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let read_bytes = tls.read_tls(&mut Nonblocking(stream))?;
        tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        if read_bytes == 0 {
            return Ok(0);
        }
    }
}

/// A socket for a TLS session, which reads and writes without waiting.
struct Nonblocking<'a>(&'a TcpStream);

impl Read for Nonblocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.try_write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends requests at once, and detects a vanished peer: between calls by probes, during calls by a
/// limit on unacknowledged time.
fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(TCP_KEEPALIVE_IDLE)
        .with_interval(TCP_KEEPALIVE_INTERVAL)
        .with_retries(TCP_KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TCP_UNACKNOWLEDGED_MAX))?;
    Ok(())
}

async fn negotiate(
    stream: &mut TcpStream,
    offer: NegotiationOffer,
) -> Result<Option<Box<ClientConnection>>, OpenError> {
    let encrypts_in_between = offer.tls != TlsOffer::None;
    let mut negotiation = Negotiation::new(offer);
    let mut piece = [0; 4096];
    loop {
        let output = negotiation.take_output();
        stream.write_all(&output).await.map_err(OpenError::Network)?;
        if negotiation.is_done() {
            break;
        }
        let bytes = stream.read(&mut piece).await.map_err(OpenError::Network)?;
        if bytes == 0 {
            let said = if encrypts_in_between { "negotiation with TLS" } else { "negotiation" };
            let message = format!("the server closed the connection during the {said}");
            return Err(OpenError::Network(io::Error::new(ErrorKind::UnexpectedEof, message)));
        }
        negotiation.receive(&piece[..bytes]).map_err(OpenError::Negotiation)?;
    }
    let mut tls = negotiation.finish().map_err(OpenError::Negotiation)?;
    if let Some(session) = &mut tls {
        session.set_buffer_limit(Some(TLS_BUFFER_BYTES));
    }
    Ok(tls)
}
