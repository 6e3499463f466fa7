//! Requests on their way to the socket.
//!
//! Small values are copied next to their headers, so that many requests become one contiguous run.
//! Values of at least [`GATHER_VALUE_BYTES_MIN`] stay where they are and are sent from there by a
//! vectored write. A queue is filled under the connection's lock, then swapped out and written.

use std::io::{self, IoSlice};

use bytes::Bytes;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::request::{RequestParts, encode_request, encode_request_head};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Most slices handed to one vectored write; the system's limit is 1024.
const SLICES_MAX: usize = 64;

/// A buffer larger than this is freed instead of kept for the next round.
const BUFFER_KEPT_BYTES_MAX: usize = 1024 * 1024;

/// A large value and where in the buffer it belongs.
struct Large {
    /// Bytes of the buffer that go before it.
    buffer_end: usize,
    value: Bytes,
}

/// Encoded requests in order.
#[derive(Default)]
pub(super) struct SendQueue {
    /// Headers, extras, keys and small values.
    buffer: Vec<u8>,
    large: Vec<Large>,
}

impl SendQueue {
    /// Adds one request; `parts.value` is not looked at.
    pub fn push(&mut self, parts: &RequestParts<'_>, value: &Bytes) {
        if value.len() < GATHER_VALUE_BYTES_MIN {
            encode_request(&mut self.buffer, &RequestParts { value, ..*parts });
            return;
        }
        encode_request_head(&mut self.buffer, parts, value.len());
        self.large.push(Large { buffer_end: self.buffer.len(), value: value.clone() });
    }

    /// True when there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Forgets everything; keeps a buffer of ordinary size.
    pub fn clear(&mut self) {
        self.large.clear();
        if self.buffer.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
    }

    /// Writes everything in order. The queue is as before afterwards; the caller clears it.
    pub async fn write_to<W: AsyncWrite + Unpin>(&self, socket: &mut W) -> io::Result<()> {
        let mut pending = self.slices().peekable();
        // The first slice's bytes that the last write has taken already.
        let mut written = 0;
        while pending.peek().is_some() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (target, slice) in slices.iter_mut().zip(pending.clone()) {
                *target = IoSlice::new(if count == 0 { &slice[written..] } else { slice });
                count += 1;
            }
            written += match socket.write_vectored(&slices[..count]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => bytes,
            };
            while let Some(slice) = pending.next_if(|slice| slice.len() <= written) {
                written -= slice.len();
            }
        }
        Ok(())
    }

    /// Everything to send, in order, without empty slices.
    fn slices(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let starts = std::iter::once(0).chain(self.large.iter().map(|large| large.buffer_end));
        let middle = starts
            .clone()
            .zip(&self.large)
            .flat_map(|(start, large)| [&self.buffer[start..large.buffer_end], &large.value[..]]);
        let tail_start = self.large.last().map_or(0, |large| large.buffer_end);
        middle.chain([&self.buffer[tail_start..]]).filter(|slice| !slice.is_empty())
    }
}

#[cfg(test)]
mod tests {
    //! Whatever a write takes, all bytes go out once and in order.

    use std::pin::Pin;
    use std::task::{Context, Poll};

    use oribi_protocol::opcode::Opcode;
    use proptest::prelude::*;

    use super::*;

    /// Takes between one byte and everything, as its script says.
    struct Choosy {
        taken: Vec<u8>,
        script: Vec<usize>,
        writes: usize,
        slices_most: usize,
    }

    impl AsyncWrite for Choosy {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let offered: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let limit = self.script[self.writes % self.script.len()];
            self.writes += 1;
            self.slices_most = self.slices_most.max(slices.len());
            let taken = offered.len().min(limit);
            self.taken.extend_from_slice(&offered[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    proptest! {
        #[test]
        fn all_bytes_in_order(
            values in prop::collection::vec(prop_oneof![3 => 0usize..40, 1 => 8192usize..8200], 0..90),
            script in prop::collection::vec(prop_oneof![1usize..50, 1usize..100_000], 1..6),
        ) {
            let mut queue = SendQueue::default();
            let mut expected = Vec::new();
            for (number, bytes) in values.iter().enumerate() {
                let value = Bytes::from(vec![number as u8; *bytes]);
                let parts = RequestParts { opaque: number as u32, ..RequestParts::new(Opcode::Set) };
                queue.push(&parts, &value);
                encode_request(&mut expected, &RequestParts { value: &value, ..parts });
            }
            // Writes of a few bytes would take forever over hundreds of kilobytes.
            let script = if expected.len() > 20_000 { vec![70_000] } else { script };
            let mut socket = Choosy { taken: Vec::new(), script, writes: 0, slices_most: 0 };
            runtime().block_on(queue.write_to(&mut socket)).unwrap();
            prop_assert!(socket.taken == expected);
            prop_assert_eq!(queue.is_empty(), values.is_empty());
        }
    }

    /// A large value goes out from where it is: the queue holds its head only.
    #[test]
    fn large_values_are_not_copied() {
        let mut queue = SendQueue::default();
        let value = Bytes::from(vec![7; GATHER_VALUE_BYTES_MIN]);
        queue.push(&RequestParts::new(Opcode::Set), &value);
        assert_eq!(queue.buffer.len(), 24);
        assert_eq!(queue.slices().nth(1).map(<[u8]>::as_ptr), Some(value.as_ptr()));
        let mut socket =
            Choosy { taken: Vec::new(), script: vec![usize::MAX], writes: 0, slices_most: 0 };
        runtime().block_on(queue.write_to(&mut socket)).unwrap();
        assert_eq!((socket.writes, socket.slices_most), (1, 2), "one vectored write");
    }
}
