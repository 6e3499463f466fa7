//! A TCP connection to a server of the text protocols: bytes out, bytes in.
//!
//! Owns: the socket, what is to be sent, what was received, and the login. Invariants: sending
//! receives concurrently, so it cannot deadlock with a server that stops reading until its answers
//! are read; what it receives then is bounded. Every wait has a deadline.

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use memchr::memchr;
use oribi_client::ConnectOptions;
use oribi_protocol::text::login::CREDENTIALS_BYTES_MAX;
use oribi_protocol::write_buffer::{SLICES_MAX, WriteBuffer};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::answer_line::LINE_BYTES_MAX;
use super::read_buffer::AnswerBuffer;

/// A send block up to this size is kept from batch to batch.
const SEND_BLOCK_KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Most bytes of answers that are received before a batch is sent: more than those of any batch.
const UNREAD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// See the module text.
#[derive(Debug)]
pub struct TextSocket {
    stream: TcpStream,
    peer: String,
    timeout: Duration,
    pub out: WriteBuffer<Bytes>,
    pub received: AnswerBuffer,
}

impl TextSocket {
    /// Connects, logs in if `login` is set, and makes sure that the server speaks the protocol.
    pub async fn open(options: &ConnectOptions, login: bool) -> anyhow::Result<TextSocket> {
        let peer = format!("{}:{}", options.host, options.port);
        let connecting = TcpStream::connect((&*options.host, options.port));
        let stream = match timeout(options.connect_timeout, connecting).await {
            Err(_) => bail!("connecting to {peer}: no answer within {:?}", options.connect_timeout),
            Ok(stream) => stream.with_context(|| format!("connecting to {peer}"))?,
        };
        stream.set_nodelay(true).with_context(|| format!("connecting to {peer}"))?;
        let mut socket = TextSocket {
            stream,
            peer,
            timeout: options.operation_timeout,
            out: WriteBuffer::keeping(SEND_BLOCK_KEPT_BYTES_MAX),
            received: AnswerBuffer::default(),
        };
        if login {
            socket.log_in(&options.user, &options.password).await?;
        }
        let line = socket.ask(b"version\r\n").await?;
        if line.contains("unauthenticated") {
            bail!("{}: the server wants a login (--user)", socket.peer);
        }
        if !line.starts_with("VERSION ") {
            bail!("{}: the answer to `version` is {line:?}", socket.peer);
        }
        Ok(socket)
    }

    async fn log_in(&mut self, user: &str, password: &str) -> anyhow::Result<()> {
        let credentials = format!("{user} {password}");
        let has_space = |text: &str| text.is_empty() || text.contains(char::is_whitespace);
        if has_space(user) || has_space(password) || credentials.len() > CREDENTIALS_BYTES_MAX {
            bail!(
                "a login in the text protocol is a user and a password without spaces, at most \
                 {CREDENTIALS_BYTES_MAX} bytes together"
            );
        }
        let command = format!("set login 0 0 {}\r\n{credentials}\r\n", credentials.len());
        match self.ask(command.as_bytes()).await?.as_str() {
            "STORED" => Ok(()),
            line => bail!("{}: authentication as \"{user}\" failed: {line}", self.peer),
        }
    }

    /// Sends a command and waits for its one line.
    async fn ask(&mut self, command: &[u8]) -> anyhow::Result<String> {
        self.out.tail().extend_from_slice(command);
        self.flush().await?;
        loop {
            let unread = self.received.unread();
            if let Some(end) = memchr(b'\n', unread) {
                let line = String::from_utf8_lossy(&unread[..end]).trim_end().to_owned();
                self.received.consume(end + 1);
                return Ok(line);
            }
            if unread.len() > LINE_BYTES_MAX {
                return Err(self.protocol_error("a line without an end"));
            }
            self.receive().await?;
        }
    }

    /// Sends everything that is queued. The deadline moves on whenever the server takes some of it.
    pub async fn flush(&mut self) -> anyhow::Result<()> {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = self.out.gather(&mut slices);
            let written = match &slices[..filled] {
                [slice] => self.stream.try_write(slice),
                slices => self.stream.try_write_vectored(slices),
            };
            match written {
                Ok(0) => return Err(self.failed("writing", ErrorKind::WriteZero.into())),
                Ok(written) => self.out.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_to_write().await?,
                Err(error) => return Err(self.failed("writing", error)),
            }
        }
        Ok(())
    }

    /// Waits until the socket takes more, and receives concurrently.
    async fn wait_to_write(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if self.received.unread().len() > UNREAD_BYTES_MAX {
                return Err(self.protocol_error("more answers than requests can have"));
            }
            let ready = self.stream.ready(Interest::READABLE | Interest::WRITABLE);
            let ready = match tokio::time::timeout_at(deadline, ready).await {
                Err(_) => return Err(self.timed_out()),
                Ok(ready) => ready.map_err(|error| self.failed("writing", error))?,
            };
            if ready.is_readable() {
                match self.stream.try_read(self.received.spare()) {
                    Ok(0) => return Err(self.closed()),
                    Ok(bytes) => self.received.commit(bytes),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(self.failed("reading", error)),
                }
            }
            if ready.is_writable() {
                return Ok(());
            }
        }
    }

    pub async fn receive(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read(self.received.spare());
        match timeout(self.timeout, read).await {
            Err(_) => Err(self.timed_out()),
            Ok(Ok(0)) => Err(self.closed()),
            Ok(Ok(bytes)) => {
                self.received.commit(bytes);
                Ok(())
            }
            Ok(Err(error)) => Err(self.failed("reading", error)),
        }
    }

    /// The error for an answer that makes no sense.
    pub fn protocol_error(&self, reason: &str) -> anyhow::Error {
        anyhow::anyhow!("answer at {}: protocol error: {reason}", self.peer)
    }

    fn timed_out(&self) -> anyhow::Error {
        anyhow::anyhow!("answer at {}: no answer within {:?}", self.peer, self.timeout)
    }

    fn closed(&self) -> anyhow::Error {
        anyhow::anyhow!("answer at {}: the server closed the connection", self.peer)
    }

    fn failed(&self, what: &str, error: std::io::Error) -> anyhow::Error {
        anyhow::anyhow!("{what} at {}: {error}", self.peer)
    }
}
