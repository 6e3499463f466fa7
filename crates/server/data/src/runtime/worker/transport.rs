//! The transport of a connection: the socket itself, or TLS on it.
//!
//! Owns: [`Transport`], and for TLS the session and the sealed bytes that the socket has not
//! accepted. `transfer` reads and writes plain sockets; this file adds the parts that TLS needs.
//!
//! Invariants:
//! - a worker's connections share the blocks for sealed bytes; no bytes stay in them between turns,
//!   an idle connection holds none, and a connection with pending bytes copies them out;
//! - output is sealed in batches, and counts as sent only when the socket has accepted all of it,
//!   so deadlines and pinned values work as without TLS;
//! - all received bytes are decrypted in the same turn, so readiness means the socket's.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::net::TcpStream;
use oribi_protocol::write_buffer::SLICES_MAX;
use oribi_tls::{SealedBytes, Session};

use crate::runtime::driver::ConnectionDriver;

/// Bytes received at once while small requests arrive: two records, whose content fits the space
/// that an input block has after part of a frame.
const RECEIVE_BYTES: usize = 32 * 1024;

/// The same while a large value is received straight into its item.
const RECEIVE_VALUE_BYTES: usize = 128 * 1024;

/// The same before the handshake is complete.
const RECEIVE_HANDSHAKE_BYTES: usize = 4 * 1024;
const _: () = assert!(RECEIVE_HANDSHAKE_BYTES <= RECEIVE_BYTES);
const _: () = assert!(RECEIVE_BYTES <= RECEIVE_VALUE_BYTES, "the room for a value has bounds");

/// Bytes sealed before they are sent: four records, and a block that stays in the L2 cache.
const SEAL_BYTES: usize = 64 * 1024;

/// See the module text.
pub(super) enum Transport {
    Plain(TcpStream),
    /// TLS on the socket.
    Tls(Box<TlsTransport>),
}

/// TLS on a socket.
pub(super) struct TlsTransport {
    stream: TcpStream,
    session: Session,
    /// Sealed bytes that the socket did not accept, from `unsent_head` on.
    unsent: Vec<u8>,
    unsent_head: usize,
    /// Bytes of the connection's output that are sealed, but not all sent.
    sealed_output: usize,
    /// When the connection was accepted, on the worker's clock.
    opened_ms: u64,
}

/// Blocks that the TLS connections of a worker share.
#[derive(Default)]
pub(super) struct TlsBlocks {
    received: Vec<u8>,
    sealed: SealedBytes,
}

/// Result of one read.
pub(super) struct TlsReadResult {
    /// Sealed bytes; 0 for the end of the stream.
    pub received: usize,
    /// Sealed bytes that the buffer had space for.
    pub room: usize,
    pub opened: usize,
}

/// Why a TLS connection has to end.
pub(super) enum TlsFault {
    Io(io::Error),
    /// The peer broke the rules of TLS, or has no acceptable certificate.
    Tls(oribi_tls::Error),
}

impl Transport {
    pub fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &tls.stream,
        }
    }

    pub fn stream_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &mut tls.stream,
        }
    }

    /// When the connection was accepted, if its handshake is not complete.
    pub fn handshake_since_ms(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.is_handshaking().then_some(tls.opened_ms),
        }
    }

    /// Bytes held for the connection because they are incomplete or unsent.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.session.partial_bytes() + tls.unsent.capacity(),
        }
    }
}

