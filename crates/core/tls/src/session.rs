//! One connection's TLS as a state machine over bytes.
//!
//! The caller receives into [`Session::room`] and reports the number of bytes to [`Session::open`].
//! That hands out the peer's data, and appends the protocol's own output (handshake, tickets, key
//! updates, alerts) to a [`SealedBytes`]. [`Session::seal`] seals data to send. The owner of the
//! socket sends the sealed bytes in order.
//!
//! It uses rustls' unbuffered connections. They decrypt records in the block that the socket
//! filled, which the caller shares among its connections, and seal into a block that is shared too.
//! So an idle connection holds no buffer, and a connection in the middle of a record holds only
//! that part of it.
//!
//! Invariants: `open` consumes every complete record, so between two calls a session holds only
//! part of a record or of a handshake message, and that is bounded. It delivers nothing before the
//! handshake is complete. After an error only the alert about it can be sent. Bytes of the peer
//! never panic.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};
use rustls::{ClientConfig, CommonState, Error, ServerConfig};

use crate::sealed_bytes::SealedBytes;

/// Most bytes held for completion. A record has up to 16 KiB and some; a handshake message, such as
/// a chain of client certificates, may span several.
const PARTIAL_BYTES_MAX: usize = 48 * 1024;

/// Upper bound of what sealing adds to each record of 16 KiB at most, in any version.
const RECORD_OVERHEAD_BYTES: usize = 64;
const RECORD_BYTES: usize = 16 * 1024;

/// See the module text.
pub struct Session {
    side: Side,
    /// Received bytes of an incomplete record or message.
    partial: Vec<u8>,
    is_peer_done: bool,
    has_said_goodbye: bool,
    failed: Option<Error>,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// Result of one rustls call.
#[derive(PartialEq, Eq)]
enum Step {
    /// Call rustls again.
    Again,
    /// rustls needs more bytes of the peer.
    Starved,
}

/// The action to take when application data may be sent.
#[derive(Clone, Copy)]
enum SendAction<'a> {
    Nothing,
    Seal(&'a [u8]),
    Goodbye,
}

impl Session {
    /// The server's end of a new connection.
    ///
    /// # Errors
    /// A configuration that rustls refuses.
    pub fn server(config: Arc<ServerConfig>) -> Result<Session, Error> {
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Session::new(Side::Server(Box::new(connection))))
    }

    /// The client's end of a new connection to a server that has to prove to be `name`. The first
    /// [`Session::open`], with no bytes, produces the first bytes to send.
    ///
    /// # Errors
    /// A configuration that rustls refuses.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Session, Error> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Session::new(Side::Client(Box::new(connection))))
    }

    fn new(side: Side) -> Session {
        Session {
            side,
            partial: Vec::new(),
            is_peer_done: false,
            has_said_goodbye: false,
            failed: None,
        }
    }

    /// True until application data may be sent.
    pub fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    /// True once the peer has announced that it sends no more.
    pub fn is_peer_done(&self) -> bool {
        self.is_peer_done
    }

    /// The peer's own certificate in DER, once the peer has proved possession of its key.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        Some(self.common().peer_certificates()?.first()?.as_ref())
    }

    /// Version of the protocol, as `TLSv1.3`, once it is agreed on.
    pub fn version(&self) -> Option<&'static str> {
        self.common().protocol_version()?.as_str().map(|name| match name {
            "TLSv1_2" => "TLSv1.2",
            "TLSv1_3" => "TLSv1.3",
            other => other,
        })
    }

    /// Name of the cipher suite, once it is agreed on.
    pub fn cipher_suite(&self) -> Option<&'static str> {
        self.common().negotiated_cipher_suite()?.suite().as_str()
    }

    /// Bytes held of incomplete records and messages.
    pub fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Server(connection) => connection,
            Side::Client(connection) => connection,
        }
    }

    /// Room for `bytes` more sealed bytes of the peer, in a block of the caller's that grows if it
    /// is too small.
    pub fn room<'b>(&self, block: &'b mut Vec<u8>, bytes: usize) -> &'b mut [u8] {
        let held = self.partial.len();
        if block.len() < held + bytes {
            block.resize(held + bytes, 0);
        }
        block[..held].copy_from_slice(&self.partial);
        &mut block[held..held + bytes]
    }

    /// Consumes `received` bytes that were put into [`Session::room`] of the same block. The peer's
    /// data goes to `deliver`, record by record; responses of the protocol itself go to `out`.
    ///
    /// # Errors
    /// Any error that makes the connection unusable; the alert about it is in `out`.
    pub fn open(
        &mut self,
        block: &mut [u8],
        received: usize,
        out: &mut SealedBytes,
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.has_said_goodbye {
            return Ok(());
        }
        let end = self.partial.len() + received;
        let mut start = 0;
        let opened = loop {
            let sealed = &mut block[start..end];
            let (discard, step) = self.call(sealed, SendAction::Nothing, out, &mut deliver);
            start += discard;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Starved) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let rest = &mut block[start..end];
        if let Err(error) = opened {
            self.collect_alert(rest, out);
            return Err(self.fail(error));
        }
        if self.is_peer_done {
            // Bytes after the peer's close_notify do not count.
            self.partial = Vec::new();
            return Ok(());
        }
        if rest.len() > PARTIAL_BYTES_MAX {
            return Err(self.fail(Error::General("a handshake message is too long".to_owned())));
        }
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Seals `plain` into `out`.
    ///
    /// # Errors
    /// When the handshake is not complete, or the connection was closed.
    pub fn seal(&mut self, plain: &[u8], out: &mut SealedBytes) -> Result<(), Error> {
        if plain.is_empty() {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.has_said_goodbye {
            return Err(Error::General("the session was closed".to_owned()));
        }
        self.fulfil(SendAction::Seal(plain), out)
    }

    /// Notifies the peer that no more data follows, and ignores further input. Best effort: before
    /// the end of the handshake there is nothing to send.
    pub fn close(&mut self, out: &mut SealedBytes) {
        if self.failed.is_some() || self.is_handshaking() {
            return;
        }
        if std::mem::replace(&mut self.has_said_goodbye, true) {
            return;
        }
        // A connection that has failed has sent its alert already.
        let _ = self.fulfil(SendAction::Goodbye, out);
    }

    /// Makes all further calls return this error.
    fn fail(&mut self, error: Error) -> Error {
        self.partial = Vec::new();
        self.failed.get_or_insert(error).clone()
    }

    /// Calls rustls until it lets application data be sent.
    fn fulfil(&mut self, wish: SendAction<'_>, out: &mut SealedBytes) -> Result<(), Error> {
        // rustls needs the bytes again that it has seen and could not use.
        let mut partial = std::mem::take(&mut self.partial);
        let result = loop {
            let (discard, step) = self.call(&mut partial, wish, out, &mut |_| {});
            partial.drain(..discard);
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Starved) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.partial = partial;
        match self.is_handshaking() {
            true => result.and(Err(Error::HandshakeNotComplete)),
            false => result,
        }
    }

    fn call(
        &mut self,
        sealed: &mut [u8],
        wish: SendAction<'_>,
        out: &mut SealedBytes,
        deliver: &mut impl FnMut(&[u8]),
    ) -> (usize, Result<Step, Error>) {
        let done = &mut self.is_peer_done;
        match &mut self.side {
            Side::Server(connection) => {
                step(connection.process_tls_records(sealed), wish, done, out, deliver)
            }
            Side::Client(connection) => {
                step(connection.process_tls_records(sealed), wish, done, out, deliver)
            }
        }
    }

    /// Collects the alert after a failure; other output is useless by now. rustls must not see the
    /// same bytes again, so this asks only for output that rustls reports.
    fn collect_alert(&mut self, rest: &mut [u8], out: &mut SealedBytes) {
        while self.common().wants_write() {
            let (_, step) = self.call(rest, SendAction::Nothing, out, &mut |_| {});
            if step.is_err() {
                return;
            }
        }
    }
}

/// Without keys.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        f.debug_struct("Session").field("version", &version).finish_non_exhaustive()
    }
}

