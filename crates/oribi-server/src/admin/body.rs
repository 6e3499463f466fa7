//! The body of a response: bytes at once, or pieces over time.
//!
//! Owns: how long and how much a client that reads slowly keeps of an answer. Invariants:
//! - an answer above [`WHOLE_BYTES_MAX`] is reserved in the connections' memory, or in that for
//!   operators, until it was sent, for a bounded time; files in the program need no memory;
//! - one that ends early is shorter than its `Content-Length`, so no client takes a part for the
//!   whole.
//!
//! `message` and `transfer` make them, hyper reads them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{mpsc, watch};

/// Bytes of an answer that no reservation counts.
pub(crate) const WHOLE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a larger answer at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Time for a client to read a larger answer.
pub(crate) const READING_DEADLINE: Duration = Duration::from_secs(120);

/// A response body.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// The whole body; `None` once it was sent.
    Whole(Option<Bytes>),
    /// A file in the program; `None` once it was sent.
    #[cfg_attr(not(feature = "console"), expect(dead_code, reason = "the console has them"))]
    File(Option<&'static [u8]>),
    /// Pieces until the sender is dropped.
    Stream {
        /// The pieces.
        pieces: mpsc::Receiver<Bytes>,
        /// Kept until the last piece was handed on, by streams that the server's end waits for.
        _open: Option<watch::Receiver<()>>,
    },
}

impl ReplyBody {
    /// A body of any length, sent in pieces. What is held for it ends with it, or after `deadline`.
    pub(crate) fn paced(
        body: impl AsRef<[u8]> + Send + Sync + 'static,
        held: impl Send + 'static,
        deadline: Duration,
    ) -> ReplyBody {
        let (sender, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            let send = async {
                for piece in body.as_ref().chunks(PIECE_BYTES) {
                    if sender.send(Bytes::copy_from_slice(piece)).await.is_err() {
                        return;
                    }
                }
            };
            let sent = tokio::time::timeout(deadline, send).await;
            if sent.is_err() {
                tracing::debug!("a client did not read its answer in time");
            }
            drop((body, held));
        });
        ReplyBody::Stream { pieces, _open: None }
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
            ReplyBody::Stream { pieces, .. } => {
                pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
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
            ReplyBody::Stream { .. } => SizeHint::default(),
        }
    }
}
