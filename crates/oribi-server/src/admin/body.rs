//! The body of a response: bytes at once, or pieces over time.
//!
//! `message` makes them, hyper reads them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{mpsc, watch};

/// A response body.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// The whole body; `None` once it was sent.
    Whole(Option<Bytes>),
    /// Pieces until the sender is dropped.
    Stream {
        /// The pieces.
        pieces: mpsc::Receiver<Bytes>,
        /// Kept until the last piece was handed on, by streams that the server's end waits for.
        _open: Option<watch::Receiver<()>>,
    },
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
            ReplyBody::Stream { pieces, .. } => {
                pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ReplyBody::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ReplyBody::Stream { .. } => SizeHint::default(),
        }
    }
}