/// Performs the action that one call of rustls requests. Returns how many sealed bytes are
/// consumed.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    wish: SendAction<'_>,
    is_peer_done: &mut bool,
    out: &mut SealedBytes,
    deliver: &mut impl FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let state = match state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let step = match state {
        ConnectionState::ReadTraffic(mut traffic) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    deliver(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Again),
            }
        },
        ConnectionState::EncodeTlsData(message) => encode(message, out),
        ConnectionState::TransmitTlsData(transmission) => {
            transmission.done();
            Ok(Step::Again)
        }
        ConnectionState::PeerClosed => {
            *is_peer_done = true;
            Ok(Step::Again)
        }
        ConnectionState::WriteTraffic(mut traffic) => match wish {
            SendAction::Nothing => Ok(Step::Starved),
            SendAction::Seal(plain) => {
                let records = plain.len().div_ceil(RECORD_BYTES);
                let room_bytes = plain.len() + records * RECORD_OVERHEAD_BYTES;
                write(out, room_bytes, |room| traffic.encrypt(plain, room))
            }
            SendAction::Goodbye => {
                write(out, RECORD_OVERHEAD_BYTES, |room| traffic.queue_close_notify(room))
            }
        },
        ConnectionState::BlockedHandshake => Ok(Step::Starved),
        ConnectionState::Closed => match wish {
            SendAction::Seal(_) => Err(Error::General("the session was closed".to_owned())),
            SendAction::Nothing | SendAction::Goodbye => Ok(Step::Starved),
        },
        // Neither side enables early data, and there are no other states.
        _ => Err(Error::General("an unexpected state".to_owned())),
    };
    (discard, step)
}

fn encode<Data>(
    mut message: EncodeTlsData<'_, Data>,
    out: &mut SealedBytes,
) -> Result<Step, Error> {
    let mut room_bytes = RECORD_BYTES + RECORD_OVERHEAD_BYTES;
    loop {
        match message.encode(out.room(room_bytes)) {
            Ok(written) => {
                out.commit(written);
                return Ok(Step::Again);
            }
            Err(EncodeError::InsufficientSize(needed)) => room_bytes = needed.required_size,
            Err(EncodeError::AlreadyEncoded) => return Ok(Step::Again),
        }
    }
}

/// Writes application data or an alert, which completes the action.
fn write(
    out: &mut SealedBytes,
    mut room_bytes: usize,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<Step, Error> {
    loop {
        match seal(out.room(room_bytes)) {
            Ok(written) => {
                out.commit(written);
                return Ok(Step::Starved);
            }
            Err(EncryptError::InsufficientSize(needed)) => room_bytes = needed.required_size,
            Err(EncryptError::EncryptExhausted) => return Err(Error::EncryptError),
        }
    }
}

#[cfg(test)]
mod tests;
