//! Requests on their way out: queued in a write buffer, sent as the socket takes them.
//!
//! A large value is pinned and sent from where it is; all else is copied. Called by both kinds of
//! connection.

use std::io::{self, ErrorKind, IoSlice};

use bytes::Bytes;
use oribi_protocol::request::{RequestParts, encode_request, encode_request_head};
use oribi_protocol::write_buffer::{SLICES_MAX, WriteBuffer};

use crate::socket::Socket;

/// Appends a request to `out`; a value of `gather_value_bytes_min` and more is not copied.
pub(crate) fn queue_request(
    out: &mut WriteBuffer<Bytes>,
    parts: &RequestParts<'_>,
    value: &Bytes,
    gather_value_bytes_min: usize,
) {
    if value.len() < gather_value_bytes_min {
        encode_request(out.tail(), &RequestParts { value, ..*parts });
        return;
    }
    encode_request_head(out.tail(), parts, value.len());
    out.pin(value.clone());
}

/// One write of as much as the socket takes; the buffer resumes exactly after it.
pub(crate) fn write_some(stream: &Socket, out: &mut WriteBuffer<Bytes>) -> io::Result<()> {
    if out.is_empty() {
        return match stream.try_flush()? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        };
    }
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let filled = out.gather(&mut slices);
    let written = stream.try_write(&slices[..filled])?;
    if written == 0 {
        return Err(ErrorKind::WriteZero.into());
    }
    out.advance(written);
    Ok(())
}
