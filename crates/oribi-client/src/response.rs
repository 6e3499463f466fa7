//! An answer that owns its bytes, for callers that keep it longer than the connection's buffer does.

use bytes::Bytes;
use oribi_protocol::frame::Header;

use crate::error::Refused;

/// One answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// Header.
    pub header: Header,
    /// Body without framing extras: extras, key, value. At least as long as the header says.
    body: Bytes,
}

impl Response {
    /// `body` is what [`crate::frame_reader::FrameReader::take_body`] gave for `header`.
    pub(crate) fn new(header: Header, body: Bytes) -> Response {
        Response { header, body }
    }

    /// Extras.
    pub fn extras(&self) -> &[u8] {
        &self.body[..self.key_start()]
    }

    /// Key.
    pub fn key(&self) -> &[u8] {
        &self.body[self.key_start()..self.value_start()]
    }

    /// Value; shares the response's memory.
    pub fn value(&self) -> Bytes {
        self.body.slice(self.value_start()..)
    }

    /// `Ok` for success, else what the server refused with.
    pub fn outcome(&self) -> Result<(), Refused> {
        Refused::from_status(self.header.vbucket_or_status)
    }

    fn key_start(&self) -> usize {
        usize::from(self.header.extras_bytes)
    }

    fn value_start(&self) -> usize {
        self.key_start() + usize::from(self.header.key_bytes)
    }
}
