//! An answer that owns its bytes, for callers that keep it longer than the connection's buffer
//! does.

use bytes::{Buf, Bytes};
use oribi_protocol::frame::{Frame, Header};

use crate::error::{ClientError, MalformedResponse, RejectionKind, Site};

/// Extras that fit here need no separate memory: those of every mutation do.
const INLINE_BYTES_MAX: usize = 16;

/// The answer, or the reason why none comes.
pub(crate) type ResponseResult = Result<Response, ClientError>;

/// One answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// Header.
    pub header: Header,
    /// Extras of an answer that has nothing else; the rest is zero.
    inline: [u8; INLINE_BYTES_MAX],
    /// Body without framing extras: extras, key, value. At least as long as the header says, or
    /// empty when the extras are inline.
    body: Bytes,
}

impl Response {
    /// `body` is what [`crate::frame_reader::FrameReader::take_body`] gave for `header`.
    pub(crate) fn new(header: Header, body: Bytes) -> Response {
        Response { header, inline: [0; INLINE_BYTES_MAX], body }
    }

    /// The answer in `frame` without allocating, if it has only short extras.
    pub(crate) fn small(frame: &Frame<'_>) -> Option<Response> {
        let mut inline = [0; INLINE_BYTES_MAX];
        inline.get_mut(..frame.extras.len())?.copy_from_slice(frame.extras);
        let has_only_extras = frame.key.is_empty() && frame.value.is_empty();
        has_only_extras.then(|| Response { header: frame.header, inline, body: Bytes::new() })
    }

    /// Extras.
    pub fn extras(&self) -> &[u8] {
        match self.body.is_empty() {
            true => &self.inline[..self.key_start().min(INLINE_BYTES_MAX)],
            false => &self.body[..self.key_start()],
        }
    }

    /// Key.
    pub fn key(&self) -> &[u8] {
        self.body.get(self.key_start()..self.value_start()).unwrap_or_default()
    }

    /// Value; shares the response's memory.
    pub fn value(&self) -> Bytes {
        match self.body.is_empty() {
            true => Bytes::new(),
            false => self.body.slice(self.value_start()..),
        }
    }

    /// The value alone; spares the memory that sharing costs.
    pub fn into_value(mut self) -> Bytes {
        if !self.body.is_empty() {
            self.body.advance(self.value_start());
        }
        self.body
    }

    /// `Ok` for success, else what the server refused with.
    pub fn outcome(&self) -> Result<(), RejectionKind> {
        RejectionKind::from_status(self.header.vbucket_or_status)
    }

    fn key_start(&self) -> usize {
        usize::from(self.header.extras_bytes)
    }

    fn value_start(&self) -> usize {
        self.key_start() + usize::from(self.header.key_bytes)
    }
}

/// An answer that is not the success of its operation, before it is known whose it was.
#[derive(Debug)]
pub(crate) enum ResponseError {
    /// Says what it is by itself.
    Error(ClientError),
    /// Violates the protocol.
    Malformed(MalformedResponse),
}

impl ResponseError {
    /// The error of the operation at `site`.
    pub fn at(self, site: impl FnOnce() -> Site) -> ClientError {
        match self {
            ResponseError::Error(error) => error,
            ResponseError::Malformed(malformed) => malformed.at(site()),
        }
    }
}

impl From<MalformedResponse> for ResponseError {
    fn from(malformed: MalformedResponse) -> ResponseError {
        ResponseError::Malformed(malformed)
    }
}

impl From<RejectionKind> for ResponseError {
    fn from(refused: RejectionKind) -> ResponseError {
        ResponseError::Error(refused.into())
    }
}