impl TlsTransport {
    /// TLS on a socket that was just accepted.
    pub fn new(stream: TcpStream, session: Session, now_ms: u64) -> TlsTransport {
        TlsTransport {
            stream,
            session,
            unsent: Vec::new(),
            unsent_head: 0,
            sealed_output: 0,
            opened_ms: now_ms,
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// True until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Reads the socket once and delivers the plaintext to the connection.
    pub fn receive(
        &mut self,
        connection: &mut ConnectionDriver,
        blocks: &mut TlsBlocks,
    ) -> Result<TlsReadResult, TlsFault> {
        let room = match connection.incoming() {
            _ if self.is_handshaking() => RECEIVE_HANDSHAKE_BYTES,
            Some(item) => item.missing_bytes().clamp(RECEIVE_BYTES, RECEIVE_VALUE_BYTES),
            None => RECEIVE_BYTES,
        };
        let TlsBlocks { received: block, sealed } = blocks;
        // A connection that failed may have left bytes there.
        sealed.clear();
        let received = self.stream.read(self.session.room(block, room)).map_err(TlsFault::Io)?;
        let mut opened = 0;
        let result = self.session.open(block, received, sealed, |plain| {
            opened += plain.len();
            deliver(connection, plain);
        });
        if let Err(error) = result {
            // The alert gives the peer the reason; it is lost if the socket is full.
            let _ = self.stream.write(sealed.pending());
            sealed.clear();
            return Err(TlsFault::Tls(error));
        }
        // Handshake messages; they are sent with the rest of the turn.
        self.hold(sealed);
        Ok(TlsReadResult { received, room, opened })
    }

    /// Sends sealed bytes; true when all are sent, false when the socket accepts no more.
    pub fn flush(&mut self) -> io::Result<bool> {
        debug_assert!(self.unsent_head <= self.unsent.len(), "only held bytes are sent");
        while self.unsent_head < self.unsent.len() {
            match self.stream.write(&self.unsent[self.unsent_head..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.unsent_head += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.unsent_head > 0 {
            // Release the memory, because the next use may be far off.
            (self.unsent, self.unsent_head) = (Vec::new(), 0);
        }
        Ok(true)
    }

    /// Returns the number of the connection's output bytes that were sealed and are now all sent.
    pub fn take_sent_output(&mut self) -> usize {
        std::mem::take(&mut self.sealed_output)
    }

    /// Seals and sends a batch of up to `bytes_max` of the connection's output, none of which may
    /// be in flight; true when the socket accepted all of it.
    pub fn send(
        &mut self,
        connection: &mut ConnectionDriver,
        blocks: &mut TlsBlocks,
        bytes_max: usize,
    ) -> Result<bool, TlsFault> {
        debug_assert!(self.sealed_output == 0 && self.unsent.is_empty());
        let sealed = &mut blocks.sealed;
        sealed.clear();
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = connection.writer().gather_up_to(&mut slices, bytes_max.min(SEAL_BYTES));
        for slice in &slices[..filled] {
            self.session.seal(slice, sealed).map_err(TlsFault::Tls)?;
            self.sealed_output += slice.len();
        }
        while !sealed.is_empty() {
            match self.stream.write(sealed.pending()) {
                Ok(0) => return Err(TlsFault::Io(ErrorKind::WriteZero.into())),
                Ok(sent) => sealed.advance(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.hold(sealed);
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(TlsFault::Io(error)),
            }
        }
        Ok(true)
    }

    /// Sends close_notify, as far as the socket accepts it at once.
    pub fn close(&mut self, blocks: &mut TlsBlocks) {
        blocks.sealed.clear();
        self.session.close(&mut blocks.sealed);
        self.hold(&mut blocks.sealed);
        // A peer that is gone, or does not read, misses it.
        let _ = self.flush();
    }

    /// Copies the bytes in the shared block out for this connection.
    fn hold(&mut self, sealed: &mut SealedBytes) {
        self.unsent.extend_from_slice(sealed.pending());
        sealed.clear();
    }
}

/// Writes plaintext where a read of the socket would have written it.
fn deliver(connection: &mut ConnectionDriver, mut plain: &[u8]) {
    if let Some(item) = connection.incoming() {
        let (value, rest) = plain.split_at(plain.len().min(item.missing_bytes()));
        item.append(value);
        plain = rest;
    }
    if !plain.is_empty() {
        let reader = connection.reader();
        reader.spare(plain.len())[..plain.len()].copy_from_slice(plain);
        reader.commit(plain.len());
    }
}
