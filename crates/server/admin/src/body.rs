//! The body of a response: bytes at once, or pieces over time.
//!
//! Owns: how long and how much a client that reads slowly keeps of an answer. Invariants:
//! - an answer above [`WHOLE_BYTES_MAX`] is reserved in the connections' memory, or in that for
//!   operators, until it was sent, for a bounded time; files in the program need no memory;
//! - what others wait for is not held for a client that reads nothing;
//! - one that ends early is shorter than its `Content-Length`, so no client takes a part for the
//!   whole.
//!
//! `message` and `transfer` make them, hyper reads them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{mpsc, watch};

use oribi_server::admin_api::memory::ConnectionMemory;
use oribi_server::admin_api::memory::lag::Lag;

/// Bytes of an answer that no reservation counts.
pub(crate) const WHOLE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a larger answer at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Most bytes of a piece that the socket is given at a time.
const FRAME_BYTES_MAX: usize = 64 * 1024;
const _: () = assert!(PIECE_BYTES <= FRAME_BYTES_MAX, "a piece is sent in one frame");

/// Interval between two looks whether others wait for the memory of an answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for a client to read a larger answer.
pub(crate) const READING_DEADLINE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// The whole body; `None` once it was sent.
    Whole(Option<Bytes>),
    /// A file in the program; `None` once it was sent.
    #[cfg_attr(not(feature = "console"), expect(dead_code, reason = "the console has them"))]
    File(Option<&'static [u8]>),
    /// Pieces until the sender is dropped.
    Stream(BodyPieces),
}

/// A body that comes in pieces.
#[derive(Debug)]
pub(crate) struct BodyPieces {
    pieces: mpsc::Receiver<Bytes>,
    /// The rest of the last one.
    current: Bytes,
    /// Bytes that the socket was given.
    taken_bytes: Arc<AtomicUsize>,
    /// Kept until the last piece was handed on, by streams that the server's end waits for.
    _open: Option<watch::Receiver<()>>,
}

impl BodyPieces {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.current.is_empty() {
            let Some(next) = ready!(self.pieces.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            self.current = next;
        }
        let bytes = self.current.split_to(self.current.len().min(FRAME_BYTES_MAX));
        self.taken_bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        Poll::Ready(Some(bytes))
    }
}

impl ReplyBody {
    /// Pieces until the sender is dropped.
    pub(crate) fn pieces(pieces: mpsc::Receiver<Bytes>) -> ReplyBody {
        ReplyBody::counted_pieces(pieces, Arc::default(), None)
    }

    /// The same, with what the socket was given added to `taken_bytes`. `open` is kept until then.
    pub(crate) fn counted_pieces(
        pieces: mpsc::Receiver<Bytes>,
        taken_bytes: Arc<AtomicUsize>,
        open: Option<watch::Receiver<()>>,
    ) -> ReplyBody {
        ReplyBody::Stream(BodyPieces { pieces, current: Bytes::new(), taken_bytes, _open: open })
    }

    /// A body of any length, sent in pieces. Its reservation ends with it, or after `deadline`, or
    /// when the client lags too far while others wait for `memory`.
    pub(crate) fn paced(
        body: impl AsRef<[u8]> + Send + Sync + 'static,
        held: impl Send + 'static,
        deadline: Duration,
        memory: Option<Arc<ConnectionMemory>>,
    ) -> ReplyBody {
        let (sender, pieces) = mpsc::channel(1);
        let deadline = Instant::now() + deadline;
        tokio::spawn(async move {
            let mut lag = Lag::begin();
            let is_over = |lag: &Lag| {
                let is_awaited = memory.as_ref().is_some_and(|memory| memory.has_waiters());
                Instant::now() >= deadline || is_awaited && lag.is_too_long()
            };
            for piece in body.as_ref().chunks(PIECE_BYTES) {
                loop {
                    match tokio::time::timeout(LOOK_INTERVAL, sender.reserve()).await {
                        Ok(Ok(place)) => break place.send(Bytes::copy_from_slice(piece)),
                        Err(_) if !is_over(&lag) => {}
                        Ok(Err(_)) | Err(_) => {
                            return tracing::debug!("a client did not read its answer in time");
                        }
                    }
                }
                lag.earn(piece.len());
                if is_over(&lag) {
                    return tracing::debug!("a client read its answer too slowly");
                }
            }
            drop((body, held));
        });
        ReplyBody::pieces(pieces)
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            ReplyBody::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            ReplyBody::File(bytes) => {
                Poll::Ready(bytes.take().map(|b| Ok(Frame::data(Bytes::from_static(b)))))
            }
            ReplyBody::Stream(pieces) => {
                pieces.poll(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ReplyBody::Whole(None) | ReplyBody::File(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ReplyBody::File(bytes) => SizeHint::with_exact(bytes.map_or(0, |b| b.len() as u64)),
            ReplyBody::Stream(_) => SizeHint::default(),
        }
    }
}
