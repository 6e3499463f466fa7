//! The TLS session of a negotiation, with byte input and output.
//!
//! Invariant: the session consumes every input byte, or it has failed. Only the negotiation calls
//! it; afterwards, the link drives the same session with the socket.

use std::io::{ErrorKind, Read, Write};

use bytes::{BufMut, Bytes, BytesMut};
use rustls::ClientConnection;

use crate::rpc::error::NegotiationError;

/// A TLS session without a socket.
#[derive(Debug)]
pub(super) struct SecureChannel {
    session: Box<ClientConnection>,
}

impl SecureChannel {
    pub(super) fn new(mut session: ClientConnection) -> Self {
        // User names and tokens are short, but no rule limits them.
        session.set_buffer_limit(None);
        Self { session: Box::new(session) }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    pub(super) fn into_session(self) -> Box<ClientConnection> {
        self.session
    }

    /// Takes records from the server.
    pub(super) fn receive(&mut self, mut records: &[u8]) -> Result<(), NegotiationError> {
        while !records.is_empty() {
            let fed = self.session.read_tls(&mut records).map_err(|error| tls(&error))?;
            self.session.process_new_packets()?;
            if fed == 0 {
                return Err(NegotiationError::Tls("the session takes no more records".to_owned()));
            }
        }
        Ok(())
    }

    /// Removes all records that the session wants to send.
    pub(super) fn take_records(&mut self) -> Result<Bytes, NegotiationError> {
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).map_err(|error| tls(&error))?;
        }
        Ok(records.into())
    }

    /// Appends the plain text of the server's records, up to a total limit.
    pub(super) fn take_plaintext(
        &mut self,
        plaintext: &mut BytesMut,
        bytes_max: usize,
    ) -> Result<(), NegotiationError> {
        let mut piece = [0; 4096];
        loop {
            match self.session.reader().read(&mut piece) {
                // The session has ended, and the connection will end. The plain text before that
                // matters, because a server says why it refuses before it closes.
                Ok(0) => return Ok(()),
                Ok(bytes) if plaintext.len() + bytes > bytes_max + piece.len() => {
                    return Err(NegotiationError::TrailingBytes);
                }
                Ok(bytes) => plaintext.put_slice(&piece[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(tls(&error)),
            }
        }
    }

    /// Appends the records that carry these bytes.
    pub(super) fn seal(&mut self, plaintext: &[u8], records: &mut BytesMut) {
        self.session.writer().write_all(plaintext).expect("the session's buffer has no limit");
        while self.session.wants_write() {
            self.session.write_tls(&mut records.writer()).expect("a BytesMut grows as needed");
        }
    }
}

/// The TLS library's error as an error of the negotiation.
fn tls(error: &dyn std::error::Error) -> NegotiationError {
    NegotiationError::Tls(error.to_string())
}

impl From<rustls::Error> for NegotiationError {
    fn from(error: rustls::Error) -> Self {
        tls(&error)
    }
}
