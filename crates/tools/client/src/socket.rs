//! A TCP socket, or TLS on one.
//!
//! Owns: [`Socket`], which reads and writes alike for both, and for TLS the session with the bytes
//! that it has not passed on. Invariants: a write accepts bytes only when everything accepted
//! before is sent, which bounds what TLS holds; [`Socket::try_flush`] sends accepted bytes that are
//! left; a read hands out what is present before it waits for more. Called by both kinds of
//! connection. Reading and writing may happen in two tasks; they take turns with the session.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

use oribi_tls::{SealedBytes, ServerName, Session};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, Interest, Ready};
use tokio::net::TcpStream;

use crate::tls::ClientTls;

/// Bytes received at once.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Bytes that a write accepts at once: eight records.
const ACCEPT_BYTES: usize = 128 * 1024;

/// See the module text.
#[derive(Debug)]
pub(crate) enum Socket {
    /// The socket itself.
    Plain(TcpStream),
    /// TLS on the socket.
    Tls(Box<TlsSocket>),
}

/// TLS on a socket.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TcpStream,
    state: Mutex<TlsState>,
}

#[derive(Debug)]
struct TlsState {
    session: Session,
    block: Vec<u8>,
    /// Received and opened, but not read yet, from `read` on.
    opened: Vec<u8>,
    read: usize,
    sealed: SealedBytes,
}

/// Bytes of one read.
struct SocketRead {
    /// As they came; 0 at the end of the stream.
    sealed: usize,
    /// Handed out.
    opened: usize,
}

impl Socket {
    /// Agrees on TLS with a server that has to prove to be `host`.
    pub async fn secure(stream: TcpStream, tls: &ClientTls, host: &str) -> io::Result<Socket> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = Session::client(Arc::clone(tls.config()), name).map_err(failed)?;
        let state = TlsState {
            session,
            block: Vec::new(),
            opened: Vec::new(),
            read: 0,
            sealed: SealedBytes::default(),
        };
        let socket = TlsSocket { stream, state: Mutex::new(state) };
        socket.shake_hands().await?;
        Ok(Socket::Tls(Box::new(socket)))
    }

    /// True for TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// The server's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream().peer_addr()
    }

    /// Waits for bytes and reads them; 0 at the end of the stream.
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let socket = match self {
            Socket::Plain(stream) => return stream.read(into).await,
            Socket::Tls(socket) => socket,
        };
        loop {
            match socket.try_read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.stream.readable().await?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Reads what is present.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(stream) => stream.try_read(into),
            Socket::Tls(socket) => socket.try_read(into),
        }
    }

    /// Writes what is taken at once.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Socket::Plain(stream), [slice]) => stream.try_write(slice),
            (Socket::Plain(stream), slices) => stream.try_write_vectored(slices),
            (Socket::Tls(socket), slices) => socket.try_write(slices),
        }
    }

    /// Sends on what writes have accepted; true when nothing of it is left.
    pub fn try_flush(&self) -> io::Result<bool> {
        match self {
            Socket::Plain(_) => Ok(true),
            Socket::Tls(socket) => socket.state.lock().flush(&socket.stream),
        }
    }

    /// Waits until more may be read.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream().readable().await
    }

    /// Waits until more may be written.
    pub async fn writable(&self) -> io::Result<()> {
        self.stream().writable().await
    }

    /// Waits for either.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.stream().ready(interest).await
    }

    fn stream(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(socket) => &socket.stream,
        }
    }
}

impl TlsSocket {
    async fn shake_hands(&self) -> io::Result<()> {
        self.state.lock().take_in(0, &mut [])?;
        while !self.is_connected()? {
            let interest = match self.state.lock().sealed.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            self.stream.ready(interest).await?;
            match self.state.lock().receive(&self.stream, &mut []) {
                Ok(SocketRead { sealed: 0, .. }) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// True once the handshake is complete and all of it is sent.
    fn is_connected(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        let is_sent = state.flush(&self.stream)?;
        Ok(is_sent && !state.session.is_handshaking())
    }

    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        loop {
            let opened = state.take_opened(into);
            if opened > 0 || into.is_empty() || state.session.is_peer_done() {
                return Ok(opened);
            }
            // Straight to where it is wanted, as far as it fits.
            let SocketRead { sealed, opened } = state.receive(&self.stream, into)?;
            if sealed == 0 || opened > 0 {
                return Ok(opened);
            }
        }
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.flush(&self.stream)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut accepted = 0;
        for slice in slices {
            let slice = &slice[..slice.len().min(ACCEPT_BYTES - accepted)];
            state.session.seal(slice, &mut state.sealed).map_err(failed)?;
            accepted += slice.len();
        }
        // What is left is flushed before the next write.
        state.flush(&self.stream)?;
        Ok(accepted)
    }
}

impl TlsState {
    /// Reads the socket once; what comes out of it goes to `into`, and what does not fit to
    /// `opened`, where nothing may be waiting.
    fn receive(&mut self, stream: &TcpStream, into: &mut [u8]) -> io::Result<SocketRead> {
        let room = self.session.room(&mut self.block, RECEIVE_BYTES);
        let sealed = stream.try_read(room)?;
        let opened = if sealed > 0 { self.take_in(sealed, into)? } else { 0 };
        Ok(SocketRead { sealed, opened })
    }

    fn take_in(&mut self, received: usize, into: &mut [u8]) -> io::Result<usize> {
        let TlsState { session, block, opened, sealed, .. } = self;
        let mut filled = 0;
        let outcome = session.open(block, received, sealed, |plain| {
            let (fits, rest) = plain.split_at(plain.len().min(into.len() - filled));
            into[filled..filled + fits.len()].copy_from_slice(fits);
            filled += fits.len();
            opened.extend_from_slice(rest);
        });
        outcome.map_err(failed)?;
        Ok(filled)
    }

    fn take_opened(&mut self, into: &mut [u8]) -> usize {
        let waiting = &self.opened[self.read..];
        let taken = waiting.len().min(into.len());
        into[..taken].copy_from_slice(&waiting[..taken]);
        self.read += taken;
        if self.read == self.opened.len() {
            self.opened.clear();
            self.read = 0;
        }
        taken
    }

    /// Sends what is sealed; true when nothing of it is left.
    fn flush(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while !self.sealed.is_empty() {
            match stream.try_write(self.sealed.pending()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sealed.advance(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// As far as the socket takes it, the server learns that the end is no accident.
impl Drop for TlsSocket {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let TlsState { session, sealed, .. } = state;
        session.close(sealed);
        let _ = state.flush(&self.stream);
    }
}

fn failed(error: oribi_tls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}"))
}
