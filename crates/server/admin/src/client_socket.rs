//! The socket of a client at a port for queries, and whether the client still wants its answer.
//!
//! A client that closes its sending side may still read: `nc -N` does. One that has gone looks the
//! same, since either sends a FIN, until the server writes: then its system answers with a reset.
//! So before an answer begins, [`ClientSocket::probe`] writes an interim response (100), which
//! clients of HTTP/1.1 skip; within a streamed answer, `query_service` writes white space.
//!
//! Invariants: nothing is written before a later answer than the first of the connection, because
//! bytes of an earlier one may wait inside hyper, and nothing into TLS; there a closed sending side
//! means that the client has gone. Callers: `admin`, `query_service`.

use std::future::Future;
use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Age of a request before which its client is not probed, and interval of looks for the reset.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time between the first two probes, which doubles: clients bound the number of interim responses.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A stream whose socket can be looked at while hyper has it.
pub(crate) struct SharedStream(Arc<TcpStream>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    Open,
    /// It sends nothing more.
    HalfClosed,
    Gone,
}

/// See the module text.
pub(crate) struct ClientSocket {
    stream: Weak<TcpStream>,
    with_tls: bool,
    requests: AtomicU32,
}

/// When a client that has closed its sending side is probed.
pub(crate) struct ProbeTimes {
    next: Option<Instant>,
    interval: Duration,
}

impl Default for ProbeTimes {
    fn default() -> ProbeTimes {
        ProbeTimes { next: None, interval: PROBE_INTERVAL }
    }
}

impl ProbeTimes {
    /// True when a probe is due; the first is due at once.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.next = Some(now + self.interval);
        self.interval *= 2;
        true
    }
}

impl ClientSocket {
    /// The socket of a connection, and the stream that serves it.
    pub(crate) fn share(stream: TcpStream, with_tls: bool) -> (ClientSocket, SharedStream) {
        let stream = Arc::new(stream);
        let weak = Arc::downgrade(&stream);
        let socket = ClientSocket { stream: weak, with_tls, requests: AtomicU32::new(0) };
        (socket, SharedStream(stream))
    }

    /// Returns when the client of a request has gone, and otherwise never. The request's answer
    /// has not begun.
    pub(crate) async fn gone(&self, understands_interim: bool) {
        let is_first = self.requests.fetch_add(1, Ordering::Relaxed) == 0;
        let begun = Instant::now();
        self.half_closed().await;
        if !is_first || !understands_interim || self.with_tls {
            return;
        }
        // Most answers come without an interim response.
        tokio::time::sleep_until((begun + LOOK_INTERVAL).into()).await;
        let mut times = ProbeTimes::default();
        while self.state() != ClientState::Gone && !(times.is_due(Instant::now()) && self.probe()) {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Returns when the client sends nothing more.
    async fn half_closed(&self) {
        while let Some(stream) = self.stream.upgrade() {
            match stream.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => {}
                Ok(_) | Err(_) => return,
            }
            // It has sent another request, which hides the end.
            drop(stream);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Whether the client of an answer under way has gone. `probe` writes a part of the answer that
    /// means nothing.
    #[cfg(feature = "query")]
    pub(crate) fn has_gone(&self, times: &mut ProbeTimes, probe: impl FnOnce()) -> bool {
        match self.state() {
            ClientState::Open => false,
            ClientState::HalfClosed if !self.with_tls => {
                if times.is_due(Instant::now()) {
                    probe();
                }
                false
            }
            ClientState::HalfClosed | ClientState::Gone => true,
        }
    }

    fn state(&self) -> ClientState {
        let Some(stream) = self.stream.upgrade() else { return ClientState::Gone };
        let ready = pin!(stream.ready(Interest::READABLE | Interest::WRITABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(_)) => ClientState::Gone,
            // A reset closes both sides.
            Poll::Ready(Ok(ready)) if ready.is_write_closed() => ClientState::Gone,
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => ClientState::HalfClosed,
            Poll::Ready(Ok(_)) | Poll::Pending => ClientState::Open,
        }
    }

    /// Writes an interim response. True when the client has gone as far as is known already.
    fn probe(&self) -> bool {
        let Some(stream) = self.stream.upgrade() else { return true };
        // A full socket has bytes that probe as well.
        let written = stream.try_write(INTERIM);
        let is_reset = written.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
        is_reset || stream.take_error().is_ok_and(|error| error.is_some())
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let space = buffer.initialize_unfilled();
            let (most, mut last) = (space.len(), None);
            let read = self.0.try_io(Interest::READABLE, || {
                let bytes = (&*SockRef::from(&*self.0)).read(space)?;
                if bytes > 0 && bytes < most {
                    // Nothing is left, so that the next read waits without a system call.
                    last = Some(bytes);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(bytes)
            });
            match (last, read) {
                (Some(bytes), _) | (None, Ok(bytes)) => {
                    buffer.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl SharedStream {
    /// Writes when the socket is ready.
    fn poll_with(
        &self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
    }
}
